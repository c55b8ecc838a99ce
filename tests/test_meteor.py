"""METEOR of equal words against its authors' program, its alignment against every alignment there is."""

import itertools
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from satlib.beyond import meteor
from satlib.evaluation import metrics

needs_java = pytest.mark.needs_java
texts = st.lists(st.sampled_from("abcd"), max_size=5)


def chunks(pairs):
    return sum(pair != (i + 1, j + 1) for (i, j), pair in itertools.pairwise([(-9, -9), *pairs]))


def all_alignments(caption, reference):
    """Every set of pairs of equal words that uses no word twice."""
    equal = [(i, j) for i, word in enumerate(caption) for j, other in enumerate(reference) if word == other]
    for size in range(min(len(caption), len(reference)) + 1):
        for pairs in itertools.combinations(equal, size):
            if len({i for i, _ in pairs}) == len({j for _, j in pairs}) == size:
                yield pairs


class TestAlign:
    @given(texts, texts)
    @settings(max_examples=80)
    def test_is_the_best_of_all(self, caption, reference):
        def worth(pairs):
            return len(pairs), -chunks(pairs), -sum(abs(i - j) for i, j in pairs)

        found = meteor.align(caption, reference)
        assert found == tuple(sorted(found))
        assert found in set(all_alignments(caption, reference))
        assert worth(found) == max(map(worth, all_alignments(caption, reference)))

    def test_fewer_chunks_before_nearer(self):
        # The nearer "a" would be the first one, in a chunk of its own.
        assert meteor.align("xay", "azay") == ((1, 2), (2, 3))

    def test_a_text_that_stammers_has_too_many_ways_to_go_them_all(self):
        assert len(meteor.align("a" * 40, "ab" * 20)) == 20  # of 2^20 sets of partners


class TestMeteor:
    def test_by_hand_with_words_that_no_one_else_says(self):
        # Partners: "a dog" in one chunk, "runs" in another: 1.75 of the caption's weight of 3.25, of 3.5 there.
        found = meteor.meteor(
            ["a", "dog", "often", "runs", "today"], [["on", "grass", "a", "dog", "slowly", "runs"]], {"a", "on"}
        )
        precision, recall = 1.75 / 3.25, 1.75 / 3.5
        f_mean = precision * recall / (0.85 * precision + 0.15 * recall)
        assert found == pytest.approx(f_mean * (1 - 0.6 * (2 / 3) ** 0.2))

    def test_only_equal_texts_have_no_penalty(self):
        # One chunk in both, but a word is missing on one side, and the other way round.
        f_mean = 0.5 / (0.85 + 0.15 * 0.5), 0.5 / (0.85 * 0.5 + 0.15)
        found = meteor.meteor(["dog"], [["dog", "runs"]], ()), meteor.meteor(["dog", "runs"], [["dog"]], ())
        assert found == pytest.approx([(1 - 0.6) * f_mean[0], (1 - 0.6 * 1**0.2) * f_mean[1]])

    def test_of_equal_texts_is_one_and_of_disjoint_ones_nothing(self):
        assert meteor.meteor([3, 4, 5], [[9], [3, 4, 5]], {4}) == 1
        assert meteor.meteor([3, 4], [[5, 6]], {4}) == 0
        assert meteor.meteor([], [[5, 6]], set()) == 0

    def test_function_words_are_english(self):
        assert {"a", "the", "in", "with"} <= meteor.function_words()
        assert not {"dog", "man", "red"} & meteor.function_words()

    @needs_java
    def test_is_that_of_the_program_told_to_do_with_equal_words(self, tmp_path):
        chance = random.Random(4)
        words = re.findall(r"\w+", "a a a the the in of dog dog cat man men runs running sits red ball two park water")
        sentences = [" ".join(chance.choices(words, k=chance.randint(1, 12))) for _ in range(600)]
        captions, rest = sentences[:200], sentences[200:]
        references = list(zip(rest[::2], rest[1::2], strict=True))
        (tmp_path / "captions").write_text("\n".join(captions) + "\n")
        (tmp_path / "references").write_text("\n".join(itertools.chain(*references)) + "\n")
        arguments = ["-Xmx1G", *metrics.LOCALE, "-jar", str(metrics.METEOR_JAR), "captions", "references", "-r", "2"]
        printed = metrics.run_java([*arguments, "-l", "en", "-m", "exact", "-w", "1.0"], tmp_path, timeout=120)
        expected = [float(figure) for figure in re.findall(r"^Segment \d+ score:\s+(\S+)$", printed, re.MULTILINE)]
        found = [
            meteor.meteor(caption.split(), [line.split() for line in lines], meteor.function_words())
            for caption, lines in zip(captions, references, strict=True)
        ]
        assert found == pytest.approx(expected, abs=1e-12)
        assert len(set(expected)) > 100
