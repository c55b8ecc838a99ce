"""Downloads from a server on this machine: resumed, verified, from the next mirror, unpacked without leaving the folder."""

import hashlib
import http.server
import io
import re
import threading
import zipfile

import pytest
from refusals import refused

from satlib.data import download
from satlib.data.download import Archive, fetch, obtain, unpack


class Server:
    """A server of named files that counts what it sends.

    `files`: path -> bytes; `cut`: path -> how many bytes it sends before it hangs up, once; `ranges`: whether it knows Range.
    """

    def __init__(self):
        self.files, self.cut, self.ranges, self.requests, self.sent = {}, {}, True, [], 0
        served = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                served.requests.append((self.path, self.headers.get("Range")))
                body = served.files.get(self.path)
                if body is None:
                    self.send_error(404)
                    return
                asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "")) if served.ranges else None
                start = int(asked[1]) if asked else 0
                if start >= len(body) > 0:
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{len(body)}")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                self.send_response(206 if asked else 200)
                if asked:
                    self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
                self.send_header("Content-Length", str(len(body) - start))
                self.end_headers()
                piece = body[start : start + served.cut.pop(self.path, len(body))]
                served.sent += len(piece)  # before it goes out: who has it all may ask at once
                self.wfile.write(piece)

            def log_message(self, *_):
                """Keep pytest's output clean."""

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def server(monkeypatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = Server()
    yield server
    server.http.shutdown()
    server.http.server_close()


def zipped(members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return buffer.getvalue()


PHOTOS = {
    "photos/a.jpg": "first photograph " * 300,
    "photos/b.jpg": "second",
    "__MACOSX/photos/._a.jpg": "x",
    "photos/": "",
}


def archive(body, *urls, known=None):
    known = known or "sha256:" + hashlib.sha256(body).hexdigest()
    return Archive("x.zip", urls, known, gives="photos/*.jpg", count=2)


@pytest.fixture
def body(server):
    server.files["/x.zip"] = zipped(PHOTOS)
    return server.files["/x.zip"]


def test_fetch_and_fetch_again(server, body, tmp_path, monkeypatch):
    monkeypatch.setitem(download.ARCHIVES, "x", (archive(body, f"{server.url}/x.zip"),))
    lines = []
    assert fetch("x", tmp_path, progress=False, say=lines.append) == tmp_path / "x"
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()) == [
        "x/photos/a.jpg",
        "x/photos/b.jpg",
        "x/x.zip",
    ]
    assert (tmp_path / "x" / "photos" / "a.jpg").read_text() == PHOTOS["photos/a.jpg"]
    (tmp_path / "x" / "x.zip").unlink()
    fetch("x", tmp_path, progress=False, say=lines.append)
    assert len(server.requests) == 1
    assert "already present" in lines[-1]
    (tmp_path / "x" / "photos" / "b.jpg").unlink()  # an unpacking that was stopped
    fetch("x", tmp_path, progress=False, say=lines.append)
    assert (tmp_path / "x" / "photos" / "b.jpg").read_text() == "second"


def test_a_local_copy_needs_no_network(body, tmp_path):
    (tmp_path / "x.zip").write_bytes(body)
    assert obtain(archive(body, "http://127.0.0.1:9/x.zip"), tmp_path, progress=False) == tmp_path / "x.zip"


def test_a_wrong_local_copy_is_refused_and_kept(server, body, tmp_path):
    (tmp_path / "x.zip").write_bytes(body[:-1])
    refused(
        lambda: obtain(archive(body, f"{server.url}/x.zip"), tmp_path),
        str(tmp_path / "x.zip"),
        "not the expected file",
        "delete",
    )
    assert (tmp_path / "x.zip").read_bytes() == body[:-1]
    assert server.requests == []


def test_resume_asks_only_for_the_rest(server, body, tmp_path):
    (tmp_path / "x.zip.partial").write_bytes(body[:1000])
    obtain(archive(body, f"{server.url}/x.zip"), tmp_path, progress=False)
    assert (tmp_path / "x.zip").read_bytes() == body
    assert server.requests == [("/x.zip", "bytes=1000-")]
    assert server.sent == len(body) - 1000
    assert list(tmp_path.iterdir()) == [tmp_path / "x.zip"]


def test_a_broken_connection_is_taken_up_again(server, body, tmp_path):
    long = server.files["/long.zip"] = body * 100
    server.cut["/long.zip"] = 300_000
    obtain(archive(long, f"{server.url}/long.zip"), tmp_path, progress=False)
    assert (tmp_path / "x.zip").read_bytes() == long
    assert [path for path, _ in server.requests] == ["/long.zip"] * 2
    assert server.sent < len(long) + 2**16  # at most one piece was sent twice


def test_a_finished_part_needs_only_its_name(server, body, tmp_path):
    (tmp_path / "x.zip.partial").write_bytes(body)
    obtain(archive(body, f"{server.url}/x.zip"), tmp_path, progress=False)
    assert (tmp_path / "x.zip").read_bytes() == body
    assert server.sent == 0


@pytest.mark.parametrize(("part", "ranges"), [("too long", True), ("spoilt", True), ("right", False)])
def test_what_cannot_be_resumed_begins_again(server, body, tmp_path, part, ranges):
    server.ranges = ranges
    (tmp_path / "x.zip.partial").write_bytes({"too long": body + b"more", "spoilt": b"z" * 1000}.get(part, body[:1000]))
    obtain(archive(body, f"{server.url}/x.zip"), tmp_path, progress=False)
    assert (tmp_path / "x.zip").read_bytes() == body
    assert server.requests[-1] == ("/x.zip", None)


def test_next_mirror_after_404_wrong_file_and_silence(server, body, tmp_path):
    server.files["/other.zip"] = b"<html>moved</html>"
    urls = ["http://127.0.0.1:9/x.zip", f"{server.url}/gone.zip", f"{server.url}/other.zip", f"{server.url}/x.zip"]
    obtain(archive(body, *urls), tmp_path, progress=False)
    assert (tmp_path / "x.zip").read_bytes() == body
    assert [path for path, _ in server.requests] == ["/gone.zip", "/other.zip", "/x.zip"]


def test_wrong_checksum_leaves_no_file(server, body, tmp_path):
    wrong = archive(body, f"{server.url}/x.zip", known="sha256:" + "0" * 64)
    refused(lambda: obtain(wrong, tmp_path, progress=False), "wrong checksum", "127.0.0.1", str(tmp_path / "x.zip"))
    assert list(tmp_path.iterdir()) == []


def test_no_network_says_which_file_to_put_where(server, body, tmp_path):
    nowhere = archive(body, "http://127.0.0.1:9/x.zip", f"{server.url}/gone.zip")
    words = ("no connection", "HTTP 404", "put a copy at", str(tmp_path / "x.zip"))
    refused(lambda: obtain(nowhere, tmp_path, progress=False), *words)
    assert list(tmp_path.iterdir()) == []


def test_disk_that_cannot_be_written(server, body, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    good = archive(body, f"{server.url}/x.zip")
    refused(lambda: obtain(good, tmp_path / "file", progress=False), "cannot write", "file")


def test_flickr30k_and_unknown_names(tmp_path):
    refused(
        lambda: fetch("flickr30k", tmp_path),
        "sign the form",
        str(tmp_path / "flickr30k" / "flickr30k-images"),
        "dataset_flickr30k.json",
    )
    refused(lambda: fetch("scenes", tmp_path), "'scenes'", "flickr8k, coco")


def test_an_archive_that_gives_too_little(server, tmp_path, monkeypatch):
    body = server.files["/x.zip"] = zipped({"photos/a.jpg": "a"})
    monkeypatch.setitem(download.ARCHIVES, "x", (archive(body, f"{server.url}/x.zip"),))
    refused(lambda: fetch("x", tmp_path, progress=False, say=str), "1 of 2", "photos/*.jpg")


# --- Unpacking ------------------------------------------------------------------------------------------------------


def test_the_list_of_archives_is_well_formed():
    for archives in download.ARCHIVES.values():
        for item in archives:
            algorithm, digest = item.known.split(":")
            assert re.fullmatch("[0-9a-f]+", digest)
            assert len(digest) == {"md5": 32, "sha256": 64}[algorithm]
            assert len(item.urls) >= 2
            assert all(url.endswith(item.file) for url in item.urls)


@pytest.mark.parametrize("name", ["../evil.txt", "a/../../evil.txt", "/tmp/satlib-evil.txt"])
def test_nothing_leaves_the_folder(tmp_path, name):
    (tmp_path / "x.zip").write_bytes(zipped({"good.txt": "good", name: "evil"}))
    unpack(tmp_path / "x.zip", tmp_path / "in" / "here", progress=False)
    written = {path for path in tmp_path.rglob("*") if path.is_file()} - {tmp_path / "x.zip"}
    assert all(path.is_relative_to(tmp_path / "in" / "here") for path in written)


def test_what_is_there_is_not_unpacked_again(tmp_path):
    (tmp_path / "x.zip").write_bytes(zipped({"whole.txt": "whole", "half.txt": "half"}))
    (tmp_path / "whole.txt").write_text("WHOLE")
    (tmp_path / "half.txt").write_text("ha")
    unpack(tmp_path / "x.zip", tmp_path, progress=False)
    assert (tmp_path / "whole.txt").read_text() == "WHOLE"
    assert (tmp_path / "half.txt").read_text() == "half"


def test_only_wanted_members(tmp_path):
    (tmp_path / "x.zip").write_bytes(zipped({"annotations/captions_a.json": "1", "annotations/instances_a.json": "2"}))
    unpack(tmp_path / "x.zip", tmp_path / "here", ("annotations/captions_*.json",), progress=False)
    assert [path.name for path in (tmp_path / "here").rglob("*.json")] == ["captions_a.json"]


def test_damaged_archives(tmp_path):
    path = tmp_path / "x.zip"
    whole = zipped({"a.txt": "hello " * 100})
    for raw in (b"", b"<html>", whole[:-30], whole.replace(b"hello", b"jello")):
        path.write_bytes(raw)
        refused(lambda: unpack(path, tmp_path / "here", progress=False), str(path), "not a complete zip file")
