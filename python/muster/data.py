"""What a loop is trained with: samples by number."""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, default_collate

Collate = Callable[[list[Any]], Any]

SPOT_CHECKS = 16  # samples that tell a data set from another


class Source:
    """Samples 0 to size - 1. `contents` and `identity` are hashed: a worker with others is refused."""

    size: int
    identity: str = ""
    contents: Sequence[Tensor] = ()

    def fetch(self, samples: list[int]) -> Any:
        raise NotImplementedError


def _same_rows(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    if not tensors or any(t.dim() == 0 or len(t) != len(tensors[0]) for t in tensors):
        raise ValueError("all tensors of the data must have one row for each sample")
    return tensors


class TensorSource(Source):
    """Tensors with one row for each sample. With an `identity` their contents are not hashed."""

    def __init__(self, tensors: Sequence[Tensor], alone: bool, identity: str | None):
        _same_rows(tensors)
        if any(t.device.type != "cpu" for t in tensors):
            raise ValueError("the data must be in main memory: tensor.cpu()")
        self.size = len(tensors[0])
        self._tensors = [t.detach().contiguous() for t in tensors]
        self.contents = self._tensors if identity is None else ()
        self.identity = ";".join(f"{t.dtype} {tuple(t.shape)}" for t in tensors)
        if identity is not None:
            self.identity += f";{identity}"
        self._alone = alone

    def fetch(self, samples: list[int]) -> Any:
        rows = torch.tensor(samples)
        batch = tuple(t.index_select(0, rows) for t in self._tensors)
        return batch[0] if self._alone else batch


class MapSource(Source):
    """A map-style dataset: __len__ and __getitem__."""

    def __init__(self, dataset: Any, collate: Collate, identity: str | None):
        self._dataset = dataset
        self._collate = collate
        self.size = len(dataset)
        self.identity = identity if identity is not None else self._spot_check()

    def fetch(self, samples: list[int]) -> Any:
        many = getattr(self._dataset, "__getitems__", None)
        rows = many(samples) if many is not None else [self._dataset[i] for i in samples]
        return self._collate(rows)

    def _spot_check(self) -> str:
        kind = type(self._dataset)
        hashed = hashlib.sha256(f"{kind.__module__}.{kind.__qualname__} {self.size}".encode())
        count = min(SPOT_CHECKS, self.size)
        for i in range(count):
            _add(hashed, self._dataset[i * self.size // count])
        return hashed.hexdigest()


def _add(hashed: Any, value: Any) -> None:
    """Adds a part of a sample, in the same way in every process."""
    if isinstance(value, Tensor):
        hashed.update(f"{value.dtype} {tuple(value.shape)}".encode())
        flat = value.detach().cpu().contiguous()
        # As it is in memory: numpy() needs numpy, which torch does without.
        hashed.update((ctypes.c_char * flat.nbytes).from_address(flat.data_ptr()))
    elif isinstance(value, dict):
        for key in sorted(value, key=str):
            hashed.update(str(key).encode())
            _add(hashed, value[key])
    elif isinstance(value, (list, tuple)):
        for part in value:
            _add(hashed, part)
    elif isinstance(value, (set, frozenset)):
        _add(hashed, sorted(value, key=repr))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            _add(hashed, getattr(value, field.name))
    elif getattr(getattr(value, "dtype", None), "hasobject", False):  # numpy: its bytes are addresses
        _add(hashed, value.tolist())
    elif hasattr(value, "tobytes"):  # of numpy, and images of PIL
        hashed.update(value.tobytes())
    else:
        text = repr(value)
        if " at 0x" in text and not isinstance(value, str):  # an address, another one in every process
            raise TypeError(f"the samples contain {text}, of which nothing can be compared between workers: give "
                            "run.steps() identity=, a text that is equal if and only if the data are")
        hashed.update(text.encode())


def open_source(dataset: Any, collate: Collate | None, identity: str | None) -> Source:
    """The samples of what a program gives to Run.steps()."""
    if isinstance(dataset, DataLoader):
        raise TypeError("give run.steps() the loader's dataset: the order of samples and the batches "
                        "are those of the job")
    if isinstance(dataset, IterableDataset):
        raise TypeError("run.steps() needs samples by number (a map-style dataset): an iterable one "
                        "cannot be shared by workers that come and go")
    if isinstance(dataset, (tuple, list)) and dataset and all(isinstance(t, Tensor) for t in dataset):
        dataset = TensorDataset(*_same_rows(dataset))
    if collate is None:
        if type(dataset) is TensorDataset:  # one derived from it may have a __getitem__ of its own
            return TensorSource(dataset.tensors, False, identity)
        if isinstance(dataset, Tensor):
            return TensorSource([dataset], True, identity)
    if isinstance(dataset, (tuple, dict)):
        raise TypeError(f"a {type(dataset).__name__} is a data set only if it is a tuple of tensors with one row for "
                        "each sample: make tensors of its parts (torch.as_tensor), or give a list of samples")
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        raise TypeError(f"a {type(dataset).__name__} is no data set: it needs __len__ and __getitem__")
    return MapSource(dataset, collate or default_collate, identity)
