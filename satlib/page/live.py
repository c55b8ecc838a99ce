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

FORMAT = "satlib page 1"
MODELS = ("scenes-soft", "scenes-hard", "flickr8k-lite0-soft")
SCENES = 60
CONTENTS = "page.json"
_SOURCE = Path(__file__).parent / "static"
_RUNTIME, _WASM = "ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm"
_ABOUT = {
    "scenes": "It was trained on 4,000 drawn scenes: two coloured shapes in front of grey and brown clutter. It knows circles, squares, "
    "triangles and stars, and nothing else; none of the scenes here was among the 4,000.",
    "flickr8k": "It was trained on 6,000 photographs, mostly of people and dogs, and has words for little else. It describes whatever it "
    "is given and cannot say that it does not know. For research and education only, not for commercial use.",
}


def write(folder: Path, models: Sequence[Path | str], storage: str = "int8") -> dict[str, Any]:
    """Write the page into a new folder, or over an earlier page: -> the content of page.json.

    Raises:
        SatlibError: npm or a package is missing, the folder holds something else, a model cannot be exported, or two models have
            one name.
    """
    captioners = [Captioner.load(model) for model in models]
    if len({captioner.recipe.name for captioner in captioners}) < len(captioners):
        raise SatlibError("two models have the same name; export one of them under another recipe name")
    for captioner in captioners:
        export.require_exportable(captioner)
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
        pictures = list(_scenes(new)) if any(entry["scenes"] for entry in entries) else []
        contents = {"format": FORMAT, "models": entries, "scenes": pictures, "files": files}
        write_json(new / CONTENTS, contents)
    return contents


def _model(captioner: Captioner, page: Path, storage: str, files: dict[str, Any]) -> dict[str, Any]:
    """Export a captioner into the page and pack its graphs: -> its entry in page.json.

    `files` receives, for each file that the page checks when it has loaded it, the size and the hash of its unpacked content.
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
    data, attention = recipe.data.name, recipe.decoder.attention
    about = _ABOUT.get(data, f"It was trained on the data set {data}.")
    return {
        "name": recipe.name,
        "title": f"{'drawn scenes' if data == 'scenes' else 'photographs'}, {attention} attention",
        "about": f"{about} It knows {len(captioner.vocabulary):,} words.",
        "scenes": data == "scenes",
        "attention": attention,
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
    """The folder of onnxruntime-web's scripts, fetched once by npm, which compares them with the hashes in package-lock.json.

    Raises:
        SatlibError: npm is missing or fails.
    """
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
            raise SatlibError("npm cannot fetch onnxruntime-web: install Node.js, check the network, then try again")
    return scripts
