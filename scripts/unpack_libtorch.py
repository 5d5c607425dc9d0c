#!/usr/bin/env python3
"""unpack_libtorch.py PREFIX WHEEL...: unpacks from the wheels what a C++ program needs.

That is less than half of them: torch's own headers, the CPU libraries, and the two CUDA libraries that
libtorch_cpu.so names. Headers of other projects that the wheel carries along (fmt, protobuf) are
left out: programs here use the system's.
"""

import re
import sys
import zipfile
from pathlib import Path

WANTED = [re.compile(pattern) for pattern in (
    r"torch/include/(torch|ATen|c10|caffe2)/",
    r"torch/lib/lib(torch_cpu|c10)\.so$",
    r"torch/lib/lib(gomp|gfortran|quadmath)[-.][^/]*$",
    r"nvidia/[^/]+/lib/lib(cudart|cupti)\.so[^/]*$",
    r"[^/]+\.dist-info/(licenses/.*|LICENSE|License\.txt|NOTICE)$",
)]
NEEDED = ["torch/include/torch/csrc/api/include/torch/torch.h", "torch/lib/libtorch_cpu.so",
          "torch/lib/libc10.so"]


def wanted(name):
    return not name.endswith("/") and any(pattern.match(name) for pattern in WANTED)


def unpack(prefix, wheels, show):
    """Unpacks into `prefix`; returns the bytes written. Raises if a needed file is in no wheel."""
    archives = [zipfile.ZipFile(wheel) for wheel in wheels]
    chosen = [(archive, info) for archive in archives for info in archive.infolist() if wanted(info.filename)]
    total = sum(info.file_size for _, info in chosen)
    done = 0
    for archive, info in chosen:
        archive.extract(info, prefix)  # refuses to leave `prefix`
        done += info.file_size
        show(done, total)
    for name in NEEDED:
        if not (prefix / name).is_file():
            raise FileNotFoundError(f"the wheels do not hold {name}")
    return done


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    tty = sys.stdout.isatty()
    last = [-1]

    def show(done, total):
        percent = 100 * done // max(total, 1)
        if tty and percent != last[0]:
            print(f"\runpacking: {percent:3d} % of {total / 1e6:.0f} MB", end="", flush=True)
            last[0] = percent

    done = unpack(Path(sys.argv[1]), sys.argv[2:], show)
    print(("\r" if tty else "") + f"unpacked {done / 1e6:.0f} MB" + " " * 20)


if __name__ == "__main__":
    main()
