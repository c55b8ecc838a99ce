"""Downloading Flickr8k and COCO: downloads resume, and archives are verified before they are unpacked.

Sources of the checksums (none was computed by us):

- COCO and Karpathy's splits: SHA-256 as recorded by TensorFlow Datasets (tensorflow_datasets/url_checksums/coco.txt,
  coco_captions.txt).
- Flickr8k: we found no published SHA-256. torchdatasets for R (mlverse/torchvision) and a CMake script for C++ independently
  record the same MD5.
"""

import fnmatch
import os
import re
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pooch
import requests

from satlib.errors import SatlibError
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
            or the disk is full.
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
    algorithm, expected = archive.known.split(":")
    if path.is_file():
        if pooch.file_hash(str(path), alg=algorithm) != expected:
            raise SatlibError(
                f"{path} is truncated or not the expected file (its {algorithm.upper()} is not {expected}); delete or move it and "
                "run the same command again"
            )
        return path
    pooch.get_logger().setLevel("WARNING")  # `fetch` reports progress itself
    partial, reasons = path.with_name(path.name + ".partial"), []
    for url in archive.urls:
        host = urlsplit(url).hostname
        # A part from another mirror or of an older file may give a wrong checksum: download once more from the beginning.
        for resumed in [True, False] if _size(partial) else [False]:
            try:
                download = partial_download(partial, progress)
                pooch.retrieve(url, archive.known, fname=archive.file, path=folder, downloader=download)
                return path
            except requests.RequestException as error:
                reasons.append(f"{host}: {_reason(error)}")
                break
            except ValueError:
                if not resumed:
                    reasons.append(f"{host}: wrong checksum")
            except OSError as error:
                raise SatlibError(
                    f"cannot write {path}: {error.strerror or error}; free some space and run the same command again"
                ) from error
    raise SatlibError(
        f"cannot download {archive.file} ({'; '.join(reasons)}); run the same command again to resume, or put a copy at {path}"
    )


def partial_download(partial: Path, progress: bool) -> Callable[[str, str, object], None]:
    """A downloader for pooch that keeps what it has in `partial`, and asks only for the rest (RFC 9110, section 14).

    A broken connection is taken up again as long as each attempt receives some bytes.
    """

    def download(url: str, output_file: str, _: object) -> None:
        while True:
            before = _size(partial)
            try:
                _continue(url, partial, progress)
                break
            except (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError):
                if _size(partial) <= before:
                    raise
        os.replace(partial, output_file)

    return download


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _continue(url: str, partial: Path, progress: bool) -> None:
    have = _size(partial)
    # identity: ranges count the bytes as sent, and compressing a zip file again would save nothing.
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as response:
        sent_range = re.match(r"bytes (?:(\d+)-\d+|\*)/(\d+)", response.headers.get("Content-Range", ""))
        if response.status_code == 416 and have:
            if sent_range and int(sent_range[2]) == have:
                return None  # the download is complete; only the rename was missing
            partial.unlink()
            return _continue(url, partial, progress)
        response.raise_for_status()
        if response.status_code != 206 or not sent_range or sent_range[1] != str(have):
            have = 0  # the server sends the whole file
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else None
        bar = progress_bar(total=total, initial=have, unit="B", unit_scale=True, desc=partial.stem, show=progress)
        with bar, open(partial, "ab" if have else "wb") as file:
            for chunk in response.iter_content(_CHUNK):
                file.write(chunk)
                bar.update(len(chunk))
    if total is not None and _size(partial) != total:
        raise requests.ConnectionError(f"the connection ended after {_size(partial)} of {total} bytes")
    return None


def _reason(error: requests.RequestException) -> str:
    if error.response is not None:
        return f"HTTP {error.response.status_code}"
    return "timed out" if isinstance(error, requests.Timeout) else "no connection"


def unpack(path: Path, folder: Path, members: Sequence[str] = ("*",), progress: bool = True) -> None:
    """Unpack those files of a verified zip file whose names match a pattern; what is there with the right size is skipped.

    Raises:
        SatlibError: the file is not a zip file, or cannot be unpacked into the folder.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            files = [
                info
                for info in archive.infolist()
                if not info.is_dir()
                and not info.filename.startswith("__MACOSX/")
                and any(fnmatch.fnmatchcase(info.filename, pattern) for pattern in members)
            ]
            for info in progress_bar(files, unit="file", desc=path.stem, show=progress):
                if _size(folder / info.filename) != info.file_size or not info.file_size:
                    archive.extract(info, folder)  # below the folder, whatever the name
    except zipfile.BadZipFile as error:
        raise SatlibError(
            f"{path} is not a complete zip file ({error}); delete it and run the same command again"
        ) from error
    except OSError as error:
        raise SatlibError(
            f"cannot unpack {path} into {folder}: {error.strerror or error}; free some space or choose another folder"
        ) from error
