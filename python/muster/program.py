"""Runs a training program as `muster` wants it: `python -m muster.program PROGRAM WORDS...`.

With --describe FILE the program runs up to its run.steps(), which writes the job to FILE. With the
words of a worker, run.steps() becomes that worker. --arguments JSON, first of all, is a list of the
program's own arguments. Exit codes are those of docs/exit-codes.md: an
exception of the program is an error of the job (3), not a crash, which would be restarted for ever;
so are sys.exit(1), sys.exit("reason"), and any end, even sys.exit(0), before that of the training.
"""

from __future__ import annotations

import ctypes
import json
import os
import runpy
import signal
import sys
import traceback
from typing import NoReturn

from . import _launch

JOB_ERROR = 3
USAGE_ERROR = 2


def _fail(sentence: str, code: int) -> int:
    print(f"muster: {sentence}", file=sys.stderr, flush=True)
    return code


def _follow_launcher() -> None:
    """Ends with `muster`, which starts this in a process group of its own: Ctrl-C reaches `muster` only.
    As the worker does it, but the program may take long before there is one (muster/train/worker.cc)."""
    launcher = os.environ.get("MUSTER_LAUNCHER_PID")
    if launcher is None:
        return
    set_death_signal = 1  # PR_SET_PDEATHSIG
    ctypes.CDLL(None).prctl(set_death_signal, signal.SIGTERM)
    if str(os.getppid()) != launcher:  # it has ended before
        os.kill(os.getpid(), signal.SIGTERM)


def main(words: list[str]) -> int:
    _follow_launcher()
    launch = _launch.current
    arguments: list[str] = []
    if words[:1] == ["--arguments"] and len(words) > 2:
        arguments = json.loads(words[1])
        words = words[2:]
    if words[:1] == ["--describe"] and len(words) == 3:
        launch.describe_to = words[1]
        launch.program = os.path.abspath(words[2])
    elif len(words) >= 2:
        launch.program = os.path.abspath(words[0])
        launch.words = [launch.program, *words[1:]]
        if words[1] != "train":
            return _fail(f"a Python program cannot do `{words[1]}`: run.steps() only trains", USAGE_ERROR)
    else:
        return _fail("python -m muster.program PROGRAM train --run DIR; `muster train --program` "
                     "calls it", USAGE_ERROR)
    if not os.path.isfile(launch.program):
        return _fail(f"there is no program '{launch.program}'", USAGE_ERROR)
    sys.argv = [launch.program, *arguments]
    sys.path[0] = os.path.dirname(launch.program)
    try:
        runpy.run_path(launch.program, run_name="__main__")
    except SystemExit as end:
        if launch.exit_code is not None and end.code == launch.exit_code:
            raise  # the worker's own
        if end.code not in (None, 0):
            _end_now(f"sys.exit({end.code!r})", JOB_ERROR)
    except Exception as error:
        traceback.print_exc()
        _end_now(_last_line(), int(getattr(error, "exit_code", JOB_ERROR)))
    if not launch.began:
        return _fail(f"'{launch.program}' ended without run.steps(): it trains nothing", JOB_ERROR)
    if not launch.done:
        return _fail(f"'{launch.program}' ended before its training had", JOB_ERROR)
    return 0


def _end_now(what: str, code: int) -> NoReturn:
    """At once: the worker's thread would only say that its loop was left."""
    _fail(f"{os.path.basename(_launch.current.program)} ended with: {what}", code)
    sys.stdout.flush()
    os._exit(code)


def _last_line() -> str:
    kind, value, _ = sys.exc_info()
    return traceback.format_exception_only(kind, value)[-1].strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
