"""Plan, with the real worker: what it says about a job on networks that are not there."""

from pathlib import Path

from harness import USAGE, CommandTest, main, needs_worker

EXAMPLES = Path(__file__).parents[2] / "examples"
JOB = EXAMPLES / "lenet-sample.yaml"


class Plan(CommandTest):
    @needs_worker
    def test_a_step_is_measured_and_a_setting_recommended(self):
        plan = self.assert_ok(self.muster("plan", JOB, "--workers", "2", "--rate", "1mbit", "-o", "json")).json
        self.assertEqual(plan["parameters"], 431080)
        self.assertGreater(plan["compute_seconds"], 0)
        self.assertLess(plan["compute_seconds"], 1)
        own, *others = plan["settings"]
        self.assertEqual(own["sync"], "", "the job's own comes first")
        self.assertEqual([each["recommended"] for each in plan["settings"]].count(True), 1)
        chosen = next(each for each in others if each["recommended"])
        self.assertLess(10 * chosen["step_seconds"], own["step_seconds"])
        # All that it compares can be written into the job file.
        for each in others:
            self.assert_ok(self.muster("config", "check", JOB, "-s", "sync=" + each["sync"], "--no-data"))
        self.assertEqual(list(self.folder.iterdir()), [], "nothing is left behind")

    @needs_worker
    def test_the_table_is_for_people(self):
        outcome = self.assert_ok(self.muster("plan", JOB, "--workers", "1000", "--rate", "10gbit", "--step-time", "30",
                                             "-s", "lanes=1000", "-s", "batch=4000"))
        self.assertIn("431,080 parameters on 1000 hosts", outcome.out)
        self.assertIn("Recommended: as the job is", outcome.out)

    @needs_worker
    def test_more_workers_than_lanes(self):
        outcome = self.assert_ok(self.muster("plan", JOB, "--workers", "9", "--step-time", "100ms", "-o", "json"))
        self.assertIn("only 8 of 9 workers", outcome.err)
        self.assertEqual(outcome.json["workers"], 8)
        self.assertEqual(outcome.json["compute_seconds"], 0.1)
        wrong = self.muster("plan", JOB, "--step-time", "soon")
        self.assertIn("--step-time must be like 90ms or 0.5s, not 'soon'", wrong.err)

    @needs_worker
    def test_a_job_without_test_data(self):
        job = self.folder / "job.yaml"
        job.write_text(f"""
            model: {{ zoo: lenet }}
            data: {{ train: {{ format: idx, images: {EXAMPLES}/data/mnist/train-images-idx3-ubyte.gz,
                              labels: {EXAMPLES}/data/mnist/train-labels-idx1-ubyte.gz }} }}
            passes: 1
            sync: {{ strategy: auto }}
            """)
        self.assert_ok(self.muster("plan", job, "--workers", "2", "-o", "json"))
        self.assert_ok(self.muster("config", "check", job))

    @needs_worker
    def test_auto_is_lockstep_on_one_machine(self):
        outcome = self.assert_ok(self.muster("train", JOB, "-s", "sync.strategy=auto", "-s", "steps=3", "--workers", "2",
                                             "--run-dir", "run"))
        self.assertIn("sync.strategy auto: lockstep", outcome.err)
        self.assertIn("strategy: lockstep", (self.folder / "run/job.yaml").read_text())

    def test_auto_needs_machines(self):
        for words in (("train", JOB, "--workers", "2", "--listen", "127.0.0.1:0"), ("coordinator", JOB), ("verify", JOB)):
            outcome = self.muster(*words, "-s", "sync.strategy=auto")
            self.assertEqual(outcome.code, USAGE, outcome.err)
            self.assertIn("sync.strategy auto", outcome.err)

    def test_what_is_not_a_rate(self):
        for option, value in (("--rate", "fast"), ("--delay", "soon")):
            outcome = self.muster("plan", JOB, option, value)
            self.assertEqual(outcome.code, USAGE)
            self.assertIn(f"{option} must be like", outcome.err)


if __name__ == "__main__":
    main()
