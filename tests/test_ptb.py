"""The words of captions, against the Java program that the COCO tools use."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

import satlib
from satlib.evaluation import metrics, ptb

# What the Java program gives, without the punctuation that the COCO tools drop.
HARD = {
    "Two dogs' owners can't see the dog's ball; it's lost.": "two dogs owners ca n't see the dog 's ball it 's lost",
    "\"Don't,\" she said, 'I cannot.' -- and that's that ...": "do n't she said i can not and that 's that",
    "I've seen we'd go, you're in, they'll see": "i 've seen we 'd go you 're in they 'll see",
    "A man (in a red T-shirt) rides a 5-year-old's bike [sic].": "a man -lrb- in a red t-shirt -rrb- rides a 5-year-old 's bike -lsb- sic -rsb-",
    "St. Bernard and Mr. Smith at 5 p.m. in the U.S. The end.": "st. bernard and mr. smith at 5 p.m. in the u.s. the end",
    "A plane with a C. on it. A plane with a no. 5 on it, no. one.": "a plane with a c. on it a plane with a no. 5 on it no one",
    'A sign says "SALE: 50% off, $5.50 or £5", isn\'t it?!': "a sign says sale 50 % off $ 5.50 or # 5 is n't it ?!",
    "3 1/2 cups, ½ a pie, 10:30, 1,000 people, -5 and +5": "3\xa01/2 cups 1/2 a pie 10:30 1,000 people -5 and +5",
    "Rock 'n' roll, the '90s, the 1990's, 'em, o'clock, O'Neil, ma'am": "rock 'n' roll the '90s the 1990 's 'em o'clock o'neil ma'am",
    "Gonna, wanna, cannot's": "gon na wan na cannot 's",
    "and/or w/ black/white/red b & w R&B at&t rock&roll": "and/or w / black/white/red b & w r&b at & t rock & roll",
    "mother-in-law's -- pre–war dog—cat a -dog- wet-suit": "mother-in-law 's pre war dog cat a dog wet-suit",
    "“It’s” ‘a’ café’s naïve … dog’s don’t I’m": "it 's a café 's naïve dog 's do n't i 'm",
    "dog.Cat end.Start the...end wait....": "dog.cat end.start the end wait",
    "犬が走る собака कुत्ता dog😀cat ☃ 20°C 5×5 ©": "犬が走る собака कुत्ता dog cat ☃ 20 ° c 5 × 5 ©",
    "A ``dog'' for €5, ¢9, ¼, ¾, ⅓ and ⅔ of {it} &AMP; all": "a dog for $ 5 cents 9 1/4 3/4 1/3 and 2/3 of -lcb- it -rcb- & all",
    "The colour of the grey theatre's centre": "the colour of the grey theatre 's centre",
    "A letter a. The dog. A letter a. the dog. co. Co. dog., mass.": "a letter a the dog a letter a. the dog co. co. dog. mass",
}

WORDS = [
    "a", "the", "two", "dog's", "men's", "isn't", "don't", "can't", "cannot", "gonna", "it's", "they're", "he'll",
    "I'm", "I've", "we'd", "dogs'", "O'Neil", "o'clock", "ma'am", "t-shirt", "mother-in-law", "5-year-old", "St.",
    "Mr.", "U.S.", "a.m.", "etc.", "no.", "B", "5", "3.5", "1,000", "10:30", "1/2", "5th", "1990s", "'em",
    "café", "R&B", "A", "TV", "and/or", "$5", "£5", "50%", "it’s", "don’t", "😀", "½", "20°C", "犬", "собака",
]  # fmt: skip
BETWEEN = [" "] * 8 + [
    ", ", ". ", "! ", "? ", "; ", ": ", " - ", " -- ", " – ", "... ", ' "', '" ', '." ', '," ', " '", "' ", " (", ") ",
    ") . ", " “", "” ", " ‘", "’ ", " & ", " + ", " / ", " . ", " , ", "!! ", "?! ",
]  # fmt: skip


def by_java(captions: list[str]) -> list[str]:
    tokenised = PTBTokenizer().tokenize(
        {i: [{"caption": caption}] for i, caption in enumerate(captions)}
    )
    return [tokenised[i][0] for i in range(len(captions))]


def by_us(captions: list[str]) -> list[str]:
    spoken = dict(enumerate(captions))
    references = {number: ["a"] for number in spoken}
    words, _ = metrics.split_words(spoken, references)
    return list(words.values())


def differences(captions: list[str]) -> list[tuple[str, str, str]]:
    lines = zip(captions, by_java(captions), by_us(captions), strict=True)
    return [(caption, theirs, ours) for caption, theirs, ours in lines if theirs != ours]


@pytest.mark.parametrize("caption", HARD)
def test_hard_captions(caption):
    assert ptb.split([caption]) == [HARD[caption]]


def test_a_full_stop_after_a_letter_depends_on_the_next_caption():
    """As it does in the Java program, which reads all captions as one text."""
    assert ptb.split(["the letter b.", "A dog", "", "the letter b.", "a dog"]) == [
        "the letter b", "a dog", "", "the letter b.", "a dog",
    ]  # fmt: skip


@pytest.mark.needs_java
def test_hard_captions_are_what_java_gives():
    captions = [line for caption in HARD for line in (caption, "")]
    assert by_java(captions)[::2] == list(HARD.values())
    assert by_java(["the letter b.", "A dog", "", "the letter b.", "a dog"])[0::3] == [
        "the letter b",
        "the letter b.",
    ]


@pytest.mark.needs_java
def test_generated_captions():
    results = sorted((Path(satlib.__file__).parent / "results").glob("*/evaluation-*.json"))
    captions = [
        caption
        for path in results
        for caption in json.loads(path.read_text("utf-8"))["captions"].values()
    ]
    assert len(captions) > 10_000
    assert differences(captions[::5]) == []


@pytest.mark.needs_java
def test_drawn_captions():
    """All in one call of the program, which takes a second to start."""
    drawn = []

    @settings(max_examples=2000, derandomize=True, database=None)
    @given(
        st.lists(
            st.tuples(st.sampled_from(WORDS), st.sampled_from(BETWEEN)), min_size=1, max_size=8
        )
    )
    def draw(parts):
        drawn.append("".join(word + between for word, between in parts).strip())

    draw()
    assert len(set(drawn)) > 1000
    assert differences(drawn) == []


@given(st.text(max_size=40))
@settings(max_examples=60)
def test_any_text_stays_on_its_line(caption):
    first, second = by_us([caption, "a dog"])
    assert first == first.replace("\n", " ").strip()
    assert second == "a dog"
