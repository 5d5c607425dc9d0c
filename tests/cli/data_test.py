"""muster data index, info, check and pack; and training from data that is read by blocks."""

import http.server
import random
import shutil
import threading

from pathlib import Path

from harness import ARROW, DATA, IO, JOB, USAGE, CommandTest, main, needs_worker

JOB_FILE = """\
    muster: 1
    name: rows
    seed: 5
    model: { layers: [ linear: { out: 16 }, relu, linear: { out: 3 } ] }
    data:
      train: { format: csv, path: "train-*.csv", classes: 3 }
      test: { format: csv, path: test.csv }
      block: 4KiB
    batch: 16
    lanes: 4
    passes: 3
    optimizer: { kind: sgd, lr: 0.1, momentum: 0.9 }
    """


class Data(CommandTest):
    def setUp(self):
        super().setUp()
        random.seed(3)
        for number, rows in enumerate((300, 1, 500)):
            self.write_rows(f"train-{number}.csv", rows)
        self.write_rows("test.csv", 50)
        self.job = self.write("job.yaml", JOB_FILE)

    def write_rows(self, name, count):
        lines = ["a,b,c,class"]
        for _ in range(count):
            row = [random.gauss(0, 1) for _ in range(3)]
            lines.append(",".join([f"{x:.6f}" for x in row] + [str(row.index(max(row)))]))
        self.write(name, "\n".join(lines) + "\n")

    def test_info_says_how_much_there_is(self):
        train, test = self.assert_ok(self.muster("data", "info", "job.yaml", "-o", "json")).json
        self.assertEqual((train["source"], train["samples"], train["files"]), ("data.train", 801, 3))
        self.assertGreaterEqual(train["blocks"], 5)
        self.assertEqual((train["input_shape"], train["classes"], train["order"]), ([3], 3, "strata"))
        self.assertEqual((test["samples"], test["by_blocks"]), (50, False))
        text = self.assert_ok(self.muster("data", "info", "job.yaml")).out
        self.assertIn("data.train: csv, 801 samples of [3], 3 classes", text)
        self.assertIn("order strata", text)

    def test_index_is_made_once_and_used(self):
        first = self.assert_ok(self.muster("data", "index", "job.yaml", "--out", "ix", "-o", "json")).json
        self.assertEqual([source["source"] for source in first], ["data.train"])
        written = list((self.folder / "ix").glob("*.index"))
        self.assertEqual(len(written), 1)
        before = written[0].stat().st_mtime_ns
        again = self.muster("data", "index", "job.yaml", "--out", "ix")
        self.assertIn("801 samples", self.assert_ok(again).out)
        self.assertIn("data.index", again.err)
        self.assertEqual(written[0].stat().st_mtime_ns, before)
        self.assert_ok(self.muster("data", "index", "job.yaml", "--out", "ix", "--again"))
        self.assertNotEqual(written[0].stat().st_mtime_ns, before)
        self.assert_mistake(self.muster("data", "index", "job.yaml"), USAGE, "--out DIR")

    def test_test_data_has_the_classes_of_the_training_data(self):
        # As when the job trains: by blocks, nobody counts them.
        blocks = ["-s", "data.test.read=blocks"]
        whole = ["-s", "data.train.path=train-0.csv", "-s", "data.train.read=whole", "-s", "data.train.classes=0"]
        for words in (blocks, blocks + whole):
            found = self.assert_ok(self.muster("data", "index", "job.yaml", "--out", "ix", "-o", "json", *words)).json
            self.assertEqual([source["samples"] for source in found], [801, 50] if words == blocks else [50])
            _, test = self.assert_ok(self.muster("data", "info", "job.yaml", "-o", "json", *words)).json
            self.assertEqual((test["by_blocks"], test["classes"]), (True, 3))
            self.assert_ok(self.muster("data", "check", "job.yaml", *words))

    def test_check_finds_and_names_damage(self):
        self.assertIn("all can be read", self.assert_ok(self.muster("data", "check", "job.yaml")).out)
        path = self.folder / "train-2.csv"
        rows = path.read_text().splitlines(keepends=True)
        rows[400] = rows[400].replace(".", "x", 1)
        path.write_text("".join(rows))
        outcome = self.muster("data", "check", "job.yaml")
        self.assertEqual(outcome.code, DATA, outcome)
        self.assertIn("train-2.csv", outcome.err)
        self.assertIn("1 part cannot be read", outcome.out)

    def test_mistakes(self):
        self.assert_mistake(self.muster("data", "info", "job.yaml", "-s", "data.train.path=none-*.csv"), DATA,
                            "data.train", "none-*.csv")
        self.assert_mistake(self.muster("data", "info", "job.yaml", "-s", "data.train.classes=0"), JOB, "data.train",
                            "classes")
        self.assert_mistake(self.muster("data", "info", "job.yaml", "-s", "data.train.limit=3"), JOB,
                            "data.train.limit", "blocks")

    def test_pack_says_what_to_write_into_the_job(self):
        outcome = self.assert_ok(self.muster("data", "pack", "job.yaml", "--shuffle", "--block", "4KiB", "--out", "to"))
        self.assertIn("data.train: 801 samples in 1 file, 4 blocks", outcome.out)
        job = JOB_FILE.split("data:")[0] + "data:" + "".join(
            f"\n    {line}" for line in outcome.out.split("data:")[-1].splitlines()) + JOB_FILE.split("test.csv }")[1]
        self.write("packed.yaml", job)
        train, test = self.assert_ok(self.muster("data", "info", "packed.yaml", "-o", "json")).json
        self.assertEqual((train["format"], train["samples"], train["input_shape"]), ("tfrecord", 801, [3]))
        self.assertEqual((test["format"], test["samples"]), ("tfrecord", 50))
        self.assert_ok(self.muster("data", "check", "packed.yaml"))
        # Once more: everything is there. Otherwise: it is refused.
        again = self.muster("data", "pack", "job.yaml", "--shuffle", "--block", "4KiB", "--out", "to", "-o", "json")
        self.assertEqual(self.assert_ok(again).json[0]["files"], 1)
        self.assert_mistake(self.muster("data", "pack", "job.yaml", "--out", "to"), USAGE, "data.train", "delete it")
        self.assert_mistake(self.muster("data", "pack", "job.yaml", "--out", "x", "--block", "many"), USAGE, "--block")
        self.assert_mistake(self.muster("data", "pack", "job.yaml"), USAGE, "--out")

    @needs_worker
    def test_packed_data_trains_to_the_same_weights(self):
        packed = self.assert_ok(self.muster("data", "pack", "job.yaml", "--out", "to", "-o", "json")).json
        words = ["-s", "data.order=full"]
        for source in packed:
            for key, value in source["options"].items():
                words += ["-s", f"{source['source']}.{key}={value}"]
        hashes = [self.assert_ok(self.muster("train", "job.yaml", "--json", *some)).last_json["weights_hash"]
                  for some in (words[:2], words)]
        self.assertEqual(hashes[0], hashes[1])

    @needs_worker
    def test_trains_and_resumes_with_the_same_index(self):
        result = self.assert_ok(self.muster("train", "job.yaml", "--json")).last_json
        run = self.only_run()
        self.assertEqual(len(list((run / "index").glob("*.index"))), 1)
        for words in (["-s", "threads=1"], ["--workers", "2"], ["-s", "data.cache=cache", "-s", "data.memory=4KiB"]):
            other = self.assert_ok(self.muster("train", "job.yaml", "--json", *words)).last_json
            self.assertEqual(other["weights_hash"], result["weights_hash"], words)
            self.assertEqual(other["ledger"], result["ledger"], words)
        self.assertTrue(any((self.folder / "cache").iterdir()))
        # The same samples in one file, in memory, have the same bits in the same order.
        lines = []
        for number in range(3):
            rows = (self.folder / f"train-{number}.csv").read_text().splitlines()
            lines += rows[0 if number == 0 else 1:]
        self.write("all.csv", "\n".join(lines) + "\n")
        full = [self.assert_ok(self.muster("train", "job.yaml", "--json", *words)).last_json["weights_hash"]
                for words in (["-s", "data.order=full"],
                              ["-s", "data.train.path=all.csv", "-s", "data.block=4MiB"])]
        self.assertEqual(full[0], full[1])
        self.assertNotEqual(full[0], result["weights_hash"])
        # Longer, with the index of the run.
        self.assert_ok(self.muster("resume", result["run_dir"], "-s", "passes=4", "--json"))
        # And from another place.
        (self.folder / "moved").mkdir()
        for number in range(3):
            (self.folder / f"train-{number}.csv").rename(self.folder / "moved" / f"part-{number}.csv")
        words = ["resume", result["run_dir"], "-s", "data.train.path=moved/part-*.csv"]
        moved = self.assert_ok(self.muster(*words, "-s", "passes=5", "--json")).last_json
        self.assertEqual(moved["fingerprint"], result["fingerprint"])
        self.write_rows("moved/part-3.csv", 10)
        self.assertNotEqual(self.muster(*words, "-s", "passes=6").code, 0)

    @needs_worker
    def test_changed_data_is_noticed(self):
        result = self.assert_ok(self.muster("train", "job.yaml", "--json")).last_json
        indexes = self.only_run() / "index"
        index = next(indexes.glob("*.index"))
        written = index.read_bytes()
        self.write_rows("train-3.csv", 10)
        outcome = self.muster("resume", result["run_dir"], "-s", "passes=4")
        self.assertNotEqual(outcome.code, 0, outcome)
        self.assertIn("data", outcome.err)
        self.assertEqual(index.read_bytes(), written)
        self.assert_ok(self.muster("resume", result["run_dir"], "-s", "passes=4", "--accept-other-data",
                                   "--workers", "2"))
        self.assertEqual(list(indexes.glob("*.index")), [index])
        self.assertNotEqual(index.read_bytes(), written)


class Photos(CommandTest):
    """A directory for each class; the test data has no images of one of them."""

    def setUp(self):
        super().setUp()
        pictures = Path(__file__).parents[2] / "muster/data/blocks/testdata/images"
        for place in ("train/ant", "train/bee", "train/cat", "test/ant", "test/cat"):
            folder = self.folder / "photos" / place
            folder.mkdir(parents=True)
            for name in ("photo.jpg", "grey.jpg", "tall.jpg"):
                shutil.copy(pictures / name, folder)
        source = "{{ format: images, path: photos/{}, args: {{ size: 8 }} }}"
        self.write("job.yaml", f"""\
            muster: 1
            model: {{ layers: [ flatten, linear: {{ out: classes }} ] }}
            data: {{ train: {source.format("train")}, test: {source.format("test")} }}
            batch: 4
            lanes: 2
            passes: 2
            optimizer: {{ kind: sgd, lr: 0.01 }}
            """)

    def test_info_shows_the_numbers_of_classes(self):
        train, test = self.assert_ok(self.muster("data", "info", "job.yaml", "-o", "json")).json
        for facts in (train, test):
            self.assertEqual((facts["class_names"], facts["classes"]), (["ant", "bee", "cat"], 3))
        self.assertEqual(test["samples"], 6)
        self.assertIn("classes: 0 ant, 1 bee, 2 cat", self.assert_ok(self.muster("data", "info", "job.yaml")).out)

    def test_check_names_every_damaged_file(self):
        # Several in one group of those that are decoded at once, the last one behind others.
        damaged = ("ant/photo.jpg", "ant/tall.jpg", "cat/tall.jpg")
        for name in damaged:
            path = self.folder / "photos/train" / name
            path.write_bytes(path.read_bytes()[:-100])
        outcome = self.muster("data", "check", "job.yaml")
        self.assertEqual(outcome.code, DATA, outcome)
        for name in damaged:
            self.assertEqual(outcome.err.count(f"photos/train/{name}"), 1, outcome)
        self.assertNotIn("bee", outcome.err)
        self.assertIn("data.train: 9 samples, 3 parts cannot be read", outcome.out)
        self.assertIn("data.test: 6 samples, all can be read", outcome.out)
        train, _ = self.muster("data", "check", "job.yaml", "-o", "json").json
        self.assertEqual(train["damaged"], 3)

    @needs_worker
    def test_test_data_has_the_numbers_of_the_training_data(self):
        self.assert_ok(self.muster("train", "job.yaml"))
        found = self.assert_ok(self.muster("predict", "latest", "--samples", "0-5", "-o", "json")).json
        self.assertEqual([row["label"] for row in found], [0, 0, 0, 2, 2, 2])
        # All files below, without labels; and a path where there is nothing.
        words = ("predict", "latest", "--no-labels", "--out", "out.csv", "--data")
        self.assert_ok(self.muster(*words, "photos"))
        lines = (self.folder / "out.csv").read_text().splitlines()
        self.assertEqual((lines[0], len(lines)), ("sample,class,probability", 16))
        self.assert_mistake(self.muster(*words, "fotos", "--force"), IO, "cannot list", "fotos")
        (self.folder / "photos/test/cat").rename(self.folder / "photos/test/car")
        self.assert_mistake(self.muster("train", "job.yaml"), DATA, "data.test", "photos/test/car", "3 classes", "'cat'")


class Examples(CommandTest):
    """examples/formats: all of them can be read, and trained."""

    @needs_worker
    def test_every_format_trains(self):
        folder = Path(__file__).parents[2] / "examples/formats"
        jobs = sorted(folder.glob("*.yaml"))
        self.assertGreater(len(jobs), 10)
        for job in jobs:
            if job.stem in ("parquet", "arrow") and not ARROW.exists():
                continue
            with self.subTest(job.stem):
                self.assert_ok(self.muster("data", "check", job))
                result = self.assert_ok(self.muster("train", job, "--json")).last_json
                self.assertGreater(result["steps"], 1)


class Http(CommandTest):
    """From a server on this machine that supports ranges."""

    def serve(self, contents):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self, with_body):
                body = contents
                status, first = 200, 0
                if "Range" in self.headers:
                    start, end = self.headers["Range"].removeprefix("bytes=").split("-")
                    status, first = 206, int(start)
                    body = contents[first:int(end) + 1]
                self.send_response(status)
                self.send_header("ETag", '"1"')
                self.send_header("Accept-Ranges", "bytes")
                self.send_header("Content-Length", str(len(body)))
                if status == 206:
                    self.send_header("Content-Range", f"bytes {first}-{first + len(body) - 1}/{len(contents)}")
                self.end_headers()
                if with_body:
                    self.wfile.write(body)

            def do_GET(self):
                self.answer(True)

            def do_HEAD(self):
                self.answer(False)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.shutdown)
        return f"http://127.0.0.1:{server.server_port}/rows.csv"

    def test_info_and_check(self):
        random.seed(4)
        rows = "".join(f"{random.random():.6f},{random.random():.6f},{i % 2}\n" for i in range(2000))
        url = self.serve(("a,b,class\n" + rows).encode())
        self.write("job.yaml", f"""\
            muster: 1
            model: {{ zoo: mlp }}
            data: {{ train: {{ format: csv, path: "{url}", classes: 2 }}, block: 4KiB }}
            steps: 3
            """)
        facts = self.assert_ok(self.muster("data", "info", "job.yaml", "-o", "json")).json
        self.assertEqual(facts[0]["samples"], 2000)
        self.assert_ok(self.muster("data", "check", "job.yaml"))


if __name__ == "__main__":
    main()
