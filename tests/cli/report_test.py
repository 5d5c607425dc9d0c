"""muster report and muster runs plot, of run directories that are made by hand: what is in the page, and that
nothing in a run can break it. A page is read with Python's own HTML parser."""

import html.parser
import json
import os
import re
import shutil
import subprocess
import unittest

from harness import USAGE, main
from runs_test import RunsTest

EVIL = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>"
VOID = {"meta", "br", "img", "link", "input", "hr"}
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class Page(html.parser.HTMLParser):
    """Everything is closed in order, ids are unique; keeps tags, sections and text."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.ids, self.attributes = [], [], [], []
        self.text = {}  # by section
        self.section = ""
        self.feed(text)
        self.close()
        assert not self.open, self.open
        assert len(self.ids) == len(set(self.ids)), self.ids

    def handle_starttag(self, tag, attributes):
        self.handle_startendtag(tag, attributes)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        names = [name for name, _ in attributes]
        assert len(names) == len(set(names)), (tag, names)
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attributes]
        fields = dict(attributes)
        if "id" in fields:
            self.ids.append(fields["id"])
        if tag == "section":
            self.section = fields["id"]

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open)
        self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text[self.section] = self.text.get(self.section, "") + data

    def labels(self):
        return [value for _, name, value in self.attributes if name == "aria-label"]


def metrics(steps, first=2.0, **more):
    records = []
    for step in range(10, steps + 1, 10):
        records.append({"step": step, "pass": step / 100, "loss": first / step, "lr": 0.1, "samples": step * 16,
                        "seconds": 0.02 + 0.001 * (step % 7), "time": 1000 + step / 10, **more})
        if step % 50 == 0:
            records.append({"step": step, "test": {"accuracy": 1 - 1 / step, "loss": 1 / step}})
    return records


EVENTS = [
    {"time": 1000, "event": "start", "command": "train", "workers": 2, "host": "node-1", "processor": "A processor",
     "system": "Linux 6.1 x86_64", "cores": 8, "memory": 16 << 30, "version": "0.1.0", "commit": "abc"},
    {"time": 1001, "event": "roster", "roster": 1, "step": 0, "reason": "2 workers have joined", "waiting": False,
     "all": True, "members": {"w0": {"lanes": "0-1", "host": "h"}, "w1": {"lanes": "2-3", "host": "h"}}},
    {"time": 1010, "event": "gone", "worker": "w1", "cause": "exited", "reason": "was killed by signal 9"},
    {"time": 1010, "event": "roster", "roster": 2, "step": 90, "reason": "worker w1 was killed", "removed": ["w1"],
     "members": {"w0": {"lanes": "0-3", "host": "h"}}},
    {"time": 1012, "event": "server", "text": "server-0 was killed by signal 9"},
    {"time": 1030, "event": "end", "finished": True},
]


class ReportTest(RunsTest):
    def make_events(self, run, events):
        (run / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))

    def make_full(self, name="full-1"):
        run = self.make_run(name, "finished", {"weights_hash": "0123abcd" * 4, "steps": 300,
                                               "test": {"accuracy": 0.9912}, "damaged_blocks": 1,
                                               "replaced_samples": 3},
                            metrics=metrics(300, waited=0.005))
        self.make_events(run, EVENTS)
        (run / "log.txt").write_text(
            "2026-03-01T12:30:05.123Z info    data.train: 3 blocks (1.0 MB) fetched, 0 from the cache on disk, 1 "
            "waited for\n"
            "2026-03-01T12:31:05.123Z info    data.train: 12 blocks (4.0 MB) fetched, 2 from the cache on disk, 5 "
            "waited for\n"
            "2026-03-01T12:31:06.123Z warning waiting for data: 3 requests, oldest 12.0 s\n"
            "2026-03-01T12:31:07.123Z warning the states of the workers differ after step 7. All workers return to "
            "the newest checkpoint up to step 5\n"
            "2026-03-01T12:31:08.123Z warning step 9 was skipped: not finite\n"
            "not a line of ours\n")
        return run

    def report(self, *runs, out="report.html", **options):
        outcome = self.assert_ok(self.muster("report", *runs, "-o", out, **options))
        self.assertIn(out, outcome.out)
        text = (self.folder / out).read_text()
        page = Page(text)
        self.assertEqual([page.ids.count(name) for name in
                          ("summary", "curves", "times", "workers", "audit", "data", "job", "environment")],
                         [1] * 8)
        return text, page

    def test_everything_is_there(self):
        self.make_full()
        text, page = self.report("full-1")
        said = {name: re.sub(r"\s+", " ", part) for name, part in page.text.items()}
        for section, parts in {
            "summary": ["finished", "300", "test accuracy", "0.9912", "0123abcd", "faults"],
            "curves": ["training loss", "learning rate", "test accuracy", "test loss"],
            "times": ["step time", "in ms", "waiting for others", "median", "samples per second"],
            "workers": ["1 attempt, 2 rosters, 1 fault", "w0", "w1", "was killed by signal 9", "lanes 0-3",
                        "server-0", "roster 2: worker w1 was killed (w0: lanes 0-3; without w1)"],
            "audit": ["states of the workers differ after step 7"],
            "data": ["12 blocks (4.0 MB) fetched", "waiting for data: 3 requests", "1 block damaged"],
            "warnings": ["step 9 was skipped"],
            "job": ["optimizer.lr", "0.1", "batch: 16"],
            "environment": ["node-1", "A processor", "17.2 GB", "Linux 6.1"],
        }.items():
            for part in parts:
                self.assertIn(part, said[section], section)
        self.assertNotIn("3 blocks", said["data"], "the last figures count from the start")
        loss = [label for label in page.labels() if label.startswith("training loss by step")]
        self.assertEqual(loss, ["training loss by step. full-1: last 0.0067 at step 300, lowest 0.0067, highest "
                                "0.2000."])

    def test_nothing_is_loaded_and_nothing_runs(self):
        self.make_full()
        text, page = self.report("full-1")
        self.assertIn("default-src 'none'", text)
        for tag, name, value in page.attributes:
            self.assertNotIn(name, ("src", "href", "xlink:href", "action", "data"), (tag, value))
            self.assertFalse(name.startswith("on"), (tag, name))
        self.assertFalse({"script", "link", "iframe", "img", "object", "base"} & set(page.tags))
        self.assertNotIn("url(", text)
        self.assertNotIn("@import", text)

    def test_nothing_in_a_run_is_taken_for_html(self):
        name = "<b onclick=alert(1)>&'\"name"
        run = self.make_run(name, "failed", job=self.JOB.replace("name: tiny", f"name: {json.dumps(EVIL)}"),
                            reason=EVIL, started=EVIL,
                            metrics=[{"step": 1, "loss": 1.0, EVIL: 2.0}, {"step": 2, "test": {EVIL: 3.0}}])
        events = [{"time": 1, "event": "start", "workers": 2, **{key: EVIL for key in
                   ("command", "host", "processor", "system", "version", "commit", "cores", "memory")}},
                  {"time": 2, "event": "roster", "roster": 1, "reason": EVIL, "all": True,
                   "members": {EVIL: {"lanes": EVIL, "host": EVIL}}},
                  {"time": 3, "event": "gone", "worker": EVIL, "cause": EVIL, "reason": EVIL},
                  {"time": 3, "event": "exit", "worker": EVIL, "how": EVIL},
                  {"time": 4, "event": "note", "text": EVIL}, {"time": 5, "event": "server", "text": EVIL},
                  {"time": 6, "event": "end", "reason": EVIL}]
        self.make_events(run, events)
        (run / "workers").mkdir()
        for file in ("log.txt", f"workers/<i>.log"):
            (run / file).write_text("".join(
                f"2026-03-01T12:31:0{i}.123Z warning {start}{EVIL}\n"
                for i, start in enumerate(("", "waiting for data ", "audit "))))
        text, page = self.report(name)
        self.assertNotIn("<script", text)
        self.assertNotIn("<img", text)
        self.assertFalse({"script", "img", "b", "i"} & set(page.tags))
        for tag, attribute, value in page.attributes:
            self.assertFalse(attribute.startswith("on"), (tag, attribute, value))
        for section in ("summary", "curves", "workers", "audit", "data", "warnings", "job", "environment"):
            self.assertIn(json.dumps(EVIL) if section == "job" else EVIL, page.text[section], section)

    def test_several_runs_share_charts(self):
        for name, batch in (("one", 16), ("two", 32), ("empty", 16)):
            self.make_run(name, "finished", metrics=metrics(100) if name != "empty" else (),
                          job=self.JOB.replace("batch: 16", f"batch: {batch}"))
        text, page = self.report("one", "two", "empty")
        self.assertEqual(page.text["curves"].count("training loss"), 3, "a heading, and two titles of curves")
        loss = next(label for label in page.labels() if label.startswith("training loss by step"))
        self.assertIn("one: last", loss)
        self.assertIn("two: last", loss)
        self.assertIn("c1", [value for _, name, value in page.attributes if name == "class"])
        job = page.text["job"]
        self.assertIn("bold: they differ", job)
        self.assertRegex(text, r'<tr class="changed"><th scope="row">batch</th><td><code>16</code></td><td><code>32')

    def test_runs_that_are_young_broken_or_of_an_older_version(self):
        self.make_run("young", "running")
        run = self.make_run("garbage", "finished", {"steps": "many", "test": [1]})
        (run / "metrics.jsonl").write_bytes(b'\xff{"step": 1}\n{"step": 1, "loss": null}\n{"step": 2, "loss": "x"}\n')
        (run / "events.jsonl").write_bytes(b'[]\n\xff\n{"time": 1, "event": "start", "workers": "x", "command": 3}\n'
                                           b'{"time": -1e300, "event": "roster", "members": 7}\n'
                                           b'{"time": 1e300, "event": "end", "stopped_by": "x", "finished": 1}\n{"ti')
        (run / "job.yaml").write_text("bath: 3")
        (run / "log.txt").write_bytes(b"\x00\xff" * 100)
        text, page = self.report("young", "garbage")
        self.assertIn("No events are recorded", page.text["workers"])
        self.assertIn("cannot be read as a job", page.text["job"])
        text, page = self.report("young")
        self.assertIn("Nothing has been recorded yet", page.text["curves"])
        self.assertIn("No step times", page.text["times"])

    def test_large_runs_make_small_files_that_keep_peaks(self):
        records = [{"step": step, "loss": 1.0, "seconds": 0.01} for step in range(1, 20001)]
        records[12345]["loss"] = 77.25
        self.make_run("large", "finished", metrics=records)
        text, page = self.report("large")
        self.assertLess(len(text), 200_000)
        self.assertIn("77.2500", text)

    def test_only_reports_are_replaced(self):
        self.make_full()
        self.report("full-1")
        self.report("full-1")
        self.write("precious.html", "<p>mine</p>")
        outcome = self.muster("report", "full-1", "--out", "precious.html")
        self.assert_mistake(outcome, USAGE, "precious.html", "--force")
        self.assert_ok(self.muster("report", "full-1", "--out", "precious.html", "--force"))
        self.assertIn("full-1", (self.folder / "precious.html").read_text())
        self.assert_mistake(self.muster("report", "full-1", "-o", "no/such/x.html"), USAGE, "no folder")
        self.assert_mistake(self.muster("report", "nobody"), USAGE, "nobody")
        os.symlink("full-1", self.folder / "runs/latest")
        self.assertIn("report.html: full-1", self.assert_ok(self.muster("report")).out)

    @unittest.skipUnless(CHROMIUM, "chromium is not installed")
    def test_a_browser_finds_nothing_wider_than_the_screen(self):
        """Headless, so slow that this is the only one: that the page is laid out at all, on a narrow screen."""
        self.make_full()
        self.report("full-1")
        probe = self.folder / "probe.html"
        probe.write_text((self.folder / "report.html").read_text().replace(
            "default-src 'none'; style-src 'unsafe-inline'", "default-src 'unsafe-inline'").replace(
            "</body>", "<script>document.title = 'width ' + document.documentElement.scrollWidth + ' of ' + innerWidth"
            "</script></body>"))
        done = subprocess.run([CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=500,900",
                               f"--user-data-dir={self.folder}/profile", "--dump-dom", probe.as_uri()],
                              capture_output=True, text=True, timeout=120, env={**self.env, "HOME": str(self.folder)})
        widths = re.search(r"<title>width (\d+) of (\d+)", done.stdout)
        if widths is None:
            self.skipTest(f"chromium does not work here: {done.stderr[-300:]}")
        self.assertLessEqual(int(widths[1]), int(widths[2]))


class Plot(RunsTest):
    def test_in_a_pipe(self):
        self.make_run("a", "finished", metrics=metrics(300))
        text = self.assert_ok(self.muster("runs", "plot", "a")).out
        for part in ("training loss, by step", "test accuracy, by step", "test loss",
                     "  a: 0.0067 at step 300, lowest 0.0067 at 300, highest 0.2000 at 10"):
            self.assertIn(part, text)
        self.assertNotIn("learning rate", text)
        self.assertNotIn("\033", text)
        self.assertTrue(any("\u2800" < c <= "\u28ff" for c in text), text)
        self.assertLessEqual(max(map(len, text.splitlines())), 80)
        text = self.assert_ok(self.muster("runs", "plot", "a", env={"LC_ALL": "C"})).out
        self.assertTrue(text.isascii(), text)

    def test_metrics_by_name(self):
        self.make_run("a", "finished", metrics=metrics(300))
        text = self.assert_ok(self.muster("runs", "plot", "a", "-m", "seconds", "--metric", "accuracy")).out
        self.assertIn("step time in ms", text)
        self.assertIn("test accuracy", text)
        self.assertNotIn("loss", text)
        self.assert_mistake(self.muster("runs", "plot", "a", "-m", "los"), USAGE, "did you mean 'loss'?")
        self.assert_mistake(self.muster("runs", "plot", "a", "-m", "zebra"), USAGE, "there are: loss, lr")

    def test_several_runs(self):
        for name in "ab":
            self.make_run(name, "finished", metrics=metrics(100, first=ord(name)))
        text = self.assert_ok(self.muster("runs", "plot", "a", "b", "-m", "loss")).out
        self.assertIn("  * a: ", text)
        self.assertIn("  o b: ", text)
        curves = self.assert_ok(self.muster("runs", "plot", "a", "b", "-m", "loss", "-o", "json")).json
        self.assertEqual([(curve["run"], curve["metric"], len(curve["points"])) for curve in curves],
                         [("a", "loss", 10), ("b", "loss", 10)])
        self.assertEqual(curves[1]["points"][0], [10, 9.8])

    def test_nothing_is_recorded_yet(self):
        self.make_run("young", "running")
        outcome = self.assert_ok(self.muster("runs", "plot", "young"))
        self.assertEqual(outcome.out, "")
        self.assertIn("nothing is recorded yet in young", outcome.err)
        self.assertEqual(self.assert_ok(self.muster("runs", "plot", "young", "-o", "json")).json, [])


del RunsTest  # its tests are those of runs_test.py

if __name__ == "__main__":
    main()
