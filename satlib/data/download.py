"""Downloading Flickr8k and COCO: archives are verified, then unpacked.

The checksums come from others: those of COCO and of Karpathy's splits are in TensorFlow Datasets
(url_checksums/coco.txt, coco_captions.txt); the MD5 of Flickr8k are in torchdatasets for R
(mlverse/torchvision) and in a CMake script for C++.
"""

import fnmatch
import logging
import zipfile
from pathlib import Path
from typing import NamedTuple

import pooch

from satlib import files
from satlib.errors import SatlibError

_S3 = "https://s3.amazonaws.com/images.cocodataset.org"
_COCO = "http://images.cocodataset.org"
_GITHUB = "https://github.com/jbrownlee/Datasets/releases/download/Flickr8k"
_ILLINOIS = "http://nlp.cs.illinois.edu/HockenmaierGroup/Framing_Image_Description"
_KARPATHY = "https://cs.stanford.edu/people/karpathy/deepimagesent"
_MIRROR = "https://huggingface.co/datasets/gpantaz/karpathy_split/resolve/main"


class Archive(NamedTuple):
    """A zip file that is part of a data set."""

    file: str  # its path below the mirrors
    mirrors: tuple[str, ...]  # tried in order
    known: str  # "sha256:..." or "md5:..." of the whole file
    gives: str  # the pattern of the unpacked files
    count: int  # their number
    members: str = "*"  # the pattern of the archive members to unpack
    into: str = "."  # the folder to unpack into, in the data set's


# fmt: off
# An archive has a block, because one argument a line would be a page of them.
ARCHIVES: dict[str, tuple[Archive, ...]] = {
    "flickr8k": (
        Archive("Flickr8k_text.zip", (_GITHUB, _ILLINOIS),
                "md5:bf6c1abcb8e4a833b7f922104de18627",
                "Flickr8k_text/Flickr*8k.*.txt", 4, "Flickr*8k.*.txt", "Flickr8k_text"),
        Archive("Flickr8k_Dataset.zip", (_GITHUB, _ILLINOIS),
                "md5:f18a1e2920de5bd84dae7cf08ec78978",
                "Flicker8k_Dataset/*.jpg", 8_091, "Flicker8k_Dataset/*"),
    ),
    "coco": (
        Archive("caption_datasets.zip", (_KARPATHY, _MIRROR),
                "sha256:4cfd70132527b80933105e5829dc9034eaab9573482e2e680abbab6130244817",
                "dataset_coco.json", 1, "dataset_coco.json"),
        Archive("zips/val2014.zip", (_S3, _COCO),
                "sha256:fe9be816052049c34717e077d9e34aa60814a55679f804cd043e3cbee3b9fde0",
                "val2014/*.jpg", 40_504),
        Archive("zips/train2014.zip", (_S3, _COCO),
                "sha256:ede4087e640bddba550e090eae701092534b554b42b05ac33f0300b984b31775",
                "train2014/*.jpg", 82_783),
    ),
}
# fmt: on


def fetch(name: str, root: Path) -> None:
    """Download a data set into its folder below the data root, except what is already there.

    Raises:
        SatlibError: the set is not one of `ARCHIVES`, or none of its mirrors answers.
    """
    if name not in ARCHIVES:
        raise SatlibError(
            f"{name} cannot be downloaded, only {' and '.join(ARCHIVES)}; "
            "data/README.md says where it comes from"
        )

    folder = root / name
    for archive in ARCHIVES[name]:
        # By the unpacked files: whoever has them may have deleted the archive.
        present = list(folder.glob(archive.gives))
        if len(present) >= archive.count:
            files.say(f"{folder / archive.gives}: already present")
            continue

        path = obtain(archive, folder)
        with zipfile.ZipFile(path) as opened:
            # Archives made on a Mac also contain a folder __MACOSX, which nobody needs.
            wanted = fnmatch.filter(opened.namelist(), archive.members)
            opened.extractall(folder / archive.into, wanted)
        files.say(f"{path}: verified and unpacked; you may delete this archive")


def obtain(archive: Archive, folder: Path) -> Path:
    """The path of a verified archive, which is downloaded if need be."""
    # pooch has a progress bar and a log of its own, which know nothing of satlib's option --quiet.
    if files.quiet:
        pooch.get_logger().setLevel(logging.WARNING)

    path = folder / Path(archive.file).name
    reasons = []
    for mirror in archive.mirrors:
        try:
            pooch.retrieve(
                f"{mirror}/{archive.file}",
                archive.known,
                path.name,
                folder,
                progressbar=not files.quiet,
            )
            return path
        # Of the network or the disk; or, a ValueError, a wrong checksum.
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            reasons.append(f"{mirror}: {reason}")

    raise SatlibError(
        f"cannot download {path.name} ({'; '.join(reasons)}); try again later, "
        f"or put a copy at {path} (large files: "
        f"curl -C - -o {path} {archive.mirrors[0]}/{archive.file}, which resumes)"
    )
