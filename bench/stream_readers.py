"""What bench/streams.py runs in a Python that has numpy, Pillow, webdataset, mosaicml-streaming, lmdb, tfrecord (and torch, which
mosaicml-streaming imports; for parquet also pyarrow): writes data with the tools of each format, and reads it as their users would, in one process.

    stream_readers.py write FOLDER COUNT        FOLDER/images.tar, images.lmdb: COUNT JPEG pictures of 500 x 375, 80 to 100 kB;
                                                mds/: the same, which MDSWriter encodes again, smaller;
                                                raw.lmdb and raw.tfrecord: Datum and tf.Example of 3 x 64 x 64 bytes
    stream_readers.py webdataset|mds|lmdb|tfrecord|parquet FOLDER

parquet reads packed/train/*.parquet, which `muster data pack` makes of raw.tfrecord.

Reading prints "first" when the first batch of 64 samples is there, then {"samples": 999, "seconds": of the processor}: from the
first sample on, so that imports do not count.
"""
import io
import json
import os
import sys
import time

BATCH = 64


def picture(seed):
    """As in muster/data/blocks/image_benchmark.cc: waves and noise, about 100 kB."""
    import numpy
    from PIL import Image
    y, x = numpy.mgrid[0:375, 0:500]
    noise = numpy.random.default_rng(seed).integers(0, 40, (375, 500, 3))
    planes = [100 + 60 * numpy.sin(x / 9 + c + seed) + 30 * numpy.cos(y / 5) for c in range(3)]
    out = io.BytesIO()
    Image.fromarray(numpy.clip(numpy.stack(planes, -1) + noise, 0, 255).astype(numpy.uint8)).save(out, "JPEG", quality=90)
    return out.getvalue()


def datum_class():
    """caffe.proto's Datum."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    file = descriptor_pb2.FileDescriptorProto(name="datum.proto", package="caffe", syntax="proto2")
    message = file.message_type.add(name="Datum")
    kinds = descriptor_pb2.FieldDescriptorProto
    for number, (name, kind) in enumerate([("channels", kinds.TYPE_INT32), ("height", kinds.TYPE_INT32), ("width", kinds.TYPE_INT32),
                                           ("data", kinds.TYPE_BYTES), ("label", kinds.TYPE_INT32), ("float_data", kinds.TYPE_FLOAT),
                                           ("encoded", kinds.TYPE_BOOL)], 1):
        message.field.add(name=name, number=number, type=kind,
                          label=kinds.LABEL_REPEATED if name == "float_data" else kinds.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("caffe.Datum"))


def write(folder, count):
    import lmdb
    import numpy
    import tfrecord
    import webdataset
    from PIL import Image
    from streaming import MDSWriter
    os.makedirs(folder, exist_ok=True)
    pictures = [picture(i) for i in range(min(count, 64))]  # the same again after these
    with webdataset.TarWriter(os.path.join(folder, "images.tar"), mtime=0) as sink:
        for i in range(count):
            sink.write({"__key__": f"{i:07d}", "jpg": pictures[i % len(pictures)], "cls": i % 10})
    with MDSWriter(out=os.path.join(folder, "mds"), columns={"image": "jpeg", "label": "int"}, size_limit=1 << 26) as out:
        for i in range(count):
            out.write({"image": Image.open(io.BytesIO(pictures[i % len(pictures)])), "label": i % 10})
    datum = datum_class()
    raw = [numpy.random.default_rng(i).integers(0, 256, 3 * 64 * 64, dtype=numpy.uint8).tobytes() for i in range(256)]

    def write_lmdb(name, values):
        environment = lmdb.open(os.path.join(folder, name), subdir=False, lock=False, map_size=1 << 36)
        with environment.begin(write=True) as transaction:
            for i, value in enumerate(values):
                transaction.put(f"{i:08d}".encode(), value.SerializeToString())
        environment.close()

    write_lmdb("images.lmdb", (datum(data=pictures[i % len(pictures)], label=i % 10, encoded=True) for i in range(count)))
    write_lmdb("raw.lmdb", (datum(channels=3, height=64, width=64, data=raw[i % 256], label=i % 10) for i in range(10 * count)))
    writer = tfrecord.TFRecordWriter(os.path.join(folder, "raw.tfrecord"))
    for i in range(10 * count):
        writer.write({"image": (raw[i % 256], "byte"), "label": (i % 10, "int")})
    writer.close()


def read_webdataset(folder):
    import webdataset
    data = webdataset.WebDataset(os.path.join(folder, "images.tar"), shardshuffle=False).decode("rgb8").to_tuple("jpg", "cls")
    return (image.shape == (375, 500, 3) for image, _ in data)


def read_mds(folder):
    import numpy
    from streaming import StreamingDataset
    data = StreamingDataset(local=os.path.join(folder, "mds"), shuffle=True, batch_size=BATCH)
    return (numpy.asarray(sample["image"].convert("RGB")).shape == (375, 500, 3) for sample in data)


def read_lmdb(folder):
    import lmdb
    import numpy
    datum = datum_class()
    environment = lmdb.open(os.path.join(folder, "raw.lmdb"), subdir=False, lock=False, readonly=True, readahead=False)
    cursor = environment.begin().cursor()
    for value in cursor.iternext(keys=False, values=True):
        message = datum.FromString(value)
        yield numpy.frombuffer(message.data, numpy.uint8).astype(numpy.float32).size == 3 * 64 * 64


def read_tfrecord(folder):
    import numpy
    import tfrecord.reader
    records = tfrecord.reader.tfrecord_loader(os.path.join(folder, "raw.tfrecord"), None, {"image": "byte", "label": "int"})
    return (numpy.frombuffer(record["image"], numpy.uint8).astype(numpy.float32).size == 3 * 64 * 64 for record in records)


def read_parquet(folder):
    import glob
    import numpy
    import pyarrow.parquet
    for path in sorted(glob.glob(os.path.join(folder, "packed/train/*.parquet"))):
        file = pyarrow.parquet.ParquetFile(path, page_checksum_verification=True)
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, columns=["input", "label"], use_threads=False)
            for value in table.column("input"):
                yield numpy.frombuffer(value.as_buffer(), numpy.uint8).astype(numpy.float32).size == 3 * 64 * 64


def main():
    what, folder = sys.argv[1:3]
    if what == "write":
        return write(folder, int(sys.argv[3]))
    samples = globals()[f"read_{what}"](folder)
    begin = 0
    for count, right in enumerate(samples):
        if not right:
            sys.exit(f"sample {count} is not what was written")
        if count == 0:
            begin = time.process_time()
        if count + 1 == BATCH:
            print("first", flush=True)
    print(json.dumps({"samples": count, "seconds": time.process_time() - begin}))
    return None


if __name__ == "__main__":
    main()
