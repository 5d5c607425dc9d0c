"""config check, show, explain and schema."""

from harness import DATA, JOB, USAGE, CommandTest, main, needs_worker


class Config(CommandTest):
    def setUp(self):
        super().setUp()
        self.job = self.write_job()

    def test_show_prints_a_job_that_means_the_same(self):
        shown = self.assert_ok(self.muster("config", "show", "job.yaml", "-s", "lanes=2")).out
        self.assertIn("lanes: 2", shown)
        self.assertIn(str(self.folder / "train-images"), shown)
        again = self.write("elsewhere/resolved.yaml", shown)
        self.assertEqual(self.assert_ok(self.muster("config", "show", again)).out, shown)
        fields = self.assert_ok(self.muster("config", "show", "job.yaml", "-o", "json")).json
        self.assertEqual((fields["lanes"], fields["optimizer"]["lr"], fields["name"]),
                         (4, 0.1, "tiny"))

    def test_the_environment_counts_and_a_stray_variable_is_told(self):
        outcome = self.muster("config", "show", "job.yaml",
                              env={"MUSTER_BATCH": "32", "MUSTER_BACTH": "1"})
        self.assertIn("batch: 32", self.assert_ok(outcome).out)
        self.assertIn("warning", outcome.err)
        self.assertIn("MUSTER_BACTH", outcome.err)

    def test_explain(self):
        text = self.assert_ok(self.muster("config", "explain", "optimizer.lr")).out
        self.assertIn("optimizer.lr", text)
        fields = self.assert_ok(self.muster("config", "explain", "optimizer.lr", "-o", "json")).json
        self.assertEqual(fields["default"], 0.01)
        self.assertEqual(fields["environment"], "MUSTER_OPTIMIZER_LR")
        section = self.assert_ok(self.muster("config", "explain", "eval", "-o", "json")).json
        self.assertIn("eval.batch", [option["key"] for option in section["options"]])
        self.assertIn("optimizer", self.assert_ok(self.muster("config", "explain")).out)
        outcome = self.muster("config", "explain", "optimizer.lrr")
        self.assertIn(outcome.code, (USAGE, JOB))
        self.assertIn("did you mean 'optimizer.lr'?", outcome.err)

    def test_schema(self):
        schema = self.assert_ok(self.muster("config", "schema")).json
        self.assertIn("optimizer", schema["properties"])

    def test_check_without_data(self):
        outcome = self.assert_ok(self.muster("config", "check", "job.yaml", "--no-data"))
        self.assertIn("options are fine", outcome.out)
        outcome = self.muster("config", "check", "job.yaml", "--no-data", "-s", "bacth=3")
        self.assert_mistake(outcome, JOB, "-s bacth", "did you mean 'batch'?")

    def test_check_asks_the_worker(self):
        worker = self.write_program("worker", """\
            assert sys.argv[1:3] == ["check", "--job"], sys.argv
            assert "lanes: 2" in open(sys.argv[3]).read()
            print(json.dumps({"train_samples": 6400, "parameters": 99, "steps": 8}))
            """)
        outcome = self.muster("config", "check", "job.yaml", "-s", "lanes=2", "--worker", worker)
        self.assertIn("fit together: 99 parameters, 6,400 training samples and 8 steps",
                      self.assert_ok(outcome).out)

    def test_what_the_worker_finds_becomes_our_sentence(self):
        worker = self.write_program("worker", """\
            print("noise", file=sys.stderr)
            print(f"muster: {sys.argv[3]}:7:3: the shapes do not fit", file=sys.stderr)
            sys.exit(4)
            """)
        outcome = self.muster("config", "check", "job.yaml", "--worker", worker)
        self.assert_mistake(outcome, DATA, "muster: job.yaml", ":7:3: the shapes do not fit")
        outcome = self.muster("config", "check", "job.yaml", "--worker", worker, "-o", "json")
        self.assertEqual(outcome.json["error"]["kind"], "data")

    @needs_worker
    def test_check_with_the_real_worker(self):
        self.assert_ok(self.muster("config", "check", "job.yaml"))
        (self.folder / "train-labels").unlink()
        outcome = self.muster("config", "check", "job.yaml")
        self.assertNotEqual(outcome.code, 0)
        self.assertIn("train-labels", outcome.err)


if __name__ == "__main__":
    main()
