"""The optimiser, its learning rate over time, and the moving average of the weights (section 4.3)."""

import math

import torch
from torch import nn

from satlib.model.captioner import Captioner
from satlib.recipe import TrainingConfig


def create_optimiser(captioner: Captioner, bound: nn.Module | None = None) -> torch.optim.Optimizer:
    """The recipe's optimiser over all weights that train: the decoder's, a learned baseline's, and the encoder's if it trains."""
    recipe, config = captioner.recipe, captioner.recipe.training
    parts = [captioner.decoder] if bound is None else [captioner.decoder, bound]
    learning = [parameter for part in parts for parameter in part.parameters()]
    groups = [{"params": learning, "lr": config.learning_rate}]
    if recipe.encoder.train:
        rate = config.encoder_learning_rate if recipe.encoder.pretrained else config.learning_rate
        tuned = [parameter for parameter in captioner.encoder.parameters() if parameter.requires_grad]
        groups.append({"params": tuned, "lr": rate})
    if config.optimiser == "adam":
        optimiser: torch.optim.Optimizer = torch.optim.Adam(groups, fused=True)  # one pass over the weights
    else:
        # Graves (2013), equations 38 to 45: the squared mean gradient is subtracted from the second moment, and momentum
        # follows. (torch adds eps after the square root; Graves adds it before.)
        optimiser = torch.optim.RMSprop(groups, alpha=0.95, momentum=0.9, eps=1e-4, centered=True)
    for group in optimiser.param_groups:
        group["base"] = group["lr"]
    return optimiser


def set_learning_rate(optimiser: torch.optim.Optimizer, config: TrainingConfig, step: int, steps: int) -> None:
    """Give every group its learning rate at batch `step` of `steps` over all epochs: warm-up, then the schedule."""
    factor = min(1.0, (step + 1) / config.warmup) if config.warmup else 1.0
    if config.schedule == "cosine":
        factor *= 0.5 * (1 + math.cos(math.pi * min(step / steps, 1.0)))
    for group in optimiser.param_groups:
        group["lr"] = group["base"] * factor


def trained_part(captioner: Captioner) -> nn.Module:
    """The module whose weights training changes: the whole captioner, or its decoder where the encoder is frozen."""
    return captioner if captioner.recipe.encoder.train else captioner.decoder


@torch.no_grad()
def update_average(averaged: Captioner, current: Captioner, decay: float) -> None:
    """Averaged <- decay * averaged + (1 - decay) * current, for all weights that train; counters are copied."""
    means, values = trained_part(averaged).state_dict(), trained_part(current).state_dict()
    for mean, value in zip(means.values(), values.values(), strict=True):
        if mean.is_floating_point():
            mean.lerp_(value, 1 - decay)
        else:
            mean.copy_(value)
