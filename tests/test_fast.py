"""The fast loop gives what the plain loop gives: outputs, loss and every gradient, over shapes and kinds."""

import warnings
from functools import partial

import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from satlib import recipe
from satlib.data.batches import pairs
from satlib.data.text import Vocabulary
from satlib.errors import SatlibError
from satlib.files.weight_files import read_safetensors, write_safetensors
from satlib.model import attention, encoders
from satlib.model.decoder import Decoder
from satlib.model.objective import (
    HardConfig,
    VariationalBound,
    doubly_stochastic_penalty,
    entropy,
    negative_log_likelihood,
)
from satlib.recipe import DecoderConfig
from satlib.training import fast, fast_loop, loop

KINDS = [(attention, energy) for attention in ("soft", "hard") for energy in ("additive", "concat", "general", "dot")]
KINDS.append(("none", "additive"))
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def loss_of(loop, model, a, captions, expected, seed):
    """What training minimises, with every output in it, and all gradients by name; the same random numbers for both loops."""
    torch.manual_seed(seed)
    model.zero_grad()
    a = a.clone().requires_grad_()
    output = loop(a, captions, expected)
    if model.config.attention == "hard" and model.training:
        bound = VariationalBound(HardConfig(baseline="none"), model.config.hidden)
        loss = bound(output, captions).loss
    else:
        loss = negative_log_likelihood(output.logits, captions, 0.1).mean()
    loss = loss + doubly_stochastic_penalty(output.alphas).mean() + entropy(output.alphas).mean()
    loss = loss + output.betas.square().sum() + (output.states * output.states.detach().cos()).sum()
    loss.backward()
    gradients = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    return output, loss, gradients | {"a": a.grad}


def both(model, *arguments):
    """The fast loop's, and the plain one's."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns where it has to change the shape of an output
        return [loss_of(loop, model, *arguments) for loop in (partial(fast.forward, model), model)]


def apart(x, y):
    """The relative distance of two tensors; gradients that should vanish are compared with 1."""
    return ((x - y).norm() / y.norm().clamp(min=1e-3)).item()


def agree(ours, theirs, bound):
    """Outputs, loss and gradients within a relative distance; says which is the farthest."""
    (output, loss, gradients), (plain, plain_loss, plain_gradients) = ours, theirs
    assert gradients.keys() == plain_gradients.keys()
    distances = {name: apart(gradients[name], plain_gradients[name]) for name in gradients}
    distances["loss"] = apart(loss, plain_loss)
    for name in ("logits", "alphas", "betas", "states"):
        distances[name] = apart(getattr(output, name), getattr(plain, name))
    if plain.places is None:
        assert output.places is None
    else:
        assert torch.equal(output.places, plain.places)
    farthest = max(distances, key=distances.__getitem__)
    assert distances[farthest] < bound, f"{farthest} is {distances[farthest]:.1e} apart"
    return distances[farthest]


def made(attention, energy, sizes, dtype, training, device="cpu", **changes):
    B, L, D, n, width, K, C = sizes
    torch.manual_seed(sum(sizes))
    config = DecoderConfig(
        embedding=7,
        hidden=D if energy == "dot" else n,
        attention=attention,
        energy=energy,
        attention_hidden=width,
        **changes,
    )
    model = Decoder(config, D, K).to(device, dtype).train(loop)
    return model, torch.randn(B, L, D, dtype=dtype).to(device), torch.randint(0, K, (B, C)).to(device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("attention", "energy"), KINDS)
def test_equals_the_plain_loop_at_real_widths(record_property, attention, energy, training, device):
    """In float32, dropout included in training, the sizes of a real decoder but for the batch."""
    model, a, captions = made(attention, energy, (6, 196, 256, 256, 128, 500, 12), torch.float32, loop, device)
    farthest = agree(*both(model, a, captions, None, 1), bound=1e-5)
    record_property("relative distance", farthest)


sizes = st.tuples(*(st.integers(1, most) for most in (5, 9, 8, 8, 9)), st.integers(3, 12), st.integers(1, 6))


@settings(max_examples=60, deadline=None)
@given(
    sizes=sizes,
    kind=st.sampled_from(KINDS),
    training=st.booleans(),
    gate=st.booleans(),
    output_tanh=st.booleans(),
    dropout=st.sampled_from([0.0, 0.5]),
    expected=st.none() | st.lists(st.booleans(), min_size=5, max_size=5),
    large=st.sampled_from([1.0, 30.0]),
    rows=st.integers(1, 3),
)
def test_equals_the_plain_loop_over_shapes(sizes, kind, training, gate, output_tanh, dropout, expected, large, rows):
    """In float64, where nothing but a mistake can keep them apart; keys beyond the reach of exponentials included."""
    with pytest.MonkeyPatch.context() as patch:
        B, L, *_, width, _, _ = sizes
        patch.setattr(fast_loop, "CACHE", rows * L * width * 8)  # some rows at a time, the last time perhaps fewer
        model, a, captions = made(
            *kind, sizes, torch.float64, loop, gate=gate, output_tanh=output_tanh, dropout=dropout
        )
        coins = None if expected is None else torch.tensor(expected[:B])
        agree(*both(model, large * a, captions, coins, 2), bound=1e-9)


@pytest.mark.parametrize("look", ["expected", "probable", "sample"])
def test_hard_attention_looks_as_it_is_told_outside_of_training(look):
    model, a, captions = made("hard", "additive", (4, 9, 8, 8, 9, 12, 5), torch.float64, False)
    model.attention.look = look
    agree(*both(model, a, captions, None, 3), bound=1e-9)


def test_keys_too_steep_for_exponentials():
    """Keys and queries of hundreds, of opposite signs: where e^2k e^2q would be infinity times nothing."""
    model, a, captions = made("soft", "additive", (4, 9, 8, 8, 9, 12, 5), torch.float32, False)
    with torch.no_grad():
        model.attention.energy.annotation.weight.mul_(200)
        model.attention.energy.state.weight.mul_(200)
    agree(*both(model, a, captions, None, 3), bound=1e-4)


@pytest.mark.parametrize(("low", "bound"), [(torch.bfloat16, 0.1), (torch.float16, 0.0125)])
@pytest.mark.parametrize("device", DEVICES)
def test_in_low_precision_it_stays_within_it(record_property, device, low, bound):
    """Under autocast both loops round, in different places: each is compared with float32. float16 has three bits more than bf16."""
    model, a, captions = made("soft", "additive", (6, 49, 64, 64, 64, 200, 8), torch.float32, False, device)
    _, exact, gradients = both(model, a, captions, None, 1)[1]
    with torch.autocast(device, low):
        for output, loss, rounded in both(model, a, captions, None, 1):
            assert torch.isfinite(output.logits).all()
            assert apart(loss, exact) < bound / 10
            farthest = max(apart(gradient, gradients[name]) for name, gradient in rounded.items())
            record_property("relative distance", farthest)
            assert farthest < bound


def test_only_what_trains_gets_a_gradient():
    model, a, captions = made("soft", "additive", (2, 5, 6, 6, 6, 9, 3), torch.float64, True)
    fast.forward(model, a, captions).logits.sum().backward()
    assert a.grad is None
    with torch.inference_mode():
        fast.forward(model, a, captions)


def test_gradients_twice_from_one_graph():
    """Nothing is left over in what a backward pass adds up."""
    model, a, captions = made("soft", "additive", (2, 5, 6, 6, 6, 9, 3), torch.float64, False)
    total = fast.forward(model, a, captions).logits.square().sum()
    weights = list(model.attention.parameters())
    once = torch.autograd.grad(total, weights, retain_graph=True)
    for first, second in zip(once, torch.autograd.grad(total, weights), strict=True):
        assert torch.equal(first, second)


class OwnStep(Decoder):
    """A learner's decoder: without the LSTM's forget path."""

    def step(self, view, state, gates_word):
        return super().step(view, state._replace(c=torch.zeros_like(state.c)), gates_word)


class OwnAttention(attention.SoftAttention):
    """What a learner may put in the place of soft attention."""


SMALL = (2, 5, 6, 6, 6, 9, 3)


def small(kind="soft"):
    return made(kind, "additive", SMALL, torch.float32, True)[0]


class TestCheck:
    """The loop refuses every decoder that it would compute otherwise, and says why."""

    @pytest.mark.parametrize(
        "name", [name for name in recipe.names() if recipe.load(name).decoder.normaliser == "softmax"]
    )
    def test_takes_the_decoder_of_every_recipe_with_a_softmax(self, name):
        torch.manual_seed(3)
        decoder = Decoder(recipe.load(name).decoder, 24, 40)
        random = torch.get_rng_state()
        fast.check(decoder)
        assert torch.equal(torch.get_rng_state(), random)
        assert all(weight.grad is None for weight in decoder.parameters())
        assert decoder.training

    @pytest.mark.parametrize(("kind", "energy"), KINDS)
    @pytest.mark.parametrize("changes", [{}, {"gate": False}, {"output_tanh": True}])
    def test_takes_every_kind(self, kind, energy, changes):
        fast.check(made(kind, energy, SMALL, torch.float32, True, **changes)[0])

    def refused(self, decoder, why):
        with pytest.raises(SatlibError, match=why) as refusal:
            fast.check(decoder)
        assert str(refusal.value).endswith('; set training.loop = "plain"')

    def test_another_step(self):
        self.refused(OwnStep(DecoderConfig(embedding=4, hidden=4, attention_hidden=4), 5, 9), r"has its own step\(\)")

    def test_a_step_put_in_its_place(self):
        decoder = small()
        decoder.step = lambda *inputs: None
        self.refused(decoder, r"has its own step\(\)")

    def test_another_attention(self):
        decoder = small()
        decoder.attention = OwnAttention(decoder.attention.energy)
        self.refused(decoder, "its attention is OwnAttention")

    def test_another_energy(self):
        decoder = small()
        decoder.attention.energy = torch.nn.Identity()
        self.refused(decoder, "its energy is Identity")

    @pytest.mark.parametrize(
        "part", ["", "attention", "attention.energy", "attention.energy.state", "gate", "gates_state"]
    )
    def test_hooks(self, part):
        """Of each kind, on whatever the loop would not call."""
        for register in ("register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"):
            decoder = small()
            getattr(decoder.get_submodule(part), register)(lambda *given: None)
            self.refused(decoder, "has hooks")

    def test_a_forward_put_in_its_place(self):
        decoder = small()
        decoder.attention.forward = decoder.attention.forward
        self.refused(decoder, r"the forward\(\) of its SoftAttention has been replaced")

    def test_hooks_on_what_the_loop_calls_are_no_hindrance(self):
        decoder = small()
        decoder.output.register_forward_hook(lambda *given: None)
        fast.check(decoder)

    def test_another_vocabulary_layer_is_used(self):
        """`logits` is called by both loops."""

        class OwnLogits(Decoder):
            def logits(self, embedded, h, z):
                return 2 * super().logits(embedded, h, z)

        fast.check(OwnLogits(DecoderConfig(embedding=4, hidden=4, attention_hidden=4), 5, 9))

    def test_an_edit_that_only_shows_where_an_image_takes_the_expectation(self, monkeypatch):
        forward = attention.HardAttention.forward

        def edited(self, a, keys, h, expected=None):
            look = forward(self, a, keys, h, expected)
            return look if expected is None else look._replace(z=look.z * 0)

        monkeypatch.setattr(attention.HardAttention, "forward", edited)
        self.refused(small("hard"), "logits differs from the plain loop's")

    def test_an_edit_that_only_shows_where_the_encoder_trains(self, monkeypatch):
        forward = attention.SoftAttention.forward
        edited = lambda self, a, keys, h, expected=None: forward(self, a.detach(), keys, h, expected)  # noqa: E731
        monkeypatch.setattr(attention.SoftAttention, "forward", edited)
        self.refused(small(), "the gradient of the annotation vectors differs")

    def test_an_edit_that_only_shows_outside_of_training(self, monkeypatch):
        forward = attention.SoftAttention.forward

        def edited(self, a, keys, h, expected=None):
            look = forward(self, a, keys, h, expected)
            return look if self.training else look._replace(z=look.z * 0)

        monkeypatch.setattr(attention.SoftAttention, "forward", edited)
        self.refused(small(), "logits differs from the plain loop's")

    def test_an_edit_that_only_stops_a_weight_from_learning(self, monkeypatch):
        def edited(self, keys, h):
            hidden = torch.tanh(keys + self.state(h).unsqueeze(1))
            return torch.nn.functional.linear(hidden, self.energy.weight.detach()).squeeze(2)

        monkeypatch.setattr(attention.AdditiveEnergy, "forward", edited)
        self.refused(small(), "the gradient of attention.energy.energy.weight exists in one of the two loops only")

    def test_a_frozen_decoder(self):
        """Its encoder may train."""
        fast.check(small().requires_grad_(False))

    @pytest.mark.parametrize("part", ["gates_state", "gates_context", "gate"])
    def test_a_part_of_another_kind(self, part):
        decoder = small()
        setattr(decoder, part, torch.nn.Sequential(getattr(decoder, part)))
        self.refused(decoder, "comparing it with the plain loop ended in AttributeError")

    def test_random_numbers_of_gpus_are_left_alone(self, monkeypatch):
        decoder, seeded = small("hard"), []
        monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
        fast.check(decoder)
        assert seeded == []

    @pytest.mark.parametrize("what", ["step", "energy", "gradient"])
    def test_an_edit_of_the_source(self, monkeypatch, what):
        """As if somebody had changed decoder.py or attention.py: values, or the gradient alone."""
        if what == "step":
            monkeypatch.setattr(
                Decoder, "step", lambda self, view, state, word: STEP(self, view, forgetful(state), word)
            )
        elif what == "energy":
            energy = attention.AdditiveEnergy.forward
            monkeypatch.setattr(attention.AdditiveEnergy, "forward", lambda self, keys, h: 1.01 * energy(self, keys, h))
        else:
            monkeypatch.setattr(
                Decoder, "step", lambda self, view, state, word: STEP(self, view, detached(state), word)
            )
        self.refused(small(), "differs from the plain loop's by .* not those that the fast loop implements")


STEP = Decoder.step


def forgetful(state):
    return state._replace(c=torch.zeros_like(state.c))


def detached(state):
    return state._replace(c=state.c.detach())


class TestTraining:
    """`training.loop`: a decoder trains by the step that one reads; the fast loop is taken where it is asked for."""

    @pytest.fixture(autouse=True)
    def _tiny(self, monkeypatch):
        monkeypatch.setitem(encoders._BUILDERS, "tiny", tiny.build)

    def train(self, folder, *changes, prepare=None):
        chosen = tiny.the_recipe("training.epochs=1", *changes)
        return loop.train(chosen, tiny.data(), tiny.Reader(), folder, progress=False, prepare=prepare)

    def test_a_subclass_trains_by_its_own_step(self, tmp_path):
        calls = []

        class Counting(Decoder):
            def step(self, view, state, gates_word):
                if torch.is_grad_enabled():
                    calls.append(len(gates_word))
                return super().step(view, state._replace(c=0 * state.c), gates_word)

        def prepare(captioner):
            captioner.decoder.__class__ = Counting

        own, theirs = self.train(tmp_path / "own", prepare=prepare), self.train(tmp_path / "theirs")
        assert sum(calls) == sum(len(pair.caption) for pair in training_pairs())
        assert not torch.equal(own.decoder.gates_state.weight, theirs.decoder.gates_state.weight)

    def test_hooks_fire(self, tmp_path):
        fired = []
        self.train(
            tmp_path,
            prepare=lambda captioner: captioner.decoder.attention.register_forward_hook(lambda *given: fired.append(1)),
        )
        assert len(fired) > 10

    def test_fast_ends_near_plain(self, tmp_path, monkeypatch):
        """By a run of its own: the weights differ in rounding, and the fast loop did run."""
        forward, runs = fast.forward, []
        monkeypatch.setattr(fast, "forward", lambda *given: runs.append(1) or forward(*given))
        plain = self.train(tmp_path / "plain", "training.optimiser=rmsprop")
        assert not runs
        quick = self.train(tmp_path / "fast", "training.optimiser=rmsprop", "training.loop=fast")
        assert runs
        for name, weight in plain.decoder.state_dict().items():
            assert apart(quick.decoder.state_dict()[name], weight) < 1e-3, name

    def test_the_spread_of_gradients_is_measured_by_the_same_loop(self, tmp_path, monkeypatch):
        forward, runs = fast.forward, []
        monkeypatch.setattr(fast, "forward", lambda *given: runs.append(torch.is_grad_enabled()) or forward(*given))
        monkeypatch.setattr(fast, "check", lambda decoder: None)
        self.train(tmp_path, "decoder.attention=hard", "training.loop=fast")
        assert len(runs) == 9 + 8  # batches, and draws of the estimate

    def test_a_run_of_an_older_version_may_choose_its_loop(self, tmp_path):
        """It says nothing of loops: on a CPU it had the fast one. A run of today goes on as it began."""
        self.train(tmp_path)
        with pytest.raises(SatlibError, match=r"was begun with another training\.loop"):
            self.train(tmp_path, "training.loop=fast", "training.epochs=2")
        header, tensors = read_safetensors(tmp_path / loop.CHECKPOINT)
        del header["recipe"]["training"]["loop"]
        write_safetensors(tmp_path / loop.CHECKPOINT, tensors, header)
        self.train(tmp_path, "training.loop=fast", "training.epochs=2")

    def test_rewards_have_the_plain_loop(self):
        with pytest.raises(SatlibError, match=r'needs objective\.maximise = "likelihood"'):
            recipe.load("flickr8k-soft-reward", ["training.loop=fast"])

    def test_fast_refuses_before_anything_is_written(self, tmp_path):
        with pytest.raises(SatlibError, match=r'training\.loop = "fast" cannot run this decoder'):
            self.train(
                tmp_path / "run",
                "training.loop=fast",
                prepare=lambda captioner: setattr(captioner.decoder, "step", captioner.decoder.step),
            )
        assert not (tmp_path / "run").exists()


def training_pairs():
    chosen = tiny.the_recipe()
    examples = tiny.data().split("train")
    vocabulary = Vocabulary.from_captions(caption for one in examples for caption in one.references)
    return pairs(examples, vocabulary, chosen.data.max_length)


@pytest.mark.parametrize("look", ["expected", "probable", "sample"])
def test_rows_with_the_expectation_outside_of_training(look):
    """Where a place is chosen, a marked row has the expectation, in training or not."""
    model, a, captions = made("hard", "general", (4, 9, 8, 8, 9, 12, 5), torch.float64, False)
    model.attention.look = look
    coins = torch.tensor([True, False, True, False])
    agree(*both(model, a, captions, coins, 3), bound=1e-9)


def test_keys_about_as_steep_as_exponentials_bear():
    """Keys between 15 and 40: on both sides of where tanh itself is taken, queries as large and of the other sign."""
    for large in (15.0, 19.9, 20.1, 40.0):
        model, a, captions = made("soft", "additive", (3, 5, 6, 6, 4, 9, 3), torch.float64, False)
        with torch.no_grad():
            annotation, state = model.attention.energy.annotation, model.attention.energy.state
            annotation.weight.mul_(large / annotation(a).abs().max())
            annotation.bias.zero_()
            annotation.weight.mul_(large / annotation(a).abs().max())
            state.weight.mul_(200)
        agree(*both(model, a, captions, None, 3), bound=1e-9)


@pytest.mark.parametrize("steep", [1.0, 100.0])
def test_some_rows_at_a_time(monkeypatch, steep):
    """As many as the cache holds of r, L x width numbers of 8 bytes a row; and torch has nothing to warn of at the last few."""
    keys, v, q = steep * torch.randn(5, 6, 4).double(), torch.randn(1, 4).double(), torch.randn(5, 4).double()
    expected = (keys + q.unsqueeze(1)).tanh() @ v[0] - v.sum()
    for fits, rows in ((0, 1), (1, 1), (2, 2), (2.9, 2), (4, 4), (9, 5)):
        monkeypatch.setattr(fast_loop, "CACHE", int(fits * 6 * 4 * 8 / torch.get_num_threads()))
        made = fast_loop._Tanh(keys, v)
        assert made.rows == len(made.space) == rows
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            torch.testing.assert_close(made.energies(q), expected)


def test_the_gradient_that_comes_in_is_left_alone():
    """It may be somebody else's too: autograd does not copy what it hands on."""
    model, a, _ = made("soft", "additive", (2, 5, 6, 6, 6, 9, 3), torch.float64, False)
    state = model.initial_state(a)
    found = fast_loop.steps(model, model.view(a), state, torch.randn(2, 3, 24).double())
    given = [torch.randn_like(each) for each in found[:4]]
    before = [each.clone() for each in given]
    torch.autograd.grad(found[:4], list(model.attention.parameters()), given)
    for now, was in zip(given, before, strict=True):
        assert torch.equal(now, was)


@pytest.mark.parametrize("sign", [1, -1])
def test_keys_of_one_sign_and_queries_of_the_other(sign):
    """tanh of nearly 0, out of keys and queries of 100: exponentials would be nothing times infinity."""
    keys, v = sign * (100 + torch.rand(3, 6, 4)).double(), torch.randn(1, 4).double()
    q = -sign * (100 + torch.rand(3, 4)).double()
    expected = (keys + q.unsqueeze(1)).tanh() @ v[0] - v.sum()
    torch.testing.assert_close(fast_loop._Tanh(keys, v).energies(q), expected)


def test_gradients_of_gradients_are_refused():
    """They would be wrong: the gradient written by hand has none."""
    model, a, captions = made("soft", "additive", (2, 5, 6, 6, 6, 9, 3), torch.float64, False)
    weight = model.attention.energy.state.weight
    (gradient,) = torch.autograd.grad(fast.forward(model, a, captions).logits.square().sum(), weight, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.square().sum().backward()
