"""A weighted mean to drag (notebook 04): a slider for the energy of each of a few vectors, and their context vector in a picture.

Hull(attend, corners)  # a function from energies (1, L) and vectors (1, L, 2) to context (1, 2) and weights (1, L)
"""

import itertools
from collections.abc import Callable
from typing import Any

import ipywidgets
import torch
from torch import Tensor

from satcourse.widgets import still

STILL = "> **Run > Run All Cells**, and here is a slider for each energy, and the context vector that follows them."
_UNIT, _MARGIN = 110, 45  # pixels
_SVG = (
    '<svg role="img" aria-label="{label}" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
    'style="max-width:100%;background:white;border-radius:8px" font-family="sans-serif" font-size="14" fill="#1c1e26">'
    '<path d="M {triangles} Z" fill="#e4e6eb" stroke="#e4e6eb"/>'
    '<polyline points="{way}" fill="none" stroke="#0072b2" stroke-width="2"/>{dots}'
    '<rect x="{x:.1f}" y="{y:.1f}" width="12" height="12" fill="#0072b2" stroke="white" stroke-width="2"/></svg>'
)
_DOT = (
    '<circle cx="{x:.1f}" cy="{y:.1f}" r="{r:.1f}" fill="#e69f00"/>'
    '<text x="{x:.1f}" y="{above:.1f}" text-anchor="middle"><tspan font-style="italic">a</tspan>'
    '<tspan font-size="10" dy="3">{k}</tspan><tspan dy="-3" dx="4">{weight:.2f}</tspan></text>'
)


class Hull:
    """Sliders for energies, and the vectors of a plane, each a dot with its weight as area, with their weighted mean and its way so far.

    energies: a slider for each vector. even: the button that sets all to 0. z (2,), alpha (L,): what is shown.
    """

    def __init__(self, attend: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], a: Tensor) -> None:
        self._attend, self._a = attend, a
        style = {"min": -6, "max": 6, "step": 0.1, "readout_format": ".1f"}
        self.energies = [ipywidgets.FloatSlider(description=f"energy {k}", **style) for k in range(1, len(a) + 1)]
        self.even = ipywidgets.Button(description="all energies 0")
        self.picture = ipywidgets.HTML()
        self.box = ipywidgets.HBox([self.picture, ipywidgets.VBox([*self.energies, self.even])])
        self.box.layout.flex_flow = "row wrap"
        for slider in self.energies:
            slider.observe(self._redraw, "value")
        self.even.on_click(self._start_over)
        self._start_over()

    def _ipython_display_(self) -> None:
        still.show(self.box, STILL)

    def _start_over(self, _: Any = None) -> None:
        """An even map, and no way behind it."""
        for slider in self.energies:
            slider.value = 0
        self._way: list[str] = []
        self._redraw()

    def _redraw(self, _: Any = None) -> None:
        e = torch.tensor([[slider.value for slider in self.energies]])
        (self.z,), (self.alpha,) = self._attend(e, self._a[None])
        x, y = self._pixels(self.z)
        self._way.append(f"{x:.1f},{y:.1f}")
        self.picture.value = self._svg(x, y)

    def _pixels(self, vectors: Tensor) -> list:
        """Where vectors (..., 2) lie in the picture, y downwards."""
        low, high = self._a.min(0).values, self._a.max(0).values
        return (torch.stack([vectors[..., 0] - low[0], high[1] - vectors[..., 1]], -1) * _UNIT + _MARGIN).tolist()

    def _svg(self, x: float, y: float) -> str:
        """The picture, with the context vector at (x, y)."""
        vectors, weights = self._pixels(self._a), self.alpha.tolist()
        width, height = ((self._a.max(0).values - self._a.min(0).values) * _UNIT + 2 * _MARGIN).tolist()
        # All triangles of vectors together fill their convex hull.
        triangles = (" L ".join(f"{u:.1f} {v:.1f}" for u, v in three) for three in itertools.combinations(vectors, 3))
        dots = ""
        for k, ((u, v), weight) in enumerate(zip(vectors, weights, strict=True), 1):
            radius = 22 * weight**0.5
            dots += _DOT.format(x=u, y=v, r=max(3, radius), above=v - 8 - radius, k=k, weight=weight)
        label = "Weights: " + ", ".join(f"place {k} {weight:.2f}" for k, weight in enumerate(weights, 1))
        shapes = {"triangles": " Z M ".join(triangles), "way": " ".join(self._way), "dots": dots}
        return _SVG.format(label=label, width=width, height=height, x=x - 6, y=y - 6, **shapes)
