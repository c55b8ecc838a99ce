"""A static web page on which captioners run: `satlib page`. Any file server can serve the folder; nothing leaves the visitor's device.

A folder holds the page (satlib/page/static), onnxruntime-web, the models (`export`), 60 drawn scenes, and page.json, which lists
models and files with their SHA-256. Graphs and WebAssembly are gzip files, which the page unpacks itself.
"""

import gzip
import hashlib
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pooch

from satlib.data import scenes
from satlib.errors import SatlibError
from satlib.files.atomic import write_json
from satlib.files.progress import progress_bar
from satlib.model.captioner import Captioner
from satlib.page import export

MODELS = ("scenes-soft", "scenes-hard", "flickr8k-lite0-coco")
SCENES = 60
CONTENTS = "page.json"
_SOURCE = Path(__file__).parent / "static"
_RUNTIME, _WASM = "ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm"


def write(folder: Path, models: Sequence[Path | str], storage: str = "int8") -> dict[str, Any]:
    """Write the page into a new folder, or over an earlier page: -> the content of page.json.

    Raises:
        SatlibError: npm or a package is missing, the folder holds something else, or a model cannot be exported.
    """
    captioners = [Captioner.load(model) for model in models]
    runtime = _runtime()
    with export.replaced(folder, CONTENTS) as new:
        shutil.copy(runtime / _RUNTIME, new)
        (new / "onnxruntime.wasm.gz").write_bytes(gzip.compress((runtime / _WASM).read_bytes(), mtime=0))
        for file in (file for kind in ("js", "html", "css") for file in _SOURCE.glob(f"*.{kind}")):
            shutil.copy(file, new)
        worker = (_SOURCE / "sw.js").read_text(encoding="utf-8")  # a browser notices a new page by the worker's version
        (new / "sw.js").write_text(worker.replace('VERSION = ""', f'VERSION = "{time.time():.0f}"'), encoding="utf-8")
        files: dict[str, Any] = {}
        entries = [_model(captioner, new, storage, files) for captioner in progress_bar(captioners, desc="exporting")]
        pictures = list(_scenes(new)) if any(entry["data"] == "scenes" for entry in entries) else []
        runtime_bytes = (new / "onnxruntime.wasm.gz").stat().st_size
        contents = {"models": entries, "scenes": pictures, "runtime": runtime_bytes, "files": files}
        write_json(new / CONTENTS, contents)
    return contents


def _model(captioner: Captioner, page: Path, storage: str, files: dict[str, Any]) -> dict[str, Any]:
    """Export a captioner into the page and pack its graphs: -> its entry in page.json.

    `files` receives the size and hash of each file's unpacked content, which the page checks.
    """
    recipe = captioner.recipe
    folder = page / recipe.name
    manifest = export.export(captioner, folder, storage)
    for name, content in manifest["files"].items():
        packed = "" if name == export.WORDS else ".gz"
        files[f"{recipe.name}/{name}{packed}"] = content
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes(), mtime=0))
            (folder / name).unlink()
    return {
        "name": recipe.name,
        "data": recipe.data.name,
        "attention": recipe.decoder.attention,
        "words": len(captioner.vocabulary),
        "bytes": sum(file.stat().st_size for file in folder.iterdir()),
    }


def _scenes(folder: Path) -> Iterator[str]:
    """Draw scenes of the test split into the page: their files."""
    (folder / "scenes").mkdir()
    for example in scenes.load(0, 0, SCENES).split("test"):
        name = f"scenes/{example.image_id}.webp"
        scenes.scene(example.image_id).photo().save(folder / name, lossless=True)
        yield name


def _runtime() -> Path:
    """The folder of onnxruntime-web's scripts, fetched once by npm, which compares them with the hashes in package-lock.json."""
    lock = (_SOURCE / "package-lock.json").read_bytes()
    folder = Path(pooch.os_cache("satlib")) / f"npm-{hashlib.sha256(lock).hexdigest()[:16]}"
    scripts = folder / "node_modules" / "onnxruntime-web" / "dist"
    if not (scripts / _WASM).is_file():
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(_SOURCE / name, folder)
        npm = shutil.which("npm")
        command = [npm or "npm", "ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund"]
        if npm is None or subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL).returncode:
            raise SatlibError("npm cannot fetch onnxruntime-web: install Node.js, check the network")
    return scripts
