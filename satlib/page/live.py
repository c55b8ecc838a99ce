"""A static web page on which captioners run: `satlib page`. Any file server can serve the folder; nothing leaves the visitor's device.

A folder holds the page (satlib/page/static: HTML, CSS and scripts, as they are in the package), onnxruntime-web, whose version
package-lock.json there fixes, the models (`onnx_export`), 60 drawn scenes, and page.json, which lists models and files with their
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

import msgspec
import pooch

from satlib.data import scenes
from satlib.errors import SatlibError
from satlib.files.atomic import write_json
from satlib.files.progress import progress_bar
from satlib.files.reading import read_json
from satlib.model.captioner import Captioner
from satlib.page import export
from satlib.page.reader import ENCODER, MANIFEST, STEP, WORDS, Manifest, needed

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
    """Write the page, or replace an earlier one.

    Args:
        folder: a new one, or one that holds an earlier page; it changes only once the new page is whole.
        models: the captioners, each with a name of its own.
        storage: of their weights, as in `onnx_export.export`.

    Returns:
        The content of page.json.

    Raises:
        SatlibError: npm or a package is missing, the folder holds something else, a model cannot be exported, or two models have
            one name.
    """
    captioners = [Captioner.load(model) for model in models]
    names = [captioner.recipe.name for captioner in captioners]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise SatlibError(f"two models are called {twice[0]}; export one of them under another recipe name")
    for captioner in captioners:
        export.require_exportable(captioner)
    runtime = _runtime()
    with export.replaced(folder, CONTENTS, "page") as new:
        for file in (_RUNTIME, _WASM):
            shutil.copy(runtime / file, new)
        for file in (*_SOURCE.glob("*.js"), *_SOURCE.glob("*.html"), *_SOURCE.glob("*.css")):
            shutil.copy(file, new)
        bar = progress_bar(captioners, unit="model", desc="exporting", leave=False)
        listed = [_model(captioner, new, storage) for captioner in bar]
        contents = {
            "format": FORMAT,
            "models": listed,
            "scenes": list(_scenes(new)) if any(model["scenes"] for model in listed) else [],
            "files": dict(_fingerprints(new)),
        }
        write_json(new / CONTENTS, contents)
        _versioned(new)
    return contents


def _model(captioner: Captioner, made: Path, storage: str) -> dict[str, Any]:
    """Export a captioner into the page, and pack its graphs: its entry in page.json."""
    recipe = captioner.recipe
    folder = made / recipe.name
    export.export(captioner, folder, storage)
    for name in (ENCODER, STEP):
        (folder / f"{name}.gz").write_bytes(_packed((folder / name).read_bytes(), thorough=int(storage == "int8")))
        (folder / name).unlink()
    data, attention = recipe.data.name, captioner.recipe.decoder.attention
    what = "drawn scenes" if data == "scenes" else "photographs"
    return {
        "name": recipe.name,
        "title": f"{what}, {attention} attention",
        "about": _ABOUT.get(data, f"It was trained on the data set {data}.")
        + f" It knows {len(captioner.vocabulary):,} words.",
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


def _packed(content: bytes, thorough: int) -> bytes:
    """The content as a gzip file; the same content always gives the same file. 0 is fast, more is smaller."""
    if not thorough:
        return gzip.compress(content, compresslevel=1, mtime=0)
    with needed():
        import zopfli.gzip
    return zopfli.gzip.compress(content, numiterations=thorough)


def _fingerprints(made: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """For each file that the page checks when it has loaded it: the size and the hash of what is packed in it."""
    for model in sorted(made.glob(f"*/{MANIFEST}")):
        files = read_json(model, Manifest, "the manifest of an exported model").files
        for name in (ENCODER, STEP, WORDS):
            yield f"{model.parent.name}/{name}{'.gz' if name != WORDS else ''}", msgspec.structs.asdict(files[name])


def _versioned(made: Path) -> None:
    """Give the service worker the hash of all files: a browser then notices a new version of the page."""
    everything = hashlib.sha256()
    for file in sorted(path for path in made.rglob("*") if path.is_file()):
        everything.update(str(file.relative_to(made)).encode() + hashlib.sha256(file.read_bytes()).digest())
    worker = made / "sw.js"
    text = worker.read_text(encoding="utf-8")
    placeholder = 'const VERSION = "";'
    assert placeholder in text, "sw.js has lost its placeholder"
    worker.write_text(text.replace(placeholder, f'const VERSION = "{everything.hexdigest()[:16]}";'), encoding="utf-8")


def _runtime() -> Path:
    """A folder with onnxruntime-web, fetched by npm once: npm compares what it gets with the hashes in package-lock.json.

    Raises:
        SatlibError: npm is missing or fails.
    """
    lock = (_SOURCE / "package-lock.json").read_bytes()
    folder = Path(pooch.os_cache("satlib")) / f"onnxruntime-web-{hashlib.sha256(lock).hexdigest()[:16]}"
    if (folder / _WASM).is_file():
        return folder
    npm = shutil.which("npm")
    if npm is None:
        raise SatlibError(
            "satlib page needs npm, to fetch onnxruntime-web once; install Node.js (which brings npm), then try again"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="npm-", dir=folder.parent) as partial:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(_SOURCE / name, partial)
        done = subprocess.run(
            [npm, "ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund"],
            cwd=partial,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            last = [line for line in done.stderr.splitlines() if "error" in line][:1] or ["npm gave no reason"]
            raise SatlibError(f"npm cannot fetch onnxruntime-web: {last[0].strip()}; check the network, then try again")
        dist = Path(partial) / "node_modules" / "onnxruntime-web" / "dist"
        made = Path(partial) / "runtime"
        made.mkdir()
        shutil.copy(dist / _RUNTIME, made)
        (made / _WASM).write_bytes(_packed((dist / "ort-wasm-simd-threaded.wasm").read_bytes(), thorough=3))
        if not folder.exists():  # another process may have been faster
            made.rename(folder)
    return folder
