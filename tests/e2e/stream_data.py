"""Writes samples in the formats that are read by blocks, and says what a job must have to read them.

A sample is (bytes, label); the bytes are pixels. FORMATS has the formats by name: to test another one, add it there. The files
are written by hand, with the standard library, all but those of NEEDS_PYARROW: those of the real tools are in muster/data/blocks/testdata.
"""
import gzip
import importlib.util
import io
import json
import os
import struct
import tarfile

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def load_convert():
    """examples/data/convert.py, which is a program."""
    spec = importlib.util.spec_from_file_location("convert", os.path.join(SOURCE, "examples/data/convert.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


convert = load_convert()


# What makes one file of samples. `first` is the number of the first one.

def tfrecord(samples, first):
    return b"".join(convert.tf_record(pixels, label) for pixels, label in samples)


def webdataset(samples, first):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for number, (pixels, label) in enumerate(samples, first):
            for part, contents in (("pix", pixels), ("cls", str(label).encode())):
                info = tarfile.TarInfo(f"{number:07d}.{part}")
                info.size = len(contents)
                tar.addfile(info, io.BytesIO(contents))
    return out.getvalue()


def webdataset_png(samples, first):
    side = int(len(samples[0][0]) ** 0.5)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for number, (pixels, label) in enumerate(samples, first):
            for part, contents in (("png", convert.png(pixels, side)), ("cls", str(label).encode())):
                info = tarfile.TarInfo(f"{number:07d}.{part}")
                info.size = len(contents)
                tar.addfile(info, io.BytesIO(contents))
    return out.getvalue()


def mds(samples, first):
    size = len(samples[0][0])
    about = json.dumps({"version": 2, "format": "mds", "column_names": ["image", "label"],
                        "column_encodings": [f"ndarray:uint8:{size}", "int"], "column_sizes": [size, 8]}).encode()
    begin = 8 + 4 * len(samples) + len(about)
    places = [begin + i * (size + 8) for i in range(len(samples) + 1)]
    return (struct.pack(f"<{len(places) + 1}I", len(samples), *places) + about
            + b"".join(pixels + struct.pack("<q", label) for pixels, label in samples))


def jsonl(samples, first):
    return "".join(json.dumps({"image": [x / 255 for x in pixels], "label": label}) + "\n" for pixels, label in samples).encode()


def csv(samples, first):
    return "".join(",".join([f"{x / 255:g}" for x in pixels] + [str(label)]) + "\n" for pixels, label in samples).encode()


def parquet(samples, first):
    """Needs pyarrow. A row group has about 16 KiB."""
    import pyarrow
    import pyarrow.parquet
    table = pyarrow.table({"image": pyarrow.array([bytes(pixels) for pixels, _ in samples], pyarrow.binary()),
                           "label": pyarrow.array([label for _, label in samples], pyarrow.int64())})
    out = io.BytesIO()
    pyarrow.parquet.write_table(table, out, row_group_size=max(1, 16384 // len(samples[0][0])), use_dictionary=False)
    return out.getvalue()


def arrow(samples, first):
    """Needs pyarrow too. A record batch has about 8 KiB."""
    import pyarrow
    schema = pyarrow.schema([("image", pyarrow.binary()), ("label", pyarrow.int64())])
    out = io.BytesIO()
    with pyarrow.ipc.new_file(out, schema) as writer:
        some = max(1, 8192 // len(samples[0][0]))
        for begin in range(0, len(samples), some):
            part = samples[begin:begin + some]
            writer.write_batch(pyarrow.record_batch([pyarrow.array([bytes(pixels) for pixels, _ in part], pyarrow.binary()),
                                                     pyarrow.array([label for _, label in part], pyarrow.int64())], schema))
    return out.getvalue()


def gzipped(write):
    return lambda samples, first: gzip.compress(write(samples, first), mtime=0)


class Format:
    """`options`: of the source in a job, as YAML; SHAPE is put in. `scaled`: pixels are read as they are, and become x / 255."""

    def __init__(self, kind, suffix, write, options="", args="", scaled=True):
        self.kind, self.suffix, self.write, self.options, self.args, self.scaled = kind, suffix, write, options, args, scaled

    def source(self, path, shape, more=""):
        args = f", args: {{ {self.args.replace('SHAPE', str(list(shape)))} }}" if self.args else ""
        return f'{{ format: {self.kind}, path: "{path}"{self.options}{args}{more} }}'

    def write_files(self, folder, stem, samples, parts):
        """As many files as `parts` has numbers: that many samples in each. The wildcard that matches them."""
        os.makedirs(folder, exist_ok=True)
        first = 0
        for number, count in enumerate(parts):
            with open(os.path.join(folder, f"{stem}-{number:03d}.{self.suffix}"), "wb") as f:
                f.write(self.write(samples[first:first + count], first))
            first += count
        assert first == len(samples)
        return f"{folder}/{stem}-*.{self.suffix}"


RAW = "input: image, shape: SHAPE"
# All formats that are read by blocks; libsvm, which has ids and no pixels, is apart (ledger.py).
FORMATS = {
    "tfrecord": Format("tfrecord", "tfrecord", tfrecord, args=RAW),
    "tfrecord.gz": Format("tfrecord", "tfrecord.gz", gzipped(tfrecord), args=RAW),
    "webdataset": Format("webdataset", "tar", webdataset, args="input: pix, shape: SHAPE"),
    "webdataset.png": Format("webdataset", "tar", webdataset_png, args="input: png, channels: 1"),
    "mds": Format("mds", "mds", mds, args=RAW),
    "jsonl": Format("jsonl", "jsonl", jsonl, args="input: image", scaled=False),
    "jsonl.gz": Format("jsonl", "jsonl.gz", gzipped(jsonl), args="input: image", scaled=False),
    "parquet": Format("parquet", "parquet", parquet, args=RAW),
    "arrow": Format("arrow", "arrow", arrow, args=RAW),
    "csv": Format("csv", "csv", csv, options=", read: blocks, header: false", scaled=False),
}
NEEDS_PYARROW = ("parquet", "arrow")


def mnist(part):
    """The sample of MNIST in the repository: `part` is train or t10k."""
    import pathlib
    folder = pathlib.Path(SOURCE, "examples/data/mnist")
    images = convert.read_idx(folder / f"{part}-images-idx3-ubyte.gz")
    return list(zip(images, (label[0] for label in convert.read_idx(folder / f"{part}-labels-idx1-ubyte.gz"))))


def shares(count, parts):
    """`count` in so many parts, about equal."""
    return [(i + 1) * count // parts - i * count // parts for i in range(parts)]


# Weights of a checkpoint.

def read_safetensors(path):
    """Name -> (type, shape, bytes)."""
    with open(path, "rb") as f:
        data = f.read()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], data[8 + length + t["data_offsets"][0]:8 + length + t["data_offsets"][1]])
            for name, t in header.items()}


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, contents) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(contents)]}
        at += len(contents)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(contents for _, _, contents in tensors.values()))


def newest_checkpoint(run):
    folder = os.path.join(run, "checkpoints")
    return os.path.join(folder, max(name for name in os.listdir(folder) if name.startswith("step-")))
