"""Looking at runs, whatever state they are in. The run directories are made by hand, because that is
how broken ones come about."""

import fcntl
import json
import os

from harness import CHECKPOINT, USAGE, CommandTest, main


class RunsTest(CommandTest):
    def make_run(self, name, state=None, result=None, metrics=(), job=None, **status):
        run = self.folder / "runs" / name
        run.mkdir(parents=True)
        # Absolute, as in the job that muster train writes.
        self.write(run / "job.yaml", (job or self.JOB).replace("train-", "/data/train-")
                   .replace("test-", "/data/test-"))
        if state:
            fields = {"state": state, "started": "2026-03-01T12:30:05Z",
                      "updated": "2026-03-01T12:40:05Z", "step": 5, **status}
            (run / "status.json").write_text(json.dumps(fields))
        if result is not None:
            (run / "result.json").write_text(json.dumps(result))
        if metrics:
            (run / "metrics.jsonl").write_text("".join(json.dumps(m) + "\n" for m in metrics))
        return run



class Look(RunsTest):
    def make_all_kinds(self):
        self.make_run("done-1", "finished",
                      {"weights_hash": "0123456789abcdef" * 2, "steps": 1407,
                       "test": {"accuracy": 0.9912, "loss": 0.0287}})
        self.make_run("stopped-1", "interrupted", reason="Ctrl-C",
                      metrics=[{"step": 10, "loss": 0.5}, {"step": 20, "test": {"loss": 0.4}},
                               {"step": 30, "loss": 0.25}])
        self.make_run("killed-1", "running", metrics=[{"step": 40, "loss": 2.5}])
        self.make_run("broken-1", "failed", reason="the disk is full")

    def listed(self):
        return {run["name"]: run for run in
                self.assert_ok(self.muster("runs", "list", "-o", "json")).json}

    def test_list(self):
        self.make_all_kinds()
        runs = self.listed()
        self.assertEqual({name: run["state"] for name, run in runs.items()},
                         {"done-1": "finished", "stopped-1": "interrupted", "killed-1": "died",
                          "broken-1": "failed"})
        self.assertEqual(runs["done-1"]["steps"], 1407)
        self.assertEqual(runs["done-1"]["metrics"]["accuracy"], 0.9912)
        self.assertEqual(runs["stopped-1"]["steps"], 30)
        self.assertEqual(runs["stopped-1"]["metrics"], {"loss": 0.4}, "the last evaluation")
        self.assertEqual(runs["killed-1"]["metrics"], {"train loss": 2.5})

        table = self.assert_ok(self.muster("runs", "list")).out
        lines = table.splitlines()
        self.assertEqual(len(lines), 5)
        self.assertRegex(table, r"done-1 +finished +1,407 +accuracy 0.9912, loss 0.0287 "
                                r"+2026-03-01 12:30 +01234567\n")
        self.assertEqual(table, "\n".join(line.rstrip() for line in lines) + "\n")

    def test_a_held_lock_means_running(self):
        run = self.make_run("busy-1", "running")
        with open(run / "lock", "w") as lock:
            fcntl.lockf(lock, fcntl.LOCK_EX)
            self.assertEqual(self.listed()["busy-1"]["state"], "running")
        self.assertEqual(self.listed()["busy-1"]["state"], "died")

    def test_no_runs(self):
        self.assertEqual(self.assert_ok(self.muster("runs", "list", "-o", "json")).json, [])
        outcome = self.assert_ok(self.muster("runs", "list"))
        self.assertIn("no runs in 'runs'", outcome.err)
        self.assertEqual(outcome.out, "")
        self.make_run("x", "finished")
        os.rename(self.folder / "runs", self.folder / "elsewhere")
        for words, env in ((["--runs", "elsewhere"], {}), ([], {"MUSTER_RUNS": "elsewhere"})):
            self.assertIn("x", self.muster("runs", "list", *words, env=env).out)

    def test_garbage_is_passed_over(self):
        run = self.make_run("garbage-1", "finished", {"steps": "many", "test": [1], "weights_hash": 7})
        (run / "metrics.jsonl").write_bytes(b'\xff\xfe{"step": 1}\n[1]\n{"step": "x"}\n{"step": 3, "lo')
        (run / "checkpoints/step-000000003").mkdir(parents=True)
        (run / "checkpoints/step-000000003/manifest.json").write_text("{")
        (run / "checkpoints/step-zebra").mkdir()
        for name, text in (("status.json", "not json"), ("status.json", '{"state": 3, "step": []}'),
                           ("result.json", "[]"), ("result.json", '{"test": null}'),
                           ("job.yaml", "bath: 3")):
            with self.subTest(file=name, text=text):
                (run / name).write_text(text)
                self.assertIn("garbage-1", self.listed())
                for form in ("table", "json"):
                    self.assert_ok(self.muster("runs", "show", "garbage-1", "-o", form))
                    self.assert_ok(self.muster("runs", "compare", "garbage-1", "garbage-1",
                                               "-o", form))
        (self.folder / "runs/file").write_text("")
        (self.folder / "runs/not-a-run").mkdir()
        os.symlink("gone", self.folder / "runs/latest")
        self.assertEqual(list(self.listed()), ["garbage-1"])

    def test_show(self):
        self.make_all_kinds()
        text = self.assert_ok(self.muster("runs", "show", "stopped-1")).out
        for part in ("interrupted", "Ctrl-C", "muster resume runs/stopped-1", "optimizer.lr",
                     "runs/stopped-1/log.txt"):
            self.assertIn(part, text)
        shown = self.assert_ok(self.muster("runs", "show", "done-1", "-o", "json")).json
        self.assertEqual(shown["job"]["optimizer"]["lr"], 0.1)
        self.assertEqual(shown["job"]["model"]["layers"][1], {"linear": {"out": 16}})
        self.assertEqual(shown["result"]["steps"], 1407)

    def test_a_name_may_be_short_but_not_ambiguous(self):
        self.make_run("lenet-mnist-20260301-120000", "finished")
        self.make_run("lenet-mnist-20260301-130000", "finished")
        outcome = self.muster("runs", "show", "lenet-mnist")
        self.assert_mistake(outcome, USAGE, "the start of 2 runs")
        self.assert_ok(self.muster("runs", "show", "lenet-mnist-20260301-13"))
        outcome = self.muster("runs", "show", "lenet-mnits-20260301-130000")
        self.assert_mistake(outcome, USAGE, "did you mean 'lenet-mnist-20260301-130000'?")


class Compare(RunsTest):
    def compare(self, hash_a, hash_b, job_b=None, fingerprints=({}, {})):
        for name in ("a", "b"):
            path = self.folder / "runs" / name
            if path.exists():
                os.rename(path, self.folder / f"old-{name}-{len(os.listdir(self.folder))}")
        self.make_run("a", "finished", {"weights_hash": hash_a, "steps": 8, "test": {"loss": 0.5},
                                        "fingerprint": fingerprints[0]})
        self.make_run("b", "finished", {"weights_hash": hash_b, "steps": 8, "test": {"loss": 0.75},
                                        "fingerprint": fingerprints[1]}, job=job_b)
        table = self.assert_ok(self.muster("runs", "compare", "a", "b")).out
        return table, self.assert_ok(self.muster("runs", "compare", "a", "b", "-o", "json")).json

    def test_same_bits(self):
        table, fields = self.compare("aa", "aa")
        self.assertIs(fields["same_weights"], True)
        self.assertIn("equal, bit for bit", table)
        self.assertIn("All options are equal", table)

    def test_other_options(self):
        table, fields = self.compare("aa", "bb", self.JOB.replace("lr: 0.1", "lr: 0.2"))
        self.assertEqual(fields["options"],
                         [{"key": "optimizer.lr", "a": "0.1", "b": "0.2", "decides_bits": True}])
        self.assertIs(fields["same_weights"], False)
        self.assertRegex(table, r"optimizer\.lr +0\.1 +0\.2\n")
        self.assertRegex(table, r"\ntest loss +0\.5000 +0\.7500\n")
        self.assertIn("The weights differ, as the options do", table)

    def test_bits_that_should_be_equal_and_are_not(self):
        table, fields = self.compare("aa", "bb", self.JOB.replace("lanes: 4", "lanes: 4\n        threads: 2"))
        self.assertIs(fields["options"][0]["decides_bits"], False)
        self.assertIn("although every option that decides the bits is equal", table)

    def test_what_else_differs_is_named(self):
        one = {"kernels": "1111111111", "model": "22", "train_data": "33", "test_data": ""}
        table, fields = self.compare("aa", "bb", fingerprints=(one, {**one, "kernels": "9999999999"}))
        self.assertIn("The weights differ, as the runs do in the numerics of kernels (11111111, not 99999999).", table)
        self.assertIn(fields["verdict"], table)
        table, _ = self.compare("aa", "bb", fingerprints=(one, one))
        self.assertIn("although every option that decides the bits is equal", table)

    def test_the_option_steps_is_not_the_result(self):
        table, _ = self.compare("aa", "bb", self.JOB.replace("lanes: 4", "lanes: 4\n        steps: 8"))
        self.assertRegex(table, r"\nsteps done +8 +8\n")
        self.assertEqual(len([line for line in table.splitlines() if line.split()[:1] == ["steps"]
                              and line.split()[1] != "done"]), 1, table)

    def test_no_two_rows_have_one_name(self):
        """Metrics may have the names of options and of rows; the columns too have names of their own."""
        values = {"steps": 1, "state": 2, "weights": 3, "batch": 4, "steps done": 5, "train loss": 6}
        for name, batch in (("a", 16), ("b", 32)):
            self.make_run(name, "finished", {"weights_hash": name, "steps": 8, "test": values},
                          job=self.JOB.replace("batch: 16", f"batch: {batch}"))
        table = self.assert_ok(self.muster("runs", "compare", "a", "b")).out
        rows = [line.split("  ")[0] for line in table.splitlines()[1:-1]]
        self.assertEqual(len(rows), len(set(rows)), table)
        self.assertIn("test batch", rows)
        self.assertIn("batch", rows)
        os.rename(self.folder / "runs/b", self.folder / "other")
        (self.folder / "runs2").mkdir()
        os.rename(self.folder / "other", self.folder / "runs2/a")
        table = self.assert_ok(self.muster("runs", "compare", "runs/a", "runs2/a")).out
        self.assertRegex(table, r"^ *runs/a +runs2/a\n")

    def test_nothing_to_compare(self):
        self.make_run("a", "failed")
        self.make_run("b", "failed")
        self.assertIn("not known", self.assert_ok(self.muster("runs", "compare", "a", "b")).out)


class Export(RunsTest):
    def test_a_run_without_checkpoints(self):
        self.make_run("young", "interrupted")
        outcome = self.muster("export", "young", "--out", "x.safetensors")
        self.assert_mistake(outcome, CHECKPOINT, "young has no checkpoint yet")
        outcome = self.muster("export", "young", "--out", "x.safetensors", "--checkpoint", "best")
        self.assert_mistake(outcome, CHECKPOINT, "--checkpoint newest")
        outcome = self.muster("export", "young", "--out", "x.safetensors", "--checkpoint", "500")
        self.assert_mistake(outcome, CHECKPOINT, "no checkpoint of step 500")
        self.assertFalse((self.folder / "x.safetensors").exists())

    def test_what_is_there_is_not_replaced(self):
        self.make_run("a", "finished")
        self.write("x.safetensors", "precious")
        outcome = self.muster("export", "a", "--out", "x.safetensors")
        self.assert_mistake(outcome, USAGE, "--force")
        self.assert_mistake(self.muster("export", "a", "--out", "."), USAGE, "directory")


if __name__ == "__main__":
    main()
