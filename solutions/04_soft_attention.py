# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Exercises 4. Soft attention
#
# You write the decoder of notebook 04, equation by equation. Write each function, run its cell, and run the check below
# it: it says in a line what is right or wrong. Under each check you can unfold a hint, the solution and, where you
# write a whole function, pseudocode. Later cells use your function once it has passed its check, and satlib's
# until then, so you can go on whatever you have written.
#
# Shapes: $B$ images of $L$ places of $D$ dimensions; the state has $n$, an embedding $m$, the vocabulary $K$.

# %%
from collections.abc import Callable

import torch
from torch import Tensor, nn

from satcourse.exercises import carry_on, check
from satcourse.exercises.training_steps import Pointer, task_to_point

# %% [markdown]
# ## 4.1
#
# Compute a score for each place of each image, from its annotation vector and the state:
#
# $$e_{ti} = v \cdot \tanh(W_a a_i + W_h h_{t-1} + b)$$


# %%
def energies(a: Tensor, h: Tensor, W_a: Tensor, W_h: Tensor, b: Tensor, v: Tensor) -> Tensor:
    """Exercise 4.1: one energy for each place.

    a: (B, L, D). h: (B, n). W_a: (k, D). W_h: (k, n). b: (k,). v: (k,). Returns e: (B, L).
    """
    # BEGIN SOLUTION
    from_places = a @ W_a.T  # (B, L, k)
    from_state = (h @ W_h.T).unsqueeze(1)  # (B, 1, k): the same for all places of an image
    return torch.tanh(from_places + from_state + b) @ v
    # END SOLUTION


# %% [markdown] tags=["hint"]
# `a @ W_a.T` is (B, L, k), `h @ W_h.T` is (B, k). Give the second an axis of size 1 where the first has its places.
# Then you can add them.

# %% [markdown] tags=["pseudocode"]
# ```
# from_places = W_a applied to each place        (B, L, k)
# from_state  = W_h applied to each state        (B, 1, k)
# e = tanh(from_places + from_state + b) . v     (B, L)
# ```

# %% [markdown]
# ## 4.2
#
# Turn energies into weights that sum to 1 over the places of each image:
#
# $$\alpha_{ti} = \frac{\exp(e_{ti})}{\sum_{k=1}^L \exp(e_{tk})}$$
#
# Energies may be large. $\exp(1000)$ is infinite, and infinity divided by itself is not a number; but only differences
# of energies count.


# %%
def weights(e: Tensor) -> Tensor:
    """Exercise 4.2: from energies e (B, L) to weights alpha (B, L)."""
    # BEGIN SOLUTION
    e = e - e.max(1, keepdim=True).values
    return e.exp() / e.exp().sum(1, keepdim=True)
    # END SOLUTION


# %% [markdown] tags=["hint"]
# Which axis of (B, L) has the places? `keepdim=True` keeps an axis of size 1 to divide by. If you prefer,
# `torch.softmax` does all of it.

# %% [markdown] tags=["pseudocode"]
# ```
# subtract each row's largest energy from the row
# alpha = exp(e) / (sum of exp(e) over the places, for each image)
# ```

# %% [markdown]
# ## 4.3
#
# The context vector is the expectation of the annotation vector at a place drawn from the weights:
#
# $$\hat z_t = \sum_{i=1}^L \alpha_{ti}\, a_i$$


# %%
def context(alpha: Tensor, a: Tensor) -> Tensor:
    """Exercise 4.3: from weights alpha (B, L) and vectors a (B, L, D) to z (B, D)."""
    # BEGIN SOLUTION
    return (alpha.unsqueeze(2) * a).sum(1)
    # END SOLUTION


# %% [markdown] tags=["hint"]
# Each weight multiplies all D numbers of its place. Give `alpha` a third axis, multiply, and sum over the places.

# %% [markdown] tags=["pseudocode"]
# ```
# weighted = alpha with a third axis of 1, times a      (B, L, D)
# z = weighted summed over the places                   (B, D)
# ```

# %% [markdown]
# ## 4.4
#
# Weights that sum to 1 cannot say "nothing here helps". A scalar gate can:
#
# $$\beta_t = \sigma(w \cdot h_{t-1} + b), \qquad \hat z_t \leftarrow \beta_t\, \hat z_t$$


# %%
def gated(z: Tensor, h: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Exercise 4.4: the context behind its gate. z: (B, D). h: (B, n). w: (n,). b: (). Returns (B, D)."""
    # BEGIN SOLUTION
    beta = torch.sigmoid(h @ w + b)  # (B,)
    return beta.unsqueeze(1) * z
    # END SOLUTION


# %% [markdown] tags=["hint"]
# `h @ w` has shape (B,): one number for each image. To multiply all dimensions of its image it must be (B, 1).

# %% [markdown] tags=["pseudocode"]
# ```
# beta = sigmoid(w . h + b)      one number for each image
# z = beta * z                   the same beta for all dimensions
# ```

# %% [markdown]
# ## 4.5
#
# One step of the LSTM: three sources (word, state, image), three gates and a candidate.
#
# $$\begin{pmatrix} i_t \\ f_t \\ g_t \\ o_t \end{pmatrix} = \begin{pmatrix} \sigma \\ \sigma \\ \tanh \\ \sigma \end{pmatrix}
# (W\, E y_{t-1} + U\, h_{t-1} + Z\, \hat z_t + b), \qquad c_t = f_t \odot c_{t-1} + i_t \odot g_t, \qquad h_t = o_t
# \odot \tanh(c_t)$$
#
# $W$, $U$, $Z$ and $b$ hold the rows of $i$, $f$, $g$ and $o$ one below the other, in this order.


# %%
def lstm_step(
    Ey: Tensor, h: Tensor, c: Tensor, z: Tensor, W: Tensor, U: Tensor, Z: Tensor, b: Tensor
) -> tuple[Tensor, Tensor]:
    """Exercise 4.5: the new state and memory (h, c), each (B, n).

    Ey: (B, m). h, c: (B, n). z: (B, D). W: (4n, m). U: (4n, n). Z: (4n, D). b: (4n,).
    """
    # BEGIN SOLUTION
    i, f, g, o = (Ey @ W.T + h @ U.T + z @ Z.T + b).chunk(4, dim=1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    h = torch.sigmoid(o) * torch.tanh(c)
    return h, c
    # END SOLUTION


# %% [markdown] tags=["hint"]
# Compute all 4n numbers of each image at once, (B, 4n), and split them with `chunk(4, dim=1)`. Equation 3 uses the
# *new* memory.

# %% [markdown] tags=["pseudocode"]
# ```
# all = W Ey + U h + Z z + b                 (B, 4n)
# i, f, g, o = the four quarters of all      (B, n) each
# c = sigmoid(f) * c + sigmoid(i) * tanh(g)
# h = sigmoid(o) * tanh(c)
# return h, c
# ```

# %% [markdown]
# ## 4.6
#
# Before the first word there is no state. Two networks predict $h_0$ and $c_0$ from the mean annotation vector; both
# look like this one:
#
# $$h_0 = \tanh(W_2\, \mathrm{relu}(W_1 \bar a + b_1) + b_2), \qquad \bar a = \frac1L \sum_{i=1}^L a_i$$


# %%
def initial_state(a: Tensor, W_1: Tensor, b_1: Tensor, W_2: Tensor, b_2: Tensor) -> Tensor:
    """Exercise 4.6: h_0 (B, n). a: (B, L, D). W_1: (n, D). b_1: (n,). W_2: (n, n). b_2: (n,)."""
    # BEGIN SOLUTION
    mean = a.mean(1)  # (B, D)
    hidden = torch.relu(mean @ W_1.T + b_1)
    return torch.tanh(hidden @ W_2.T + b_2)
    # END SOLUTION


# %% [markdown] tags=["hint"]
# The mean goes over the places, so that one vector of D numbers is left for each image; then two linear layers.

# %% [markdown] tags=["pseudocode"]
# ```
# mean = a averaged over its places          (B, D)
# hidden = relu(W_1 mean + b_1)
# h_0 = tanh(W_2 hidden + b_2)
# ```

# %% [markdown]
# ## 4.7
#
# Now run the decoder over a whole caption. In training it is given the *true* word before each word, not its own. This
# is teacher forcing. `step(Ey, h)` returns the logits of the next word and the new state. Before the first word there
# is no word, and $E y$ is zero.


# %%
def teacher_forced(
    step: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], h: Tensor, captions: Tensor, E: Tensor
) -> Tensor:
    """Exercise 4.7: the logits of all words (B, C, K). h: (B, n), the first state. captions: (B, C), ids. E: (K, m)."""
    # BEGIN SOLUTION
    Ey = torch.zeros(len(captions), E.shape[1])
    found = []
    for target in captions.unbind(1):
        logits, h = step(Ey, h)
        found.append(logits)
        Ey = E[target]
    return torch.stack(found, 1)
    # END SOLUTION


# %% [markdown] tags=["hint"]
# Which word does the step at position $t$ get, and which does it predict? The caption's last word, the end mark, is
# predicted but never given.

# %% [markdown] tags=["pseudocode"]
# ```
# Ey = zeros (B, m)
# for each column `target` of captions:
#     logits, h = step(Ey, h)
#     keep logits
#     Ey = the rows of E for target
# stack what was kept: (B, C, K)
# ```

# %% [markdown]
# ## 4.8
#
# Put 4.2 and 4.3 together: energies and annotation vectors in, context vectors and weights out. Gradients must flow
# back from both into the energies. That is how a network learns where to look. As in 4.2, energies may be large. Your
# function can be put into satlib's decoder and trained: `satlib train scenes-soft --attention
# exercises/04_soft_attention.ipynb:attend`.


# %%
def attend(e: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """Exercise 4.8: from energies e (B, L) and vectors a (B, L, D) to context vectors z (B, D) and weights alpha (B, L)."""
    # BEGIN SOLUTION
    alpha = torch.softmax(e, dim=1)
    z = torch.einsum("bl,bld->bd", alpha, a)
    return z, alpha
    # END SOLUTION


# %% [markdown] tags=["hint"]
# Exercise 4.2, then exercise 4.3. Do not break the graph: no `.detach()`, no `.item()`, no argmax.

# %% [markdown] tags=["pseudocode"]
# ```
# alpha = softmax of e over the places
# z = sum over the places of alpha times a
# return z, alpha
# ```

# %% [markdown]
# ## 4.9
#
# A small network with attention, `Pointer`, is trained here. One of five places has the answer, and a mark in its
# vector shows which. The training below runs without an error, but the loss stays at 1.4. That is $\ln 4$, the loss of
# a guess. Find the bug and fix it.


# %%
def train(model: nn.Module, a: Tensor, h: Tensor, answers: Tensor) -> list[float]:
    """Exercise 4.9: the loss before each of forty steps. model(a, h) gives logits (B, 4). answers: (B,)."""
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(40):
        loss = nn.functional.cross_entropy(model(a, h), answers)
        # BEGIN SOLUTION
        optimiser.zero_grad()
        loss.backward()
        # END SOLUTION
        # STUB loss.backward()
        # STUB optimiser.zero_grad()
        optimiser.step()
        losses.append(loss.item())
    return losses


# %% [markdown] tags=["hint"]
# What are the gradients when the optimiser takes its step? Print `next(model.parameters()).grad` there.

# %% [markdown]
# This is how the losses should go.

# %%
torch.manual_seed(0)
losses = train(Pointer(), *task_to_point())
print(f"loss at the first step {losses[0]:.2f}, at the fortieth {losses[-1]:.2f}")

# %% [markdown]
# ## 4.10
#
# Now a step of your own. `model(a, captions)` gives logits $(B, C, K)$ and maps, by teacher forcing: the logits at
# position $t$ are already those of the caption's word $t$. Take the mean cross-entropy over all words of the batch,
# make one step, and return the loss from before the step. The check calls it three times, so the loss should fall.


# %%
def training_step(model: nn.Module, optimiser: torch.optim.Optimizer, a: Tensor, captions: Tensor) -> float:
    """Exercise 4.10: make one step, and return the mean loss per word before it. a: (B, L, D). captions: (B, C)."""
    # BEGIN SOLUTION
    logits, _ = model(a, captions)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), captions.flatten())
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    return loss.item()
    # END SOLUTION


# %% [markdown] tags=["hint"]
# `cross_entropy` wants logits (N, K) and targets (N,): flatten captions and words into one axis. Then three calls:
# empty the gradients, go backwards, step.

# %% [markdown] tags=["pseudocode"]
# ```
# logits, maps = model(a, captions)
# loss = mean cross-entropy of logits (B C, K) and captions (B C,)
# empty the gradients; backward; step
# return the loss as a number
# ```

# %% [markdown]
# ## 4.11
#
# Nobody shows the decoder a place. Why can it learn where to look from captions alone?
#
# - **a.** The weights at each word are positive and sum to 1, so they are a distribution over the places.
# - **b.** The encoder was trained on ImageNet. Its vectors already say where the objects are.
# - **c.** The context vector is a weighted mean, and so the loss has a gradient at each weight. Weight moves to places whose
#   vectors make the right word more probable.
# - **d.** The doubly stochastic penalty makes the decoder visit every place once.


# %%
def why_it_learns() -> str:
    """Exercise 4.11: "a", "b", "c" or "d"."""
    # BEGIN SOLUTION
    return "c"
    # END SOLUTION


# %% [markdown] tags=["hint"]
# Which of the four says something about how the weights *change*?

# %% [markdown]
# ## Explore: Another score
#
# Two ways to score the places of the pictures of 4.9: the paper's network (`Pointer`, in
# `satcourse/exercises/training_steps.py`), and a scaled dot product of the projected place and the projected state. Which
# learns faster? Which has sharper maps? Before you believe the answer, write a training loop whose learning rate and
# number of steps you can change, and let each `forward` keep its `alpha`. Then try a score of your own.


# %%
class DotPointer(Pointer):
    """As `Pointer`, with a dot product for a score."""

    def forward(self, a: Tensor, h: Tensor) -> Tensor:
        keys, query = self.W_a(a), self.W_h(h)
        alpha = torch.softmax((keys * query.unsqueeze(1)).sum(2) / 4, 1)
        return self.out((alpha.unsqueeze(2) * a).sum(1))


for kind in (Pointer, DotPointer):
    torch.manual_seed(0)
    losses = train(kind(), *task_to_point())
    print(f"{kind.__name__:10} loss after forty steps {losses[-1]:.3f}")

# %% [markdown] tags=["rubric"]
# A full answer
#
# - compares the two at the best learning rate of each, with several seeds;
# - looks at the maps, not only at the loss;
# - says what the dot product cannot express that the network can, or the other way round;
# - tries one score of one's own, and reports it even if it is worse.
