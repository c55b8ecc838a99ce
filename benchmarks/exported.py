"""Compare exported ONNX graphs (`satlib/page/export.py`) with PyTorch on a data set's dev photographs.

    python benchmarks/exported.py flickr8k-lite0-soft --data data --photos 200

Printed for each storage: the size of the files; the share of greedy captions that are equal; over these, the largest difference
in a weight of attention; and the seconds that a caption takes, beside PyTorch's. Both run on one thread, in turns.
"""

import argparse
import tempfile
import time
from pathlib import Path

import torch
from tqdm import tqdm

from satlib.data import datasets
from satlib.model import shipped
from satlib.model.captioner import Captioner
from satlib.page import export
from satlib.page.reader import Exported


def main() -> None:
    """Export, caption and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--photos", type=int, default=200)
    options = parser.parse_args()
    torch.set_num_threads(1)
    captioner = Captioner.load(shipped.or_shipped(options.model))
    data = datasets.load(captioner.recipe.data.name, options.data)
    photos = [data.photo(example) for example in data.split("dev")[: options.photos]]
    with tempfile.TemporaryDirectory() as folder:
        for storage in ("float32", "int8"):
            made = export.export(captioner, Path(folder) / storage, storage)
            exported = Exported(Path(folder) / storage)
            same, off, ours, theirs = 0, 0.0, 0.0, 0.0
            for photo in tqdm(photos, storage, leave=False, disable=None):
                begun = time.perf_counter()
                spoken = exported.greedy(photo)
                theirs += time.perf_counter() - begun
                begun = time.perf_counter()
                caption = captioner.caption([photo], beam=1)[0]
                ours += time.perf_counter() - begun
                if exported.text(spoken) == caption.text:
                    same += 1
                    off = max(off, float(abs(caption.alphas.flatten(1).numpy() - spoken.alphas).max()))
            size = sum(content["bytes"] for content in made["files"].values())
            count = len(photos)
            print(
                f"{storage}: {size / 1e6:.1f} MB; {same} of {count} captions equal; maps of these differ by up to {off:.1g}; "
                f"{theirs / count:.3f} s a caption, {theirs / ours:.2f} of PyTorch's time"
            )


if __name__ == "__main__":
    main()
