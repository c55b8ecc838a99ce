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
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=place)
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield (
        f"http://127.0.0.1:{server.server_port}",
        hashlib.md5((place / "x.zip").read_bytes()).hexdigest(),
    )
    server.shutdown()


def archive(mirrors, known):
    return Archive("x.zip", mirrors, f"md5:{known}", "photos/*.jpg", 2, "photos/*")


def test_a_set_is_downloaded_verified_unpacked_and_not_downloaded_again(
    mirror, tmp_path, monkeypatch, capsys
):
    address, known = mirror
    monkeypatch.setattr(files, "quiet", False)  # whatever an earlier test left
    monkeypatch.setitem(
        download.ARCHIVES, "tiny", (archive((f"{address}/nowhere", address), known),)
    )
    download.fetch("tiny", tmp_path / "data")
    assert sorted(path.name for path in (tmp_path / "data").glob("**/*.*")) == [
        "a.jpg",
        "b.jpg",
        "x.zip",
    ]
    monkeypatch.setattr(download, "obtain", None)
    download.fetch("tiny", tmp_path / "data")
    assert "already present" in capsys.readouterr().out
    monkeypatch.setattr(files, "quiet", True)
    download.fetch("tiny", tmp_path / "data")
    assert capsys.readouterr() == ("", "")


def test_another_file_or_no_network_is_refused(mirror, tmp_path):
    for address, known in ((mirror[0], "0" * 32), ("http://127.0.0.1:9", mirror[1])):
        with pytest.raises(
            SatlibError, match=r"cannot download x\.zip .*put a copy at .*curl -C -"
        ):
            download.obtain(archive((address,), known), tmp_path)
    assert not (tmp_path / "x.zip").exists()
