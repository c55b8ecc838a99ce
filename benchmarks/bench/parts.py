"""What the bench measures beside the training step: extraction, beam search, the loader, an epoch, memory on a large store."""

import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.bench.machine import bf16_on_cpu, spread, status, synchronise
from benchmarks.bench.step import Contestant, Sizes
from satlib.data import scenes
from satlib.data.features import ARRAY, FORMAT, FeatureStore, Manifest, Record, read_ahead, write_manifest
from satlib.data.images import square, to_tensor
from satlib.errors import SatlibError
from satlib.model import encoders, shipped
from satlib.model.captioner import Captioner
from satlib.model.search import beam_search

MEMORY_STORES = (1.0, 10.0)  # times Flickr8k: 1.6 and 16 GB, as files with holes that take no room


def extraction(names: Sequence[str], device: torch.device, batch: int = 32, rounds: int = 3) -> dict[str, Any]:
    """Images a second of each encoder: as it is, with channels last, and that in bf16 where the device has it."""
    ways = ["float32", "channels last"]
    ways += ["channels last, bf16"] if device.type == "cuda" or bf16_on_cpu() else []
    pixels = torch.randint(0, 256, (batch, 3, 224, 224), dtype=torch.uint8, device=device)
    found: dict[str, Any] = {}
    for name in names:
        try:
            encoder = encoders.create(name).to(device).eval()
        except SatlibError as error:  # weights that would have to be downloaded
            found[name] = {"left out": str(error)}
            continue
        rates: dict[str, list[float]] = {way: [] for way in ways}
        for number in range(rounds + 1):
            for way in ways:
                last = way != "float32"
                encoder = encoder.to(memory_format=torch.channels_last if last else torch.contiguous_format)
                given = pixels.contiguous(memory_format=torch.channels_last) if last else pixels
                with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled="bf16" in way):
                    synchronise(device)
                    start = time.perf_counter()
                    encoder(given)
                    synchronise(device)
                if number:
                    rates[way].append(batch / (time.perf_counter() - start))
        found[name] = {way: spread(values) for way, values in rates.items()}
    return found


def beam(device: torch.device, widths: Sequence[int] = (1, 3, 5), images: int = 32, rounds: int = 3) -> dict[str, Any]:
    """Captions a second of the model that comes with satlib, from annotation vectors on, by the width of the beam."""
    captioner = Captioner.load(shipped.model(), device).eval()
    data = scenes.load(train=0, dev=0, test=images)
    pixels = torch.stack([to_tensor(square(data.photo(example))) for example in data.examples]).to(device)
    with torch.inference_mode():
        a = captioner.annotations(captioner.encoder(pixels))
    decoding = captioner.recipe.decoding
    found = {}
    for width in widths:
        rates = []
        for _ in range(rounds + 1):
            synchronise(device)
            start = time.perf_counter()
            beam_search(captioner.decoder, a, width, decoding.max_length, decoding.length_normalisation)
            synchronise(device)
            rates.append(images / (time.perf_counter() - start))
        found[str(width)] = spread(rates[1:])
    return found


def make_store(folder: Path, images: int, dim: int = 512, real: int = 0) -> FeatureStore:
    """A store of VGG-19's shape whose first `real` images hold numbers and whose others are a hole in the file."""
    numbers = np.random.default_rng(0).standard_normal((196, dim)).astype(np.float16).tobytes()
    written, hole = zlib.crc32(numbers), zlib.crc32(bytes(len(numbers)))
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ARRAY, "wb") as array:
        for _ in range(real):
            array.write(numbers)
        array.truncate(images * len(numbers))
    records = {str(i): Record(i, 0, 0, "", written if i < real else hole) for i in range(images)}
    write_manifest(folder, Manifest(FORMAT, "made", "", "made", "", "whole", (14, 14), dim, records))
    return FeatureStore(folder)


def loader(batch: int = 64, batches: int = 30, rounds: int = 3) -> dict[str, Any]:
    """Images a second that the feature store gives in training's order, while nothing else is done."""
    with tempfile.TemporaryDirectory() as folder:
        store = make_store(Path(folder), 1000, real=1000)
        rates = []
        for number in range(rounds):
            order = np.random.default_rng(number).integers(1000, size=(batches, batch))
            rows = [[str(i) for i in row] for row in order]
            start = time.perf_counter()
            for _ in read_ahead(store.read, rows):
                pass
            rates.append(batch * batches / (time.perf_counter() - start))
    return {"images_per_second": spread(rates), "gigabytes_per_second": max(rates) * 196 * 512 * 2 / 1e9}


def epoch(sizes: Sizes, images: int, device: torch.device, name: str = "plain", bf16: bool = False) -> dict[str, Any]:
    """One epoch over made annotation vectors that lie on the device as float16, five captions an image, Flickr8k's lengths."""
    a = torch.rand(images, sizes.L, sizes.D, dtype=torch.float16, device=device)
    lengths = torch.tensor(sizes.lengths(5 * images))
    order = torch.randperm(5 * images, generator=torch.Generator().manual_seed(0))
    chunks = [
        chunk for length in lengths.unique() for chunk in order[lengths[order] == length].split(sizes.B)
    ]  # of one length each
    contestant = Contestant(name, sizes, device, bf16)
    first = a[chunks[0] // 5].float()
    contestant.step(first, torch.zeros(len(first), 2, dtype=torch.long, device=device), torch.full((len(first),), 2))
    synchronise(device)
    start = time.perf_counter()
    for chunk in chunks:
        length = int(lengths[chunk[0]])
        captions = torch.randint(0, sizes.K, (len(chunk), length), device=device)
        contestant.step(a[(chunk // 5).to(device)].float(), captions, lengths[chunk])
    synchronise(device)
    seconds = time.perf_counter() - start
    words = int(lengths.sum())
    return {
        "images": images,
        "batch": sizes.B,
        "words": words,
        "seconds": seconds,
        "tokens_per_second": words / seconds,
    }


def memory(steps: int = 40, batch: int = 64, stores: Sequence[float] = MEMORY_STORES) -> list[dict[str, Any]]:
    """What training on a large store keeps in memory, each in a process of its own (`python -m benchmarks.bench.parts`)."""
    found = []
    for times in stores:
        images = int(8000 * times)
        with tempfile.TemporaryDirectory() as folder:
            make_store(Path(folder), images)
            command = [sys.executable, "-m", "benchmarks.bench.parts", folder, str(images), str(steps), str(batch)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SatlibError(f"measuring memory failed: {done.stderr.strip().splitlines()[-1]}")
        begun, most, words, seconds = map(float, done.stdout.split())
        found.append(
            {
                "store_bytes": images * 196 * 512 * 2,
                "resident_bytes": most,
                "of_which_before_training": begun,
                "words": words,
                "seconds": seconds,
            }
        )
    return found


def _train_on(folder: Path, images: int, steps: int, batch: int) -> None:
    """Train for some steps on a store, and print memory before, memory at most, words, seconds."""
    store, sizes = FeatureStore(folder), Sizes(B=batch)
    contestant, begun = Contestant("fast", sizes, torch.device("cpu")), status("VmRSS")
    drawn = np.random.default_rng(0).integers(images, size=(steps, batch))
    lengths = np.random.default_rng(0).permutation(sizes.lengths(steps))
    words, start = 0, time.process_time()
    for number, a in enumerate(read_ahead(lambda row: store.read([str(i) for i in row]), list(drawn))):
        captions = torch.randint(0, sizes.K, (batch, int(lengths[number])))
        contestant.step(a, captions, torch.full((batch,), captions.shape[1]))
        words += captions.numel()
    print(begun, status("VmHWM"), words, time.process_time() - start)


if __name__ == "__main__":
    _train_on(Path(sys.argv[1]), *map(int, sys.argv[2:]))
