"""Train one decoder on each of several encoders, and score them all: the experiment behind a table of encoders.

Section 5.3 compares models on different encoders; Table 1 names them. Each encoder has a recipe of its own, and these differ in
the encoder, its scale and the width of the attention's layer.
"""

from collections.abc import Sequence
from pathlib import Path

import torch

from satlib import recipe
from satlib.data import datasets, features
from satlib.errors import SatlibError
from satlib.evaluation import evaluate
from satlib.model import encoders
from satlib.training import extraction, loop

RECIPES = (
    "flickr8k-soft",
    "flickr8k-alexnet-soft",
    "flickr8k-googlenet-soft",
    "flickr8k-resnet152-soft",
    "flickr8k-densenet201-soft",
    "flickr8k-lite0-soft",
)


def study(
    names: Sequence[str],
    changes: Sequence[str],
    root: Path,
    folder: Path,
    device: str | torch.device = "cpu",
    progress: bool = True,
) -> tuple[list[Path], dict[str, str]]:
    """For each recipe: compute the features, train, caption the test split. Finished or interrupted work is taken up again.

    Args:
        names: the recipes, each with a frozen encoder.
        changes: changes to all of them, "section.key=value".
        root: the folder of data sets, and of the features.
        folder: the folder of the runs, one for each recipe.
        device: where to compute.
        progress: show progress bars.

    Returns:
        The evaluation files, and for each recipe that was left out the reason: its encoder's weights are neither installed nor
        downloadable.

    Raises:
        Interrupted: by Ctrl-C or SIGTERM; the same call goes on.
        SatlibError: a data set is missing, a recipe trains its encoder, or no encoder has weights.
    """
    chosen = [recipe.load(name, changes) for name in names]
    for each in chosen:
        if each.encoder.train:
            raise SatlibError(f"{each.name} trains its encoder; encoders are compared frozen (encoder.train = false)")
    written, left_out = [], {}
    for each in chosen:
        data = datasets.load(each.data.name, root, train_images=each.data.train_images)
        try:
            encoder = encoders.create(each.encoder.name)
        except SatlibError as error:  # not installed, and no network
            left_out[each.name] = str(error)
            continue
        store_folder = features.folder(root, data, encoder.name, each.encoder.view)
        store = extraction.extract(data, encoder, store_folder, device, progress=progress, view=each.encoder.view)
        captioner = loop.train(each, data, store, folder / each.name, device, progress)
        written.append(
            evaluate.save(evaluate.evaluate(captioner, data, store, "test", progress=progress), folder / each.name)
        )
    if not written:
        raise SatlibError("no encoder has weights here: " + "; ".join(left_out.values()))
    return written, left_out
