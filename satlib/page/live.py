"""A static web page on which captioners run: `satlib page`. Any file server can serve the folder; nothing leaves the visitor's device.

A folder holds the page (satlib/page/static: HTML, CSS and scripts, as they are in the package), onnxruntime-web, whose version
package-lock.json there fixes, the models (`export`), 60 drawn scenes, and page.json, which lists models and files with their
SHA-256. Graphs and WebAssembly are gzip files, which the page unpacks itself: a plain file server sends files as they are.
"""

import gzip
import hashlib
import shutil
import subprocess
import tempfile
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
_RUNTIME, _WASM = "ort.wasm.bundle.min.mjs", "onnxruntime.wasm.gz"
_ABOUT = {
    "scenes": "It was trained on 4,000 drawn scenes: two coloured shapes in front of grey and brown clutter. It knows circles, squares, "
    "triangles and stars, and nothing else; none of the scenes here was among the 4,000.",
    "flickr8k": "It was trained on 6,000 photographs, mostly of people and dogs, and has words for little else. It describes whatever it "
    "is given and cannot say that it does not know. For research and education only, not for commercial use.",
}


def write(folder: Path, models: Sequence[Path], storage: str = "int8") -> dict[str, Any]:
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
        for file in (
            *runtime.iterdir(),
            *(file for kind in ("js", "html", "css") for file in _SOURCE.glob(f"*.{kind}")),
        ):
            shutil.copy(file, new)
        files: dict[str, Any] = {}
        entries = [_model(captioner, new, storage, files) for captioner in progress_bar(captioners, desc="exporting")]
        pictures = list(_scenes(new)) if any(entry["scenes"] for entry in entries) else []
        contents = {"format": FORMAT, "models": entries, "scenes": pictures, "files": files}
        write_json(new / CONTENTS, contents)
        _set_version(new)
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


def _set_version(page: Path) -> None:
    """Give the service worker the hash of all files: a browser then notices a new version of the page."""
    everything = hashlib.sha256()
    for file in sorted(path for path in page.rglob("*") if path.is_file()):
        everything.update(str(file.relative_to(page)).encode() + hashlib.sha256(file.read_bytes()).digest())
    worker = page / "sw.js"
    text = worker.read_text(encoding="utf-8")
    worker.write_text(text.replace('VERSION = ""', f'VERSION = "{everything.hexdigest()[:16]}"'), encoding="utf-8")


def _runtime() -> Path:
    """A folder with onnxruntime-web, fetched once by npm, which compares it with the hashes in package-lock.json.

    Raises:
        SatlibError: npm is missing or fails.
    """
    lock = (_SOURCE / "package-lock.json").read_bytes()
    folder = Path(pooch.os_cache("satlib")) / f"onnxruntime-web-{hashlib.sha256(lock).hexdigest()[:16]}"
    if (folder / _WASM).is_file():
        return folder
    npm = shutil.which("npm")
    if npm is None:
        raise SatlibError("satlib page needs npm, to fetch onnxruntime-web once; install Node.js, then try again")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="npm-", dir=folder.parent) as partial:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(_SOURCE / name, partial)
        command = [npm, "ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund"]
        done = subprocess.run(command, cwd=partial, capture_output=True, text=True)
        if done.returncode:
            raise SatlibError(f"npm cannot fetch onnxruntime-web; check the network, then try again\n{done.stderr}")
        distribution = Path(partial) / "node_modules" / "onnxruntime-web" / "dist"
        runtime = Path(partial) / "runtime"
        runtime.mkdir()
        shutil.copy(distribution / _RUNTIME, runtime)
        wasm = (distribution / "ort-wasm-simd-threaded.wasm").read_bytes()
        (runtime / _WASM).write_bytes(gzip.compress(wasm, mtime=0))
        if not folder.exists():  # another process may have been faster
            runtime.rename(folder)
    return folder
