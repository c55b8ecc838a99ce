"""The small world against pairs made by hand; the translator against loops, single sentences and its own definition."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from satcourse.lessons import translation_world
from satcourse.lessons.translation import (
    NO_WORD,
    SentencePair,
    Translator,
    ids,
    masked_softmax,
    read_pairs,
    train,
    translate,
)
from satlib.data.text import END, Vocabulary
from satlib.errors import SatlibError
from satlib.model import attention

KINDS = ("none", "additive", "dot")

# English, Orrish, and the place of the English word that each word of Orrish comes from.
BY_HAND = [
    ("the dog sleeps", "lo velo dormas", [0, 1, 2]),
    ("the dogs sleep", "lon velon dormin", [0, 1, 2]),
    ("a cat sings", "mira kantas", [1, 2]),
    ("some cats sing often", "miran ofte kantin", [1, 3, 2]),
    ("my small red cat sees the dog", "ma mira ruda pika lo velo vidas", [0, 3, 2, 1, 5, 6, 4]),
    ("our kings do not laugh", "non regon ridin nu", [0, 1, 4, 3]),
    ("every queen does not want a tall tower", "siva rega torro halto volas nu", [0, 1, 7, 6, 4, 3]),
    ("the bird behind our houses waits", "lo pilo non domon retro atendas", [0, 1, 3, 4, 2, 5]),
    ("the boats that follow a bird wait today", "lan navan ki pilo sekin hodie atendin", [0, 1, 2, 5, 3, 7, 6]),
    (
        "my farmer helps the horses with a red boat because a tree does not sing",
        "mo agro lon cavanon nava ruda kun jutas kar arba kantas nu",
        [0, 1, 3, 4, 8, 7, 5, 2, 9, 11, 14, 13],
    ),
]


@pytest.mark.parametrize(("english", "orrish", "sources"), BY_HAND)
def test_hand_made_pairs(english, orrish, sources):
    said = translation_world.translate(english)
    assert " ".join(word.text for word in said) == orrish
    assert [word.source for word in said] == sources


@given(st.integers(0, 10**6))
@settings(max_examples=25)
def test_every_sentence_is_understood_and_every_word_translated_once(seed):
    """All but the words that Orrish does not say, or says with the verb."""
    for english, orrish in translation_world.pairs(5, seed, shortest=6, longest=12):
        words, said = english.split(), translation_world.translate(english)
        assert " ".join(word.text for word in said) == orrish
        silent = [i for i, word in enumerate(words) if word in ("a", "some", "does", "do")]
        assert sorted([word.source for word in said] + silent) == list(range(len(words)))


def test_lengths_are_even_and_no_sentence_comes_twice():
    found = translation_world.pairs(50, 0, shortest=4, longest=8)
    lengths = [len(pair.source.split()) for pair in found]
    assert [lengths.count(n) for n in range(4, 9)] == [10] * 5
    assert len(set(found)) == 50
    assert lengths != sorted(lengths)
    assert not any(
        one == two for pair in found for one, two in zip(pair.source.split(), pair.source.split()[1:], strict=False)
    )


@pytest.mark.parametrize(
    ("sentence", "message"),
    [
        ("the zebra sleeps", "word 2: 'zebra' stands where the grammar expects one of: dog, cat, bird, horse, ..."),
        ("a dogs sleep", "word 2: 'dogs' stands"),
        ("the dogs sleeps", "word 3: 'sleeps' stands where the grammar expects one of: see, find"),
        ("the dog do not sleep", "word 3: 'do' stands"),
        ("the dog sees", "word 4: the sentence ends where the grammar expects one of: the, my, our, every"),
        ("the dog sleeps the cat", "word 4: 'the' stands where the grammar expects one of: and, but, while, because"),
        ("", "word 1: the sentence ends"),
    ],
)
def test_sentences_that_the_world_does_not_have(sentence, message):
    with pytest.raises(SatlibError) as error:
        translation_world.translate(sentence)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": 5, "shortest": 2}, "the shortest sentences have 3"),
        ({"count": 5, "shortest": 9, "longest": 8}, "no sentence has 9 to 8 words"),
        ({"count": 2000, "shortest": 3, "longest": 3}, "too few sentences of 3 words for 2000 pairs; ask for fewer"),
    ],
)
def test_worlds_that_cannot_be(arguments, message, monkeypatch):
    monkeypatch.setattr(translation_world, "_PATIENCE", 100)
    with pytest.raises(SatlibError, match=message):
        translation_world.pairs(seed=0, **arguments)


def test_read_pairs(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_bytes("\ufeffGo.\tVa !\tsomebody\r\n\nA red  dog.\tUn chien rouge.\r\nOne two three four\tun\n".encode())
    assert read_pairs(path, longest=3) == [SentencePair("Go.", "Va !"), SentencePair("A red dog.", "Un chien rouge.")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"Go.\tVa !\nstop", "line 2: no tab; write a sentence, a tab and its translation"),
        (b"\tVa !", "line 1: the sentence has no word"),
        (b"Go.\t...", "line 1: the translation has no word"),
        (b"one two three four\tun", "no pair of at most 3 words per side"),
        (b"", "no pair of at most 3 words"),
        (b"Go.\tVa !\nNo\tNon \xe9", r"not UTF-8 text \(line 2\)"),
        (None, "does not exist"),
    ],
)
def test_read_pairs_of_bad_files(tmp_path, content, message):
    path = tmp_path / "pairs.tsv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SatlibError, match=message) as error:
        read_pairs(path, longest=3)
    assert str(path) in str(error.value)


PAIRS = [SentencePair(english, orrish) for english, orrish, _ in BY_HAND]
SOURCES, TARGETS = (Vocabulary.from_captions(pair[side] for pair in PAIRS) for side in (0, 1))


def small(kind):
    """A translator of a few units, its weights larger than fresh ones, so that it attends to something."""
    model = Translator(SOURCES, TARGETS, kind, embedding=5, hidden=3).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    return model


@given(st.lists(st.integers(1, 7), min_size=1, max_size=5), st.floats(0.1, 1e4))
@settings(max_examples=50)
def test_weights_are_a_distribution_over_words_alone(lengths, scale):
    mask = torch.arange(7) < torch.tensor(lengths).unsqueeze(1)
    alpha = masked_softmax(scale * torch.randn(len(lengths), 7), mask)
    assert (alpha[~mask] == 0).all()
    torch.testing.assert_close(alpha.sum(1), torch.ones(len(lengths)))
    energies = torch.randn(len(lengths), 7)
    for row, length in enumerate(lengths):
        torch.testing.assert_close(
            masked_softmax(energies, mask)[row, :length], torch.softmax(energies[row, :length], 0)
        )


def test_additive_context_equals_a_loop():
    """z of one sentence, in plain Python: energies, softmax and mean over its words."""
    model = small("additive")
    memory = model.read([ids(SOURCES, "the dog sleeps"), ids(SOURCES, "our kings do not laugh")])
    s = torch.randn(2, 6).double()
    z, alpha = model.look(memory, s)
    W_a, b, W_s = (
        p.tolist() for p in (model.energy.annotation.weight, model.energy.annotation.bias, model.energy.state.weight)
    )
    v = model.energy.energy.weight[0].tolist()
    for row, words in ((0, 4), (1, 6)):
        a = memory.a[row, :words].tolist()
        energies = []
        for a_i in a:
            units = [
                math.tanh(
                    sum(w * x for w, x in zip(W_a[k], a_i, strict=True))
                    + b[k]
                    + sum(w * x for w, x in zip(W_s[k], s[row].tolist(), strict=True))
                )
                for k in range(3)
            ]
            energies.append(sum(w * u for w, u in zip(v, units, strict=True)))
        exponentials = [math.exp(e) for e in energies]
        weights = [e / sum(exponentials) for e in exponentials]
        mean = [sum(w * a_i[d] for w, a_i in zip(weights, a, strict=True)) for d in range(6)]
        torch.testing.assert_close(alpha[row, :words].tolist(), weights)
        torch.testing.assert_close(z[row].tolist(), mean)


def test_without_attention_one_vector_is_all_that_the_decoder_gets():
    """The encoder's two last states, at every step, whatever the decoder's state is; the sentence's length changes no size."""
    model = small("none")
    sentence = ids(SOURCES, "the boats that follow a bird wait today")
    memory = model.read([ids(SOURCES, "a cat sings"), sentence])
    outputs, _ = model.encoder(model.source_embedding(sentence).unsqueeze(0))
    expected = torch.cat([outputs[0, -1, :3], outputs[0, 0, 3:]])
    for s in torch.randn(3, 2, 6).double():
        z, alpha = model.look(memory, s)
        assert alpha is None
        torch.testing.assert_close(z[1], expected)


@pytest.mark.parametrize("kind", [*attention.ENERGIES, "none"])
def test_padding_changes_nothing(kind):
    """A sentence in a batch with longer ones, on either side, gets what it gets alone."""
    model = small(kind)
    sources = [ids(SOURCES, pair.source) for pair in PAIRS]
    targets = [ids(TARGETS, pair.target) for pair in PAIRS]
    padded = torch.nn.utils.rnn.pad_sequence(targets, batch_first=True, padding_value=NO_WORD)
    together = model(sources, padded)
    for i, target in enumerate(targets):
        alone = model([sources[i]], target.unsqueeze(0))
        torch.testing.assert_close(together[i, : len(target)], alone[0])
    texts = [pair.source for pair in PAIRS]
    for text, found in zip(texts, translate(model, texts, longest=9), strict=True):
        (alone,) = translate(model, [text], longest=9)
        assert found.words == alone.words
        torch.testing.assert_close(found.alphas, alone.alphas)


@pytest.mark.parametrize("kind", KINDS)
def test_translating_feeds_back_what_it_said(kind):
    """Each generated word is the likeliest after the words before it, by teacher forcing on the model's own words."""
    model = small(kind)
    for text in ("the dog sleeps", "some cats sing often"):
        (found,) = translate(model, [text], longest=7)
        said = torch.tensor([TARGETS.words.index(word) for word in found.words] + [END])[:7]
        likeliest = model([ids(SOURCES, text)], said.unsqueeze(0)).argmax(2)[0]
        assert likeliest.tolist() == said.tolist()
        if kind == "none":
            assert found.alphas is None
        else:
            assert found.alphas.shape == (len(said), len(text.split()) + 1)
            torch.testing.assert_close(found.alphas.sum(1), torch.ones(len(said)).double())


def test_the_loss_counts_no_padding():
    """The first loss of a training is the mean over all true words of -log p, sentence by sentence."""
    model, losses = Translator(SOURCES, TARGETS, "additive", embedding=5, hidden=3), []
    with torch.no_grad():
        nll = []
        for source, target in PAIRS:
            logits = model([ids(SOURCES, source)], ids(TARGETS, target).unsqueeze(0))[0]
            nll += torch.log_softmax(logits, 1).gather(1, ids(TARGETS, target).unsqueeze(1)).neg().flatten().tolist()
    train(model, PAIRS, steps=1, batch_size=len(PAIRS), report=lambda step, loss: losses.append((step, loss)))
    assert losses == [(1, pytest.approx(sum(nll) / len(nll), rel=1e-5))]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_training_learns_and_its_seed_decides(kind):
    def run():
        torch.manual_seed(0)
        model = Translator(SOURCES, TARGETS, kind, embedding=12, hidden=16)
        train(model, PAIRS, steps=120, batch_size=4, learning_rate=0.02, seed=1)
        return model, [found.words for found in translate(model, [pair.source for pair in PAIRS])]

    model, said = run()
    assert [" ".join(words) for words in said] == [pair.target for pair in PAIRS]
    assert not model.training
    assert run()[1] == said


def test_every_pair_comes_once_in_an_epoch_and_the_first_goes_from_short_sentences_to_long_ones():
    model, seen = Translator(SOURCES, TARGETS, "none", embedding=2, hidden=2), []
    read = model.read
    model.read = lambda sources: seen.append([source.tolist() for source in sources]) or read(sources)
    train(model, PAIRS, steps=8, batch_size=3)
    every = sorted(ids(SOURCES, pair.source).tolist() for pair in PAIRS)
    for epoch in (seen[:4], seen[4:]):
        assert sorted(source for batch in epoch for source in batch) == every
    assert [len(source) for batch in seen[:4] for source in batch] == sorted(map(len, every))


def test_recurrent_weights_begin_orthogonal():
    model = Translator(SOURCES, TARGETS, "additive", embedding=6, hidden=4)
    recurrent = [weight for name, weight in model.named_parameters() if "weight_hh" in name]
    assert [tuple(weight.shape) for weight in recurrent] == [(12, 4), (12, 4), (24, 8)]
    for weight in recurrent:
        for gate in weight.detach().chunk(3):
            torch.testing.assert_close(gate @ gate.T, torch.eye(gate.shape[0], dtype=gate.dtype))


def test_scores_from_one_embedding_and_the_mean_of_another():
    """Soft attention takes its keys and what it averages apart, as the addressing and the content of a memory network are."""
    addresses, contents, question = torch.randn(2, 4, 3), torch.randn(2, 4, 5), torch.randn(2, 3)
    z, alpha, _ = attention.SoftAttention(attention.DotEnergy(3, 3, 0))(contents, addresses, question)
    for row in range(2):
        p = torch.softmax(addresses[row] @ question[row], 0)
        torch.testing.assert_close(alpha[row], p)
        torch.testing.assert_close(z[row], sum(p[i] * contents[row, i] for i in range(4)))
