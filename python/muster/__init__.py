"""Muster: an elastic, exact training loop for PyTorch.

    import muster

    run = muster.join(lanes=4, seed=1)
    model = run.attach(model, muster.AdamW(lr=1e-3))
    for step in run.steps(dataset, batch=64, passes=3):
        for x, y in step:
            step.backward(F.cross_entropy(model(x), y))

``python train.py`` trains alone. ``muster train --program train.py --workers 4`` trains with four
workers, which may crash, hang, join and leave; the final weights have the same bits either way, and
``muster verify --program train.py --workers 4 --faults kill:5`` proves it.

Nothing here imports torch before a loop begins, so that ``muster.runs()`` answers quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._build import VERSION as __version__
from .optimizers import (SGD, Adagrad, Adam, AdamW, Cosine, Drops, Lamb, Lars, Linear, Muon,
                         Optimizer, RMSprop, Schedule)
from .runs import RunRecord, Verification, runs, verify

if TYPE_CHECKING:
    from .loop import Run, Step, join

__all__ = [
    "SGD", "Adagrad", "Adam", "AdamW", "Cosine", "Drops", "Lamb", "Lars", "Linear", "Muon",
    "Optimizer", "RMSprop", "Run", "RunRecord", "Schedule", "Step", "Verification", "__version__",
    "join", "runs", "verify",
]


def __getattr__(name: str) -> Any:
    if name in ("join", "Run", "Step"):
        from . import loop
        return getattr(loop, name)
    raise AttributeError(f"module 'muster' has no attribute '{name}'")
