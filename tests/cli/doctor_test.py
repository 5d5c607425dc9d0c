"""Doctor, with a worker that answers as the real one does, and without one."""

from pathlib import Path

from harness import MACHINE, CommandTest, main, needs_worker

PROBE = """\
    assert sys.argv[1:] == ["probe"], sys.argv
    print(json.dumps({"torch_version": "2.15.0", "gloo": "/usr/lib/libgloo.so.0",
                      "capability": "AVX512", "fingerprint": "f00d", "kernels": {"matmul": "1"},
                      "gflops_one_lane": 50.5, "gflops_all_lanes": 99.0, "lane_threads": 2,
                      "first_step_ms": 312.0, "mkl_cbwr": "AVX512,STRICT"}))
    """


class Doctor(CommandTest):
    def test_a_machine_that_can_train(self):
        worker = self.write_program("worker", PROBE)
        outcome = self.assert_ok(self.muster("doctor", "--worker", worker))
        for part in ("2.15.0", "AVX512", "libgloo", "f00d", "50 GFLOP/s", "cores", "memory", "runs"):
            self.assertIn(part, outcome.out)
        self.assertIn("This machine can train", outcome.out.splitlines()[-1])
        self.assertLess(len(outcome.out.splitlines()), 25, "one screen")
        self.assertEqual(list(self.folder.iterdir()), [worker], "nothing is left behind")

        fields = self.assert_ok(self.muster("doctor", "--worker", worker, "-o", "json")).json
        self.assertIs(fields["can_train"], True)
        self.assertEqual(fields["worker"]["gflops_one_lane"], 50.5)
        self.assertGreater(fields["disk"]["sync_ms"], 0)
        self.assertGreaterEqual(fields["machine"]["usable_cores"], 1)

    def test_gloo_from_the_wrong_library(self):
        worker = self.write_program("worker", PROBE.replace("/usr/lib/libgloo.so.0",
                                                            "/x/libtorch_cpu.so"))
        outcome = self.muster("doctor", "--worker", worker)
        self.assertEqual(outcome.code, MACHINE)
        self.assertIn("libtorch_cpu.so", outcome.out)
        self.assertIn("cannot train", outcome.out.splitlines()[-1])

    def test_a_worker_that_does_not_start(self):
        worker = self.write_program("worker", """\
            print("libtorch_cpu.so: cannot open shared object file", file=sys.stderr)
            sys.exit(127)
            """)
        outcome = self.muster("doctor", "--worker", worker, "-o", "json")
        self.assertEqual(outcome.code, MACHINE)
        self.assertIs(outcome.json["can_train"], False)
        self.assertIn("libtorch_cpu.so", outcome.json["advice"][0]["text"])

    def test_a_worker_that_answers_nonsense(self):
        worker = self.write_program("worker", "print('hello')")
        outcome = self.muster("doctor", "--worker", worker)
        self.assertEqual(outcome.code, MACHINE)
        self.assertIn("same version", outcome.out)

    def test_a_disk_that_cannot_be_written(self):
        worker = self.write_program("worker", PROBE)
        outcome = self.muster("doctor", "--worker", worker, "--runs", "/proc/runs")
        self.assertEqual(outcome.code, MACHINE)
        self.assertIn("/proc", outcome.out)

    @needs_worker
    def test_the_real_worker(self):
        outcome = self.muster("doctor", "-o", "json")
        self.assertEqual(outcome.code, 0, outcome)
        worker = outcome.json["worker"]
        self.assertRegex(worker["torch_version"], r"^\d+\.\d+")
        self.assertNotIn("torch", worker["gloo"])
        self.assertTrue(worker["fingerprint"])
        self.assertGreater(worker["gflops_one_lane"], 0)
        again = self.muster("doctor", "-o", "json").json["worker"]
        self.assertEqual(again["fingerprint"], worker["fingerprint"])

    @needs_worker
    def test_a_job_is_timed_with_other_lanes(self):
        job = Path(__file__).parents[2] / "examples/lenet-sample.yaml"
        outcome = self.assert_ok(self.muster("doctor", job, "-s", "batch=16", "-o", "json"))
        steps = outcome.json["steps"]
        self.assertEqual([steps[0]["lanes"], steps[0]["threads_per_lane"]], [8, 1], "the job's own comes first")
        self.assertIn(1, [each["lanes"] for each in steps])
        for each in steps:
            self.assertGreater(each["step_seconds"], 0)
            self.assertLess(each["step_seconds"], 1)
        self.assertEqual(list(self.folder.iterdir()), [], "nothing is left behind")


if __name__ == "__main__":
    main()
