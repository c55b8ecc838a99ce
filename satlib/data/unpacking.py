"""Unpacking zip files, never outside the target folder."""

import fnmatch
import re
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from satlib.errors import SatlibError
from satlib.files.progress import progress_bar

_CHUNK = 1 << 20


def unpack(path: Path, folder: Path, members: Sequence[str] = ("*",), progress: bool = True) -> None:
    """Unpack a zip file into a folder, each file atomically.

    All names are checked before the first byte is written: absolute paths, "..", drive letters and symbolic links are rejected.
    Files that already exist with the right size are skipped, so an interrupted run resumes.

    Raises:
        SatlibError: the archive is damaged or not a zip file, a member would be written outside the folder, or the disk is too
            small.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            wanted = [(info, target) for info in archive.infolist() if (target := _target(info, path, folder, members))]
            todo = [(info, target) for info, target in wanted if not _is_complete(target, info.file_size)]
            folder.mkdir(parents=True, exist_ok=True)
            needed, free = sum(info.file_size for info, _ in todo), shutil.disk_usage(folder).free
            if needed > free:
                raise SatlibError(
                    f"{folder} has {free / 1e9:.1f} GB free, but {path.name} unpacks to {needed / 1e9:.1f} GB; free some space"
                )
            for info, target in progress_bar(todo, unit="file", desc=path.stem, show=progress):
                _extract(archive, info, target)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise SatlibError(
            f"{path} is not a complete zip file ({error}); delete it and run the same command again"
        ) from error
    except OSError as error:
        raise SatlibError(
            f"cannot unpack {path} into {folder}: {error.strerror or error}; free some space or choose another folder"
        ) from error


def _target(info: zipfile.ZipInfo, path: Path, folder: Path, members: Sequence[str]) -> Path | None:
    """The path to unpack a member to; None for folders, files added by macOS, and members that match no pattern."""
    name = PurePosixPath(info.filename.replace("\\", "/"))
    is_link = stat.S_ISLNK(info.external_attr >> 16)
    if name.is_absolute() or ".." in name.parts or is_link or re.match(r"[A-Za-z]:", info.filename):
        raise SatlibError(
            f"{path}: the member {info.filename!r} would be written outside {folder}; nothing was unpacked, do not trust this file"
        )
    if (
        info.is_dir()
        or name.parts[:1] == ("__MACOSX",)
        or name.name == ".DS_Store"
        or not any(fnmatch.fnmatchcase(str(name), pattern) for pattern in members)
    ):
        return None
    return folder.joinpath(*name.parts)


def _is_complete(target: Path, size: int) -> bool:
    return target.is_file() and target.stat().st_size == size


def _extract(archive: zipfile.ZipFile, info: zipfile.ZipInfo, target: Path) -> None:
    """Unpack one member atomically. Not with `files.replacing`: its fsync would add minutes over 120,000 photographs."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".partial", dir=target.parent)
    partial = Path(name)
    try:
        with open(handle, "wb") as file, archive.open(info) as member:
            shutil.copyfileobj(member, file, _CHUNK)
        partial.chmod(0o644)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
