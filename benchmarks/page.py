"""The page of `satlib page` beside satlib, in headless Chromium: pixels, captions, maps, sizes and times.

    python benchmarks/page.py --data data [--photos 200] [--split dev]

Photographs of Flickr8k are resized to shapes from 100 to 900 pixels a side, saved as JPEG, and given to both. Prints, for the
models with float32 weights and for the small ones of the page, how many greedy captions are equal and, over these, the largest
difference in a weight of attention; the largest difference of a pixel of the encoder's input; what a first visit loads; and the
time that encoding takes, beside PyTorch on one thread, both in turns.
"""

import argparse
import base64
import functools
import http.server
import io
import shutil
import statistics
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from tqdm import tqdm

from satlib.data import datasets, images
from satlib.model import search, shipped
from satlib.model.captioner import Captioner
from satlib.page import live

MODEL = "flickr8k-lite0-soft"
SAY = """async ([content, model, view]) => {
    window.worker ??= new Worker("worker.js", { type: "module" });
    const ask = (what, details) => new Promise((done, failed) => {
        const id = Math.random(), told = [];
        const heard = ({ data }) => {
            if (data.id !== id) return;
            if (data.failed) failed(data.failed);
            if (data.done) { window.worker.removeEventListener("message", heard); done({ ...data, told }); } else told.push(data);
        };
        window.worker.addEventListener("message", heard);
        window.worker.postMessage({ id, do: what, ...details });
    });
    const file = new Blob([Uint8Array.fromBase64(content)], { type: "image/jpeg" });
    await ask("open", { file, name: "photo" });
    const { pixels } = await ask("pixels", { view });
    const wish = { words: [], light: null, once: false, method: "greedy", beam: 3, temperature: 1, onePlace: false };
    const { told } = await ask("say", { model, wish });
    const steps = told.filter(({ step }) => step).map(({ step }) => step);
    return { pixels: new Uint8Array(pixels).toBase64(), words: steps.map(({ word }) => word), alphas: steps.map(({ alpha }) => [...alpha]),
        milliseconds: told.find(({ encoded }) => encoded).encoded };
}"""


def photographs(options: argparse.Namespace) -> list[bytes]:
    """JPEG files of many shapes."""
    data = datasets.load("flickr8k", options.data)
    random = np.random.default_rng(0)
    files = []
    for example in data.split(options.split)[: options.photos]:
        content = io.BytesIO()
        width, height = (int(side) for side in random.integers(100, 901, 2))
        data.photo(example).resize((width, height), Image.Resampling.BICUBIC).save(content, "JPEG", quality=90)
        files.append(content.getvalue())
    return files


@torch.inference_mode()
def right(captioner: Captioner, content: bytes) -> tuple[np.ndarray, search.Hypothesis, float]:
    """What satlib makes of a file: the encoder's input, the greedy caption, and the milliseconds of encoding."""
    square = images.to_tensor(images.square(images.decode(content, "photo"), captioner.view))
    begun = time.perf_counter()
    a = captioner.annotations(captioner._encoded(square.unsqueeze(0)))
    took = 1000 * (time.perf_counter() - begun)
    return square.numpy(), search.greedy(captioner.decoder, a, captioner.recipe.decoding.max_length)[0], took


def compared(page: object, captioner: Captioner, files: list[bytes], storage: str) -> str:
    """One line on a page's captions."""
    same, maps, pixels, ours, theirs = 0, 0.0, 0, [], []
    for content in tqdm(files, storage, leave=False, disable=None):
        got = page.evaluate(SAY, [base64.b64encode(content).decode(), MODEL, captioner.view])
        square, caption, took = right(captioner, content)
        seen = np.frombuffer(base64.b64decode(got["pixels"]), np.uint8).reshape(square.shape)
        pixels = max(pixels, int(np.abs(seen.astype(int) - square).max()))
        ours.append(took)
        theirs.append(got["milliseconds"])
        if got["words"][:-1] == caption.words:
            same += 1
            maps = max(maps, float(np.abs(np.array(got["alphas"]) - caption.alphas.numpy()).max()))
    ratio = statistics.median(theirs) / statistics.median(ours)
    return (
        f"{storage}: {same} of {len(files)} captions equal; maps of these within {maps:.1g}; pixels within {pixels}; encoding "
        f"{statistics.median(theirs):.0f} ms (median), {ratio:.1f} times PyTorch's {statistics.median(ours):.0f} ms"
    )


def main() -> None:
    """Write both pages, visit them and compare."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--photos", type=int, default=200)
    parser.add_argument("--split", default="dev")
    options = parser.parse_args()
    torch.set_num_threads(1)
    captioner, files = Captioner.load(shipped.model(MODEL)), photographs(options)
    with tempfile.TemporaryDirectory() as root, sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome"),
            args=["--no-sandbox", "--disable-gpu"],
        )
        for storage in ("float32", "int8"):
            folder = Path(root) / storage
            made = live.write(folder, [shipped.model(name) for name in live.MODELS], storage)
            handler = functools.partial(_Quiet, directory=str(folder))
            server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            page = browser.new_page()
            page.goto(f"http://127.0.0.1:{server.server_port}/")
            print(compared(page, captioner, files, storage), flush=True)
            page.close()
            server.shutdown()
        shell = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
        scene = max(file.stat().st_size for file in (folder / "scenes").iterdir())
        for parts, names in (("a scene", ["scenes-soft"]), ("a scene and a photograph", ["scenes-soft", MODEL])):
            models = sum(model["bytes"] for model in made["models"] if model["name"] in names)
            print(f"a visit with {parts} loads {(shell + scene + models) / 1e6:.1f} MB")


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Print nothing."""


if __name__ == "__main__":
    main()
