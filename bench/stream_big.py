"""The parts memory and resume of bench/streams.py: data far larger than the disk, 100 GB or 10^9 samples, behind an HTTP server.

How. A file of some different blocks is repeated by the server (tests/e2e/endless_server.py) up to any size: byte i of the object is
byte i modulo the length of the file. TFRecord files have no head, so that is a TFRecord file. `muster data index` indexes the object
while it is one, or three, files long; extend() repeats the blocks of that index as the server repeats their bytes. That this is the
index that Muster would make is checked with the one of three. (Indexing 100 GB reads them twice, which is a matter of minutes and
shows nothing more.)

A run is moved to another position of the stream by changing `counters/samples` in its checkpoint, and the hashes of its manifest.
"""
import contextlib
import ctypes
import json
import os
import shutil
import statistics
import struct
import sys
import threading
import time

import processes
from stream_tools import MIB, first_step, say, write_file
import stores
from stream_data import FORMATS, convert

JOB = """\
muster: 1
name: big
model: {{ layers: [flatten, linear: {{ out: classes }}] }}
data:
  train: {train}
  block: {block}
  window: {window}
  memory: {memory}
batch: 256
lanes: 8
steps: 2
optimizer: {{ kind: sgd, lr: 0.001 }}
track: {{ every: 1 steps }}
"""
BATCH = 256
BLOCK = struct.Struct("<IIQQQQ")  # object, count, offset, length, hash (muster/data/blocks/block_index.cc)


class Hash128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


def xxh3_128(data):
    library = ctypes.CDLL("libxxhash.so.0")
    library.XXH3_128bits.restype = Hash128
    library.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    return library.XXH3_128bits(data, len(data))


def hex_of(data):
    found = xxh3_128(data)
    return f"{found.high:016x}{found.low:016x}"


def extend(index, copies):
    """The bytes of an index whose one object is `copies` times as long as that of this one."""
    def text(at):
        length, = struct.unpack_from("<Q", index, at)
        return at + 8 + length

    at = text(text(12))  # behind magic, version, format and about
    objects, = struct.unpack_from("<Q", index, at)
    assert index[:8] == b"MUSTERIX" and objects == 1
    place = text(at + 8)  # of the object's size
    size, = struct.unpack_from("<Q", index, place)
    count_at = text(place + 8)
    count, = struct.unpack_from("<Q", index, count_at)
    blocks = list(BLOCK.iter_unpack(index[count_at + 8:count_at + 8 + count * BLOCK.size]))
    out = bytearray(index[:place] + struct.pack("<Q", size * copies) + index[place + 8:count_at]
                    + struct.pack("<Q", count * copies))
    for copy in range(copies):
        for block in blocks:
            out += BLOCK.pack(block[0], block[1], block[2] + copy * size, *block[3:])
    digest = xxh3_128(bytes(out))
    return bytes(out) + struct.pack("<QQ", digest.high, digest.low)


def make_index(muster, job, server, folder, size, copies):
    """A directory with the index of `copies` of the file, which has `size` bytes."""
    made = {}
    for times in (1, 3):
        server.resize(size * times)
        place = os.path.join(folder, f"index-{times}")
        processes.run([muster, "data", "index", job, "--out", place])
        path, = (os.path.join(place, name) for name in os.listdir(place) if name.endswith(".index"))
        with open(path, "rb") as f:
            made[times] = f.read()
    if extend(made[1], 3) != made[3]:
        sys.exit("the index of three files is not three times that of one")
    server.resize(size * copies)
    place = os.path.join(folder, "index")
    os.makedirs(place)
    with open(os.path.join(place, os.path.basename(path)), "wb") as f:
        f.write(extend(made[1], copies))
    return place


def move(run, samples):
    """The run's newest checkpoint is now behind so many samples."""
    folder = os.path.join(run, "checkpoints")
    checkpoint = os.path.join(folder, max(name for name in os.listdir(folder) if name.startswith("step-")))
    state = os.path.join(checkpoint, "state.safetensors")
    with open(state, "rb") as f:
        data = bytearray(f.read())
    length, = struct.unpack_from("<Q", data)
    begin, end = json.loads(data[8:8 + length])["counters/samples"]["data_offsets"]
    assert end - begin == 8
    struct.pack_into("<Q", data, 8 + length + begin, samples)
    with open(state, "wb") as f:
        f.write(data)
    path = os.path.join(checkpoint, "manifest.json")
    with open(path) as f:
        manifest = json.load(f)
    del manifest["xxh3_128"]
    manifest["files"]["state.safetensors"]["xxh3_128"] = hex_of(bytes(data))
    manifest["xxh3_128"] = hex_of(json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode())
    with open(path, "w") as f:
        json.dump(manifest, f)


def copied(run, to, samples):
    """A copy of the run, at another position."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(run, to, symlinks=True)
    move(to, samples)
    return to


class Watch(threading.Thread):
    """The resident memory of each worker below this process: the most that was seen, in bytes, looked at every 20 ms. Also what
    the kernel says was the most (VmHWM)."""

    def __init__(self):
        super().__init__(daemon=True)
        self.most, self.peaks, self.anonymous = {}, {}, {}
        self.ended = threading.Event()
        self.start()

    def run(self):
        while not self.ended.wait(0.02):
            for pid in processes.descendants():
                try:
                    with open(f"/proc/{pid}/comm") as f:
                        if not f.read().startswith("muster-worker"):
                            continue
                    with open(f"/proc/{pid}/status") as f:
                        lines = dict(line.split(":", 1) for line in f)
                except OSError:
                    continue
                for key, into in (("VmRSS", self.most), ("VmHWM", self.peaks), ("RssAnon", self.anonymous)):
                    if key in lines:
                        into[pid] = max(into.get(pid, 0), 1024 * int(lines[key].split()[0]))

    def stop(self):
        """The largest worker: (seen, by the kernel, anonymous)."""
        self.ended.set()
        self.join()
        return tuple(max(values.values(), default=0) for values in (self.most, self.peaks, self.anonymous))


class MemoryGroup:
    """A group of the memory controller (cgroup v1 or v2) below `parent`, which the user names and may write to."""

    def __init__(self, parent, limit):
        self.path = os.path.join(parent, f"muster-bench-{os.getpid()}")
        os.mkdir(self.path)
        name = "memory.max" if os.path.exists(os.path.join(self.path, "memory.max")) else "memory.limit_in_bytes"
        with open(os.path.join(self.path, name), "w") as f:
            f.write(str(limit))

    def enter(self):
        """For a child, between fork and exec."""
        with open(os.path.join(self.path, "cgroup.procs"), "w") as f:
            f.write(str(os.getpid()))

    def close(self):
        for _ in range(100):
            try:
                return os.rmdir(self.path)
            except OSError:
                time.sleep(0.05)
        return None


class Big:
    """A server with so many blocks, of which `different` differ, and a job that reads them. Ended with its `with` block."""

    def __init__(self, args, folder, shape, per_block, different, blocks, window, memory):
        self.muster = os.path.join(args.bin, "muster")
        self.folder = folder
        length = shape[0] * shape[1] * shape[2]
        records = [convert.tf_record(bytes((i * 37 + j * 11) % 256 for j in range(length)), i % 10) for i in range(500)]
        self.record = len(records[0])
        if any(len(record) != self.record for record in records):
            sys.exit("records differ in length")
        self.file = os.path.join(folder, "some.tfrecord")
        with open(self.file, "wb") as f:
            for i in range(per_block * different):
                f.write(records[(i + i // len(records)) % len(records)])
        copies = blocks // different
        self.samples = copies * different * per_block
        self.server = stores.EndlessServer(self.file)
        source = FORMATS["tfrecord"].source(self.server.url("train.tfrecord"), shape, ", classes: 10")
        self.job = write_file(os.path.join(folder, "job.yaml"),
                              JOB.format(train=source, block=self.record * per_block, window=window, memory=memory))
        index = make_index(self.muster, self.job, self.server, folder, self.record * per_block * different, copies)
        self.index = f"data.index={index}"
        self.run = os.path.join(folder, "run")
        processes.run([self.muster, "train", self.job, "-q", "--run-dir", self.run, "-s", self.index])
        say(f"{self.samples:,} samples in {copies * different:,} blocks, {self.samples * self.record / 1e9:.1f} GB")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.__exit__()

    def moved(self, share):
        """A run at that share of the pass, to be resumed."""
        return copied(self.run, os.path.join(self.folder, "moved"), int(self.samples * share) // BATCH * BATCH) + "/"


def watched(command, group=None):
    """The resident memory of its worker: Watch.stop()."""
    watch = Watch()
    processes.run(command, preexec_fn=group.enter if group else None)
    return watch.stop()


def memory(args, folder):
    budget, per_block = args.memory * MIB, 339  # of 12 KB, so 4 MiB
    group = MemoryGroup(args.cgroup, 1 << 30) if args.cgroup else None
    rows = []
    with (Big(args, folder, (3, 64, 64), per_block, 16, round(args.gigabytes * 1e9 / (4 * MIB)), f"{args.window}MiB",
              f"{args.memory}MiB") as big, contextlib.closing(group) if group else contextlib.nullcontext()):
        small = os.path.join(folder, "small.tfrecord")
        with open(big.file, "rb") as f, open(small, "wb") as to:
            to.write(f.read(2 * per_block * big.record))
        base = watched([big.muster, "train", big.job, "-q", "--run-dir", os.path.join(folder, "small"), "-s", f"steps={args.steps}",
                        "-s", f"data.train.path={small}"])
        for share in (0, 0.25, 0.5, 0.99):
            run = big.moved(share)
            big.server.counts()
            begin = time.monotonic()
            most, peak, anonymous = watched([big.muster, "resume", run, "-q", "-s", f"steps={2 + args.steps}"], group)
            read = big.server.counts()["bytes"]
            row = dict(part="memory", position=share, steps=args.steps, seconds=time.monotonic() - begin, read=read, resident=most,
                       kernel_peak=peak, anonymous=anonymous, base=base[0], budget=budget, over=(most - base[0]) / budget)
            rows.append(row)
            print(f"memory   at {share:4.0%}: resident {most / MIB:.0f} MiB (kernel's peak {peak / MIB:.0f}), {base[0] / MIB:.0f} "
                  f"with 8 MB of data; the difference is {row['over']:.2f} of data.memory, {args.memory} MiB; "
                  f"{read / 1e9:.2f} GB read in {args.steps} steps, {row['seconds']:.1f} s", flush=True)
    return rows


def resume(args, folder):
    took = {"start": [], "resume at 0 %": [], "resume at 99 %": []}
    with Big(args, folder, (1, 2, 4), 1000, 100, args.blocks, "2MiB", "64MiB") as big:
        for _ in range(args.rounds):
            for name, times in took.items():
                if name == "start":
                    shutil.rmtree(os.path.join(folder, "new"), ignore_errors=True)
                    command = [big.muster, "train", big.job, "--run-dir", os.path.join(folder, "new"), "-s", big.index]
                else:
                    command = [big.muster, "resume", big.moved(0.99 if "99" in name else 1e-6)]
                times.append(first_step([*command, "--json", "-s", "steps=1000000"]))
        samples = big.samples
    for name, times in took.items():
        print(f"resume   {name}: first step after {statistics.median(times):.3f} s ({min(times):.3f} to {max(times):.3f})", flush=True)
    late = [statistics.median(b - a for a, b in zip(took[name], took["resume at 99 %"])) for name in took]
    print(f"resume   at 99 % of {samples:,} samples later than a start by {1000 * late[0]:+.0f} ms, than at 0 % by "
          f"{1000 * late[1]:+.0f} ms: medians of the differences within a round (goal: 50)", flush=True)
    return [dict(part="resume", what=name, samples=samples, times=times) for name, times in took.items()]
