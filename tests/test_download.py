"""Downloads from a folder served here, as no test may need the network."""

import hashlib
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from satlib import files
from satlib.data import download
from satlib.data.download import Archive
from satlib.errors import SatlibError


@pytest.fixture
def mirror(tmp_path):
    """The address of a server of an archive, x.zip, and its checksum."""
    place = tmp_path / "served"
    place.mkdir()
    with zipfile.ZipFile(place / "x.zip", "w") as archive:
        for name in ("photos/a.jpg", "photos/b.jpg", "__MACOSX/photos/a.jpg", "readme.txt"):
            archive.writestr(name, name)
    handler = partial(SimpleHTTPRequestHandler, directory=place)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    checksum = hashlib.md5((place / "x.zip").read_bytes()).hexdigest()
    yield f"http://127.0.0.1:{server.server_port}", checksum
    server.shutdown()


def archive(mirrors, checksum):
    # Of its files only the two photographs are wanted.
    return Archive("x.zip", mirrors, f"md5:{checksum}", "photos/*.jpg", 2, "photos/*")


def test_a_set_is_downloaded_verified_unpacked_and_not_downloaded_again(
    mirror, tmp_path, monkeypatch, capsys
):
    address, checksum = mirror
    # The first of two addresses has nothing.
    wanted = archive((f"{address}/nowhere", address), checksum)
    monkeypatch.setitem(download.ARCHIVES, "tiny", (wanted,))

    data = tmp_path / "data"
    download.fetch("tiny", data)
    names = sorted(path.name for path in data.glob("**/*.*"))
    assert names == ["a.jpg", "b.jpg", "x.zip"]

    # Without `obtain`, another download would fail.
    monkeypatch.setattr(download, "obtain", None)
    download.fetch("tiny", data)
    assert "already present" in capsys.readouterr().out

    monkeypatch.setattr(files, "quiet", True)
    download.fetch("tiny", data)
    assert capsys.readouterr() == ("", "")


def test_another_file_or_no_network_is_refused(mirror, tmp_path):
    address, checksum = mirror
    # Nobody listens on port 9.
    for place, known in ((address, "0" * 32), ("http://127.0.0.1:9", checksum)):
        wanted = archive((place,), known)
        message = r"cannot download x\.zip .*put a copy at .*curl -C -"
        with pytest.raises(SatlibError, match=message):
            download.obtain(wanted, tmp_path)
    assert not (tmp_path / "x.zip").exists()
