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
# The decoder of notebook 04, equation by equation, in your own words. Write each function, run its cell and the check below it: it says in a
# line what is right or wrong. Below the check wait a hint, a pseudocode and a solution, folded. The cell after that gives the function's name to satlib's
# own, so that you can go on whatever you have written.
#
# Shapes: $B$ images of $L$ places of $D$ dimensions; the state has $n$, an embedding $m$, the vocabulary $K$.

# %%
import torch
from torch import Tensor

from satlib.exercises import check, reference

# %% [markdown]
# ## 4.1
#
# Score every place of every image by what is there and by the state:
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
# `a @ W_a.T` is (B, L, k), `h @ W_h.T` is (B, k). Give the second an axis of size 1 where the first has its places, and they can be added.

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
# Energies may be large. $\exp(1000)$ is infinite, and infinity divided by itself is not a number; but only differences of energies count.


# %%
def weights(e: Tensor) -> Tensor:
    """Exercise 4.2: from energies e (B, L) to weights alpha (B, L)."""
    # BEGIN SOLUTION
    e = e - e.max(1, keepdim=True).values
    return e.exp() / e.exp().sum(1, keepdim=True)
    # END SOLUTION


# %% [markdown] tags=["hint"]
# Which axis of (B, L) are the places? `keepdim=True` keeps an axis of size 1 to divide by. `torch.softmax` does all of it, if you prefer.

# %% [markdown] tags=["pseudocode"]
# ```
# take each row's largest energy off the row
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
# (W\, E y_{t-1} + U\, h_{t-1} + Z\, \hat z_t + b), \qquad c_t = f_t \odot c_{t-1} + i_t \odot g_t, \qquad h_t = o_t \odot \tanh(c_t)$$
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
# Compute all 4n numbers of each image at once, (B, 4n), and cut them in four with `chunk(4, dim=1)`. Equation 3 uses the *new* memory.

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
# Before the first word there is no state. Two networks predict $h_0$ and $c_0$ from the mean annotation vector; both look like this one:
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
# The next word's probability is proportional to the exponential of its logit. Compute the logits, from the word before, the state and the context:
#
# $$p(y_t \mid a, y_{<t}) \propto \exp(L_o(E y_{t-1} + L_h h_t + L_z \hat z_t))$$


# %%
def logits(Ey: Tensor, h: Tensor, z: Tensor, L_h: Tensor, L_z: Tensor, L_o: Tensor) -> Tensor:
    """Exercise 4.7: a logit for each word (B, K). Ey: (B, m). h: (B, n). z: (B, D). L_h: (m, n). L_z: (m, D). L_o: (K, m)."""
    # BEGIN SOLUTION
    deep = Ey + h @ L_h.T + z @ L_z.T  # (B, m)
    return deep @ L_o.T
    # END SOLUTION


# %% [markdown] tags=["hint"]
# State and context are brought to the m dimensions of an embedding, and all three are added. No squashing in between.

# %% [markdown] tags=["pseudocode"]
# ```
# deep = Ey + L_h h + L_z z      (B, m)
# logits = L_o deep              (B, K)
# ```

# %% [markdown]
# ## 4.8
#
# All of attention that has no weights of its own, in one function: energies and annotation vectors in, context vectors and weights out. Gradients must
# flow from both back into the energies, for that is how a network learns where to look. Yours can be put into satlib's decoder and trained:
# `satlib train scenes-soft --attention exercises/04_soft_attention.ipynb:attend`.


# %%
def attend(e: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """Exercise 4.8: from energies e (B, L) and vectors a (B, L, D) to context vectors z (B, D) and weights alpha (B, L)."""
    # BEGIN SOLUTION
    alpha = torch.softmax(e, dim=1)
    z = torch.einsum("bl,bld->bd", alpha, a)
    return z, alpha
    # END SOLUTION


# %% [markdown] tags=["hint"]
# Exercise 4.2, then exercise 4.3. Nothing that breaks the graph: no `.detach()`, no `.item()`, no argmax.

# %% [markdown] tags=["pseudocode"]
# ```
# alpha = softmax of e over the places
# z = sum over the places of alpha times a
# return z, alpha
# ```
