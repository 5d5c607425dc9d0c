"""How this process was started: alone, as a worker, or to be asked for its job."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from typing import Any, NoReturn


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
        start = [sys.executable, "-m", "muster.program", self.program]
        with open(self.describe_to, "w", encoding="utf-8") as file:
            json.dump({"job": job, "start": start}, file)
        self.done = True
        raise SystemExit(0)


current = Launch()
