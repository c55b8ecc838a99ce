"""How many captions with such a score are true: `python benchmarks/how_sure.py`, two minutes.

Counts into satlib/results/how-sure.json, draws docs/how-sure.png, and prints how the counts of the
fitted part fare on the part that was set aside. Captions of photographs: those of
satlib/results/judged-captions.csv, which two readers judged without the scores; a caption is true
if both say so. Captions of drawn scenes: all of dev, with test set aside, by
`scenes.exact_match`; in 60 that the readers judged, too, all three agree.
"""

import csv
import math
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import satlib
from satlib.data import scenes
from satlib.evaluation import how_sure, plots
from satlib.files import write_json
from satlib.model import installed
from satlib.model.captioner import Captioner
from satlib.model.encoders import hash_of

JUDGED = Path(satlib.__file__).parent / "results" / "judged-captions.csv"
PICTURE = Path(__file__).parent.parent / "docs" / "how-sure.png"
BANDS = 3  # of equally many captions
FITTED, SET_ASIDE = "dev", "set aside"
LOOKS = {FITTED: ("#0072b2", -0.06), SET_ASIDE: ("#d55e00", 0.06)}  # colour, shift to the side

Verdict = tuple[float, bool]  # a caption's score, and whether it is true


def readers_verdicts(part: str) -> list[Verdict]:
    """The verdicts on photographs of a part, "fit" or "check"."""
    with open(JUDGED, encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["part"] == part]
    photographs = [row for row in rows if row["model"] == installed.PHOTOGRAPHS]
    return [
        (float(row["score"]), row["first reader"] == row["second reader"] == "true")
        for row in photographs
    ]


def scene_verdicts(captioner: Captioner, split: str) -> list[Verdict]:
    """The captioner's captions of the drawn scenes of a split, and whether they are exact."""
    verdicts = []
    for example in scenes.load().split(split):
        scene = scenes.scene(example.image_id)
        (caption,) = captioner.caption([scene.photo()])
        score = caption.to_json()["score"]
        verdicts.append((score, scenes.exact_match(caption.words, scene)))
    return verdicts


def verdicts_of(captioner: Captioner) -> dict[str, list[Verdict]]:
    """The verdicts on a model's captions, of the part that is fitted and the one set aside."""
    if captioner.recipe.name == installed.PHOTOGRAPHS:
        return {FITTED: readers_verdicts("fit"), SET_ASIDE: readers_verdicts("check")}
    return {
        FITTED: scene_verdicts(captioner, "dev"),
        SET_ASIDE: scene_verdicts(captioner, "test"),
    }


def limits(verdicts: list[Verdict]) -> list[float]:
    """The least scores of bands of equally many captions, but for equal scores."""
    scores = sorted(score for score, _ in verdicts)
    return [0.0] + [scores[band * len(scores) // BANDS] for band in range(1, BANDS)]


def counted(verdicts: list[Verdict], leasts: list[float]) -> list[how_sure.Band]:
    """The captions of each band, and the true ones."""
    found = []
    for least, end in zip(leasts, [*leasts[1:], math.inf], strict=True):
        inside = [is_true for score, is_true in verdicts if least <= score < end]
        found.append(how_sure.Band(least, sum(inside), len(inside)))
    return found


def wilson(true: int, judged: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson, JASA 22, 1927)."""
    z = 1.96
    share = true / judged
    middle = (share + z**2 / (2 * judged)) / (1 + z**2 / judged)
    variance = share * (1 - share) / judged + z**2 / (4 * judged**2)
    reach = z * math.sqrt(variance) / (1 + z**2 / judged)
    return middle - reach, middle + reach


def draw(axis: Axes, band_counts: list[how_sure.Band], part: str) -> None:
    """The share of true captions of each band, with its interval, beside each other."""
    colour, shift = LOOKS[part]
    for place, band in enumerate(band_counts):
        share = band.true / band.judged
        low, high = wilson(band.true, band.judged)
        axis.errorbar(
            place + shift,
            share,
            yerr=[[share - low], [max(high - share, 0)]],
            fmt="o",
            capsize=4,
            color=colour,
            label=part if place == 0 else None,  # once in the legend
        )


def main() -> None:
    """Count, print and draw the bands of each model that comes with satlib and has verdicts."""
    torch.set_num_threads(1)
    counts = {}
    figure = Figure(figsize=(9.6, 3.6), layout="constrained")
    models = (installed.PHOTOGRAPHS, "scenes-soft", "scenes-hard")
    for axis, name in zip(figure.subplots(1, 3, sharey=True), models, strict=True):
        captioner = Captioner.load(name)
        verdicts = verdicts_of(captioner)
        leasts = limits(verdicts[FITTED])
        bands = counted(verdicts[FITTED], leasts)
        counts[hash_of(captioner)[:8]] = {"model": name, "bands": bands}
        for part, own in verdicts.items():
            band_counts = counted(own, leasts)
            draw(axis, band_counts, part)
            for band in band_counts:
                print(f"{name}, {part}: {band.true} of {band.judged} from score {band.least:.2f}")

        axis.set_title(name)
        axis.set_xticks(range(BANDS), [f"from {least:.2f}" for least in leasts])
        axis.set_ylim(0, 1.05)
        axis.set_xlabel("score")
    figure.axes[0].set_ylabel("share of true captions")
    figure.axes[0].legend(loc="upper left")

    write_json(how_sure.COUNTS, counts)
    plots.save(figure, PICTURE)


if __name__ == "__main__":
    main()
