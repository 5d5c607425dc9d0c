"""Muster's optimizers, as a loop names them.

They run in the worker, in C++, on sums that do not depend on who computed what. The formulas and
defaults of SGD, Adam, AdamW, Adagrad and RMSprop are those of torch.optim; Muon is another one than
torch.optim.Muon (see there), and torch has no Lars and Lamb. What every option means:
``muster config explain optimizer``.

One difference holds for all: a parameter without a gradient (a branch that was not taken) is updated
with a gradient of 0, where torch.optim skips it. So weight decay shrinks it and momentum moves it on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The learning rate over time; constant, after ``warmup`` steps of linear growth from 0."""

    warmup: int = 0
    kind: str = field(default="constant", init=False)

    def options(self) -> dict[str, Any]:
        return {"kind": self.kind, "warmup": self.warmup}


@dataclass(frozen=True, kw_only=True)
class Cosine(Schedule):
    """Falls as a half cosine to ``final`` times lr, by default over the whole training."""

    final: float = 0.0
    steps: int = 0
    kind: str = field(default="cosine", init=False)

    def options(self) -> dict[str, Any]:
        return super().options() | {"final": self.final, "steps": self.steps}


@dataclass(frozen=True, kw_only=True)
class Linear(Cosine):
    """Falls linearly to ``final`` times lr, by default over the whole training."""

    kind: str = field(default="linear", init=False)


@dataclass(frozen=True, kw_only=True)
class Drops(Schedule):
    """Is multiplied by ``factor`` after every ``every`` steps."""

    every: int
    factor: float = 0.1
    kind: str = field(default="step", init=False)

    def options(self) -> dict[str, Any]:
        return super().options() | {"every": self.every, "factor": self.factor}


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """What all optimizers have. ``clip_norm`` and ``clip_value``: 0 is off."""

    lr: float
    weight_decay: float = 0.0
    schedule: Schedule | None = None
    clip_norm: float = 0.0
    clip_value: float = 0.0

    kind = ""

    def options(self) -> dict[str, Any]:
        """The job's section ``optimizer``. Options that are not set are left to their defaults."""
        options: dict[str, Any] = {"kind": self.kind, "lr": self.lr}
        if self.weight_decay:
            options["weight_decay"] = self.weight_decay
        if self.schedule is not None:
            options["schedule"] = {key: value for key, value in self.schedule.options().items() if value}
        clip = {"norm": self.clip_norm, "value": self.clip_value}
        if any(clip.values()):
            options["clip"] = {key: value for key, value in clip.items() if value}
        return options


@dataclass(frozen=True, kw_only=True)
class SGD(Optimizer):
    momentum: float = 0.0
    nesterov: bool = False
    dampening: float = 0.0
    kind = "sgd"

    def options(self) -> dict[str, Any]:
        extra = {"momentum": self.momentum, "nesterov": self.nesterov, "dampening": self.dampening}
        return super().options() | {key: value for key, value in extra.items() if value}


@dataclass(frozen=True, kw_only=True)
class Adam(Optimizer):
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    kind = "adam"

    def options(self) -> dict[str, Any]:
        return super().options() | {"beta1": self.betas[0], "beta2": self.betas[1], "eps": self.eps}


@dataclass(frozen=True, kw_only=True)
class AdamW(Adam):
    """With torch's default weight decay, 0.01."""

    weight_decay: float = 0.01
    kind = "adamw"


@dataclass(frozen=True, kw_only=True)
class Lamb(Adam):
    eps: float = 1e-6
    kind = "lamb"


@dataclass(frozen=True, kw_only=True)
class Adagrad(Optimizer):
    eps: float = 1e-10
    kind = "adagrad"

    def options(self) -> dict[str, Any]:
        return super().options() | {"eps": self.eps}


@dataclass(frozen=True, kw_only=True)
class RMSprop(Optimizer):
    alpha: float = 0.99
    eps: float = 1e-8
    momentum: float = 0.0
    kind = "rmsprop"

    def options(self) -> dict[str, Any]:
        options = super().options() | {"alpha": self.alpha, "eps": self.eps}
        return options | ({"momentum": self.momentum} if self.momentum else {})


@dataclass(frozen=True, kw_only=True)
class Lars(Optimizer):
    momentum: float = 0.9
    trust: float = 0.001
    kind = "lars"

    def options(self) -> dict[str, Any]:
        return super().options() | {"momentum": self.momentum, "trust": self.trust}


@dataclass(frozen=True, kw_only=True)
class Muon(Optimizer):
    """Muon for matrices; AdamW for vectors, embeddings and what ``adamw_on`` names.

    Not torch.optim.Muon with its defaults, so that its settings cannot be copied:

    - An update has the factor 0.2 * sqrt(max(rows, columns)), as torch's with
      ``adjust_lr_fn="match_rms_adamw"``; torch's default is sqrt(max(1, rows / columns)). With this one,
      Muon and AdamW take the same ``lr``.
    - ``weight_decay`` is 0 by default; torch's is 0.1. It also holds for what AdamW updates.
    - One optimizer updates all parameters. torch.optim.Muon takes only those with two dimensions and
      leaves the others to a second optimizer. Kernels with more dimensions are matrices of as many
      rows as their first dimension has elements.
    - The matrices are orthogonalized in float32; torch rounds them to bfloat16.
    """

    momentum: float = 0.95
    nesterov: bool = True
    adamw_on: tuple[str, ...] = ()
    kind = "muon"

    def options(self) -> dict[str, Any]:
        options = super().options() | {"momentum": self.momentum, "nesterov": self.nesterov}
        return options | ({"adamw_on": list(self.adamw_on)} if self.adamw_on else {})
