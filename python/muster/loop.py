"""The elastic, exact training loop: join(), Run.attach(), Run.steps().

A step is computed in lanes: fixed slices of the batch, dealt out to the workers there are. What a
lane computes must depend on the weights, its samples and the generators of torch, random and numpy
alone, which are seeded for it. A step may be computed more than once: the first one always is, to
find the scales of the sums; others after a worker was lost. Only what was committed counts.
"""

from __future__ import annotations

import atexit
import os
import random
import re
import sys
import warnings
import weakref
from collections.abc import Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from . import _events, _native
from ._launch import current as launch, start_words_of_main
from .batch_norm import _ExactBatchNorm, make_exact, make_plain
from .data import Collate, Source, open_source
from .optimizers import Optimizer

_core = _native.load()

Model = TypeVar("Model", bound=nn.Module)


def join(lanes: int = 8, seed: int = 1, *, name: str | None = None, threads_per_lane: int = 1,
         run_dir: str = "", display: str = "normal", options: dict[str, Any] | None = None) -> Run:
    """Becomes a worker of the job that this process was started for, or of one of its own.

    Call it before the model is made and data are split: it seeds the generators of torch, random and
    numpy.random, so that all workers begin with the same weights and use the same data, and chooses
    settings of libtorch. The thread that calls it computes the lanes.

    :param lanes: fixed slices of every batch, at least as many as there will be workers. They are
        part of the job: bits depend on them, and on nothing that computes them.
    :param seed: of initial weights, of the order of samples, and of all that lanes draw.
    :param name: of the job; default: the program's.
    :param threads_per_lane: threads of an operation. Bits depend on it.
    :param run_dir: the run directory; default: a new one in ./runs. Started by `muster train`, the
        launcher's counts.
    :param display: normal, quiet, none or json; likewise.
    :param options: further options of the job (docs/job-file.md), such as
        ``{"checkpoint": {"every": "50 steps"}}``.
    """
    if launch.is_worker:
        seed, threads_per_lane = _core.settings(launch.words)
    _core.prepare(seed, threads_per_lane)
    torch.set_num_threads(threads_per_lane)
    _seed_generators(seed)
    program = launch.program or (sys.argv[0] if sys.argv and sys.argv[0] else "")
    job = {"muster": 1, "name": name or _job_name(program),
           "seed": seed, "lanes": lanes, "threads_per_lane": threads_per_lane,
           "model": {"use": "own-loop"}, "data": {"train": {"format": "own-loop"}}}
    return Run(job, dict(options or {}), run_dir, display)


def _seed_generators(seed: int) -> None:
    """Those that torch does not seed."""
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)


def _job_name(program: str) -> str:
    """Of the program's, what a directory may be called: "my-train" for "my train.py", "python" for -c."""
    if program.startswith("-"):
        return "python"
    stem = os.path.splitext(os.path.basename(program))[0]
    return re.sub("[^A-Za-z0-9_.-]+", "-", stem).strip(".-")[:100] or "python"


def _merge(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in more.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merge(merged[key], value) if both else value
    return merged


class Run:
    """A training run, as this worker takes part in it. Made by join()."""

    def __init__(self, job: dict[str, Any], options: dict[str, Any], run_dir: str, display: str):
        self._job = job
        self._options = options
        self._run_dir = run_dir
        self._display = display
        self._model: nn.Module | None = None
        self._parameters: dict[str, nn.Parameter] = {}
        self._norms: dict[str, _ExactBatchNorm] = {}
        self._training: list[tuple[nn.Module, bool]] = []
        self._loop: Any = None
        self._unreached: list[str] = []  # parameters that no gradient has come for; empty after the first step
        self._resumable = True  # `muster resume` can start this program again
        self._over = False

    @property
    def directory(self) -> str:
        """The run directory: metrics, checkpoints, result. Known once steps() has begun."""
        return self._run_dir

    def attach(self, model: Model, optimizer: Optimizer) -> Model:
        """Trains the parameters of `model` from their present values; returns it.

        While steps() runs, parameters and statistics are views of the job's state; do not change
        them. Batch normalizations are turned into exact ones, in place.
        """
        if self._model is not None:
            raise RuntimeError("attach(): a model was attached before")
        _check_model(model)
        self._norms = make_exact(model)
        self._parameters = dict(model.named_parameters())
        self._model = model
        self._job = _merge(self._job, {"optimizer": optimizer.options()})
        return model

    def steps(self, dataset: Any, batch: int, *, passes: float | None = None, steps: int | None = None,
              collate: Collate | None = None, identity: str | None = None) -> Iterator[Step]:
        """The steps of the training; each is committed when the body of the loop is done.

        :param dataset: tensors with one row for each sample (one, a tuple or list of them, a
            TensorDataset), or a map-style dataset.
        :param batch: samples of a step, over all lanes and workers.
        :param passes: how often to use every sample (epochs); default 1 if `steps` is not given.
        :param steps: how many steps; of both, the first that is reached ends the training.
        :param collate: of the samples of a lane; default: torch's default_collate.
        :param identity: a text that is equal if and only if the data are. Default: tensors are
            hashed; of other datasets type, size and some samples.

        Modules that are in evaluation mode now are so in all lanes, and the others in training mode.

        The loop ends when training has. If this worker ends before (a signal, an error), it raises
        SystemExit with the worker's exit code.
        """
        if self._model is None:
            raise RuntimeError("steps(): call attach() first")
        if self._loop is not None:
            raise RuntimeError("steps(): once for each run")
        if launch.is_worker and launch.began:
            raise RuntimeError("steps(): `muster train --program` trains one run, and this is the program's "
                               "second; give each a program of its own")
        _refuse_a_second_run()
        _check_model(self._model)  # it may have changed since attach()
        now = dict(self._model.named_parameters())
        for name in {**self._parameters, **now}:
            if self._parameters.get(name) is not now.get(name):
                raise RuntimeError(f"parameter '{name}' was added, replaced or removed after attach(), so it would "
                                   "not be trained: attach() the model when it is complete")
        self._norms = make_exact(self._model)
        launch.began = True
        self._training = [(module, module.training) for module in self._model.modules()]
        source = open_source(dataset, collate, identity)
        end: dict[str, Any] = {"batch": batch}
        if steps is not None:
            end["steps"] = steps
        if passes is not None or steps is None:
            end["passes"] = 1 if passes is None else passes
        job = _merge(_merge(self._job, end), self._options)
        if launch.describe_to:
            launch.describe(job)
        return self._train(source, self._words(job))

    def progress(self) -> None:
        """Tells the others that this worker is alive, in work that may take longer than
        workers.hang_timeout (1 min)."""
        if self._loop is not None:
            self._loop.progress()

    # ---- Private.

    def _words(self, job: dict[str, Any]) -> list[str]:
        """The command line of the worker."""
        import json
        if launch.is_worker:
            if "--run" in launch.words:
                self._run_dir = launch.words[launch.words.index("--run") + 1]
            return launch.words
        name = f"{job['name']}.py"
        start = start_words_of_main()
        self._resumable = bool(start)
        self._run_dir = _core.make_run(json.dumps(job), name, [], self._run_dir, start)
        words = [name, "train", "--run", self._run_dir, "--display", self._display]
        prepared = self._job["seed"], self._job["threads_per_lane"]
        if (settings := _core.settings(words)) != prepared:
            raise RuntimeError(f"seed and threads_per_lane of the job are {settings}, but join() has prepared "
                               f"{prepared}: give them to join(), not as options nor in the environment")
        return words

    def _describe(self, source: Source) -> Any:
        description = _core.Description()
        embeddings = {id(module.weight) for module in self._model.modules()  # type: ignore[union-attr]
                      if isinstance(module, (nn.Embedding, nn.EmbeddingBag))}
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                parameter.data = parameter.data.contiguous()
                description.add_parameter(name, list(parameter.shape), parameter.data_ptr(),
                                          parameter.requires_grad, id(parameter) in embeddings)
            for name, norm in self._norms.items():
                for kind in ("mean", "var"):
                    running = getattr(norm, f"running_{kind}")
                    running.data = running.data.contiguous()
                    place = f"{name}.running_{kind}" if name else f"running_{kind}"
                    description.add_statistic(place, list(running.shape), running.data_ptr(), norm.momentum)
        description.set_data(source.size, source.identity)
        for tensor in source.contents:
            description.add_contents(tensor.data_ptr(), tensor.nbytes)
        return description

    def _train(self, source: Source, words: list[str]) -> Iterator[Step]:
        _refuse_a_second_run()
        loop = self._loop = _core.Loop(words, self._describe(source), self._resumable)
        if not launch.is_worker:
            _core.note_run_start(self._run_dir, _events.start_event())
        _running.add(self)
        hooks = self._take_gradients(loop)
        try:
            self._lend(loop)
            tensors = self._tensors()  # held, so that no other gets the id of one of them
            before = _marks(tensors)
            trains = _trains(tensors)
            while loop.step():
                step = Step(self, loop, source)
                yield step
                step._check()
                now = self._tensors()
                _compare(before, _marks(now), "has changed a parameter or a buffer of the attached model, '{}'; "
                         "only the commit of a step may")
                _compare(trains, _trains(now), "has frozen or unfrozen '{}' during training; set requires_grad "
                         "before run.steps()")
                if loop.commit() and self._unreached and step._has_lanes:
                    warnings.warn(_about_unreached(self._unreached), stacklevel=2)
                    self._unreached = []
            launch.done = True
        finally:
            self._end(loop)
            for hook in hooks:
                hook.remove()
        if not loop.finished:
            launch.exit_code = loop.exit_code
            raise SystemExit(loop.exit_code)

    def _take_gradients(self, loop: Any) -> list[Any]:
        def hook_of(index: int, name: str, shape: torch.Size) -> Any:
            def hook(parameter: Tensor) -> None:
                gradient = parameter.grad
                if gradient is None:
                    return
                if gradient.is_sparse:
                    raise RuntimeError("a gradient is sparse; make the embedding without sparse=True")
                if gradient.dtype != torch.float32 or gradient.shape != shape:
                    raise RuntimeError(f"the gradient of parameter '{name}' is {gradient.dtype} "
                                       f"{tuple(gradient.shape)}, not float32 {tuple(shape)}: the program has "
                                       "changed the parameter")
                values = gradient.contiguous()
                loop.gradient(index, values.data_ptr())
                parameter.grad = None
                if name in self._unreached:
                    self._unreached.remove(name)
            return hook

        hooks = []
        self._unreached = [name for name, parameter in self._parameters.items() if parameter.requires_grad]
        for index, (name, parameter) in enumerate(self._parameters.items()):
            parameter.grad = None
            if parameter.requires_grad:
                hook = hook_of(index, name, parameter.shape)
                hooks.append(parameter.register_post_accumulate_grad_hook(hook))  # type: ignore[no-untyped-call]
        return hooks

    def _lend(self, loop: Any) -> None:
        """Lets parameters and statistics be views of where the worker has them now."""
        for index, parameter in enumerate(self._parameters.values()):
            parameter.data = loop.parameter(index)
        index = 0
        for norm in self._norms.values():
            for kind in ("mean", "var"):
                getattr(norm, f"running_{kind}").data = loop.running(index)
                setattr(norm, f"latest_{kind}", loop.latest(index))
                index += 1

    def _tensors(self) -> dict[str, Tensor]:
        assert self._model is not None
        return {**dict(self._model.named_parameters()), **dict(self._model.named_buffers())}

    def _begin(self, lane: Any) -> None:
        for module, training in self._training:
            module.training = training
        for norm in self._norms.values():
            norm.begin_lane(len(lane.samples), lane.trial)
        _seed_generators(lane.seed)

    def _end_lane(self) -> None:
        for norm in self._norms.values():
            norm.lane = None

    def _end(self, loop: Any) -> None:
        """Ends the worker, whose state goes with it; the module keeps the values."""
        if self._over:
            return
        self._over = True
        loop.leave()
        if not launch.is_worker:
            _core.note_run_end(self._run_dir, loop.exit_code)
        self._lend(loop)
        with torch.no_grad():
            for parameter in self._parameters.values():
                parameter.data = parameter.data.clone()
            for norm in self._norms.values():
                norm.running_mean.data = norm.running_mean.data.clone()  # type: ignore[union-attr]
                norm.running_var.data = norm.running_var.data.clone()  # type: ignore[union-attr]
        make_plain(self._norms.values())
        _running.discard(self)


def _check_model(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if parameter.dtype != torch.float32 or parameter.device.type != "cpu":
            raise TypeError(f"parameter '{name}' is {parameter.dtype} on {parameter.device}; Muster "
                            "trains float32 on the CPU")
    _refuse_shared_memory(model)
    for name, module in model.named_modules():
        # What torch.compile(module) returns, and what module.compile() leaves in it.
        if hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None:
            what = f"module '{name}'" if name else "the model"
            raise TypeError(f"{what} was compiled: the kernels that torch.compile generates depend on the "
                            "machine and its compiler; train what was there before")
        if getattr(module, "max_norm", None) is not None:
            raise TypeError(f"module '{name}' has max_norm, which changes weights in forward; leave "
                            "it out and clip gradients (clip_norm of the optimizer)")


def _refuse_shared_memory(model: nn.Module) -> None:
    """Each parameter, and each statistic of a batch normalization, gets memory of its own."""
    # By storage: address of the first and last element, name, whether it gets memory of its own.
    ranges: dict[int, list[tuple[int, int, str, bool]]] = {}
    parameters = dict(model.named_parameters())
    for name, tensor in {**parameters, **dict(model.named_buffers())}.items():
        if is_lazy(tensor) or tensor.layout != torch.strided or tensor.device.type != "cpu" or not tensor.numel():
            continue
        last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
        own = name in parameters or name.rpartition(".")[2] in ("running_mean", "running_var")
        begin = tensor.data_ptr()
        ranges.setdefault(tensor.untyped_storage().data_ptr(), []).append(
            (begin, begin + last * tensor.element_size(), name, own))
    for tensors in ranges.values():
        tensors.sort()
        for i, (_, last, name, own) in enumerate(tensors):
            for begin, _, other, others_own in tensors[i + 1:]:
                if begin > last:
                    break
                if own or others_own:
                    raise TypeError(f"'{name}' and '{other}' are different tensors in the same memory, which "
                                    "training would separate; to tie parameters, use one Parameter under two "
                                    "names (a.weight = b.weight), and compute a view of a parameter in forward()")


def _refuse_a_second_run() -> None:
    if _running:
        raise RuntimeError("steps(): another run of this process is being trained; its loop must end before "
                           "the next one begins")


def _about_unreached(names: list[str]) -> str:
    shown = 5
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return (f"no gradient came for {', '.join(names[:shown])}{more} in the first step. Unlike torch.optim, Muster "
            "updates such parameters with a gradient of 0: freeze them (requires_grad=False), or weight decay and "
            "momentum still change them")


def _marks(tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Equal if none was replaced or written to. The worker writes to the memory behind them, which
    does not count; nor does what the program writes through .data, which no tensor notices."""
    return {name: (id(tensor), tensor.data_ptr(), tensor._version) for name, tensor in tensors.items()}


def _trains(tensors: dict[str, Tensor]) -> dict[str, Any]:
    return {name: tensor.requires_grad for name, tensor in tensors.items()}


def _compare(before: dict[str, Any], now: dict[str, Any], sentence: str) -> None:
    """Raises an error that names the first tensor of which they differ."""
    if before != now:
        name = next(name for name in {**before, **now} if before.get(name) != now.get(name))
        raise RuntimeError("the program " + sentence.format(name))


class Step:
    """One step of the training. Iterating over it computes the lanes that this worker has now:
    all of them, some, or none."""

    def __init__(self, run: Run, loop: Any, source: Source):
        self._run = run
        self._loop = loop
        self._source = source
        self._lane: Any = None
        self._complete = False
        self._has_lanes = False
        #: How many steps were committed before this one.
        self.number: int = loop.steps

    @property
    def lane(self) -> int:
        """The number of the lane that is being computed."""
        return int(self._current().number)

    @property
    def samples(self) -> list[int]:
        """The numbers of its samples."""
        return list(self._current().samples)

    @property
    def seed(self) -> int:
        """What all random numbers of this lane come from, for generators of the program's own."""
        return int(self._current().seed)

    def __iter__(self) -> Iterator[Any]:
        while (lane := self._loop.next_lane()) is not None:
            self._lane = lane
            self._has_lanes = True
            self._run._begin(lane)
            yield self._source.fetch(lane.samples)
            self._lane = None
            self._run._end_lane()
        self._complete = True

    def backward(self, loss: Tensor) -> None:
        """Backward of the mean loss of the lane's samples. Once for each lane."""
        lane = self._current()
        if loss.numel() != 1:
            raise ValueError("backward(): the loss must be one number, the mean over the lane's samples")
        scalar = loss.reshape(())
        self._loop.begin_backward()
        try:
            scalar.backward(torch.full_like(scalar, lane.weight))  # type: ignore[no-untyped-call]
        except BaseException:
            self._loop.abandon_backward()
            raise
        self._loop.end_backward(scalar.item())

    def _current(self) -> Any:
        if self._lane is None:
            raise RuntimeError("no lane is being computed: this is for the loop over the step")
        return self._lane

    def _check(self) -> None:
        if not self._complete:
            raise RuntimeError("the body of the loop has not computed all lanes of the step: "
                               "`for x, y in step:` must run to its end")


# Their workers must have ended before the interpreter does.
_running: weakref.WeakSet[Run] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    for run in list(_running):
        run._end(run._loop)
