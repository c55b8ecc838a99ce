"""Captioners on the Hugging Face Hub: hf:OWNER/NAME, or hf:OWNER/NAME@REVISION. `satlib export --hub` writes what is put there."""

import hashlib
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

from msgspec import Struct

from satlib.errors import SatlibError
from satlib.files.reading import read_json

PREFIX = "hf:"
MODEL, CONFIG = "model.safetensors", "config.json"


class Config(Struct):
    """What is read of config.json; `sha256` is that of the model's file."""

    library_name: str
    sha256: str


def fetched(name: str) -> Path:
    """The file of a captioner, from the Hub or, if it was fetched before, from huggingface_hub's cache.

    Args:
        name: hf:OWNER/NAME, and perhaps @ and a branch, a tag or a commit; a commit's hash always means the same file.

    Raises:
        SatlibError: huggingface_hub is not installed, the Hub has no such captioner or cannot be reached, or the file is damaged.
    """
    place, _, revision = name.removeprefix(PREFIX).partition("@")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", place):
        raise SatlibError(
            f"{name} is no address on the Hugging Face Hub; write hf:OWNER/NAME, or hf:OWNER/NAME@REVISION"
        )
    hub = _library(name)
    errors = hub.errors
    try:
        config = Path(hub.hf_hub_download(place, CONFIG, revision=revision or None))
        # The folder in the cache is called as the commit, so both files are of one.
        model = Path(hub.hf_hub_download(place, MODEL, revision=config.parent.name))
    except errors.RevisionNotFoundError as error:
        raise SatlibError(
            f"{place} has no revision {revision} on the Hugging Face Hub; look there for its branches"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise SatlibError(
            f"the Hugging Face Hub has no model {place} for you; if it is private, run: hf auth login"
        ) from error
    except errors.LocalEntryNotFoundError as error:
        raise SatlibError(
            f"cannot reach the Hugging Face Hub, and {name} was not fetched before; check the network, or copy the model's folder "
            "here and give its path"
        ) from error
    except errors.EntryNotFoundError as error:
        raise SatlibError(f"{name} is no captioner of satlib: it lacks {CONFIG} or {MODEL}") from error
    except OSError as error:
        reason = " ".join(str(error).split())[:200]
        raise SatlibError(f"cannot fetch {name} ({reason}); try again later") from error
    about = read_json(config, Config, "the config.json of a captioner of satlib", "look at the model's page on the Hub")
    if about.sha256 != hashlib.sha256(model.read_bytes()).hexdigest():
        raise SatlibError(
            f"the file {model} of {name} is not the one whose SHA-256 its config.json has; it is damaged or was changed: delete it, "
            "then try again"
        )
    return model


def _library(name: str) -> ModuleType:
    try:
        import_module("huggingface_hub.errors")
        return import_module("huggingface_hub")
    except ImportError as error:
        raise SatlibError(f"to fetch {name}, run: pip install 'satlib[hub]'") from error
