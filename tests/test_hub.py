"""Captioners on the Hugging Face Hub: fetched by huggingface_hub itself, from a server here that answers as the Hub does."""

import argparse
import http.server
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from satlib import cli
from satlib.cli import inputs
from satlib.data.caption_set import CaptionSet
from satlib.errors import SatlibError
from satlib.model import hub
from satlib.model.captioner import Captioner

COMMITS = {"main": "1" * 40, "better": "2" * 40}
FETCH = """
import json, sys
from satlib.errors import SatlibError
from satlib.model import hub
said = []
for name in sys.argv[1:]:
    try:
        said.append(str(hub.fetched(name)))
    except SatlibError as error:
        said.append("refused: " + str(error))
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What `satlib export --hub` writes."""
    made = tmp_path_factory.mktemp("hub") / "made"
    assert cli.main(["export", "scenes-soft", "--hub", str(made)]) == 0
    return made


@pytest.fixture
def server(folder):
    """The Hub's addresses for files, of three models: whole, changed after it was exported, and without config.json."""
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    changed = {**files, "model.safetensors": files["model.safetensors"] + b"\0"}
    models = {"me/whole": files, "me/changed": changed, "me/other": {"pytorch_model.bin": b"a pickle"}}

    class Hub(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self):
            owner, name, _, revision, file = self.path.strip("/").split("/")
            content, problem = None, "RepoNotFound"
            if found := models.get(f"{owner}/{name}"):
                commit = COMMITS.get(revision, revision if revision in COMMITS.values() else None)
                content = commit and found.get(file)
                problem = "EntryNotFound" if commit else "RevisionNotFound"
            self.send_response(404 if content is None else 200)
            if content is None:
                self.send_header("X-Error-Code", problem)
            else:
                self.send_header("X-Repo-Commit", commit)
                self.send_header("ETag", f'"{commit}-{file}"')
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            return content

        def do_GET(self):
            self.wfile.write(self.do_HEAD() or b"")

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


def fetched(endpoint, cache, *names, offline=0):
    """What `hub.fetched` gives for each name in a process of its own: huggingface_hub reads its settings when it is imported."""
    pytest.importorskip("huggingface_hub")
    settings = {
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(cache),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_OFFLINE": str(offline),
    }
    proxies = dict.fromkeys(("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"), "")
    done = subprocess.run(
        [sys.executable, "-c", FETCH, *names], env={**os.environ, **proxies, **settings}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_by_branch_and_commit_and_from_the_cache(server, folder, tmp_path):
    by_branch, by_other, by_commit = fetched(
        server, tmp_path, "hf:me/whole", "hf:me/whole@better", f"hf:me/whole@{'1' * 40}"
    )
    assert by_branch == by_commit != by_other
    assert ("1" * 40 in by_branch, "2" * 40 in by_other) == (True, True)
    Captioner.load(by_branch)
    for path in (by_branch, by_other):
        with open(path, "rb") as file:
            assert file.read() == (folder / "model.safetensors").read_bytes()
    again, new = fetched(server, tmp_path, "hf:me/whole", "hf:me/new", offline=1)
    assert again == by_branch
    assert new.startswith(
        "refused: cannot reach the Hugging Face Hub, and hf:me/new was not fetched before; check the network"
    )


def test_what_is_refused(server, tmp_path):
    cases = {
        "hf:me/nothing": "the Hugging Face Hub has no model me/nothing for you",
        "hf:me/whole@draft": "me/whole has no revision draft on the Hugging Face Hub",
        "hf:me/other": "hf:me/other is no captioner of satlib: it lacks config.json",
        "hf:me/changed": r"the file .*model\.safetensors of hf:me/changed is not the one whose SHA-256 its config.json has",
        "hf:whole": "hf:whole is no address on the Hugging Face Hub; write hf:OWNER/NAME",
        "hf:me/../../etc": "is no address on the Hugging Face Hub",
    }
    for said, (name, expected) in zip(fetched(server, tmp_path, *cases), cases.items(), strict=True):
        assert re.search(expected, said), (name, said)
        assert said.startswith("refused: ")
        assert "\n" not in said


def test_without_the_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(SatlibError, match=r"to fetch hf:me/whole, run: pip install 'satlib\[hub\]'"):
        hub.fetched("hf:me/whole")


def test_commands_take_the_name(folder, monkeypatch, capsys):
    monkeypatch.setattr(hub, "fetched", lambda name: {"hf:me/whole@v1": folder / "model.safetensors"}[name])
    assert cli.main(["info", "hf:me/whole@v1"]) == 0
    data = CaptionSet("scenes", ())
    options = argparse.Namespace(model=Path("hf:me/whole@v1"), out=None, data_set=None)
    assert inputs.results_folder(options, data) == Path("runs/whole@v1")
    assert capsys.readouterr().out.startswith(f"file        {folder / 'model.safetensors'}, ")
