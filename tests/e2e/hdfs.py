#!/usr/bin/env python3
"""Data that is streamed from a real HDFS, through WebHDFS: the same bits as from local files, also while its nodes are killed.

    tests/e2e/hdfs.py [--bin build/release/bin] [--only names,borders,workers,faults,data-node,name-node,changes]
                      [--workers 1,2] [--passes 6] [--faults kill:1] [--outage 3] [--seed 1]

One name node and two data nodes on loopback. Files have HDFS blocks of 16 KiB, each on one of the data nodes:

names     csv files with odd names, in directories: wildcards and single names find the samples that they find in local files
borders   ranges that are exactly an HDFS block, end or begin at its border, or cross it: the hashes are those of local files
workers   LeNet on the sample of MNIST, as TFRecord: with so many workers the weights are those of one worker with local files
faults    `muster verify` with four workers and these faults, both runs from HDFS
data-node two workers; a data node is killed, and started again when the name node has noticed it. Training waits, no worker is
          removed, and the weights are the same
name-node the same with the name node
changes   a file is replaced by one of the same length, or deleted, during a job: the job ends with exit code 4 and names it

Not part of CI: starting Java on two cores takes most of a minute. Needs Java 17 and the jars that scripts/fetch_hdfs.sh fetches;
without them, exits with 77. docs/data.md has what it printed.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time

import hdfs_cluster
import stores
import streams
from stream_data import SOURCE
from verify import disturbed

BLOCK = 16384  # of HDFS
CHECKS = ("names", "borders", "workers", "faults", "data-node", "name-node", "changes")
CSV_JOB = """\
muster: 1
name: lines
seed: 7
model: {{ zoo: mlp }}
data:
  train: {{ format: csv, path: {path}, read: blocks, header: false, classes: 10 }}
  block: {block}
batch: 64
lanes: 2
passes: 1
"""
# HDFS refuses ':' and '/'. A name that begins with '.' is only found by a pattern that does so too.
NAMES = ["plain.csv", "a b.csv", "100%.csv", "a%20b.csv", "a+b.csv", "k=v.csv", "a&b=c.csv", "a#b.csv", "a;b.csv", "what?.csv",
         "star*.csv", "[a]{b}.csv", "back\\slash.csv", "it's \"quoted\".csv", "~a@b,c|d!$()^`<>.csv", "für 日本.csv",
         "day=2026-11-18/part 0.csv", "day=2026-11-18/ünter/z.csv", ".hidden.csv", ".dir/x.csv"]
PATTERNS = ["**", "*", "*.csv", "*/*", "**/*.csv", "day=*/**", "**/?.csv", "a?b.csv", "day=2026-11-18/part 0.csv", ".h*",
            "*日*", "f*", *(name for name in NAMES if not set(name) & set("*?"))]


def lines(count, seed):
    """So many lines of 64 bytes."""
    draw = random.Random(seed)
    return "".join(",".join(f"{draw.random():.5f}" for _ in range(7)) + f",{draw.random():.3f},{draw.randrange(10)}\n"
                   for _ in range(count)).encode()


def write_tree(folder, files):
    for name, contents in files.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(contents)


class Info:
    """`muster data` on csv files."""

    def __init__(self, muster, folder):
        self.muster, self.job = muster, os.path.join(folder, "lines.yaml")

    def ask(self, command, path, block="16KiB"):
        """What it printed, or its error."""
        with open(self.job, "w") as f:
            f.write(CSV_JOB.format(path=json.dumps(path, ensure_ascii=False), block=block))
        done = subprocess.run([self.muster, "data", command, self.job, "-o", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True)
        if done.returncode != 0:
            return done.returncode, done.stderr.strip()
        found = json.loads(done.stdout)[0]
        return 0, {key: found[key] for key in ("samples", "files", "bytes", "blocks", "longest_block", "index_hash") if key in found}


def same(what, local, remote):
    if local[0] != 0 or remote != local:
        sys.exit(f"{what}: from HDFS {remote}, from files {local}")


def check_names(args, folder, cluster):
    info = Info(args.muster, folder)
    local = os.path.join(folder, "names")
    write_tree(local, {name: lines(3 + number, number) for number, name in enumerate(NAMES)})
    remote = cluster.upload(local, "odd names")
    for pattern in PATTERNS:
        same(f"'{pattern}'", info.ask("info", f"{local}/{pattern}"), info.ask("info", f"{remote}/{pattern}"))
    for wrong, sentence in (("none.csv", "there is no file"), ("day=2026-11-18", "is a directory")):
        code, text = info.ask("info", f"{remote}/{wrong}")
        if code == 0 or sentence not in text:
            sys.exit(f"'{wrong}': exit code {code}, {text}")
    print(f"names: {len(NAMES)} files, {len(PATTERNS)} patterns and names: as from local files", flush=True)


def check_borders(args, folder, cluster):
    info = Info(args.muster, folder)
    local = os.path.join(folder, "borders")
    counts = [BLOCK // 64 * 5, BLOCK // 64 * 3 + 7, BLOCK // 64, BLOCK // 64 - 1, 1]  # lines of 64 bytes
    write_tree(local, {f"part-{number}.csv": lines(count, number) for number, count in enumerate(counts)})
    remote = cluster.upload(local, "borders")
    places = [place for number in range(len(counts)) for place in cluster.hosts_of_blocks(f"/borders/part-{number}.csv")]
    if len(places) != sum(-(-count * 64 // BLOCK) for count in counts) or len(set(places)) < 2:
        sys.exit(f"borders: the HDFS blocks are {places}")
    for block in ("4KiB", "16KiB", "24KiB", "32KiB", "40KiB", "1MiB"):
        of_files, of_hdfs = (info.ask("info", f"{where}/*.csv", block) for where in (local, remote))
        same(f"data.block {block}", of_files, of_hdfs)
        if block == "16KiB" and of_hdfs[1]["longest_block"] != BLOCK:
            sys.exit(f"borders: no range is exactly an HDFS block: {of_hdfs[1]}")
        code, found = info.ask("check", f"{remote}/*.csv", block)
        if code != 0:
            sys.exit(f"data.block {block}: muster data check: {found}")
    index = os.path.join(folder, "indexes")
    for words in (("index", info.job, "--out", index), ("check", info.job, "-s", f"data.index={index}")):
        subprocess.run([args.muster, "data", *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    print(f"borders: {len(places)} HDFS blocks on {len(set(places))} data nodes: the hashes of local files", flush=True)


def check_workers(args, case):
    for workers in map(int, args.workers.split(",")):
        begin = time.monotonic()
        words = ["--workers", str(workers)] if workers > 1 else []
        result = streams.train(case.muster, case.job, os.path.join(case.folder, f"workers-{workers}"), case.remote, words)
        case.check(f"{workers} workers, from HDFS, {time.monotonic() - begin:.1f} s", result)


def check_faults(args, case):
    found = disturbed(case.muster, "--faults", args.faults, "--seed", args.seed,
                      *(word for one in case.remote for word in ("-s", one)), job=case.job)
    case.check(f"{found['faults']} faults of workers, from HDFS", found)


def check_data_node(args, case, cluster):
    """First it refuses connections; then the name node knows that no node has these blocks."""
    node = cluster.data_nodes[0]

    def go_on():
        if cluster.about()["NumDeadDataNodes"] != 1:
            sys.exit("data node killed: the name node has not noticed it")
        node.start()
        cluster.wait()

    seconds = max(args.outage, 2 * hdfs_cluster.DEAD_AFTER)
    streams.check_outage(argparse.Namespace(outage=seconds), case, {}, "data node killed", node.kill, go_on)


def check_name_node(args, case, cluster):
    def go_on():
        cluster.name_node.start()
        cluster.wait()

    streams.check_outage(args, case, {}, "name node killed", cluster.name_node.kill, go_on)


def check_changes(args, case, cluster):
    """The last one: it spoils the data."""
    folder = os.path.join(case.folder, "data")
    names = sorted(name for name in os.listdir(folder) if name.startswith("train"))
    with open(os.path.join(folder, names[0]), "rb") as f:
        contents = f.read()
    for what, name, change, sentence in (
            ("replaced", names[0], lambda path: cluster.put(path, contents[:-1] + bytes([contents[-1] ^ 1])), "was changed"),
            ("deleted", names[1], cluster.delete, "there is no")):
        run = os.path.join(case.folder, what)
        path = f"/{case.name}/{name}"
        process = stores.start([case.muster, "train", case.job, "-q", "--run-dir", run, "--workers", "2",
                                *(word for one in case.remote for word in ("-s", one))], stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)
        streams.wait_for_steps(run, case.expected["steps"] // 3, process)
        change(path)
        begin = time.monotonic()
        _, text = process.communicate(timeout=120)
        if process.returncode != 4 or cluster.address(path) not in text or sentence not in text:
            sys.exit(f"{what}: exit code {process.returncode}, {text}")
        print(f"{case.name}, {name} {what}: the job ended after {time.monotonic() - begin:.1f} s and named it", flush=True)
        if what == "replaced":
            cluster.put(path, contents)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.environ.get("MUSTER_BIN_DIR", os.path.join(SOURCE, "build/release/bin")))
    parser.add_argument("--only", default=",".join(CHECKS), help="of the checks above")
    parser.add_argument("--workers", default="1,2", help="numbers of workers without faults")
    parser.add_argument("--passes", type=int, default=6)
    parser.add_argument("--faults", default="kill:1")
    parser.add_argument("--outage", type=float, default=3, help="seconds")
    parser.add_argument("--seed", default="1")
    args = parser.parse_args()
    args.muster = os.path.join(args.bin, "muster")
    if hdfs_cluster.missing():
        print(f"skipped: {hdfs_cluster.missing()}")
        sys.exit(77)
    os.environ["HADOOP_USER_NAME"] = hdfs_cluster.USER
    wanted = args.only.split(",")
    if set(wanted) - set(CHECKS):
        parser.error(f"--only takes {', '.join(CHECKS)}")
    with tempfile.TemporaryDirectory(prefix="muster-") as folder:
        begin = time.monotonic()
        with hdfs_cluster.Hdfs(os.path.join(folder, "hdfs"), block=BLOCK) as cluster:
            print(f"HDFS {hdfs_cluster.VERSION}: up after {time.monotonic() - begin:.0f} s", flush=True)
            run_all(args, wanted, folder, cluster)
        print(f"all equal, {time.monotonic() - begin:.0f} s")


def run_all(args, wanted, folder, cluster):
    if "names" in wanted:
        check_names(args, folder, cluster)
    if "borders" in wanted:
        check_borders(args, folder, cluster)
    if not set(wanted) - {"names", "borders"}:
        return
    case = streams.Case(args, "tfrecord", folder, cluster)
    if "workers" in wanted:
        check_workers(args, case)
    if "faults" in wanted:
        check_faults(args, case)
    if "data-node" in wanted:
        check_data_node(args, case, cluster)
    if "name-node" in wanted:
        check_name_node(args, case, cluster)
    if "changes" in wanted:
        check_changes(args, case, cluster)


if __name__ == "__main__":
    main()
