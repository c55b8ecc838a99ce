"""A static web page on which captioners run: `satlib page`.

Any file server can serve the folder; nothing leaves the visitor's device. The folder holds the page
(satlib/page/static), onnxruntime-web, the models (`export`), pictures, and page.json, which lists
them. build.js packs what is large, and writes beside each picture what its model says.
"""

import hashlib
import json
import shutil
import subprocess
import tomllib
import webbrowser
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pooch
from PIL import ImageOps

import satlib
from satlib.data import images, scenes
from satlib.errors import SatlibError
from satlib.files import progress_bar, write_json
from satlib.model.captioner import Captioner
from satlib.page import export

MODELS = ("scenes-soft", "scenes-hard", "flickr8k-lite0-coco")
SCENES = 16
CONTENTS = "page.json"
_SOURCE = Path(__file__).parent / "static"
# The numbers of trial.html ("Attention on trial"); benchmarks/trial.py computes them.
_TRIAL = Path(satlib.__file__).parent / "results" / "trial.json"
_SIDE = 448  # pixels, the longer side of its pictures
_WASM = "ort-wasm-simd-threaded.wasm"


def write(folder: Path, models: Sequence[Path | str] | None = None, storage: str = "int8") -> None:
    """Write the page into a new folder, or over an earlier page.

    Raises:
        SatlibError: npm or a package is missing, the folder holds something else, or a model cannot
            be exported, or was trained with a function of one's own.
    """
    # An export takes minutes: what may be missing is looked for first.
    captioners = [Captioner.load(model) for model in models or MODELS]
    for captioner in captioners:
        if captioner.own_attention:
            raise SatlibError(
                f"{captioner.name} was trained with the function {captioner.own_attention}, which "
                "a page cannot run: train it with a class (docs/contributing.md)"
            )
    runtime = _runtime()
    with export.replaced(folder, CONTENTS) as new:
        for file in (*_SOURCE.glob("*.*"), runtime / "ort.wasm.bundle.min.mjs", runtime / _WASM):
            shutil.copy(file, new)

        contents: dict[str, Any] = {
            "models": [],
            "scenes": {},
            "photographs": {},
            "colours": scenes.grammar.COLOURS,
        }
        for captioner in progress_bar(captioners, desc="exporting"):
            recipe = captioner.recipe
            export.export(captioner, new / recipe.name, storage)
            about = {
                "name": recipe.name,
                "data": recipe.data.name,
                "attention": recipe.decoder.attention,
                "words": len(captioner.vocabulary),
            }
            contents["models"].append(about)

            # The pictures of a kind are there once.
            kind = "scenes" if recipe.data.name == "scenes" else "photographs"
            if contents[kind]:
                continue
            pictures = _scenes(new) if kind == "scenes" else _photographs(new)
            contents[kind] = _with_pixels(pictures)

        _trial(new)
        # build.js reads page.json, so it comes last.
        write_json(new / CONTENTS, contents)
        subprocess.run(["node", new / "build.js"], check=True)


def show(folder: Path) -> None:
    """Serve a page to this machine's browser until Ctrl-C."""
    handler = partial(SimpleHTTPRequestHandler, directory=folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:  # on any free port
        address = f"http://127.0.0.1:{server.server_port}"
        print(address)
        # In a thread, for it may wait for the browser, which waits for the page.
        Thread(target=webbrowser.open, args=[address]).start()
        server.serve_forever()


def _with_pixels(pictures: Iterable[tuple[Path, str]]) -> dict[str, str]:
    """What is known of pictures by file name; writes each one's pixels beside it.

    build.js captions these: it has no decoder of images.
    """
    known = {}
    for path, text in pictures:
        known[path.name] = text
        square = images.square(images.open_photo(path))
        path.with_suffix(".pixels").write_bytes(images.to_tensor(square).numpy().tobytes())
    return known


def _scenes(page: Path) -> Iterator[tuple[Path, str]]:
    """Draw test scenes into the page: with their objects, as in "purple star, green circle"."""
    for number in range(SCENES):
        # Without loss, so that the page's model sees the scene as satlib draws it.
        path = page / f"test-{number:06}.webp"
        scene = scenes.scene(path.stem)
        scene.photo().save(path, lossless=True)
        objects = [f"{thing.kind.colour} {thing.kind.shape}" for thing in scene.objects]
        yield path, ", ".join(objects)


def _photographs(page: Path) -> Iterator[tuple[Path, str]]:
    """Copy a checkout's photographs into the page: with owner and licence."""
    root = _SOURCE.parents[2]
    about = root / "REUSE.toml"
    if not about.is_file():  # an installed satlib has no photographs
        return

    for entry in tomllib.loads(about.read_text(encoding="utf-8"))["annotations"]:
        file = entry["path"] if isinstance(entry["path"], str) else entry["path"][0]
        if file.startswith("notebooks/photographs/"):
            credit = f"{entry['SPDX-FileCopyrightText']}, {entry['SPDX-License-Identifier']}"
            yield Path(shutil.copy(root / file, page)), credit


def _trial(page: Path) -> None:
    """Copy what trial.html knows into the page, and write its pictures, small enough for a phone."""
    shutil.copy(_TRIAL, page)
    for exhibit in json.loads(_TRIAL.read_text(encoding="utf-8")).values():
        name = Path(exhibit["picture"])
        if name.suffix == ".webp":
            picture = scenes.scene(name.stem).photo()
        elif (page / name).is_file():
            picture = images.open_photo(page / name)
        else:  # a page without photographs
            continue
        small = ImageOps.contain(picture, (_SIDE, _SIDE))
        small.save(page / f"trial-{name.stem}.webp")


def _runtime() -> Path:
    """The folder of onnxruntime-web's scripts, which npm fetches once and checks by a lock file."""
    # What npm fetched earlier would do without it, but build.js needs node itself.
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise SatlibError("install Node.js: the page needs its node and npm")

    # Another version of the lock has another folder: what is in one is never out of date.
    lock = (_SOURCE / "package-lock.json").read_bytes()
    folder = Path(pooch.os_cache("satlib")) / f"npm-{hashlib.sha256(lock).hexdigest()[:16]}"
    scripts = folder / "node_modules" / "onnxruntime-web" / "dist"
    if not (scripts / _WASM).is_file():
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(_SOURCE / name, folder)
        command = [npm, "ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund"]
        if subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL).returncode:
            raise SatlibError("npm cannot fetch onnxruntime-web: check the network")
    return scripts
