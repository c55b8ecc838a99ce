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
    "Two dogs' owners can't see the dog's ball; it's lost.": (
        "two dogs owners ca n't see the dog 's ball it 's lost"
    ),
    "\"Don't,\" she said, 'I cannot.' -- and that's that ...": (
        "do n't she said i can not and that 's that"
    ),
    "I've seen we'd go, you're in, they'll see": "i 've seen we 'd go you 're in they 'll see",
    "A man (in a red T-shirt) rides a 5-year-old's bike [sic].": (
        "a man -lrb- in a red t-shirt -rrb- rides a 5-year-old 's bike -lsb- sic -rsb-"
    ),
    "St. Bernard and Mr. Smith at 5 p.m. in the U.S. The end.": (
        "st. bernard and mr. smith at 5 p.m. in the u.s. the end"
    ),
    "A plane with a C. on it. A plane with a no. 5 on it, no. one.": (
        "a plane with a c. on it a plane with a no. 5 on it no one"
    ),
    'A sign says "SALE: 50% off, $5.50 or £5", isn\'t it?!': (
        "a sign says sale 50 % off $ 5.50 or # 5 is n't it ?!"
    ),
    "3 1/2 cups, ½ a pie, 10:30, 1,000 people, -5 and +5": (
        "3\xa01/2 cups 1/2 a pie 10:30 1,000 people -5 and +5"
    ),
    "Rock 'n' roll, the '90s, the 1990's, 'em, o'clock, O'Neil, ma'am": (
        "rock 'n' roll the '90s the 1990 's 'em o'clock o'neil ma'am"
    ),
    "Gonna, wanna, cannot's": "gon na wan na cannot 's",
    "and/or w/ black/white/red b & w R&B at&t rock&roll": (
        "and/or w / black/white/red b & w r&b at & t rock & roll"
    ),
    "mother-in-law's -- pre–war dog—cat a -dog- wet-suit": (
        "mother-in-law 's pre war dog cat a dog wet-suit"
    ),
    "“It’s” ‘a’ café’s naïve … dog’s don’t I’m": "it 's a café 's naïve dog 's do n't i 'm",
    "dog.Cat end.Start the...end wait....": "dog.cat end.start the end wait",
    "犬が走る собака कुत्ता dog😀cat ☃ 20°C 5×5 ©": "犬が走る собака कुत्ता dog cat ☃ 20 ° c 5 × 5 ©",
    "A ``dog'' for €5, ¢9, ¼, ¾, ⅓ and ⅔ of {it} &AMP; all": (
        "a dog for $ 5 cents 9 1/4 3/4 1/3 and 2/3 of -lcb- it -rcb- & all"
    ),
    "The colour of the grey theatre's centre": "the colour of the grey theatre 's centre",
    "A letter a. The dog. A letter a. the dog. co. Co. dog., mass.": (
        "a letter a the dog a letter a. the dog co. co. dog. mass"
    ),
}

# Captions are drawn from these: words that the program splits or leaves whole,
WORDS = [
    "a", "the", "two",
    # apostrophes,
    "dog's", "men's", "isn't", "don't", "can't", "cannot", "gonna", "it's", "they're", "he'll",
    "I'm", "I've", "we'd", "dogs'", "O'Neil", "o'clock", "ma'am",
    # hyphens, abbreviations,
    "t-shirt", "mother-in-law", "5-year-old", "St.", "Mr.", "U.S.", "a.m.", "etc.", "no.", "B",
    # numbers,
    "5", "3.5", "1,000", "10:30", "1/2", "5th", "1990s", "'em",
    # signs and other scripts;
    "café", "R&B", "A", "TV", "and/or", "$5", "£5", "50%", "it’s", "don’t",
    "😀", "½", "20°C", "犬", "собака",
]  # fmt: skip
# and what stands between them, mostly a space.
BETWEEN = [" "] * 8 + [
    ", ", ". ", "! ", "? ", "; ", ": ",
    " - ", " -- ", " – ", "... ",
    ' "', '" ', '." ', '," ', " '", "' ",
    " (", ") ", ") . ", " “", "” ", " ‘", "’ ",
    " & ", " + ", " / ", " . ", " , ", "!! ", "?! ",
]  # fmt: skip


def by_java(captions: list[str]) -> list[str]:
    wrapped = {i: [{"caption": caption}] for i, caption in enumerate(captions)}
    tokenised = PTBTokenizer().tokenize(wrapped)
    return [tokenised[i][0] for i in range(len(captions))]


def by_us(captions: list[str]) -> list[str]:
    spoken = dict(enumerate(captions))
    references = {number: ["a"] for number in spoken}
    words, _ = metrics.split_words(spoken, references)
    return list(words.values())


def differences(captions: list[str]) -> list[tuple[str, str, str]]:
    """Each caption that is split differently, the program's words, and ours."""
    found = []
    for caption, theirs, ours in zip(captions, by_java(captions), by_us(captions), strict=True):
        if theirs != ours:
            found.append((caption, theirs, ours))
    return found


@pytest.mark.parametrize("caption", HARD)
def test_hard_captions(caption):
    assert ptb.split([caption]) == [HARD[caption]]


def test_a_full_stop_after_a_letter_depends_on_the_next_caption():
    """As it does in the Java program, which reads all captions as one text."""
    words = ptb.split(["the letter b.", "A dog", "", "the letter b.", "a dog"])
    # A capital begins a sentence, so the full stop before it ended one.
    assert words == ["the letter b", "a dog", "", "the letter b.", "a dog"]


@pytest.mark.needs_java
def test_hard_captions_are_what_java_gives():
    # An empty caption after each, so that none depends on the next one.
    captions = []
    for caption in HARD:
        captions += [caption, ""]
    assert by_java(captions)[::2] == list(HARD.values())

    words = by_java(["the letter b.", "A dog", "", "the letter b.", "a dog"])
    assert words[0::3] == ["the letter b", "the letter b."]


@pytest.mark.needs_java
def test_generated_captions():
    results = Path(satlib.__file__).parent / "results"
    captions = []
    for path in sorted(results.glob("*/evaluation-*.json")):
        evaluation = json.loads(path.read_text("utf-8"))
        captions += evaluation["captions"].values()
    assert len(captions) > 10_000
    # Every fifth is enough, and takes a fifth of the time.
    assert differences(captions[::5]) == []


@pytest.mark.needs_java
def test_drawn_captions():
    # Gathered first, since the program takes a second to start.
    drawn = []
    pairs = st.tuples(st.sampled_from(WORDS), st.sampled_from(BETWEEN))

    @settings(max_examples=2000, derandomize=True, database=None)
    @given(st.lists(pairs, min_size=1, max_size=8))
    def draw(parts):
        caption = "".join(word + between for word, between in parts)
        drawn.append(caption.strip())

    draw()
    assert len(set(drawn)) > 1000
    assert differences(drawn) == []


@given(st.text(max_size=40))
@settings(max_examples=60)
def test_any_text_stays_on_its_line(caption):
    first, second = by_us([caption, "a dog"])
    # METEOR's program reads a caption a line: a line break would shift all after it.
    assert first == first.replace("\n", " ").strip()
    assert second == "a dog"
