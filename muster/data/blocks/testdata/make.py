#!/usr/bin/env python3
"""make.py [DIRECTORY]: writes the test files of this directory with the programs that users write such files with.

Needs numpy, pillow, webdataset, lmdb, tensorflow (or tensorflow-cpu), mosaicml-streaming and pyarrow from PyPI; the tests
need none of them. The files are committed, so this is run only to add one. Versions of the last run: numpy 2.4, pillow 13.0,
webdataset 1.0.2, lmdb 3.0, tensorflow-cpu 2.21, pyarrow 26.0.1. Megatron's and llm.c's token files are written by hand, after
megatron/core/datasets/indexed_dataset.py and llm.c's data_common.py: both would need torch for a few bytes.
"""

import importlib.abc
import importlib.machinery
import io
import struct
import sys
import tarfile
import types
from pathlib import Path

import numpy
from PIL import Image

HERE = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent)


def picture(width, height, seed):
    """Something with edges, slopes and a little noise, as bytes (height, width, 3)."""
    y, x = numpy.mgrid[0:height, 0:width]
    noise = numpy.random.default_rng(seed).integers(-12, 13, (height, width, 3))
    planes = [128 + 100 * numpy.sin(x / (5.0 + seed)), 255 * y / height, 255.0 * (((x // 8 + y // 8 + seed) % 2) * 0.7)]
    return numpy.clip(numpy.stack(planes, -1) + noise, 0, 255).astype(numpy.uint8)


def resized(image, width, height):
    """Along rows first, as Pillow did in one call up to version 12; later ones choose by size."""
    return image.resize((width, image.size[1]), Image.BILINEAR).resize((width, height), Image.BILINEAR)


def encoded(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def write_images():
    folder = HERE / "images"
    folder.mkdir(exist_ok=True)
    photo = Image.fromarray(picture(75, 50, 1))
    files = {
        "photo.jpg": encoded(photo, "JPEG", quality=85),  # 4:2:0, as cameras and most programs write it
        "progressive.jpg": encoded(photo, "JPEG", quality=85, progressive=True, subsampling="4:4:4"),
        "grey.jpg": encoded(photo.convert("L"), "JPEG", quality=85),
        "cmyk.jpg": encoded(photo.convert("CMYK"), "JPEG", quality=85),
        "photo.png": encoded(photo.resize((30, 20)), "PNG"),
        "alpha.png": encoded(photo.resize((30, 20)).convert("RGBA"), "PNG"),
        "palette.png": encoded(photo.resize((30, 20)).quantize(16), "PNG"),
        "grey.png": encoded(photo.resize((30, 20)).convert("L"), "PNG"),
        "tall.jpg": encoded(Image.fromarray(picture(40, 90, 2)), "JPEG", quality=85),
    }
    for name, contents in files.items():
        (folder / name).write_bytes(contents)
        if not name.endswith(".jpg"):
            continue
        # What Pillow makes of it, without loss: decoded, and resized so that the shorter side is 32, middle 32 x 32.
        image = Image.open(io.BytesIO(contents)).convert("RGB")
        width, height = image.size
        short = min(width, height)
        size = (32 * width // short, 32 * height // short)
        left, top = (size[0] - 32) // 2, (size[1] - 32) // 2
        stem = name.replace(".jpg", "")
        image.save(folder / f"{stem}-decoded.png")
        resized(image, *size).crop((left, top, left + 32, top + 32)).save(folder / f"{stem}-fit32.png")
        if name == "photo.jpg":  # enlarged
            big = resized(image, 100 * width // short, 100)
            left = (big.size[0] - 100) // 2
            big.crop((left, 0, left + 100, 100)).save(folder / "photo-fit100.png")


def write_tfrecord():
    import tensorflow as tf

    def feature(value):
        if isinstance(value, bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
        if isinstance(value[0], float):
            return tf.train.Feature(float_list=tf.train.FloatList(value=value))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=value))

    def write(name, records, compression=""):
        with tf.io.TFRecordWriter(str(HERE / name), tf.io.TFRecordOptions(compression_type=compression)) as writer:
            for record in records:
                example = tf.train.Example(features=tf.train.Features(feature={k: feature(v) for k, v in record.items()}))
                writer.write(example.SerializeToString(deterministic=True))

    images = [{"image/encoded": encoded(Image.fromarray(picture(24, 16, i)), "JPEG" if i % 2 == 0 else "PNG"),
               "image/class/label": [i + 1], "image/filename": f"{i}.jpg".encode()} for i in range(5)]
    write("images.tfrecord", images)
    numbers = [{"dense": [i + 0.5, -1.25, 3e4], "more": [i, -i, 1 << 40], "label": [i % 3]} for i in range(10)]
    write("numbers.tfrecord", numbers)
    write("numbers.tfrecord.gz", numbers, "GZIP")


def write_webdataset():
    import webdataset

    with webdataset.TarWriter(str(HERE / "images.tar"), mtime=0, user="u", group="g") as sink:
        for i in range(4):
            sink.write({"__key__": f"train/n{i:03d}", "jpg": encoded(Image.fromarray(picture(24, 16, i)), "JPEG"),
                        "cls": i % 3, "json": {"label": i % 3, "box": [i, 1, 2.5]}})
    # Names that need the extensions of each kind of tar, and entries that are no files.
    for kind, mode in (("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT), ("ustar", tarfile.USTAR_FORMAT)):
        with tarfile.open(HERE / f"names-{kind}.tar", "w", format=mode) as tar:
            def add(name, contents, tar=tar):
                info = tarfile.TarInfo(name)
                info.size = len(contents)
                tar.addfile(info, io.BytesIO(contents))
            folder = tarfile.TarInfo("dir.d/")
            folder.type = tarfile.DIRTYPE
            tar.addfile(folder)
            add("dir.d/a.cls", b"1")
            add("dir.d/a.seg.PNG", b"png")
            deep = ("x" * 60 + "/") * 2 if kind == "ustar" else ("x" * 120 + "/") * 3
            add(deep + "b.cls", b"2\n")
            link = tarfile.TarInfo("link.cls")
            link.type, link.linkname = tarfile.SYMTYPE, "dir.d/a.cls"
            tar.addfile(link)
            add(deep + "b.txt", b"x" * 1000)
            add("no-extension", b"skipped")
            add("\u00e9.cls" if kind == "pax" else "e.cls", b"3")
    listed = {}
    for path in sorted(HERE.glob("*.tar")):
        with tarfile.open(path) as tar:
            listed[path.name] = [[m.name, m.offset_data, m.size] for m in tar if m.isfile()]
    (HERE / "tar-listing.txt").write_text(
        "".join(f"{name}\t{entry[1]}\t{entry[2]}\t{entry[0]}\n" for name, entries in listed.items() for entry in entries))


def write_tokens():
    tokens = (numpy.arange(1000) * 7919 % 50257)
    numpy.save(HERE / "tokens.npy", tokens.astype(numpy.uint16))
    lengths, width = [100, 400, 1, 499], 4
    ends = numpy.cumsum(lengths) * width
    (HERE / "megatron.bin").write_bytes(tokens.astype("<i4").tobytes())
    (HERE / "megatron.idx").write_bytes(
        b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 4, len(lengths), 3) + numpy.array(lengths, "<i4").tobytes()
        + numpy.array([0, *ends[:-1]], "<i8").tobytes() + numpy.array([0, 2, 4], "<i8").tobytes())
    header = numpy.zeros(256, "<i4")
    header[:3] = 20240520, 1, len(tokens)
    (HERE / "llmc.bin").write_bytes(header.tobytes() + tokens.astype("<u2").tobytes())


def write_lmdb():
    import lmdb
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    # caffe.proto's Datum.
    file = descriptor_pb2.FileDescriptorProto(name="datum.proto", package="caffe", syntax="proto2")
    message = file.message_type.add(name="Datum")
    kinds = descriptor_pb2.FieldDescriptorProto
    for number, (name, kind) in enumerate([("channels", kinds.TYPE_INT32), ("height", kinds.TYPE_INT32),
                                           ("width", kinds.TYPE_INT32), ("data", kinds.TYPE_BYTES),
                                           ("label", kinds.TYPE_INT32), ("float_data", kinds.TYPE_FLOAT),
                                           ("encoded", kinds.TYPE_BOOL)], 1):
        label = kinds.LABEL_REPEATED if name == "float_data" else kinds.LABEL_OPTIONAL
        message.field.add(name=name, number=number, type=kind, label=label)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    datum = message_factory.GetMessageClass(pool.FindMessageTypeByName("caffe.Datum"))

    def write(name, values):
        environment = lmdb.open(str(HERE / name), subdir=False, lock=False, map_size=1 << 20)
        with environment.begin(write=True) as transaction:
            for i, value in enumerate(values):
                transaction.put(f"{i:08d}".encode(), value.SerializeToString())
        environment.close()

    raw = [picture(4, 3, i).transpose(2, 0, 1) for i in range(6)]
    write("raw.lmdb", [datum(channels=3, height=3, width=4, data=p.tobytes(), label=i % 2) for i, p in enumerate(raw)])
    write("encoded.lmdb", [datum(data=encoded(Image.fromarray(picture(24, 16, i)), "JPEG"), label=i, encoded=True)
                           for i in range(3)])


def write_mds():
    # Its writer needs neither torch nor clients of object stores, but the package imports them all.
    class Missing(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        def find_spec(self, name, path, target=None):
            if name.split(".")[0] not in ("torch", "torchvision", "transformers", "boto3", "botocore", "datasets", "oci"):
                return None
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

        def create_module(self, spec):
            module = types.ModuleType(spec.name)
            module.__getattr__ = lambda name: type(name, (), {}) if not name.startswith("__") else None
            module.__path__ = []
            return module

        def exec_module(self, module):
            pass

    sys.meta_path.append(Missing())
    from streaming import MDSWriter

    columns = {"image": "jpeg", "label": "int", "weights": "ndarray:float32:2,2", "name": "str"}
    folder = HERE / "mds"
    with MDSWriter(out=str(folder), columns=columns, size_limit=6000) as out:
        for i in range(8):
            image = Image.open(io.BytesIO(encoded(Image.fromarray(picture(24, 16, i)), "JPEG")))
            out.write({"image": image, "label": i % 4, "name": f"sample {i}",
                       "weights": numpy.array([[i, 0.5], [-1, 2]], numpy.float32)})


def write_columns():
    """Parquet and Arrow files with the same contents."""
    import pyarrow
    from pyarrow import feather, parquet

    def table(rows, names, types):
        return pyarrow.table({name: pyarrow.array([row[name] for row in rows], kind) for name, kind in zip(names, types)})

    # What write_tfrecord() has, then columns of other types.
    numbers = table(
        [{"dense": [i + 0.5, -1.25, 3e4], "more": [i, -i, 1 << 40], "label": i % 3, "half": i / 4, "byte": 250 + i % 6,
          "flag": i % 2 == 0, "lengths": list(range(i % 4)), "name": f"row {i}", "maybe": None if i == 7 else i,
          "image": {"bytes": bytes([i, 2, 3, 4, 5, 6]), "path": "x"}} for i in range(10)],
        ["dense", "more", "label", "half", "byte", "flag", "lengths", "name", "maybe", "image"],
        [pyarrow.list_(pyarrow.float32(), 3), pyarrow.list_(pyarrow.int64()), pyarrow.int8(), pyarrow.float16(),
         pyarrow.uint8(), pyarrow.bool_(), pyarrow.list_(pyarrow.float64()), pyarrow.string(), pyarrow.int32(),
         pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])])
    parquet.write_table(numbers, HERE / "numbers.parquet", row_group_size=4, compression="zstd", write_page_checksum=True)
    parquet.write_table(numbers, HERE / "numbers-v2.parquet", compression="snappy", data_page_version="2.0",
                        use_dictionary=False, write_page_checksum=True)
    with pyarrow.OSFile(str(HERE / "numbers.arrow"), "wb") as sink, pyarrow.ipc.new_file(sink, numbers.schema) as out:
        out.write_table(numbers, max_chunksize=4)
    with pyarrow.OSFile(str(HERE / "numbers.arrows"), "wb") as sink, pyarrow.ipc.new_stream(sink, numbers.schema) as out:
        out.write_table(numbers)
    feather.write_feather(numbers, str(HERE / "numbers.feather"), compression="lz4", chunksize=4)
    images = table([{"image": encoded(Image.fromarray(picture(24, 16, i)), "JPEG" if i % 2 == 0 else "PNG"), "label": i}
                    for i in range(5)], ["image", "label"], [pyarrow.binary(), pyarrow.int64()])
    parquet.write_table(images, HERE / "images.parquet", row_group_size=2, write_page_checksum=True)


def main():
    for write in (write_images, write_webdataset, write_tokens, write_lmdb, write_tfrecord, write_mds, write_columns):
        try:
            write()
            print(f"{write.__name__}: done")
        except ImportError as error:
            print(f"{write.__name__}: left out, {error}")


if __name__ == "__main__":
    main()
