#!/usr/bin/env python3
"""Writes the sample of MNIST in this folder in formats that are read by blocks, or where they are.

    examples/data/convert.py [FROM] [TO]      FROM: examples/data/mnist, TO: data/converted

    TO/tfrecord/train-0.tfrecord, ...   tf.Example: image (28 * 28 bytes), label
    TO/tfrecord/test.tfrecord
    TO/jsonl/train-0.jsonl, ...         {"image": [0, 0, ...], "label": 7}
    TO/jsonl/test.jsonl
    TO/images/train/0/00001.png, ...    a directory for each digit
    TO/images/test/...

Only the standard library; the same input gives the same bytes. Real data sets are written by the tools of their format
(muster/data/blocks/testdata/make.py uses them).
"""

import gzip
import json
import pathlib
import struct
import sys
import zlib

HERE = pathlib.Path(__file__).resolve().parent
FILES = 4  # of the training data, in formats that can have several


def read_idx(path: pathlib.Path) -> list[bytes]:
    """The samples of an IDX file of bytes."""
    idx = gzip.decompress(path.read_bytes())
    rank = idx[3]
    sizes = struct.unpack(f">{rank}I", idx[4 : 4 + 4 * rank])
    each = 1
    for size in sizes[1:]:
        each *= size
    start = 4 + 4 * rank
    return [idx[start + i * each : start + (i + 1) * each] for i in range(sizes[0])]


def crc_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


CRC = crc_table()


def masked_crc32c(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, contents: bytes) -> bytes:
    """A field of a protobuf message that holds bytes or another message."""
    return varint(number << 3 | 2) + varint(len(contents)) + contents


def tf_record(pixels: bytes, label: int) -> bytes:
    def feature(name: bytes, value: bytes) -> bytes:
        return field(1, field(1, name) + field(2, value))

    image = feature(b"image", field(1, field(1, pixels)))
    example = field(1, image + feature(b"label", field(3, field(1, varint(label)))))
    length = struct.pack("<Q", len(example))
    return length + masked_crc32c(length) + example + masked_crc32c(example)


def json_line(pixels: bytes, label: int) -> bytes:
    return (json.dumps({"image": list(pixels), "label": label}) + "\n").encode()


def png(pixels: bytes, side: int) -> bytes:
    """A grey image."""

    def chunk(kind: bytes, contents: bytes) -> bytes:
        return struct.pack(">I", len(contents)) + kind + contents + struct.pack(">I", zlib.crc32(kind + contents))

    rows = b"".join(b"\0" + pixels[i * side : (i + 1) * side] for i in range(side))
    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


def write_records(folder: pathlib.Path, name: str, files: int, records: list[bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    stem, suffix = name.split(".")
    for number in range(files):
        part = records[number * len(records) // files : (number + 1) * len(records) // files]
        path = folder / (name if files == 1 else f"{stem}-{number}.{suffix}")
        path.write_bytes(b"".join(part))


def main(source: pathlib.Path, target: pathlib.Path) -> None:
    for part, name, files in (("train", "train", FILES), ("t10k", "test", 1)):
        images = read_idx(source / f"{part}-images-idx3-ubyte.gz")
        labels = [label[0] for label in read_idx(source / f"{part}-labels-idx1-ubyte.gz")]
        samples = list(zip(images, labels))
        write_records(target / "tfrecord", f"{name}.tfrecord", files, [tf_record(*sample) for sample in samples])
        write_records(target / "jsonl", f"{name}.jsonl", files, [json_line(*sample) for sample in samples])
        for number, (pixels, label) in enumerate(samples):
            folder = target / "images" / name / str(label)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number:05}.png").write_bytes(png(pixels, 28))


if __name__ == "__main__":
    if len(sys.argv) > 3:
        sys.exit(__doc__)
    main(
        pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "mnist",
        pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else HERE.parent.parent / "data" / "converted",
    )
