"""Fetching Flickr8k and COCO: resumed where it stopped, verified, unpacked without leaving the folder.

Checksums, and where they were found (none is our own):

- COCO and Karpathy's splits: SHA-256 as recorded by TensorFlow Datasets (tensorflow_datasets/url_checksums/coco.txt,
  coco_captions.txt).
- Flickr8k: no public SHA-256 was found. The MD5 is the one that torchdatasets for R (mlverse/torchvision) and a CMake
  script for C++ record independently of each other. The first archive that has it leaves its SHA-256 in a file
  NAME.sha256 beside it (trust on first use), and from then on that is verified too.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pooch
import requests
from tqdm import tqdm

from satlib.datasets.unpacking import unpack
from satlib.errors import SatlibError
from satlib.files import write_text

_S3, _COCO = "https://s3.amazonaws.com/images.cocodataset.org", "http://images.cocodataset.org"
_GITHUB = "https://github.com/jbrownlee/Datasets/releases/download/Flickr8k"
_ILLINOIS = "http://nlp.cs.illinois.edu/HockenmaierGroup/Framing_Image_Description"
_CHUNK = 1 << 16  # bytes; a piece that a broken connection cut is lost, so pieces are small
_TIMEOUT = (15, 60)  # seconds to connect, and between two pieces


@dataclass(frozen=True)
class Archive:
    """A zip file of a data set.

    Attributes:
        file: its name, under which a copy may lie in the data set's folder already.
        urls: where it is, tried in order.
        known: "sha256:..." or "md5:..." of the whole file.
        gives: a pattern, from the data set's folder, of the files that it unpacks to.
        count: how many of them there are.
        into: the folder, inside the data set's, to unpack into.
        members: patterns of the members that are wanted.
    """

    file: str
    urls: tuple[str, ...]
    known: str
    gives: str
    count: int
    into: str = "."
    members: tuple[str, ...] = ("*",)


ARCHIVES: dict[str, tuple[Archive, ...]] = {
    "flickr8k": (
        Archive(
            "Flickr8k_text.zip",
            (f"{_GITHUB}/Flickr8k_text.zip", f"{_ILLINOIS}/Flickr8k_text.zip"),
            "md5:bf6c1abcb8e4a833b7f922104de18627",
            gives="Flickr8k_text/Flickr*8k.*.txt",
            count=4,
            into="Flickr8k_text",
            members=("Flickr8k.token.txt", "Flickr_8k.*Images.txt", "readme.txt"),
        ),
        Archive(
            "Flickr8k_Dataset.zip",
            (f"{_GITHUB}/Flickr8k_Dataset.zip", f"{_ILLINOIS}/Flickr8k_Dataset.zip"),
            "md5:f18a1e2920de5bd84dae7cf08ec78978",
            gives="Flicker8k_Dataset/*.jpg",
            count=8_091,
        ),
    ),
    "coco": (
        Archive(
            "annotations_trainval2014.zip",
            (f"{_S3}/annotations/annotations_trainval2014.zip", f"{_COCO}/annotations/annotations_trainval2014.zip"),
            "sha256:031296bbc80c45a1d1f76bf9a90ead27e94e99ec629208449507a4917a3bf009",
            gives="annotations/captions_*2014.json",
            count=2,
            members=("annotations/captions_*.json",),
        ),
        Archive(
            "caption_datasets.zip",
            (
                "https://cs.stanford.edu/people/karpathy/deepimagesent/caption_datasets.zip",
                "https://huggingface.co/datasets/gpantaz/karpathy_split/resolve/main/caption_datasets.zip",
            ),
            "sha256:4cfd70132527b80933105e5829dc9034eaab9573482e2e680abbab6130244817",
            gives="dataset_coco.json",
            count=1,
            members=("dataset_coco.json",),
        ),
        Archive(
            "val2014.zip",
            (f"{_S3}/zips/val2014.zip", f"{_COCO}/zips/val2014.zip"),
            "sha256:fe9be816052049c34717e077d9e34aa60814a55679f804cd043e3cbee3b9fde0",
            gives="val2014/*.jpg",
            count=40_504,
        ),
        Archive(
            "train2014.zip",
            (f"{_S3}/zips/train2014.zip", f"{_COCO}/zips/train2014.zip"),
            "sha256:ede4087e640bddba550e090eae701092534b554b42b05ac33f0300b984b31775",
            gives="train2014/*.jpg",
            count=82_783,
        ),
    ),
}


def fetch(name: str, root: Path, progress: bool = True, say: Callable[[str], None] = print) -> Path:
    """Put a data set into its folder under the data root; give the folder.

    What is there already is not fetched again: files that an earlier run unpacked, an archive that lies in the folder, the
    first part of one. Running it again continues where it stopped.

    Raises:
        SatlibError: the data set cannot be fetched by a program, no mirror answers, an archive is not the expected one or
            would leave the folder, or the disk is full.
    """
    if name == "flickr30k":
        raise SatlibError(
            "Flickr30k is given only to those who sign the form at http://shannon.cs.illinois.edu/DenotationGraph/ ; put "
            f"its photographs into {root / name / 'flickr30k-images'}, results_20130124.token and dataset_flickr30k.json "
            f"(from Karpathy's caption_datasets.zip) into {root / name}"
        )
    if name not in ARCHIVES:
        raise SatlibError(f"{name!r} cannot be fetched; choose among {', '.join(ARCHIVES)} (scenes need no file)")
    folder = root / name
    for archive in ARCHIVES[name]:
        if len(list(folder.glob(archive.gives))) >= archive.count:
            say(f"{folder / archive.gives}: there already")
            continue
        if (folder / archive.file).is_file():
            say(f"{folder / archive.file}: verifying")
        path = obtain(archive, folder, progress)
        say(f"{path}: verified; unpacking")
        unpack(path, folder / archive.into, archive.members, progress)
        found = len(list(folder.glob(archive.gives)))
        if found < archive.count:
            raise SatlibError(
                f"{path} gave {found} of {archive.count} files {archive.gives}; delete it and run: satlib data fetch {name}"
            )
        say(f"{path}: unpacked, no longer needed")
    return folder


def obtain(archive: Archive, folder: Path, progress: bool = True) -> Path:
    """The archive in the folder, downloaded if it is not there, verified either way.

    Raises:
        SatlibError: no mirror gives it (says why each failed and where to put a copy), or the one there is another file.
    """
    path = folder / archive.file
    if path.is_file():
        _verify(path, archive)
        _remember(path, archive)
        return path
    pooch.get_logger().setLevel("WARNING")  # we say ourselves what is done
    reasons = []
    for url in archive.urls:
        download = Resuming(path.with_name(path.name + ".partial"), progress)
        # A part from another mirror, or from an older file, may spoil the whole: then once more from the beginning.
        for attempt in ("resumed", "whole"):
            try:
                pooch.retrieve(url, archive.known, fname=archive.file, path=folder, downloader=download)
            except requests.RequestException as error:
                reasons.append(f"{urlsplit(url).hostname}: {_reason(error)}")
                break
            except ValueError:
                if attempt == "resumed" and download.resumed:
                    continue
                reasons.append(f"{urlsplit(url).hostname}: another file (wrong checksum)")
                break
            except OSError as error:
                raise SatlibError(
                    f"cannot write {path}: {error.strerror or error}; free some space and run the same command again"
                ) from error
            else:
                _remember(path, archive)
                return path
    raise SatlibError(
        f"cannot download {archive.file} ({'; '.join(reasons)}); run the same command again to continue, or put a copy at {path}"
    )


class Resuming:
    """A downloader for pooch that keeps what it has in a file and asks for the rest by a Range request (RFC 9110, 14).

    Attributes:
        resumed: whether the last call began with bytes of an earlier run.
    """

    def __init__(self, partial: Path, progress: bool = True) -> None:
        """Keep what has come in `partial`."""
        self.partial = partial
        self.progress = progress
        self.resumed = False

    def __call__(self, url: str, output_file: str, pooch: object) -> None:
        """Download `url` into `output_file`; broken connections are taken up again while each try brings something.

        Raises:
            requests.RequestException: the server cannot be reached, refuses, or stops sending.
        """
        self.resumed = self._size() > 0
        while True:
            before = self._size()
            try:
                self._continue(url)
                break
            except (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError):
                if self._size() <= before:
                    raise
        os.replace(self.partial, output_file)

    def _size(self) -> int:
        return self.partial.stat().st_size if self.partial.is_file() else 0

    def _continue(self, url: str) -> None:
        have = self._size()
        # identity: a Range counts the bytes as they are sent, and a zip does not shrink anyway.
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
        with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as response:
            sent_range = re.match(r"bytes (?:(\d+)-\d+|\*)/(\d+)", response.headers.get("Content-Range", ""))
            if response.status_code == 416 and have:
                if sent_range and int(sent_range[2]) == have:
                    return None  # whole already; only the renaming was missing
                self.partial.unlink()
                return self._continue(url)
            response.raise_for_status()
            if response.status_code != 206 or not sent_range or sent_range[1] != str(have):
                have = 0  # the server sends the whole file again
            length = response.headers.get("Content-Length")
            total = have + int(length) if length else None
            bar = tqdm(
                total=total, initial=have, unit="B", unit_scale=True, desc=self.partial.stem, disable=not self.progress
            )
            with bar, open(self.partial, "ab" if have else "wb") as file:
                for piece in response.iter_content(_CHUNK):
                    file.write(piece)
                    bar.update(len(piece))
        if total is not None and self._size() != total:
            raise requests.ConnectionError(f"the connection ended after {self._size()} of {total} bytes")
        return None


def _reason(error: requests.RequestException) -> str:
    if error.response is not None:
        return f"HTTP {error.response.status_code}"
    return "no answer in time" if isinstance(error, requests.Timeout) else "no connection"


_REMEDY = "delete or move it and run the same command again"


def _verify(path: Path, archive: Archive) -> None:
    """Hold a file that lies there against the known checksum.

    Raises:
        SatlibError: it is another file, or cut short.
    """
    algorithm, expected = archive.known.split(":")
    if pooch.file_hash(str(path), alg=algorithm) != expected:
        raise SatlibError(
            f"{path} is not the expected file (its {algorithm.upper()} is not {expected}): cut short or another; {_REMEDY}"
        )


def _remember(path: Path, archive: Archive) -> None:
    """Where no SHA-256 is known, write down that of the first use, and hold the file against it from then on.

    Raises:
        SatlibError: it is not the file of the first use.
    """
    if archive.known.startswith("sha256:"):
        return
    record, sha256 = path.with_name(path.name + ".sha256"), pooch.file_hash(str(path))
    if not record.exists():
        write_text(record, f"{sha256}  {path.name}\n")
    elif record.read_text(encoding="utf-8").split()[:1] != [sha256]:
        raise SatlibError(
            f"{path} is not the file of the first use (its SHA-256 is not the one in {record}); {_REMEDY}"
        )
