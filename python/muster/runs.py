"""Runs as objects, and the proof that faults change nothing. Needs neither torch nor a build of it."""

from __future__ import annotations

import json
import math
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


def _program(name: str) -> str:
    """Of ours: beside this Python, else on PATH."""
    beside = Path(sys.executable).parent / name
    if os.access(beside, os.X_OK):
        return str(beside)
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"there is no program '{name}' beside {sys.executable} nor on PATH")
    return found


def _is_held(lock: Path) -> bool:
    """Whether a process trains in the run directory of this file, as muster/track/run_directory.cc asks."""
    import fcntl
    flock = "hhqqi4x"  # struct flock: type, whence, start, length, process
    question = struct.pack(flock, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        with open(lock, "rb") as file:
            answer = fcntl.fcntl(file, fcntl.F_OFD_GETLK, question)
    except OSError:
        return False
    return bool(struct.unpack(flock, answer)[0] != fcntl.F_UNLCK)


def _number(record: dict[str, Any], key: str) -> int | None:
    value = record.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _valid(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what muster/track/metrics.h leaves to readers: repetitions (same step, same fields), and
    records that a rollback has replaced. Those after it have its number; from the step of the first
    of them on they replace all with a lower one."""
    valid: dict[tuple[int, frozenset[str]], dict[str, Any]] = {}
    begun: dict[int, int] = {}  # by rollback, where its records begin
    for record in records:
        step, rollback = record["step"], _number(record, "rollback") or 0
        if any(number > rollback and first <= step for number, first in begun.items()):
            continue
        if rollback not in begun:
            begun[rollback] = step
            valid = {key: other for key, other in valid.items()
                     if other["step"] < step or (_number(other, "rollback") or 0) >= rollback}
        valid.setdefault((step, frozenset(record)), record)
    return list(valid.values())


def _flat(record: dict[str, Any]) -> dict[str, Any]:
    """With "test/accuracy" for {"test": {"accuracy": ...}}."""
    flat = {}
    for name, value in record.items():
        inner = value if isinstance(value, dict) else {}
        flat.update({f"{name}/{part}": one for part, one in inner.items()} or {name: value})
    return flat


def _read_json(path: Path) -> dict[str, Any]:
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return read if isinstance(read, dict) else {}


@dataclass(frozen=True)
class RunRecord:
    """A run directory. Everything is read when it is asked for, so a run can be watched."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def state(self) -> str:
        """running, finished, failed, interrupted, died (it was killed), or unknown."""
        state = _read_json(self.path / "status.json").get("state")
        if state == "running" and not _is_held(self.path / "lock"):
            return "died"
        return state if state in ("running", "finished", "failed", "interrupted") else "unknown"

    @property
    def result(self) -> dict[str, Any]:
        """The final figures: steps, weights_hash, ledger and others; empty before the end."""
        return _read_json(self.path / "result.json")

    @property
    def weights_hash(self) -> str:
        return str(self.result.get("weights_hash", ""))

    def metrics(self) -> list[dict[str, Any]]:
        """The records of metrics.jsonl, in order, as `muster runs show` reads them: without those that
        another worker has written too, or that a rollback has replaced; of a line that is being
        written, none. Numbers that are not finite are None."""
        records = []
        try:
            lines = (self.path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        except OSError:
            return []
        for line in lines:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict) and _number(record, "step") is not None:
                records.append(record)
        return _valid(records)

    def curve(self, metric: str = "loss") -> tuple[list[int], list[float]]:
        """Steps and values of one metric, where they are finite: "loss", "lr", "test/accuracy".
        "accuracy" is "test/accuracy", unless the steps have one."""
        # A record of an evaluation has nothing else.
        records = [_flat({"step": record["step"], "test": record["test"]} if "test" in record else record)
                   for record in self.metrics()]
        if not any(metric in record for record in records):
            metric = f"test/{metric}"
        points = [(record["step"], float(record[metric])) for record in records
                  if isinstance(record.get(metric), (int, float)) and math.isfinite(record[metric])]
        points.sort(key=lambda point: point[0])
        return [step for step, _ in points], [value for _, value in points]

    def to_pandas(self) -> Any:
        """The metrics as a pandas.DataFrame. Columns of evaluations are "test/loss", "test/accuracy"."""
        import pandas  # type: ignore[import-not-found, import-untyped, unused-ignore]
        return pandas.DataFrame([_flat(record) for record in self.metrics()])

    def plot(self, *metrics: str, axes: Any = None) -> Any:
        """Draws metrics (default: the loss) with matplotlib; returns the axes. Without matplotlib it
        prints what `muster runs plot` draws, and returns None."""
        names = metrics or ("loss",)
        try:
            from matplotlib import pyplot  # type: ignore[import-not-found, import-untyped, unused-ignore]
        except ImportError:
            words = [_program("muster"), "runs", "plot", str(self.path)]
            for name in metrics:
                words += ["--metric", name]
            print(subprocess.run(words, check=True, capture_output=True, text=True).stdout, end="")
            return None
        if axes is None:
            axes = pyplot.gca()
        for name in names:
            steps, values = self.curve(name)
            axes.plot(steps, values, label=f"{self.name} {name}")
        axes.set_xlabel("step")
        axes.legend()
        return axes

    def load_weights(self, checkpoint: int | None = None) -> dict[str, Any]:
        """Weights and statistics of a checkpoint (default: the newest) as tensors, by the names of
        the model: ``model.load_state_dict(run.load_weights(), strict=False)``."""
        import torch
        folders = sorted((self.path / "checkpoints").glob("step-*"))
        if checkpoint is not None:
            folders = [folder for folder in folders if int(folder.name[5:]) == checkpoint]
        folders = [folder for folder in folders if (folder / "model.safetensors").exists()]
        if not folders:
            raise FileNotFoundError(f"'{self.path}' has no such checkpoint")
        data = bytearray((folders[-1] / "model.safetensors").read_bytes())
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8:8 + length])
        types = {"F32": torch.float32, "I64": torch.int64}  # I64: num_batches_tracked
        tensors = {}
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            if entry["dtype"] not in types:
                raise ValueError(f"'{name}' is {entry['dtype']}, which no checkpoint of ours contains")
            first, last = entry["data_offsets"]
            values = bytearray(data[8 + length + first:8 + length + last])
            tensors[name] = torch.frombuffer(values, dtype=types[entry["dtype"]]).reshape(entry["shape"])
        return tensors


def runs(directory: str | os.PathLike[str] | None = None) -> list[RunRecord]:
    """The runs in a directory, oldest first; default: MUSTER_RUNS, else ./runs."""
    root = Path(directory or os.environ.get("MUSTER_RUNS") or "runs")
    found = [RunRecord(path) for path in root.glob("*") if (path / "job.yaml").exists() and not path.is_symlink()]
    return sorted(found, key=lambda run: ((run.path / "job.yaml").stat().st_mtime_ns, run.name))


@dataclass(frozen=True)
class Verification:
    """What `muster verify` found: ``bool(verification)`` is whether all bits were equal."""

    equal: bool
    differences: list[str] = field(default_factory=list)
    weights_hash: str = ""
    faults: int = 0
    report: dict[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.equal


DIFFERS = 9


def verify(job: str | os.PathLike[str], *, workers: int = 4, faults: str = "kill:5", seed: int = 1,
           set: Sequence[str] = (), folder: str | os.PathLike[str] | None = None) -> Verification:
    """Trains a program (NAME.py) or a job file twice, undisturbed and with faults, and compares.

    :param faults: which and how many, as for `muster verify --faults`.
    :param seed: decides when and whom they hit.
    :param set: options of the job, as for `-s`: ["passes=3"].
    :param folder: where both runs are written, and kept; default: a temporary one.
    """
    words = [_program("muster"), "verify"]
    words += ["--program", str(job)] if str(job).endswith(".py") else [str(job)]
    words += ["--workers", str(workers), "--faults", faults, "--seed", str(seed), "-o", "json"]
    for option in set:
        words += ["-s", option]
    if folder is not None:
        words += ["--folder", str(folder)]
    environment = {"MUSTER_PYTHON": sys.executable} | os.environ
    ended = subprocess.run(words, capture_output=True, text=True, env=environment)
    lines = [line for line in ended.stdout.splitlines() if line.startswith("{")]
    report = json.loads(lines[-1]) if lines else {}
    if "equal" not in report or ended.returncode not in (0, DIFFERS):
        raise RuntimeError(f"muster verify failed (exit code {ended.returncode}): {ended.stderr.strip()}")
    return Verification(equal=bool(report["equal"]), differences=list(report.get("differences", [])),
                        weights_hash=str(report.get("weights_hash", "")),
                        faults=int(report.get("faults", 0)), report=report)
