"""What `muster report` shows of a run that this process trains without `muster`: where and when."""

from __future__ import annotations

import json
import os
import platform

from . import _build


def start_event() -> str:
    """The event `start` of muster/track/run_events.h, as JSON."""
    system = os.uname()
    return json.dumps({"event": "start", "command": "python", "workers": 1, "host": system.nodename,
                       "system": f"{system.sysname} {system.release} {system.machine}",
                       "processor": _processor(), "cores": len(os.sched_getaffinity(0)),
                       "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
                       "version": _build.VERSION})


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()
