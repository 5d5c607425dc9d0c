"""The part recovery of bench/streams.py: how long training stands still when lanes move, with data in memory and with data from a store
that takes its time.

`muster verify --calm` with four workers, one of which is killed again and again: its lanes move to the others, and to a new worker later.
The job and its faults are the same with the sample of MNIST in memory, and as TFRecord in MinIO behind Toxiproxy, which delays
each answer by --latency. Of the streamed data about a sixth fits into data.memory, so that lanes that move find none of their blocks. The pause
is the longest time between commits from the fault on, less a usual step, as in bench/recovery.py. Both runs also show that the faults
changed no bit.
"""
import json
import math
import os
import statistics
import subprocess
import sys

import processes
from stream_tools import say, words_of, write_file
import stores
from stream_data import FORMATS, SOURCE, mnist, shares

JOB = """\
muster: 1
name: recovery
seed: 7
model: {{ zoo: lenet }}
data:
  train: {train}{blocks}
batch: 64
lanes: 8
passes: {passes}
optimizer: {{ kind: sgd, lr: 0.02, momentum: 0.9 }}
track: {{ every: 1 steps }}
"""
BLOCKS = """
  block: 16KiB
  memory: 256KiB"""
SHAPE, SCALING = (1, 28, 28), ", classes: 10, mean: 0.1307, deviation: 0.3081"
STEPS = 90  # that a fault takes, calm: until all workers have rejoined, and a second
GOAL = 0.3  # seconds


def pauses(args, job, sets, env, folder):
    """Of each kill, in seconds; and a usual step."""
    command = [os.path.join(args.bin, "muster"), "verify", job, "--calm", "--workers", "4", "--faults", f"kill:{args.kills}", "--seed", "3",
               "--folder", folder, "-o", "json", *words_of(sets)]
    say(" ".join(command))
    with open(folder + ".err", "w") as errors:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True,
                              env={**os.environ, **env})
    report = next((r for r in map(json.loads, done.stdout.splitlines()) if "equal" in r), None)
    if report is None or not report["equal"]:
        sys.exit(f"recovery: muster verify failed: {processes.last_words(folder + '.err') if report is None else report['differences']}")
    found = [hit["stalled"] for hit in report["timeline"] if hit["fault"] == "kill" and (hit["stalled"] or -1) >= 0]
    if not found:
        sys.exit("recovery: no kill was hit; raise --kills")
    return found, report["step_seconds"]


def recovery(args, folder):
    if not stores.minio() or not stores.toxiproxy():
        sys.exit("recovery: MinIO or Toxiproxy is not there: scripts/fetch_minio.sh and scripts/fetch_toxiproxy.sh build them")
    samples = mnist("train")
    kind = FORMATS["tfrecord"]
    local = kind.write_files(os.path.join(folder, "data"), "train", samples, shares(len(samples), 4))
    images = os.path.join(SOURCE, "examples/data/mnist/train-{}-ubyte.gz")
    in_memory = f"{{ format: idx, images: {images.format('images-idx3')}, labels: {images.format('labels-idx1')} }}"
    passes = math.ceil((STEPS * args.kills + 100) * 64 / len(samples))
    server = os.path.join(folder, "minio")
    os.mkdir(server)
    found = {}
    with stores.Minio(server) as minio:
        address = minio.upload(os.path.join(folder, "data"), "mnist")
        with stores.Toxiproxy(folder, minio.port) as proxy:
            proxy.add("latency", latency=args.latency)
            sources = {"in memory": in_memory,
                       "streamed": kind.source(f"{address}/{os.path.basename(local)}", SHAPE, SCALING)}
            for name, source in sources.items():
                place = os.path.join(folder, name.replace(" ", "-"))
                job = write_file(f"{place}.yaml", JOB.format(train=source, passes=passes, blocks=BLOCKS if name == "streamed" else ""))
                found[name] = pauses(args, job, [], minio.environment(proxy.port), place)
    for name, (values, step) in found.items():
        print(f"recovery {name}: {len(values)} kills, pause {statistics.median(values):.2f} s, longest {max(values):.2f} s; a step takes "
              f"{1000 * step:.0f} ms", flush=True)
    more = statistics.median(found["streamed"][0]) - statistics.median(found["in memory"][0])
    print(f"recovery streamed, each answer {args.latency} ms late: {more:+.2f} s (difference of the medians; goal: at most {GOAL} s more)",
          flush=True)
    return [dict(part="recovery", data=name, pauses=values, step=step, latency=args.latency) for name, (values, step) in found.items()]
