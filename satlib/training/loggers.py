"""A run's log for TensorBoard or trackio, beside log.jsonl: `training.logger`. Both are installed by whoever wants them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from satlib.errors import SatlibError
from satlib.recipe import Recipe

_MODULES = {"tensorboard": "torch.utils.tensorboard", "trackio": "trackio"}
Log = Callable[[Mapping[str, Any]], None]


def require(name: str) -> Any:
    """The module of a logger; None for "none".

    Raises:
        SatlibError: it is not installed.
    """
    try:
        return import_module(_MODULES[name]) if name in _MODULES else None
    except ImportError as error:
        raise SatlibError(
            f'training.logger = "{name}" needs {name}; run: pip install {name}, or leave the option out'
        ) from error


@contextmanager
def opened(recipe: Recipe, run: Path, history: Sequence[Mapping[str, Any]], first: bool = True) -> Iterator[Log]:
    """Within a `with` block, a function that logs an epoch's record.

    A run for TensorBoard is in its folder, `tensorboard`, and is written anew from its first epoch. In trackio, the project is
    satlib, the run is called as the folder, and a resumed one goes on.

    Args:
        recipe: says which logger.
        run: the run's folder.
        history: the records of the epochs that are done.
        first: whether this is the first of a run's processes, the only one that logs.

    Raises:
        SatlibError: the logger is not installed.
    """
    name = recipe.training.logger if first else "none"
    library = require(name)
    if name == "tensorboard":
        folder = run / "tensorboard"
        for file in folder.glob(
            "events.out.tfevents.*"
        ):  # they may lack an epoch, or have one that was not safe on disk
            file.unlink()
        with library.SummaryWriter(str(folder)) as writer:

            def log(record: Mapping[str, Any]) -> None:
                for figure, value in figures(record).items():
                    writer.add_scalar(figure, value, record["epoch"])
                writer.flush()

            writer.add_text("recipe", "".join(f"    {line}\n" for line in recipe.to_toml().splitlines()))
            for record in history:
                log(record)
            yield log
    elif name == "trackio":
        library.init("satlib", run.resolve().name, config=recipe.to_dict(), resume="allow", embed=False)
        try:
            yield lambda record: library.log(figures(record), step=record["epoch"])
        finally:
            library.finish()
    else:
        yield lambda record: None


def figures(record: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of an epoch's record, those of training and of dev in groups of their own: train/nll, dev/bleu4, seconds."""
    numbers = {name: value for name, value in record.items() if isinstance(value, int | float) and name != "epoch"}
    return {
        f"{split}/{rest}" if rest and split in ("train", "dev") else name: float(value)
        for name, value in numbers.items()
        for split, _, rest in [name.partition("_")]
    }
