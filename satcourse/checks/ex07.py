"""Exercises of notebook 07: hard attention trained, and a policy by rewards."""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from satcourse.checks import ex06
from satcourse.checks.calls import Failed
from satcourse.checks.task import (
    Answer,
    Case,
    distribution,
    exercise,
    generator,
    gradients,
    numbers,
)
from satlib.data.text import END
from satlib.model.attention import entropy

B, C, L = 3, 4, 5


@exercise(
    "7.1",
    "The whole estimator",
    difficulty=3,
    minutes=14,
    equation="section 4.1, the final learning rule",
)
def estimator(
    log_p_word: Tensor,
    alphas: Tensor,
    places: Tensor,
    baseline: float,
    lambda_r: float,
    lambda_e: float,
) -> Tensor:
    """Minus the mean over captions of log p + lambda_r [log p - baseline] log p(s) + lambda_e H,
    each a sum over words, [] a constant.
    """
    log_p = log_p_word.sum(1)  # log p(y|s,a): (B,)
    # A constant: log p already has its gradient from the first term.
    advantage = (log_p - baseline).detach()

    chosen = alphas.gather(2, places.unsqueeze(2)).squeeze(2)  # of the places drawn: (B, C)
    score = (advantage.unsqueeze(1) * chosen.log()).sum(1)  # (B,)

    H = entropy(alphas).sum(1)  # (B,)
    return -(log_p + lambda_r * score + lambda_e * H).mean()


def _loss_and_gradients(answer: Answer, log_p_word: Tensor, alphas: Tensor, *rest: Any) -> Any:
    """A learner's loss, and its gradients at log p(y_t) and at the energies."""
    # At the energies, not at alpha: an answer may normalise alpha again.
    energies = alphas.log().requires_grad_()
    loss = answer(log_p_word.requires_grad_(), torch.softmax(energies, -1), *rest)
    result = gradients(loss, {"log p(y_t)": log_p_word, "the energies": energies})
    # What is no number has no gradients: the engine says what was expected in its place.
    if result is loss:
        return result
    # Where a weight is 0 the entropy has no gradient, but a value.
    if not alphas.all():
        result = {}
    return {"the loss": torch.as_tensor(loss).detach(), **result}


def _sampled_captions() -> list[Case]:
    several = (
        -numbers(B, C).abs() - 0.1,
        distribution(B, C, L),
        torch.arange(B * C).view(B, C) % L,
    )
    single = (
        -numbers(1, 2, seed=2).abs() - 0.1,
        distribution(1, 2, 3, seed=3),
        torch.tensor([[2, 1]]),
    )
    on_one_place = single[0], torch.eye(3)[single[2]], single[2]
    # The baseline, lambda_r and lambda_e; once without entropy.
    return [
        (*several, -5.0, 1.0, 0.5),
        (*single, -1.0, 0.5, 0.0),
        # Weights of 0: there alpha log alpha is not a number.
        (*on_one_place, -1.0, 0.5, 0.5),
    ]


def _with_reward(reward: Tensor, *inputs: Any) -> Tensor:
    """The loss with another reward, (B, C): that of the look before each word."""
    log_p_word, alphas, places, baseline, lambda_r, lambda_e = inputs
    # Without the paper's reward, in whose place the other one is put.
    loss = estimator(log_p_word, alphas, places, baseline, 0.0, lambda_e)
    chosen = alphas.gather(2, places.unsqueeze(2)).squeeze(2)
    score = ((reward - baseline) * chosen.log()).sum(1)
    return loss - lambda_r * score.mean()


def _caption_not_detached(log_p_word: Tensor, *rest: Any) -> Tensor:
    return _with_reward(log_p_word.sum(1, keepdim=True), log_p_word, *rest)


def _words_to_come(log_p_word: Tensor, *rest: Any) -> Tensor:
    # A running sum from the caption's end.
    reward = log_p_word.detach().flip(1).cumsum(1).flip(1)
    return _with_reward(reward, log_p_word, *rest)


def _own_word(log_p_word: Tensor, *rest: Any) -> Tensor:
    return _with_reward(log_p_word.detach(), log_p_word, *rest)


def _entropy_as_a_loss(log_p_word: Tensor, *rest: Any) -> Tensor:
    *others, lambda_e = rest
    return estimator(log_p_word, *others, -lambda_e)


estimator.says = "the loss and both of its gradients"
estimator.cases = _sampled_captions
estimator.observe = _loss_and_gradients
estimator.given = lambda log_p_word, alphas, places, baseline, lambda_r, lambda_e: (
    f"baseline = {baseline:g}, lambda_r = {lambda_r:g}, lambda_e = {lambda_e:g}"
)
estimator.mistakes = {
    "reward not detached: it teaches through the likelihood term alone": _caption_not_detached,
    "rewarded for the words to come: no bias, less noise, "
    "but the paper rewards the whole caption": _words_to_come,
    "each look is rewarded for its own word alone: the reward is the whole caption's": _own_word,
    "this takes the likeliest places: log p(s) is that of the places drawn": (
        lambda log_p_word, alphas, places, *rest: estimator(
            log_p_word, alphas, alphas.argmax(2), *rest
        )
    ),
    "the entropy is a gain: the loss falls with it": _entropy_as_a_loss,
    "lambda_r weighs the score function alone, not the likelihood": (
        lambda log_p_word, alphas, places, baseline, lambda_r, lambda_e: (
            estimator(log_p_word, alphas, places, baseline, lambda_r, lambda_e)
            + (1 - lambda_r) * log_p_word.sum(1).mean()
        )
    ),
}


@exercise("7.2", "A rollout", difficulty=3, minutes=9)
def tell(step: Answer, state: Any, darts: Tensor) -> tuple[Tensor, Tensor]:
    """Words (B, C), one dart for each, drawn from the softmax, END after the end; and the sum of
    their log p, up to and with END.
    """
    words = torch.full((len(darts),), -1)  # -1 stands for the beginning
    ended = torch.zeros(len(darts)).bool()
    log_p: Any = 0.0
    told = []
    for dart in darts.T:
        logits, state = step(state, words)
        policy = logits.log_softmax(1)  # (B, K)
        words = ex06.draw(policy.exp(), dart).masked_fill(ended, END)

        chosen = policy.gather(1, words[:, None])[:, 0]  # (B,)
        # The mask of before this word: END itself counts.
        log_p = log_p + chosen.masked_fill(ended, 0.0)
        ended = ended | (words == END)
        told.append(words)
    return torch.stack(told, 1), log_p


def _policy(K: int, seed: int) -> Answer:
    """A step whose logits depend on the last word and on how many there were."""
    table = numbers(K + 1, K, seed=seed).requires_grad_()

    def step(count: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
        # Row 0 is for the beginning, -1.
        logits = table[words + 1] * (1 + count.unsqueeze(1))
        return logits, count + 1

    policy: Any = step
    policy.table = table
    return policy


def _told(answer: Answer, step: Any, state: Tensor, darts: Tensor) -> Any:
    """What a learner samples, and its gradient."""
    result = answer(step, state, darts)
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        return result
    words, log_p = result
    # Nothing to differentiate: it is compared as it is, and the message names what differs.
    if getattr(log_p, "ndim", 0) != 1:
        return result

    try:
        slope = gradients(log_p.sum(), {"the policy's logits": step.table})
    except RuntimeError:
        raise Failed(
            "the gradients need a mask that it changes in place: `ended = ended | ...`, not `|=`"
        ) from None
    return {"the words": words, "log p of the captions": log_p.detach(), **slope}


def _rollouts(K: int, captions: int, seed: int) -> Case:
    """Darts for some captions of 5 words by a policy of K words."""
    darts = torch.rand(captions, 5, generator=generator(seed))
    # The state counts the words so far.
    return _policy(K, seed), torch.zeros(captions), darts


def _unmasked(step: Answer, state: Any, darts: Tensor, silent: bool = True) -> Any:
    """The words, and their log p (B, C) after the end, too; not `silent`, words go on there."""
    words = torch.full((len(darts),), -1)
    ended = torch.zeros(len(darts)).bool()
    told = []
    log_p = []
    for dart in darts.T:
        logits, state = step(state, words)
        policy = logits.log_softmax(1)
        words = ex06.draw(policy.exp(), dart).masked_fill(ended & silent, END)
        log_p.append(policy.gather(1, words[:, None])[:, 0])
        ended = ended | (words == END)
        told.append(words)
    return torch.stack(told, 1), torch.stack(log_p, 1)


def _log_p_goes_on(step: Answer, state: Any, darts: Tensor) -> tuple[Tensor, Tensor]:
    words, log_p = _unmasked(step, state, darts)
    return words, log_p.sum(1)


def _words_go_on(step: Answer, state: Any, darts: Tensor) -> tuple[Tensor, Tensor]:
    words, log_p = _unmasked(step, state, darts, silent=False)
    is_end = (words == END).long()
    # More ends up to a word than the word itself is.
    ended_before = is_end.cumsum(1) > is_end
    return words, log_p.masked_fill(ended_before, 0.0).sum(1)


def _end_left_out(step: Answer, state: Any, darts: Tensor) -> tuple[Tensor, Tensor]:
    words, log_p = _unmasked(step, state, darts)
    return words, log_p.masked_fill(words == END, 0.0).sum(1)


def _begins_with_end(step: Answer, state: Any, darts: Tensor) -> tuple[Tensor, Tensor]:
    # END is 0, so that only -1 is changed.
    return tell(lambda s, words: step(s, words.clamp(min=END)), state, darts)


tell.says = "the words, their log-probability and its gradient, with captions that end early"
tell.cases = lambda: [
    _rollouts(K=4, captions=6, seed=1),
    _rollouts(K=3, captions=6, seed=4),
    _rollouts(K=3, captions=1, seed=10),
]
tell.observe = _told
tell.mistakes = {
    "log p goes on after the end: there it counts 0": _log_p_goes_on,
    "the words go on after the end: there they are END": _words_go_on,
    "END itself counts: use the mask of those that had ended before it": _end_left_out,
    "-1 stands for the beginning": _begins_with_end,
}


@exercise(
    "7.3",
    "Rewards at work",
    difficulty=3,
    minutes=8,
    equation="Ahmadian et al. (2024)",
)
def practise(policy: nn.Module, attempt: Answer, optimiser: Any, steps: int) -> None:
    """Each step: minus the mean of (reward - mean reward of the other tries) log p; its gradient,
    clipped to a norm of 5.
    """
    for _ in range(steps):
        reward, log_p = attempt()
        # The other tries are independent of this one: as a baseline they add no bias.
        advantage = reward - ex06.leave_one_out(reward)
        loss = -(advantage * log_p).mean()

        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 5.0)
        optimiser.step()


def _practised(answer: Answer, scale: int, steps: int) -> Any:
    """A policy's weights afterwards, and how often it was asked."""
    policy = nn.Linear(4, 2, bias=False)
    nn.init.zeros_(policy.weight)
    words = torch.tensor([[0, 1, 2], [3, 0, 0]])
    reward = scale * torch.tensor([[1.0, 0.0, 0.5], [1.0, 0.0, 0.2]])
    asked = []

    def attempt() -> tuple[Tensor, Tensor]:
        asked.append(steps)
        log_p = policy.weight.log_softmax(1).gather(1, words)
        # A new tensor each time: a learner may change it.
        return reward.clone(), log_p

    optimiser = torch.optim.SGD(policy.parameters(), 0.1)
    answer(policy, attempt, optimiser, steps)
    return {
        "steps": len(asked),
        "the policy's weights afterwards": policy.weight.detach(),
    }


def _carelessly(
    policy: nn.Module,
    attempt: Answer,
    optimiser: Any,
    steps: int,
    *,
    empties: bool = True,
    baseline: Answer = ex06.leave_one_out,
    longest: float = 5.0,
    clip: Answer = nn.utils.clip_grad_norm_,
) -> None:
    """`practise`, which may forget to empty the gradients, or have another baseline or clipping."""
    for _ in range(steps):
        reward, log_p = attempt()
        loss = -((reward - baseline(reward)) * log_p).mean()
        if empties:
            optimiser.zero_grad()
        loss.backward()
        clip(policy.parameters(), longest)
        optimiser.step()


def _divided_by_the_deviation(reward: Tensor) -> Tensor:
    return reward - (reward - ex06._row_mean(reward)) / (reward.std(1, keepdim=True) + 1e-6)


practise.says = "a small policy after 1 to 4 steps, with gradients of moderate size and huge ones"
practise.cases = lambda: [
    (1, 1),
    (2, 3),
    # Rewards of up to 30 and 300: there the gradient is longer than 5.
    (30, 2),
    (300, 4),
]
practise.observe = _practised
practise.given = lambda scale, steps: f"steps = {steps}, rewards of up to {scale}"
practise.mistakes = {
    "gradients add up: zero_grad() before each backward()": partial(_carelessly, empties=False),
    "no baseline: take off the mean reward of the other tries": partial(
        _carelessly, baseline=torch.zeros_like
    ),
    "one mean of all tasks' rewards: each row has a mean of its own": partial(
        _carelessly, baseline=torch.mean
    ),
    "the advantage is not divided by a standard deviation": partial(
        _carelessly, baseline=_divided_by_the_deviation
    ),
    "gradients are not clipped to a norm of 5": partial(_carelessly, longest=math.inf),
    "each number is clipped to 5: the norm of all of them is": partial(
        _carelessly, clip=nn.utils.clip_grad_value_
    ),
}


@exercise(
    "7.4",
    "On trial: what the rewards taught",
    difficulty=2,
    minutes=6,
    equation="Chen et al. (2021)",
)
def pass_at(successes: Tensor, k: int) -> float:
    """The chance that of k different tries of a scene's N at least one succeeds, and its mean over
    the scenes.
    """
    N = successes.shape[1]
    chances = []
    for c in successes.sum(1).tolist():
        # Of all choices of k tries, the share that holds only failures.
        all_fail = math.comb(N - c, k) / math.comb(N, k)
        chances.append(1 - all_fail)
    return sum(chances) / len(chances)


def _tries() -> list[tuple[Tensor, int]]:
    some = numbers(5, 8, seed=8) > 1
    one_each = torch.eye(4).bool()
    return [
        (some, 1),
        # With all 8 tries the chance is 0 or 1.
        (some, 8),
        (some, 3),
        (one_each, 4),
    ]


def _share_of_successes(successes: Tensor, k: int) -> float:
    return successes.float().mean().item()


def _first_tries(successes: Tensor, k: int) -> float:
    return successes[:, :k].any(1).float().mean().item()


def _with_replacement(successes: Tensor, k: int) -> float:
    all_fail = (1 - successes.double().mean(1)) ** k
    return (1 - all_fail).mean().item()


pass_at.says = "one try, all of them, and some: any of them counts, whichever k are taken"
pass_at.cases = _tries
pass_at.mistakes = {
    "the share of successes rises even if a policy only repeats its best tries: "
    "ask whether one of k succeeds": _share_of_successes,
    "the first k tries alone: average over all choices of k": _first_tries,
    "with replacement: choose k different tries": _with_replacement,
    "the chance that all k succeed: it is enough that one does": (
        lambda successes, k: 1 - pass_at(~successes, k)
    ),
    "all scenes' tries thrown together: a chance for each scene, then their mean": (
        lambda successes, k: pass_at(successes.view(1, -1), k)
    ),
    "too few to choose k from: the N tries of a scene stand in its row": (
        lambda successes, k: pass_at(successes.T, k)
    ),
    "one rate for all scenes: a chance for each scene, then their mean": (
        lambda successes, k: 1 - (1 - successes.double().mean().item()) ** k
    ),
}
