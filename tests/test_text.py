"""Words of captions in any script, and vocabularies of them."""

import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from satcourse.lessons import counts
from satlib.data import scenes
from satlib.data.text import END, UNKNOWN, Vocabulary, normalise, tokenise, written
from satlib.errors import SatlibError
from satlib.model import installed
from satlib.model.captioner import read_safetensors

# The zero-width characters that keep letters apart and join them.
ZWNJ = "\u200c"
ZWJ = "\u200d"
# What English was split by before there were other scripts; the vocabularies that satlib carries
# were made with it.
ENGLISH = re.compile(r"[^\W_]+(?:[-'][^\W_]+)*|(?<!\w)'(?:s|t|d|m|re|ve|ll)\b")


def english(caption):
    return ENGLISH.findall(caption.lower().replace("\u2019", "'"))


def of_kind(text, kinds):
    """The characters of a text that are of the general categories `kinds`, in order."""
    return [c for c in text if unicodedata.category(c)[0] in kinds]


@pytest.mark.parametrize(
    ("caption", "words"),
    [
        ("A dog's T-shirt, (red)!", ["a", "dog's", "t-shirt", "red"]),
        ("A man 's hat .", ["a", "man", "'s", "hat"]),
        ("Two  dogs\trun;they play...", ["two", "dogs", "run", "they", "play"]),
        ("It’s 3 p.m.", ["it's", "3", "p", "m"]),
        ("Ein Mädchen lächelt", ["ein", "mädchen", "lächelt"]),
        ("'quoted' -- words_too", ["quoted", "words", "too"]),
        (" . ", []),
    ],
)
def test_tokenise(caption, words):
    assert tokenise(caption) == words


@pytest.mark.parametrize(
    ("caption", "words"),
    [
        # Devanagari: vowel signs, virama, nukta, a conjunct kept open by ZWJ or ZWNJ; the danda
        # ends a sentence.
        ("कुत्ता सड़क पर दौड़ रहा है।", ["कुत्ता", "सड़क", "पर", "दौड़", "रहा", "है"]),
        (f"क्{ZWJ}ष श्री{ZWNJ}मान", [f"क्{ZWJ}ष", f"श्री{ZWNJ}मान"]),
        ("ஒரு நாய் ஓடுகிறது", ["ஒரு", "நாய்", "ஓடுகிறது"]),
        (f"مرد می{ZWNJ}دود", ["مرد", f"می{ZWNJ}دود"]),
        ("رَجُلٌ يَرْكُضُ، في الشارع؟", ["رَجُلٌ", "يَرْكُضُ", "في", "الشارع"]),
        ("شارع ٣", ["شارع", "٣"]),
        ("יֶלֶד רָץ בְּצה\"ל, ג'ירפה", ["יֶלֶד", "רָץ", 'בְּצה"ל', "ג'ירפה"]),
        ('הוא אמר "שלום"', ["הוא", "אמר", "שלום"]),
        ("한 남자가 달린다.", ["한", "남자가", "달린다"]),
        ("Một người đàn ông mặc áo đỏ", ["một", "người", "đàn", "ông", "mặc", "áo", "đỏ"]),
        ("L’été à la col·lecció", ["l'été", "à", "la", "col·lecció"]),
        ("Собака бежит", ["собака", "бежит"]),
        ("ΣΚΥΛΟΣ", ["σκυλος"]),
        # Lower case is Unicode's, not Turkish: a dotted capital leaves its dot behind as a mark, a
        # dotless one gets a dot.
        ("İstanbul'da IŞIK", ["i\u0307stanbul'da", "işik"]),
        ("2 dogs 👩‍👩‍👧 👍🏽 🇩🇪 run 3.5 km²", ["2", "dogs", "run", "3", "5", "km²"]),
        ("Dampf\u00adschiff \u200fשלום\u200f", ["dampfschiff", "שלום"]),
    ],
)
def test_words_of_other_scripts(caption, words):
    words = [unicodedata.normalize("NFC", word) for word in words]
    # Accents may be part of their letters or characters of their own.
    for form in ("NFC", "NFD"):
        assert tokenise(unicodedata.normalize(form, caption)) == words


@pytest.mark.parametrize(
    ("caption", "words"),
    [
        ("一个穿Nike T恤的男人。", "一 个 穿 nike t 恤 的 男 人"),
        ("コーヒーを飲む、女の人", "コ ー ヒ ー を 飲 む 女 の 人"),
        ("カ\u3099ラス 2つ", "ガ ラ ス 2 つ"),
        ("ผู้ชายวิ่ง น้ำ ๑๒", "ผู้ ช า ย วิ่ ง น้ำ ๑๒"),
        ("ຜູ້ຊາຍ", "ຜູ້ ຊ າ ຍ"),
        ("ស្ត្រីម្នាក់", "ស្ ត្ រី ម្ នា ក់"),
        ("မိန်းကလေး", "မိ န်း က လေး"),
    ],
)
def test_characters_of_scripts_without_spaces(caption, words):
    words = words.split()
    assert tokenise(caption) == words
    # Written without spaces, they are read again as the same words.
    assert tokenise(written(words)) == words


def test_writing():
    words = tokenise("一个穿Nike Air鞋的男人")
    assert written(words) == "一个穿 nike air 鞋的男人"
    assert written(["a", "dog"]) == "a dog"
    assert written([]) == ""


@given(st.text())
@example("I\u0307 \u0130 \u0345 \u0e33\u0301 a\u00ad\u0301")
@example("e\u0301-\u0301 '\u0301s \u3099カ")
def test_any_text(caption):
    words = tokenise(caption)
    assert words == tokenise(unicodedata.normalize("NFC", caption))
    assert words == tokenise(unicodedata.normalize("NFD", caption))
    assert words == tokenise(" ".join(words))

    # No word is empty or begins with a mark, which belongs to the letter before it.
    for word in words:
        assert word
        assert unicodedata.category(word[0])[0] != "M"
    # No letter and no digit is lost.
    lower = normalise(caption.lower())
    assert of_kind("".join(words), "LN") == of_kind(lower, "LN")


# Often enough what may join or end words.
@example("a-9 9'a- _a a_'s 's-a '9 A-B'C")
@given(st.text(st.characters(max_codepoint=127) | st.sampled_from("aZ9-'_. smre"), max_size=40))
def test_ascii_has_the_words_that_it_has_beside_another_script(caption):
    assert tokenise(f"{caption} 穿") == [*tokenise(caption), "穿"]


def test_the_words_that_satlib_carries_are_still_words():
    # Those of Flickr8k's counts, and of every model.
    words = set()
    for split in counts.read().values():
        words.update(split.words)
    assert len(words) > 8000
    for name in installed.models():
        header, _ = read_safetensors(installed.model(name))
        words.update(header["vocabulary"])
    for word in words:
        assert tokenise(word) == [word] == english(word)

    captions = ["dog 's dog's _'s 's_ 'sa rock-'n'-roll -a- a--b a'-b"]
    for scene in scenes.load(train=300, dev=0, test=0).examples:
        captions += scene.references
    for caption in captions:
        assert tokenise(caption) == english(caption)


def test_ids_are_ordered_by_frequency_then_alphabet():
    vocabulary = Vocabulary.from_captions(["b a c", "c b a", "c d"])
    # "c" is there three times, "a" and "b" twice, "d" once.
    assert vocabulary.words == ("<end>", "<unknown>", "c", "a", "b", "d")
    assert vocabulary.encode("D c x") == [5, 2, UNKNOWN]
    assert vocabulary.decode([2, 5, END, 3]) == ["c", "d"]


def test_size_and_min_count_bound_the_vocabulary():
    captions = ["a a a b b c"]
    # The end mark and the unknown word count.
    of_four = Vocabulary.from_captions(captions, size=4)
    assert of_four.words[2:] == ("a", "b")
    frequent = Vocabulary.from_captions(captions, min_count=3)
    assert frequent.words[2:] == ("a",)

    with pytest.raises(SatlibError, match="no word occurs 1 times"):
        Vocabulary.from_captions([" . "])
