"""Batch normalization whose running statistics are reduced exactly over all lanes.

torch's own updates its buffers once for each lane that this process computes: their values would
depend on who computes what. Run.attach() turns each into one of these, in place.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class _ExactBatchNorm(nn.modules.batchnorm._BatchNorm):
    """In training, leaves the lane's statistics in `latest_mean` and `latest_var`."""

    latest_mean: Tensor
    latest_var: Tensor
    #: Of the lane that is being computed: how many samples, and why they may be so few.
    lane: tuple[int, str] | None = None

    def begin_lane(self, samples: int, trial: str) -> None:
        """If it is not run in the lane, or not in training mode, it counts with what it has."""
        self.lane = samples, trial
        with torch.no_grad():
            self.latest_mean.copy_(self.running_mean)  # type: ignore[arg-type]
            self.latest_var.copy_(self.running_var)  # type: ignore[arg-type]

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)  # type: ignore[no-untyped-call]
        if not self.training:
            return functional.batch_norm(input, self.running_mean, self.running_var, self.weight,
                                         self.bias, training=False, eps=self.eps)
        if self.lane is not None and input.numel() <= input.size(1):
            samples, trial = self.lane
            raise ValueError("batch normalization needs more than one value of each channel, and a lane has "
                             f"only {samples} sample{'s' if samples > 1 else ''}: "
                             + (trial or "give the job a larger batch or fewer lanes"))
        # With momentum 1 torch writes the statistics of this batch, unbiased, where it would else
        # keep the running ones: 0 * old + 1 * new. `old` must be finite for that. The aliases
        # (.data) have version counters of their own, so that a second forward before backward is no
        # change of what the first one saved.
        self.latest_mean.zero_()
        self.latest_var.zero_()
        return functional.batch_norm(input, self.latest_mean.data, self.latest_var.data, self.weight,
                                     self.bias, training=True, momentum=1.0, eps=self.eps)


class ExactBatchNorm1d(_ExactBatchNorm, nn.BatchNorm1d):
    pass


class ExactBatchNorm2d(_ExactBatchNorm, nn.BatchNorm2d):
    pass


class ExactBatchNorm3d(_ExactBatchNorm, nn.BatchNorm3d):
    pass


EXACT: dict[type, type] = {nn.BatchNorm1d: ExactBatchNorm1d, nn.BatchNorm2d: ExactBatchNorm2d,
                           nn.BatchNorm3d: ExactBatchNorm3d}


def make_exact(model: nn.Module) -> dict[str, _ExactBatchNorm]:
    """Replaces the class of every batch normalization; returns those that keep running statistics."""
    found: dict[str, Any] = {}
    for name, module in model.named_modules():
        if not isinstance(module, nn.modules.batchnorm._BatchNorm):
            continue
        if not isinstance(module, _ExactBatchNorm) and type(module) not in EXACT:
            raise TypeError(f"module '{name}' is a {type(module).__name__}, whose statistics cannot be "
                            "kept exact; use torch.nn.BatchNorm1d, 2d or 3d")
        if module.running_mean is None:
            continue  # track_running_stats=False: nothing of it outlives a lane
        for kind in ("mean", "var"):
            running = getattr(module, f"running_{kind}")
            if running.dtype != torch.float32 or running.device.type != "cpu":
                raise TypeError(f"module '{name}' has a running_{kind} of {running.dtype} on {running.device}; "
                                "Muster keeps statistics in float32 on the CPU: module.float()")
        if module.momentum is None:
            raise TypeError(f"module '{name}' has momentum None (a cumulative average), which depends on "
                            "the number of lanes; give it a number, such as 0.1")
        found[name] = module
    for module in found.values():
        if isinstance(module, _ExactBatchNorm):
            continue
        module.__class__ = EXACT[type(module)]
        # Until the run lends its own: a forward before the loop is none of a lane.
        module.latest_mean = torch.zeros_like(module.running_mean)
        module.latest_var = torch.zeros_like(module.running_mean)
    return found


def make_plain(norms: Iterable[_ExactBatchNorm]) -> None:
    """Makes them torch's own again."""
    for norm in norms:
        norm.__class__ = type(norm).__bases__[1]
        del norm.latest_mean, norm.latest_var
        norm.__dict__.pop("lane", None)
