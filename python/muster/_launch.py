"""How this process was started: alone, as a worker, or to be asked for its job."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from typing import Any, NoReturn

_arguments = sys.argv[1:]  # before the program changes them


@dataclass
class Launch:
    program: str = ""            # of the user; empty: started as `python train.py`
    words: list[str] = field(default_factory=list)  # the worker's command line
    describe_to: str = ""        # the file that the job is to be written to
    began: bool = False          # steps() was called
    done: bool = False           # the job was written, or the worker has ended
    exit_code: int | None = None  # that the worker ended with before training did

    @property
    def is_worker(self) -> bool:
        return bool(self.words)

    def describe(self, job: dict[str, Any]) -> NoReturn:
        """Answers what `muster train --program` asks first, and ends the process."""
        start = _start_words(self.program)
        with open(self.describe_to, "w", encoding="utf-8") as file:
            json.dump({"job": job, "start": start}, file)
        self.done = True
        raise SystemExit(0)


def start_words_of_main() -> list[str]:
    """The words that start this process's program again as a worker, with the arguments that it has
    now. Empty if it is in no file (a notebook, python -c) or in a package (python -m)."""
    main = sys.modules.get("__main__")
    path = getattr(main, "__file__", None)
    spec = getattr(main, "__spec__", None)
    if not path or not os.path.isfile(path) or (spec is not None and spec.parent):
        return []
    return _start_words(os.path.abspath(path), _arguments)


def _start_words(program: str, arguments: list[str] | None = None) -> list[str]:
    given = ["--arguments", json.dumps(arguments)] if arguments else []
    return [sys.executable, "-m", "muster.program", *given, program]


current = Launch()
