"""Downloading Flickr8k and COCO: downloads resume, and archives are verified before they are unpacked.

Sources of the checksums (none was computed by us):

- COCO and Karpathy's splits: SHA-256 as recorded by TensorFlow Datasets (tensorflow_datasets/url_checksums/coco.txt,
  coco_captions.txt).
- Flickr8k: we found no published SHA-256. torchdatasets for R (mlverse/torchvision) and a CMake script for C++ independently
  record the same MD5.
"""

import fnmatch
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
    if path.is_file():
        if not _is_expected(path, archive):
            raise SatlibError(
                f"{path} is truncated or not the expected file (it does not match {archive.known}); delete or move it and "
                "run the same command again"
            )
        return path
    partial, reasons = path.with_name(path.name + ".partial"), []
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for url in archive.urls:
            reason = _download(archive, url, partial, progress)
            if not reason:
                partial.replace(path)
                return path
            reasons.append(f"{urlsplit(url).hostname}: {reason}")
    except OSError as error:
        raise SatlibError(
            f"cannot write {path}: {error.strerror or error}; free some space and run the same command again"
        ) from error
    raise SatlibError(
        f"cannot download {archive.file} ({'; '.join(reasons)}); run the same command again to resume, or put a copy at {path}"
    )


def _is_expected(path: Path, archive: Archive) -> bool:
    algorithm, expected = archive.known.split(":")
    return pooch.file_hash(str(path), alg=algorithm) == expected


def _download(archive: Archive, url: str, partial: Path, progress: bool) -> str:
    """Complete `partial` from a mirror and verify it; return the reason if that fails.

    If the completed file is not the expected one, its first part may be from another file, or the server may have ignored the
    range and sent the whole: then the file is downloaded once more from the beginning.
    """
    resumed = True
    while resumed:
        resumed = _size(partial) > 0
        try:
            _complete(url, partial, progress)
        except requests.RequestException as error:
            if _size(partial) == 0:
                partial.unlink(missing_ok=True)
            if error.response is None:
                return "timed out" if isinstance(error, requests.Timeout) else "no connection"
            if error.response.status_code != 416:  # 416: there is no rest, because the file is complete, or too long
                return f"HTTP {error.response.status_code}"
        if _is_expected(partial, archive):
            return ""
        partial.unlink()
    return "wrong checksum"


def _complete(url: str, partial: Path, progress: bool) -> None:
    """Append the rest of a file to `partial` (RFC 9110, section 14). A broken connection is resumed while each attempt receives bytes."""
    while True:
        have = _size(partial)
        # identity: ranges count the bytes as sent, and compressing a zip file again would save nothing.
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
        bar = progress_bar(total=1, unit="B", unit_scale=True, desc=partial.stem, show=progress)
        try:
            with bar, open(partial, "ab") as file:
                pooch.HTTPDownloader(bar, _CHUNK, headers=headers, timeout=_TIMEOUT)(url, file, None)
            return
        except (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError):
            if _size(partial) <= have:
                raise


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


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
