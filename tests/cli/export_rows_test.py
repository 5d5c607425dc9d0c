"""Rows of a trained model, exported for somebody who serves it: all of them, and what changed since."""

import json
import struct

from harness import CHECKPOINT, USAGE, CommandTest, main, needs_worker

JOB = """
muster: 1
name: clicks
model: {{ zoo: dlrm, loss: click, args: {{ bottom: [4], top: [4] }} }}
data:
  train: {{ format: ctr, args: {{ samples: 4000, features: 5, ids: {ids}, numbers: 2 }} }}
  test: {{ format: ctr, args: {{ samples: 64, stream: 1, features: 5, ids: {ids}, numbers: 2 }} }}
batch: 64
lanes: 2
steps: {steps}
optimizer: {{ kind: adam, lr: 0.01 }}
tables: {{ width: 3, lr: 0.1, {tables} }}
eval: {{ every: never }}
checkpoint: {{ every: 30 steps, keep: 10 }}
"""


def read(path):
    """The tensors of a safetensors file, as lists, and its metadata."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, tensor in header.items():
        begin, end = (8 + length + offset for offset in tensor["data_offsets"])
        # Weights as they are, so that they are compared bit for bit.
        count = (end - begin) // {"U64": 8, "F32": 4}[tensor["dtype"]]
        values = struct.unpack(f"<{count}{'Q' if tensor['dtype'] == 'U64' else 'I'}", data[begin:end])
        tensors[name] = (tensor["shape"], values)
    return tensors, metadata


def apply(served, path):
    """What a server does with an export: `served` has the rows by key."""
    tensors, _ = read(path)
    (count, width), weights = tensors["rows"]
    shape, keys = tensors["keys"]
    assert shape == [count] and sorted(set(keys)) == list(keys)
    for key in tensors.get("evicted", ([0], ()))[1]:
        served.pop(key, None)
    for i, key in enumerate(keys):
        served[key] = weights[i * width:(i + 1) * width]
    return served


@needs_worker
class ExportRows(CommandTest):
    def train(self, tables, steps=150, ids=600, sets=()):
        self.write("clicks.yaml", JOB.format(tables=tables, steps=steps, ids=ids))
        words = [word for one in sets for word in ("-s", one)]
        self.assert_ok(self.muster("train", "clicks.yaml", "-q", "--run-dir", "run", *words))

    def export(self, step, name, *words):
        outcome = self.muster("export", "run/", "--checkpoint", step, "--out", f"{name}.safetensors", "-o", "json", *words)
        return self.assert_ok(outcome).json

    def check_changes(self):
        """Each checkpoint's rows are those of an earlier one and what changed since. How many rows went."""
        evicted = 0
        for step in range(30, 151, 30):
            told = self.export(step, f"all-{step}")
            self.assertEqual(told["rows"]["file"], f"all-{step}.rows.safetensors")
        for base, step in ((30, 60), (60, 90), (90, 120), (120, 150), (30, 150), (60, 60)):
            told = self.export(step, f"change-{base}-{step}", "--since", base)
            change = self.folder / f"change-{base}-{step}.rows.safetensors"
            tensors, metadata = read(change)
            self.assertEqual(metadata, {"step": str(step), "since": str(base)})
            self.assertEqual(told["rows"]["evicted"], len(tensors["evicted"][1]))
            self.assertEqual(told["rows"]["rows"], len(tensors["keys"][1]))
            served = apply(apply({}, self.folder / f"all-{base}.rows.safetensors"), change)
            self.assertEqual(served, apply({}, self.folder / f"all-{step}.rows.safetensors"), (base, step))
            evicted += len(tensors["evicted"][1])
        self.assertEqual(read(self.folder / "change-60-60.rows.safetensors")[0]["keys"][1], ())
        return evicted

    def test_changes(self):
        self.train("shards: 4, admit_after: 2, evict_after: 10, most_rows: 500")
        self.assertGreater(self.check_changes(), 100)
        model = read(self.folder / "all-150.safetensors")[0]
        self.assertNotIn("keys", model)

    def test_changes_of_an_asynchronous_job(self):
        self.train("shards: 4, evict_after: 10",
                   sets=("sync.strategy=server", "sync.period=10", "optimizer.kind=sgd"))
        self.assertGreater(self.check_changes(), 100)

    def test_changes_without_eviction(self):
        self.train("shards: 4")
        self.assertEqual(self.check_changes(), 0)

    def test_what_is_not_known_any_more_is_refused(self):
        self.train("shards: 1, most_rows: 50", steps=90, ids=20000)
        for since in (30, 63):
            self.assert_mistake(self.muster("export", "run/", "--checkpoint", "90", "--out", "x.safetensors", "--since", since),
                                CHECKPOINT, f"--since {since}", "evicted before step 64", "without --since")
            self.assertFalse((self.folder / "x.safetensors").exists())
        told = self.export(90, "later", "--since", 64)
        self.assertEqual(told["rows"]["evicted"], 0)
        self.assertGreater(told["rows"]["rows"], 100)

    def test_mistakes(self):
        self.train("shards: 2", steps=30)
        self.assert_mistake(self.muster("export", "run/", "--checkpoint", "30", "--out", "x.safetensors", "--since", "31"),
                            USAGE, "--since 31", "step 30")
        self.write("there.rows.safetensors", "mine")
        self.assert_mistake(self.muster("export", "run/", "--out", "there.safetensors"), USAGE, "there.rows.safetensors",
                            "--force")
        self.assertFalse((self.folder / "there.safetensors").exists())
        self.write_job()
        self.assert_ok(self.muster("train", "job.yaml", "-q", "--run-dir", "plain"))
        self.assert_mistake(self.muster("export", "plain/", "--out", "x.safetensors", "--since", "1"), USAGE, "no tables")
        told = self.assert_ok(self.muster("export", "plain/", "--out", "x.safetensors", "-o", "json")).json
        self.assertNotIn("rows", told)


if __name__ == "__main__":
    main()
