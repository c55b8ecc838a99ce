"""Downloading Flickr8k and COCO: downloads resume, archives are verified, and unpacking never writes outside the folder.

Sources of the checksums (none was computed by us):

- COCO and Karpathy's splits: SHA-256 as recorded by TensorFlow Datasets (tensorflow_datasets/url_checksums/coco.txt,
  coco_captions.txt).
- Flickr8k: we found no published SHA-256. torchdatasets for R (mlverse/torchvision) and a CMake script for C++ independently
  record the same MD5. The SHA-256 of the first archive with this MD5 is saved beside it in NAME.sha256 (trust on first use)
  and verified from then on.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pooch
import requests

from satlib.data.unpacking import unpack
from satlib.errors import SatlibError
from satlib.files.atomic import write_text
from satlib.files.progress import progress_bar

_S3, _COCO = "https://s3.amazonaws.com/images.cocodataset.org", "http://images.cocodataset.org"
_GITHUB = "https://github.com/jbrownlee/Datasets/releases/download/Flickr8k"
_ILLINOIS = "http://nlp.cs.illinois.edu/HockenmaierGroup/Framing_Image_Description"
_CHUNK = 1 << 16  # bytes; a chunk interrupted by a broken connection is lost, so chunks are small
_TIMEOUT = (15, 60)  # seconds to connect, and between two chunks


@dataclass(frozen=True)
class Archive:
    """A zip file that is part of a data set.

    Attributes:
        file: its name; a copy with this name in the data set's folder is used instead of a download.
        urls: the mirrors, tried in order.
        known: "sha256:..." or "md5:..." of the whole file.
        gives: a glob pattern, relative to the data set's folder, of the unpacked files.
        count: the number of these files.
        into: the folder to unpack into, relative to the data set's folder.
        members: patterns of the archive members to unpack.
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
    """Download a data set into its folder under the data root and return the folder.

    Existing files are not downloaded again: files unpacked by an earlier run, archives in the folder, and the first part of
    an archive. Run it again to resume an interrupted download.

    Raises:
        SatlibError: the data set cannot be downloaded automatically, no mirror responds, an archive is not the expected file
            or would unpack outside the folder, or the disk is full.
    """
    if name == "flickr30k":
        raise SatlibError(
            "Flickr30k is available only to those who sign the form at http://shannon.cs.illinois.edu/DenotationGraph/ ; put "
            f"its photographs into {root / name / 'flickr30k-images'}, results_20130124.token and dataset_flickr30k.json "
            f"(from Karpathy's caption_datasets.zip) into {root / name}"
        )
    if name not in ARCHIVES:
        raise SatlibError(f"{name!r} cannot be downloaded; choose from {', '.join(ARCHIVES)} (scenes need no files)")
    folder = root / name
    for archive in ARCHIVES[name]:
        if len(list(folder.glob(archive.gives))) >= archive.count:
            say(f"{folder / archive.gives}: already present")
            continue
        if (folder / archive.file).is_file():
            say(f"{folder / archive.file}: verifying")
        path = obtain(archive, folder, progress)
        say(f"{path}: verified; unpacking")
        unpack(path, folder / archive.into, archive.members, progress)
        unpacked = len(list(folder.glob(archive.gives)))
        if unpacked < archive.count:
            raise SatlibError(
                f"{path} contained only {unpacked} of {archive.count} files {archive.gives}; delete it and run: satlib data fetch {name}"
            )
        say(f"{path}: unpacked; you may delete this archive")
    return folder


def obtain(archive: Archive, folder: Path, progress: bool = True) -> Path:
    """The path of the archive in the folder, downloaded if necessary and verified in either case.

    Raises:
        SatlibError: every mirror failed (with each reason and the path for a manual copy), or the archive in the folder is a
            different file.
    """
    path = folder / archive.file
    if path.is_file():
        _verify(path, archive)
        _remember(path, archive)
        return path
    pooch.get_logger().setLevel("WARNING")  # `fetch` reports progress itself
    reasons = []
    for url in archive.urls:
        download = Resuming(path.with_name(path.name + ".partial"), progress)
        # A part from another mirror or of an older file may give a wrong checksum: download once more from the beginning.
        for attempt in ("resumed", "whole"):
            try:
                pooch.retrieve(url, archive.known, fname=archive.file, path=folder, downloader=download)
            except requests.RequestException as error:
                reasons.append(f"{urlsplit(url).hostname}: {_reason(error)}")
                break
            except ValueError:
                if attempt == "resumed" and download.resumed:
                    continue
                reasons.append(f"{urlsplit(url).hostname}: wrong checksum")
                break
            except OSError as error:
                raise SatlibError(
                    f"cannot write {path}: {error.strerror or error}; free some space and run the same command again"
                ) from error
            else:
                _remember(path, archive)
                return path
    raise SatlibError(
        f"cannot download {archive.file} ({'; '.join(reasons)}); run the same command again to resume, or put a copy at {path}"
    )


class Resuming:
    """A downloader for pooch that keeps partial downloads and resumes them with Range requests (RFC 9110, section 14).

    Attributes:
        resumed: whether the last call started from a partial download.
    """

    def __init__(self, partial: Path, progress: bool = True) -> None:
        """`partial` is the file that holds a partial download."""
        self.partial = partial
        self.progress = progress
        self.resumed = False

    def __call__(self, url: str, output_file: str, pooch: object) -> None:
        """Download `url` into `output_file`; retry broken connections as long as each attempt receives some bytes.

        Raises:
            requests.RequestException: the server cannot be reached, refuses the request, or stops sending.
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
        # identity: ranges count the bytes as sent, and compressing a zip file again would save nothing.
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
        with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as response:
            sent_range = re.match(r"bytes (?:(\d+)-\d+|\*)/(\d+)", response.headers.get("Content-Range", ""))
            if response.status_code == 416 and have:
                if sent_range and int(sent_range[2]) == have:
                    return None  # the download is complete; only the rename was missing
                self.partial.unlink()
                return self._continue(url)
            response.raise_for_status()
            if response.status_code != 206 or not sent_range or sent_range[1] != str(have):
                have = 0  # the server sends the whole file
            length = response.headers.get("Content-Length")
            total = have + int(length) if length else None
            bar = progress_bar(
                total=total, initial=have, unit="B", unit_scale=True, desc=self.partial.stem, show=self.progress
            )
            with bar, open(self.partial, "ab" if have else "wb") as file:
                for chunk in response.iter_content(_CHUNK):
                    file.write(chunk)
                    bar.update(len(chunk))
        if total is not None and self._size() != total:
            raise requests.ConnectionError(f"the connection ended after {self._size()} of {total} bytes")
        return None


def _reason(error: requests.RequestException) -> str:
    if error.response is not None:
        return f"HTTP {error.response.status_code}"
    return "timed out" if isinstance(error, requests.Timeout) else "no connection"


_REMEDY = "delete or move it and run the same command again"


def _verify(path: Path, archive: Archive) -> None:
    """Compare an archive in the folder with its known checksum.

    Raises:
        SatlibError: the checksum differs.
    """
    algorithm, expected = archive.known.split(":")
    if pooch.file_hash(str(path), alg=algorithm) != expected:
        raise SatlibError(
            f"{path} is truncated or not the expected file (its {algorithm.upper()} is not {expected}); {_REMEDY}"
        )


def _remember(path: Path, archive: Archive) -> None:
    """If no SHA-256 is known, record it on first use and compare the file with the record from then on.

    Raises:
        SatlibError: the file differs from the one first used.
    """
    if archive.known.startswith("sha256:"):
        return
    record, sha256 = path.with_name(path.name + ".sha256"), pooch.file_hash(str(path))
    if not record.exists():
        write_text(record, f"{sha256}  {path.name}\n")
    elif record.read_text(encoding="utf-8").split()[:1] != [sha256]:
        raise SatlibError(
            f"{path} is not the file recorded on first use (its SHA-256 is not the one in {record}); {_REMEDY}"
        )
