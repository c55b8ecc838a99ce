"""`python -m benchmarks.bench [PART ...]`: the options of the measurements."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from satlib.cli.arguments import device_option, numbers, positive
from satlib.errors import SatlibError

PARTS = ("step", "growth", "epoch", "extraction", "beam", "loader", "memory")


def parser() -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bench",
        description="Measure speed, against a decoder as it is commonly written, and memory.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    usual = ["step", "extraction", "beam", "loader"]
    parser.add_argument("parts", nargs="*", metavar="PART", default=usual, help=f"of {', '.join(PARTS)}")
    parser.add_argument("--dims", type=numbers, default=[512, 2048], metavar="D,...", help="dimensions of a place, D")
    parser.add_argument("--batches", type=numbers, default=[32, 64, 256], metavar="B,...", help="captions in a batch")
    parser.add_argument(
        "--contestants",
        default="baseline,plain,fast",
        help="of baseline, plain, checkpointed, fast, compiled; ratios are to the first",
    )
    parser.add_argument("--precisions", default="float32", help="of float32, bf16")
    parser.add_argument("--rounds", type=positive, default=5, help="measurements of each contestant, in turn")
    parser.add_argument("--images", type=positive, default=6000, help="images in the epoch; COCO has 82783")
    parser.add_argument("--places", type=positive, default=196, help="places in an image, L")
    parser.add_argument("--encoders", default="vgg19,efficientnet-lite0", help="the encoders of extraction")
    parser.add_argument("--out", type=Path, default=Path("bench.json"), help="file for the results; growth adds a plot")
    device_option(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; the exit status is 2 if an option is wrong."""
    options = parser().parse_args(arguments)
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "0")  # read when torch is loaded; see satlib.cli
    try:
        if unknown := sorted(set(options.parts) - set(PARTS)):
            raise SatlibError(f"bench has no part {unknown[0]!r}; choose among {', '.join(PARTS)}")
        from benchmarks.bench.report import Bench

        Bench(options).run(options.parts)
    except SatlibError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
