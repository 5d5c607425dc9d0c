#!/usr/bin/env python3
"""Cuts the sample in this folder out of the full sets, as scripts/fetch_data.sh leaves them.

    examples/data/make.py data examples/data

Only the standard library; the same input gives the same bytes.
"""

import gzip
import pathlib
import struct
import sys

# folder: (training samples, test samples)
IMAGES = {"mnist": (2000, 500), "fashion-mnist": (1000, 250)}
TEXT_BYTES = 200_000


def read(path: pathlib.Path) -> bytes:
    """The file, or its gzipped twin."""
    if path.exists():
        return path.read_bytes()
    return gzip.decompress(path.with_name(path.name + ".gz").read_bytes())


def first_samples(idx: bytes, count: int) -> bytes:
    """An IDX file with only its first `count` samples."""
    rank = idx[3]
    sizes = struct.unpack(f">{rank}I", idx[4 : 4 + 4 * rank])
    per_sample = 1
    for size in sizes[1:]:
        per_sample *= size
    start = 4 + 4 * rank
    header = idx[:4] + struct.pack(f">{rank}I", count, *sizes[1:])
    return header + idx[start : start + count * per_sample]


def main(source: pathlib.Path, target: pathlib.Path) -> None:
    for name, counts in IMAGES.items():
        (target / name).mkdir(parents=True, exist_ok=True)
        for part, count in zip(("train", "t10k"), counts):
            for kind in ("images-idx3-ubyte", "labels-idx1-ubyte"):
                idx = first_samples(read(source / name / f"{part}-{kind}"), count)
                packed = gzip.compress(idx, compresslevel=9, mtime=0)
                (target / name / f"{part}-{kind}.gz").write_bytes(packed)
    text = read(source / "tinyshakespeare" / "input.txt")
    # Ends with a whole speech: at the last empty line before the limit.
    text = text[: text.rindex(b"\n\n", 0, TEXT_BYTES) + 1]
    (target / "tinyshakespeare").mkdir(parents=True, exist_ok=True)
    (target / "tinyshakespeare" / "input.txt").write_bytes(text)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
