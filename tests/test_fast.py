"""The fast loop gives what the plain loop gives: outputs, loss and every gradient, over shapes and kinds."""

import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from satlib import attention, fast
from satlib.decoder import Decoder, DecoderConfig
from satlib.objectives import (
    HardConfig,
    VariationalBound,
    doubly_stochastic_penalty,
    entropy,
    negative_log_likelihood,
)

KINDS = [(attention, energy) for attention in ("soft", "hard") for energy in ("additive", "concat", "general", "dot")]
KINDS.append(("none", "additive"))
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def loss_of(model, a, captions, expected, seed):
    """What training minimises, with every output in it, and all gradients by name; the same random numbers for both loops."""
    torch.manual_seed(seed)
    model.zero_grad()
    a = a.clone().requires_grad_()
    output = model(a, captions, expected)
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


def both(monkeypatch, *arguments):
    found = []
    for switch in ("1", "0"):
        monkeypatch.setenv(fast.SWITCH, switch)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # torch warns where it has to change the shape of an output
            found.append(loss_of(*arguments))
    return found


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
    model = Decoder(config, D, K).to(device, dtype).train(training)
    return model, torch.randn(B, L, D, dtype=dtype).to(device), torch.randint(0, K, (B, C)).to(device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("attention", "energy"), KINDS)
def test_equals_the_plain_loop_at_real_widths(monkeypatch, record_property, attention, energy, training, device):
    """In float32, dropout included in training, the sizes of a real decoder but for the batch."""
    model, a, captions = made(attention, energy, (6, 196, 256, 256, 128, 500, 12), torch.float32, training, device)
    farthest = agree(*both(monkeypatch, model, a, captions, None, 1), bound=1e-5)
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
        patch.setattr(fast, "CACHE", rows * L * width * 8)  # some rows at a time, the last time perhaps fewer
        model, a, captions = made(
            *kind, sizes, torch.float64, training, gate=gate, output_tanh=output_tanh, dropout=dropout
        )
        coins = None if expected is None else torch.tensor(expected[:B])
        agree(*both(patch, model, large * a, captions, coins, 2), bound=1e-9)


@pytest.mark.parametrize("look", ["expected", "probable", "sample"])
def test_hard_attention_looks_as_it_is_told_outside_of_training(monkeypatch, look):
    model, a, captions = made("hard", "additive", (4, 9, 8, 8, 9, 12, 5), torch.float64, False)
    model.attention.look = look
    agree(*both(monkeypatch, model, a, captions, None, 3), bound=1e-9)


def test_keys_too_steep_for_exponentials(monkeypatch):
    """Keys and queries of hundreds, of opposite signs: where e^2k e^2q would be infinity times nothing."""
    model, a, captions = made("soft", "additive", (4, 9, 8, 8, 9, 12, 5), torch.float32, False)
    with torch.no_grad():
        model.attention.energy.annotation.weight.mul_(200)
        model.attention.energy.state.weight.mul_(200)
    agree(*both(monkeypatch, model, a, captions, None, 3), bound=1e-4)


@pytest.mark.parametrize(("low", "bound"), [(torch.bfloat16, 0.1), (torch.float16, 0.0125)])
@pytest.mark.parametrize("device", DEVICES)
def test_in_low_precision_it_stays_within_it(monkeypatch, record_property, device, low, bound):
    """Under autocast both loops round, in different places: each is compared with float32. float16 has three bits more than bf16."""
    model, a, captions = made("soft", "additive", (6, 49, 64, 64, 64, 200, 8), torch.float32, False, device)
    _, exact, gradients = both(monkeypatch, model, a, captions, None, 1)[1]
    with torch.autocast(device, low):
        for output, loss, rounded in both(monkeypatch, model, a, captions, None, 1):
            assert torch.isfinite(output.logits).all()
            assert apart(loss, exact) < bound / 10
            farthest = max(apart(gradient, gradients[name]) for name, gradient in rounded.items())
            record_property("relative distance", farthest)
            assert farthest < bound


def test_only_what_trains_gets_a_gradient(monkeypatch):
    monkeypatch.setenv(fast.SWITCH, "1")
    model, a, captions = made("soft", "additive", (2, 5, 6, 6, 6, 9, 3), torch.float64, True)
    model(a, captions).logits.sum().backward()
    assert a.grad is None
    with torch.inference_mode():
        model(a, captions)


def test_gradients_twice_from_one_graph(monkeypatch):
    """Nothing is left over in what a backward pass adds up."""
    monkeypatch.setenv(fast.SWITCH, "1")
    model, a, captions = made("soft", "additive", (2, 5, 6, 6, 6, 9, 3), torch.float64, False)
    total = model(a, captions).logits.square().sum()
    weights = list(model.attention.parameters())
    once = torch.autograd.grad(total, weights, retain_graph=True)
    for first, second in zip(once, torch.autograd.grad(total, weights), strict=True):
        assert torch.equal(first, second)


def test_says_what_it_does_not_do(monkeypatch):
    monkeypatch.setenv(fast.SWITCH, "1")
    model, a, captions = made("hard", "additive", (2, 5, 6, 6, 6, 9, 3), torch.float64, True)
    model.attention.temperature = 1.0
    with pytest.warns(UserWarning, match="no Gumbel-softmax: the plain one is taken"):
        model(a, captions)
    monkeypatch.setenv(fast.SWITCH, "0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(a, captions)


class Own(attention.SoftAttention):
    """What a learner may put in the place of soft attention."""


class TestServes:
    """Which loop is taken, and when that is said."""

    def test_wherever_it_can_on_a_cpu(self, monkeypatch):
        monkeypatch.delenv(fast.SWITCH, raising=False)
        for kind in KINDS:
            model, a, _ = made(*kind, (2, 5, 6, 6, 6, 9, 3), torch.float32, True)
            for value, served in (("1", True), ("0", False), ("auto", True)):
                with fast.switched(value), warnings.catch_warnings():
                    warnings.simplefilter("error")
                    assert fast.serves(model, a) is served
            assert fast.serves(model, a)

    def test_elsewhere_only_where_it_is_asked_for(self, monkeypatch):
        model, a, _ = made("soft", "additive", (2, 5, 6, 6, 6, 9, 3), torch.float32, True)
        for value, served in (("auto", False), ("1", True), ("0", False)):
            monkeypatch.setenv(fast.SWITCH, value)
            assert fast.serves(model, a.to("meta")) is served

    @pytest.mark.parametrize(("value", "said"), [("auto", False), ("1", True)])
    @pytest.mark.parametrize("own", [Own(attention.DotEnergy(6, 6, 6)), attention.SoftAttention(torch.nn.Identity())])
    def test_a_learners_own_attention_or_energy_runs_in_the_plain_loop(self, monkeypatch, own, value, said):
        """And is told so only where the fast one was asked for."""
        monkeypatch.setenv(fast.SWITCH, value)
        model, a, _ = made("soft", "additive", (2, 5, 6, 6, 6, 9, 3), torch.float32, True)
        model.attention = own
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            assert not fast.serves(model, a)
        assert len(heard) == said

    def test_gumbel_is_drawn_in_the_plain_loop_in_training_and_says_so(self, monkeypatch):
        monkeypatch.delenv(fast.SWITCH, raising=False)
        model, a, _ = made("hard", "additive", (2, 5, 6, 6, 6, 9, 3), torch.float32, True)
        model.attention.temperature = 1.0
        with pytest.warns(UserWarning, match="no Gumbel-softmax"):
            assert not fast.serves(model, a)
        assert fast.serves(model.eval(), a)

    def test_the_loop_that_serves_is_the_one_that_runs(self, monkeypatch):
        model, a, captions = made("soft", "additive", (2, 5, 6, 6, 6, 9, 3), torch.float32, True)
        steps, ran = fast.steps, []
        monkeypatch.setattr(fast, "steps", lambda *inputs: ran.append(1) or steps(*inputs))
        for value, runs in (("0", 0), ("1", 1)):
            with fast.switched(value):
                model(a, captions)
            assert len(ran) == runs

    def test_the_switch_is_put_back(self, monkeypatch):
        monkeypatch.setenv(fast.SWITCH, "as it was")
        with fast.switched("0"):
            assert fast.os.environ[fast.SWITCH] == "0"
        assert fast.os.environ[fast.SWITCH] == "as it was"
        monkeypatch.delenv(fast.SWITCH)
        with pytest.raises(ZeroDivisionError), fast.switched("1"):
            _ = 1 / 0
        assert fast.SWITCH not in fast.os.environ


@pytest.mark.parametrize("look", ["expected", "probable", "sample"])
def test_rows_with_the_expectation_outside_of_training(monkeypatch, look):
    """Where a place is chosen, a marked row has the expectation, in training or not."""
    model, a, captions = made("hard", "general", (4, 9, 8, 8, 9, 12, 5), torch.float64, False)
    model.attention.look = look
    coins = torch.tensor([True, False, True, False])
    agree(*both(monkeypatch, model, a, captions, coins, 3), bound=1e-9)


def test_keys_about_as_steep_as_exponentials_bear(monkeypatch):
    """Keys between 15 and 40: on both sides of where tanh itself is taken, queries as large and of the other sign."""
    for large in (15.0, 19.9, 20.1, 40.0):
        model, a, captions = made("soft", "additive", (3, 5, 6, 6, 4, 9, 3), torch.float64, False)
        with torch.no_grad():
            annotation, state = model.attention.energy.annotation, model.attention.energy.state
            annotation.weight.mul_(large / annotation(a).abs().max())
            annotation.bias.zero_()
            annotation.weight.mul_(large / annotation(a).abs().max())
            state.weight.mul_(200)
        agree(*both(monkeypatch, model, a, captions, None, 3), bound=1e-9)


@pytest.mark.parametrize("steep", [1.0, 100.0])
def test_some_rows_at_a_time(monkeypatch, steep):
    """As many as the cache holds of r, L x width numbers of 8 bytes a row; and torch has nothing to warn of at the last few."""
    keys, v, q = steep * torch.randn(5, 6, 4).double(), torch.randn(1, 4).double(), torch.randn(5, 4).double()
    expected = (keys + q.unsqueeze(1)).tanh() @ v[0] - v.sum()
    for fits, rows in ((0, 1), (1, 1), (2, 2), (2.9, 2), (4, 4), (9, 5)):
        monkeypatch.setattr(fast, "CACHE", int(fits * 6 * 4 * 8 / torch.get_num_threads()))
        made = fast._Tanh(keys, v)
        assert made.rows == len(made.space) == rows
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            torch.testing.assert_close(made.energies(q), expected)


def test_the_gradient_that_comes_in_is_left_alone(monkeypatch):
    """It may be somebody else's too: autograd does not copy what it hands on."""
    monkeypatch.setenv(fast.SWITCH, "1")
    model, a, _ = made("soft", "additive", (2, 5, 6, 6, 6, 9, 3), torch.float64, False)
    state = model.initial_state(a)
    found = fast.steps(model, model.view(a), state, torch.randn(2, 3, 24).double())
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
    torch.testing.assert_close(fast._Tanh(keys, v).energies(q), expected)


def test_gradients_of_gradients_are_refused(monkeypatch):
    """They would be wrong: the gradient written by hand has none."""
    monkeypatch.setenv(fast.SWITCH, "1")
    model, a, captions = made("soft", "additive", (2, 5, 6, 6, 6, 9, 3), torch.float64, False)
    weight = model.attention.energy.state.weight
    (gradient,) = torch.autograd.grad(model(a, captions).logits.square().sum(), weight, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.square().sum().backward()
