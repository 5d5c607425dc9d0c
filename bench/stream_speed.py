"""The parts image, records, s3, compute and mosaic of bench/streams.py."""
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

import processes
from stream_tools import HERE, SOURCE, cpu_of, first_step, ratio, say, words_of, write_file
import stores
from stream_data import FORMATS, convert, shares

READERS = os.path.join(HERE, "stream_readers.py")
CHECK_JOB = """\
muster: 1
name: check
model: {{ layers: [flatten, linear: {{ out: classes }}] }}
data: {{ train: {train}{blocks} }}
batch: 64
lanes: 4
steps: 2
track: {{ every: 1 steps }}
"""
# Of streamed data little is ahead of its step: blocks are small, and all but what the order needs is fetched while the job trains.
COMPUTE_BLOCKS = ", block: 64KiB, window: 256KiB"
FEW_STEPS = 30  # their processor time is that of a start
COMPUTE_JOB = """\
muster: 1
name: compute
model: {{ zoo: lenet }}
data: {{ train: {train}{blocks} }}
batch: 128
lanes: 8
steps: {steps}
optimizer: {{ kind: sgd, lr: 0.02, momentum: 0.9 }}
track: {{ every: 1 steps }}
checkpoint: {{ every: never }}
"""


def google(program, wanted, args):
    """Runs a benchmark program whose benchmarks take turns; name -> the repetitions of it, in their order."""
    out = processes.run([os.path.join(args.bin, program), f"--benchmark_filter={wanted}", f"--benchmark_repetitions={args.rounds}",
                         "--benchmark_enable_random_interleaving=true", "--benchmark_format=json"])
    found = {}
    for row in json.loads(out)["benchmarks"]:
        if row["run_type"] != "iteration":
            continue
        if row.get("error_occurred"):
            sys.exit(f"{row['name']}: {row['error_message']}")
        found.setdefault(row["run_name"].split("/process_time")[0], []).append(row)
    return found


def write_pictures(args, folder):
    """With the tools of each format: stream_readers.py."""
    say(f"writing {args.count} pictures and {10 * args.count} raw samples")
    processes.run([args.python, READERS, "write", folder, str(args.count)])


def check_job(args, folder, name, source, by_blocks=True):
    """A job, and what is to be set in it: its index, which is made here. What is not read by blocks has none."""
    job = write_file(os.path.join(folder, f"{name}.yaml"),
                     CHECK_JOB.format(train=source, blocks=", memory: 64MiB, window: 16MiB" if by_blocks else ""))
    if not by_blocks:
        return job, []
    index = os.path.join(folder, f"{name}-index")
    processes.run([os.path.join(args.bin, "muster"), "data", "index", job, "--out", index], stderr=subprocess.DEVNULL)
    return job, [f"data.index={index}"]


def checked(args, job, sets):
    """Samples per second of processor time that `muster data check` reads, its start included."""
    seconds, out = cpu_of([os.path.join(args.bin, "muster"), "data", "check", job, "-o", "json", *words_of(sets)])
    source, = json.loads(out)
    if source["damaged"]:
        sys.exit(f"{job}: damaged")
    return source["samples"] / seconds


def in_python(args, what, folder):
    """Samples per second of processor time, and seconds to the first batch from the start of Python."""
    begin = time.perf_counter()
    process = subprocess.Popen([args.python, READERS, what, folder], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    first, found = None, None
    for line in process.stdout:
        if line.strip() == "first":
            first = time.perf_counter() - begin
        elif line.startswith("{"):
            found = json.loads(line)
    if process.wait() != 0 or not found or first is None:
        sys.exit(f"stream_readers.py {what} ended with {process.returncode}")
    return found["samples"] / found["seconds"], first


def show(part, what, values, unit="samples per core-second"):
    print(f"{part:8} {what}: {statistics.median(values):,.0f} {unit} ({min(values):,.0f} to {max(values):,.0f})", flush=True)


def image(args, folder):
    found = google("muster_data_benchmark", "BM_LibjpegAlone|BM_Decode", args)
    rates = {name: [1e9 / row["cpu_time"] for row in rows] for name, rows in found.items()}
    for name, values in rates.items():
        show("image", name, values, "pictures per core-second")
    decode = ratio(rates["BM_Decode"], rates["BM_LibjpegAlone"])
    print(f"image    decode_image to libjpeg-turbo alone: {decode:.3f} (goal: 0.95)", flush=True)
    rows = [dict(part="image", rates=rates, ratio=decode)]
    if not args.python:
        return rows
    write_pictures(args, folder)
    source = f'{{ format: webdataset, path: "{folder}/images.tar", classes: 10 }}'
    job, sets = check_job(args, folder, "images", source)
    ours, theirs = [], []
    for _ in range(args.rounds):
        ours.append(checked(args, job, sets))
        theirs.append(in_python(args, "webdataset", folder)[0])
    show("image", "muster data check, tar", ours)
    show("image", "WebDataset, decoded", theirs)
    print(f"image    to WebDataset: {ratio(ours, theirs):.2f} (goal: 1.5)", flush=True)
    return [*rows, dict(part="image", ours=ours, webdataset=theirs, ratio=ratio(ours, theirs))]


def bare(args, command):
    """bare_readers.cc, bare_parquet.cc."""
    found = json.loads(processes.run([os.path.join(args.bin, command[0]), *command[1:]]))
    return found["samples"] / found["seconds"]


def packed(args, folder, source):
    """Of the raw samples: a source of Parquet files, and their names. None if muster was built without Parquet."""
    if not os.path.exists(os.path.join(args.bin, "../lib/muster/libmuster_arrow.so")):
        return None
    job, _ = check_job(args, folder, "unpacked", source)
    out = processes.run([os.path.join(args.bin, "muster"), "data", "pack", job, "--format", "parquet", "--out",
                         os.path.join(folder, "packed"), "-o", "json"], stderr=subprocess.DEVNULL)
    options = json.loads(out)[0]["options"]
    return ("{ " + ", ".join(f"{key}: {value}" for key, value in options.items()) + " }",
            sorted(str(path) for path in pathlib.Path(folder, "packed/train").glob("*.parquet")))


def has_pyarrow(args):
    return subprocess.run([args.python, "-c", "import pyarrow.parquet"], stderr=subprocess.DEVNULL).returncode == 0


def records(args, folder):
    if not args.python:
        sys.exit("records: --python is needed, to write the data")
    write_pictures(args, folder)
    raw = f'{{ format: tfrecord, path: "{folder}/raw.tfrecord", classes: 10, args: {{ input: image, shape: [3, 64, 64] }} }}'
    # Format: the source, the bare reader, and whether it is read in Python too.
    formats = {"tfrecord": (raw, ["bare_readers", "tfrecord", f"{folder}/raw.tfrecord"], True),
               "lmdb": (f'{{ format: lmdb, path: "{folder}/raw.lmdb", classes: 10 }}',
                        ["bare_readers", "lmdb", f"{folder}/raw.lmdb"], True)}
    parquet = packed(args, folder, raw)
    if parquet:
        formats["parquet"] = (parquet[0], ["bare_parquet", *parquet[1]], has_pyarrow(args))
    else:
        print("records  parquet: left out, this muster was built without it (scripts/fetch_arrow.sh)", flush=True)
    rows = []
    for what, (source, command, with_python) in formats.items():
        job, sets = check_job(args, folder, what, source, what != "lmdb")
        has_bare = os.path.exists(os.path.join(args.bin, command[0]))
        rates = {"ours": [], "bare": [], "python": []}
        for _ in range(args.rounds):
            rates["ours"].append(checked(args, job, sets))
            if has_bare:
                rates["bare"].append(bare(args, command))
            if with_python:
                rates["python"].append(in_python(args, what, folder)[0])
        show("records", f"muster data check, {what}", rates["ours"])
        if with_python:
            show("records", f"Python's {what}", rates["python"])
            print(f"records  {what}: to Python {ratio(rates['ours'], rates['python']):.2f}", flush=True)
        else:
            print(f"records  {what}: --python has no pyarrow, its comparison is left out", flush=True)
        if has_bare:
            show("records", f"{what}'s library alone", rates["bare"])
            print(f"records  {what}: to its library alone {ratio(rates['ours'], rates['bare']):.2f} (goal: 0.9)", flush=True)
        else:
            print(f"records  {what}: {command[0]} is not built, its comparison is left out", flush=True)
        rows.append(dict(part="records", format=what, **rates))
    return rows


def s3(args, folder):
    found = google("muster_store_benchmark", "s3_store|retry_store|curl_alone", args)
    # Of the client: MinIO is a process of its own. Wall time counts MinIO too if it has to share the cores.
    rates = {name: [row["bytes_per_second"] * row["real_time"] / row["cpu_time"] / 1e6 for row in rows] for name, rows in found.items()}
    wall = {name: [row["bytes_per_second"] / 1e6 for row in rows] for name, rows in found.items()}
    for name in found:
        show("s3", name, rates[name], "MB per core-second of the client")
        show("s3", name, wall[name], "MB/s of wall time")
    for values, what, goal in ((rates, "processor time", " (goal: 0.9)"), (wall, "wall time", "")):
        best = max((name for name in values if name.startswith("curl")), key=lambda name: statistics.median(values[name]))
        for name in ("s3_store", "retry_store"):
            print(f"s3       {name} to {best}, by {what}: {ratio(values[name], values[best]):.3f}{goal}", flush=True)
    return [dict(part="s3", rates=rates, wall=wall)]


def step_times(run):
    """Seconds between commits, without the first twenty."""
    with open(os.path.join(run, "metrics.jsonl")) as f:
        times = [record["time"] for record in map(json.loads, f) if "time" in record and "loss" in record]
    return [b - a for a, b in zip(times[20:], times[21:])]


def idx_of(args, name):
    """The directory with the IDX files of this data set, all of it: the sample in the repository has 2,000 images, too few to stream."""
    folder = pathlib.Path(args.data, name).resolve()
    if not (folder / "train-images-idx3-ubyte.gz").exists():
        sys.exit(f"there is no {folder}/train-images-idx3-ubyte.gz: give the directory with all of mnist and fashion-mnist with --data")
    if len(convert.read_idx(folder / "train-labels-idx1-ubyte.gz")) < 50000:
        sys.exit(f"{folder} has only a part of the images; give the directory with all of mnist and fashion-mnist with --data")
    return folder


def streamed_sets(args, folder, job, environment):
    """The index of the streamed job, which is made here, and as little memory as its order needs; what is to be set for both."""
    muster, index = os.path.join(args.bin, "muster"), os.path.join(folder, "index")
    processes.run([muster, "data", "index", job, "--out", index], environment, stderr=subprocess.DEVNULL)
    sets = [f"data.index={index}"]
    facts = json.loads(processes.run([muster, "data", "info", job, "-o", "json", *words_of(sets)], environment))[0]
    if facts["bytes"] < 8 * facts["least_memory"]:
        sys.exit(f"compute: {facts['bytes']:,} bytes of data are not streamed with {facts['least_memory']:,} bytes of memory")
    say(f"compute: {facts['bytes']:,} bytes in {facts['blocks']:,} blocks, data.memory {facts['least_memory']:,}")
    return [*sets, f"data.memory={facts['least_memory']}"]


def compute(args, folder):
    if not stores.minio():
        sys.exit("compute: MinIO is not there: scripts/fetch_minio.sh builds it")
    data = idx_of(args, "mnist")
    images, labels = (convert.read_idx(data / f"train-{kind}-ubyte.gz") for kind in ("images-idx3", "labels-idx1"))
    samples = [(pixels, label[0]) for pixels, label in zip(images, labels)]
    kind = FORMATS["tfrecord"]
    local = kind.write_files(os.path.join(folder, "data"), "train", samples, shares(len(samples), 4))
    server = os.path.join(folder, "minio")
    os.mkdir(server)
    took, cpu = {"memory": [], "streamed": []}, {"memory": [], "streamed": []}
    with stores.Minio(server) as minio:
        address = minio.upload(os.path.join(folder, "data"), "mnist")
        sources = {"memory": f"{{ format: idx, images: {data}/train-images-idx3-ubyte.gz, labels: {data}/train-labels-idx1-ubyte.gz }}",
                   "streamed": kind.source(f"{address}/{os.path.basename(local)}", (1, 28, 28), ", classes: 10")}
        jobs = {name: write_file(os.path.join(folder, f"{name}.yaml"),
                                 COMPUTE_JOB.format(train=source, blocks=COMPUTE_BLOCKS if name == "streamed" else "", steps=args.steps))
                for name, source in sources.items()}
        sets = {"memory": [], "streamed": streamed_sets(args, folder, jobs["streamed"], minio.environment())}
        for _ in range(args.rounds):
            for name, job in jobs.items():
                run = os.path.join(folder, "run")
                seconds = {}
                for steps in (FEW_STEPS, args.steps):
                    shutil.rmtree(run, ignore_errors=True)
                    seconds[steps], _ = cpu_of([os.path.join(args.bin, "muster"), "train", job, "-q", "--run-dir", run,
                                                *words_of([*sets[name], f"steps={steps}"])], minio.environment())
                took[name].append(statistics.median(step_times(run)))
                cpu[name].append((seconds[args.steps] - seconds[FEW_STEPS]) / (args.steps - FEW_STEPS))
    for name, values in took.items():
        print(f"compute  {name}: {1000 * statistics.median(values):.2f} ms a step, {1000 * statistics.median(cpu[name]):.2f} ms of processor "
              f"time ({len(samples):,} samples)", flush=True)
    print(f"compute  streamed to in memory: {ratio(took['streamed'], took['memory']):.3f} (goal: 1.03), by the worker's processor time "
          f"{ratio(cpu['streamed'], cpu['memory']):.3f}", flush=True)
    return [dict(part="compute", samples=len(samples), **took, processor=cpu)]


def mosaic(args, folder):
    if not args.python:
        sys.exit("mosaic: --python is needed")
    write_pictures(args, folder)
    muster = os.path.join(args.bin, "muster")
    source = f'{{ format: mds, path: "{folder}/mds/*.mds", classes: 10, args: {{ input: image }} }}'
    job, sets = check_job(args, folder, "mds", source)
    rates, firsts = {"ours": [], "theirs": []}, {"index made before": [], "with indexing": [], "MosaicML": []}
    for _ in range(args.rounds):
        rates["ours"].append(checked(args, job, sets))
        rate, first = in_python(args, "mds", folder)
        rates["theirs"].append(rate)
        firsts["MosaicML"].append(first)
        for name, options in (("index made before", sets), ("with indexing", [])):
            run = os.path.join(folder, "run")
            shutil.rmtree(run, ignore_errors=True)
            firsts[name].append(first_step([muster, "train", job, "--run-dir", run, "--json", *words_of(options)]))
    show("mosaic", "muster data check, MDS", rates["ours"])
    show("mosaic", "MosaicML Streaming, shuffled", rates["theirs"])
    print(f"mosaic   to MosaicML: {ratio(rates['ours'], rates['theirs']):.2f}", flush=True)
    for name, values in firsts.items():
        what = "first batch" if name == "MosaicML" else "first step"
        print(f"mosaic   {name}: {what} of 64 after {statistics.median(values):.2f} s", flush=True)
    return [dict(part="mosaic", **rates, firsts=firsts)]
