#!/usr/bin/env python3
"""Data that is streamed: memory, start, speed and quality, beside the bare libraries and other loaders.

    bench/streams.py PART... [--bin build/release/bin] [--python PYTHON] [--rounds 5] [-o FILE.json]

memory    100 GB behind an HTTP server (stream_big.py says how), trained for some steps at several positions of the pass: resident
          memory of the worker, less that of the same job with 8 MB of data, over data.memory. With --cgroup DIR, a directory of
          the memory controller that may be written to, the worker is in a group that is limited to 1 GiB
resume    10^9 samples in 10^6 blocks: from the command to the first committed step of a run that is resumed at 0 % and at 99 % of
          the pass, and of one that starts; by turns
image     JPEG: decode_image against libjpeg-turbo alone (muster_data_benchmark), and `muster data check` of a tar file against
          WebDataset in Python
records   `muster data check` of raw TFRecord, LMDB and Parquet against the bare libraries (bare_readers, bare_parquet) and their Python
          packages; the Parquet files are written by `muster data pack`
s3        ranges of 4 MiB from MinIO, 8 at once, against libcurl alone (muster_store_benchmark); of the client's processor time, and of
          wall time, in which MinIO works on the same cores
compute   LeNet with all of MNIST in memory, and with the same data as TFRecord in MinIO, in blocks of 64 KiB with as little memory as
          the order needs, so that most of what a step reads is fetched while the job trains: time per step, by turns; MinIO has the
          same cores, so also the processor time of the worker alone
mosaic    the same MDS shards with MosaicML Streaming: samples per second of processor time, time to the first batch
recovery  the pause of training when a worker is killed and its lanes move: data in memory, and from MinIO with late answers
quality   Fashion-MNIST sorted by class: accuracy over seeds with the orders full and strata, and strata on shuffled files

Rates are per second of processor time, of all threads, if nothing else is said. Programs alternate, and ratios are medians over rounds of the ratio within a
round. --python is a Python that has what stream_readers.py needs, for example:

    python -m venv V && V/bin/pip install numpy pillow protobuf webdataset mosaicml-streaming lmdb tfrecord pyarrow
"""
import argparse
import json
import os
import tempfile

import processes
from stream_tools import SOURCE
import stream_big
import stream_quality
import stream_recovery
import stream_speed

PARTS = {"memory": stream_big.memory, "resume": stream_big.resume, "image": stream_speed.image, "records": stream_speed.records,
         "s3": stream_speed.s3, "compute": stream_speed.compute, "mosaic": stream_speed.mosaic, "recovery": stream_recovery.recovery,
         "quality": stream_quality.quality}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--bin", default=os.environ.get("MUSTER_BIN_DIR", os.path.join(SOURCE, "build/release/bin")))
    parser.add_argument("--python", default="", help="without it, what is compared with Python is left out")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gigabytes", type=float, default=100, help="memory: of data")
    parser.add_argument("--memory", type=int, default=512, help="memory: data.memory in MiB")
    parser.add_argument("--window", type=int, default=32, help="memory: data.window in MiB")
    parser.add_argument("--steps", type=int, default=300, help="memory: at each position; compute: of each run")
    parser.add_argument("--cgroup", default="", help="memory: directory of the memory controller for the worker's group")
    parser.add_argument("--blocks", type=int, default=1000000, help="resume: of 1,000 samples")
    parser.add_argument("--count", type=int, default=1000, help="image, mosaic: pictures; records: ten times as many samples")
    parser.add_argument("--data", default=os.path.join(SOURCE, "data"), help="compute, quality: directory with all of mnist and fashion-mnist as IDX")
    parser.add_argument("--kills", type=int, default=20, help="recovery")
    parser.add_argument("--latency", type=int, default=20, help="recovery: of each answer, in milliseconds")
    parser.add_argument("--seeds", default="1,2,3,4,5", help="quality")
    parser.add_argument("--passes", type=float, default=3, help="quality")
    parser.add_argument("--block", default="64KiB", help="quality: data.block")
    parser.add_argument("-o", "--output", default="", help="a file for all figures, as JSON")
    args = parser.parse_args()
    processes.own_all()
    rows = []
    for part in args.parts:
        with tempfile.TemporaryDirectory(prefix="muster-streams-") as folder:
            rows += PARTS[part](args, folder)
        if args.output:
            with open(args.output, "w") as f:
                json.dump(rows, f, indent=1)


if __name__ == "__main__":
    main()
