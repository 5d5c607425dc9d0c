#!/usr/bin/env python3
"""How far what `muster plan` predicts is from what was measured.

    bench/plan_error.py TABLE... [--job examples/mlp-fashion.yaml] [--bin build/release/bin]

TABLE: written by bench/slow_links.py --table. The prediction gets the network that the laboratory had and the measured time of
the computation alone. Prints, for each setting, measured and predicted time of a step and their bytes, then the median and
the largest error of the times.
"""
import argparse
import json
import os
import statistics
import subprocess

import slow_links
from strategies import SOURCE, words


def predict(args, table, setting, compute):
    options, _ = slow_links.OURS[setting]
    if table.get("replicas") and any("strategy" in option for option in options):
        options = [*options, f"sync.replicas={table['replicas']}"]
    done = subprocess.run(
        [os.path.join(args.bin, "muster"), "plan", args.job, "--workers", str(table["hosts"]), "--rate", table["rate"],
         "--delay", table["delay"], "--step-time", str(compute), "-o", "json", *words([*options, *table.get("sets", [])])],
        check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return json.loads(done.stdout)["settings"][0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", metavar="TABLE")
    parser.add_argument("--job", default=os.path.join(SOURCE, "examples/mlp-fashion.yaml"))
    parser.add_argument("--bin", default=os.path.join(SOURCE, "build/release/bin"))
    args = parser.parse_args()
    errors = []
    for path in args.tables:
        with open(path) as file:
            table = json.load(file)
        compute = statistics.median(table["seconds"]["compute"])
        print(f"{table['hosts']} hosts, {table['rate']}, delay {table['delay']}, computation {compute * 1e3:.1f} ms")
        for setting, seconds in table["seconds"].items():
            if setting == "compute" or setting not in slow_links.OURS or not seconds:
                continue
            measured = statistics.median(seconds)
            plan = predict(args, table, setting, compute)
            errors.append(plan["step_seconds"] / measured - 1)
            print(f"  {setting:22} measured {measured * 1e3:8.1f} ms {table['bytes'][setting] / 1e3:9.1f} kB   predicted "
                  f"{plan['step_seconds'] * 1e3:8.1f} ms {plan['bytes_per_step'] / 1e3:9.1f} kB   {errors[-1]:+.0%}")
    sizes = [abs(error) for error in errors]
    print(f"{len(sizes)} settings: median error {statistics.median(sizes):.0%}, largest {max(sizes):.0%}")


if __name__ == "__main__":
    main()
