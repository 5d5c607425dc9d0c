"""The command line: help, mistakes in it, and what it prints where."""

import os
import pty
import subprocess

from harness import MUSTER, USAGE, CommandTest, Program, main

COMMANDS = [
    "train", "verify", "resume", "status", "join", "coordinator", "eval", "replay", "predict", "config", "config check", "config show", "config explain",
    "config schema", "runs", "runs list", "runs show", "runs compare", "runs plot", "runs fetch", "report", "export", "doctor",
    "data", "data index", "data info", "data check", "data pack", "plan", "completion", "version",
]


class Help(CommandTest):
    def test_muster_alone_says_what_it_is_and_what_to_try(self):
        outcome = self.assert_ok(self.muster())
        self.assertIn("the same job gives the same bits", outcome.out)
        self.assertEqual(outcome.out.count("\n  muster "), 3)

    def test_every_command_has_help_with_examples(self):
        listing = self.assert_ok(self.muster("--help")).out
        for command in COMMANDS:
            with self.subTest(command=command):
                self.assertIn(f"  {command.split()[0]} ", listing)
                for flag in ("-h", "--help"):
                    outcome = self.assert_ok(self.muster(*command.split(), flag))
                    self.assertIn(f"Usage: muster {command}", outcome.out)
                    self.assertIn("Examples:", outcome.out)
                    self.assertEqual(outcome.err, "")

    def test_help_lines_fit_a_terminal(self):
        for command in ["", *COMMANDS]:
            for line in self.muster(*command.split(), "--help").out.splitlines():
                self.assertLessEqual(len(line), 110, f"{command}: {line}")

    def test_version(self):
        text = self.assert_ok(self.muster("version")).out
        self.assertRegex(text, r"^muster \d+\.\d+\.\d+( \([0-9a-f]+\+?\))?\n$")
        self.assertEqual(self.muster("--version").out, text)
        fields = self.assert_ok(self.muster("version", "-o", "json")).json
        self.assertIn(fields["version"], text)


class Mistakes(CommandTest):
    # What was typed, and what the sentence must say.
    TABLE = [
        (["trian", "job.yaml"], ["no command 'trian'", "did you mean 'train'?"]),
        (["frobnicate"], ["no command 'frobnicate'", "train"]),
        (["config", "chek", "job.yaml"], ["muster config", "'chek'", "did you mean 'check'?"]),
        (["config"], ["muster config needs one of", "explain"]),
        (["train"], ["muster train needs JOB", "--help"]),
        (["train", "--qiuet", "job.yaml"], ["'--qiuet'", "did you mean '--quiet'?"]),
        (["train", "--jsn"], ["'--jsn'", "did you mean '--json'?"]),
        (["train", "job.yaml", "--lr=0.1"], ["'--lr'", "-s optimizer.lr="]),
        (["train", "job.yaml", "--batch", "64"], ["'--batch'", "-s batch="]),
        (["train", "job.yaml", "batch=64"], ["'batch=64'", "-s batch=64"]),
        (["train", "job.yaml", "version"], ["does not take 'version'"]),
        (["train", "job.yaml", "--run-dir"], ["--run-dir needs a value"]),
        (["verify", "job.yaml", "--workers", "2", "--workers", "3"], ["--workers is given more than once"]),
        (["train", "job.yaml", "--quiet", "--json"], ["--json", "--quiet", "together"]),
        (["runs", "list", "-o", "xml"], ["--output", "table or json", "'xml'"]),
        (["eval", "latest", "--checkpoint", "bset"], ["best, newest or the number", "'bset'"]),
        (["predict", "latest", "--samples", "1,9-0"], ["0-9", "'1,9-0'"]),
        (["predict", "latest", "--length", "5"], ["--prompt"]),
        (["predict", "latest", "--prompt", "a", "--length", "many"], ["whole number", "'many'"]),
        (["completion", "tcsh"], ["bash, zsh or fish", "'tcsh'"]),
        (["export", "latest"], ["muster export needs --out"]),
        (["-x"], ["muster has no option '-x'"]),
    ]

    def test_each_gets_one_sentence_and_exit_code_2(self):
        for words, mentions in self.TABLE:
            with self.subTest(words=words):
                outcome = self.muster(*words)
                self.assert_mistake(outcome, USAGE, "muster: ", *mentions)
                if "--json" not in words:
                    self.assertEqual(outcome.out, "")

    def test_json_gets_the_error_as_an_object_too(self):
        for words in (["runs", "show", "nothing", "-o", "json"],
                      ["runs", "lsit", "--output=json"],
                      ["train", "--json"]):
            with self.subTest(words=words):
                outcome = self.assert_mistake(self.muster(*words), USAGE)
                error = outcome.json["error"]
                self.assertEqual(error["kind"], "usage")
                self.assertIn(error["message"], outcome.err)

    def test_strange_bytes_are_no_crash(self):
        done = subprocess.run([MUSTER, "runs", "show", b"\xff\xfe", "-o", "json"],
                              capture_output=True, cwd=self.folder)
        self.assertEqual(done.returncode, USAGE)


class Colours(CommandTest):
    def on_terminal(self, **env):
        leader, follower = pty.openpty()
        process = Program([MUSTER, "trian"], stderr=follower, stdout=follower,
                          env={**self.env, "TERM": "xterm", **env})
        process.wait()
        os.close(follower)
        text = os.read(leader, 4096).decode()
        os.close(leader)
        return text

    def test_only_on_a_terminal_that_wants_them(self):
        self.assertIn("\033[", self.on_terminal())
        self.assertNotIn("\033[", self.on_terminal(NO_COLOR="1"))
        self.assertNotIn("\033[", self.on_terminal(TERM="dumb"))
        self.assertNotIn("\033[", self.muster("trian").err)


if __name__ == "__main__":
    main()
