"""Completion in real shells."""

import shutil
import subprocess
import unittest

from harness import MUSTER, CommandTest, main

# Asks bash what it would offer after these words; the last one is what has been typed of it.
BASH = r"""
source <("$1" completion bash) || exit 1
compopt() { :; }
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_muster
printf '%s\n' "${COMPREPLY[@]}"
"""


class Bash(CommandTest):
    def offers(self, *words):
        done = subprocess.run(["bash", "-c", BASH, "bash", MUSTER, "muster", *words],
                              cwd=self.folder, capture_output=True, text=True, env=self.env)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.split()

    def test_commands(self):
        self.assertEqual(self.offers("tr"), ["train"])
        self.assertEqual(self.offers("config", ""), ["check", "show", "explain", "schema"])
        self.assertEqual(self.offers("runs", "c"), ["compare"])

    def test_options(self):
        self.assertIn("--run-dir", self.offers("train", "--"))
        self.assertNotIn("--checkpoint", self.offers("train", "--"))
        self.assertEqual(self.offers("export", "--che"), ["--checkpoint"])

    def test_values(self):
        self.assertEqual(self.offers("runs", "list", "-o", ""), ["table", "json"])
        self.assertEqual(self.offers("eval", "x", "--checkpoint", "b"), ["best"])
        self.assertEqual(self.offers("completion", "z"), ["zsh"])

    def test_options_of_the_job(self):
        self.assertEqual(self.offers("train", "job.yaml", "-s", "optimizer.l"), ["optimizer.lr="])
        self.assertIn("optimizer", self.offers("config", "explain", "opt"))
        # bash hands key=value over as three words
        self.assertEqual(self.offers("train", "-s", "optimizer.kind", "=", "adam"),
                         ["adam", "adamw"])
        self.assertEqual(self.offers("train", "-s", "sync.reduction", "="), ["exact", "native"])

    def test_files_and_runs(self):
        self.write("job.yaml", "")
        self.write("runs/lenet-1/job.yaml", "")
        self.write("runs/gpt-1/job.yaml", "")
        self.write("runs/notes.txt", "")
        self.assertIn("job.yaml", self.offers("train", "jo"))
        self.assertEqual(self.offers("runs", "show", "l"), ["latest", "lenet-1"])


class OtherShells(CommandTest):
    @unittest.skipUnless(shutil.which("zsh"), "zsh is not installed")
    def test_zsh(self):
        script = self.folder / "_muster"
        script.write_text(self.assert_ok(self.muster("completion", "zsh")).out)
        loaded = subprocess.run(
            ["zsh", "-f", "-c", f"autoload -U compinit; compinit -u -D; source {script}; "
             "whence -w _muster; print ${_comps[muster]}"],
            capture_output=True, text=True)
        self.assertEqual(loaded.stdout.split("\n")[:2], ["_muster: function", "_muster"], loaded)

    @unittest.skipUnless(shutil.which("fish"), "fish is not installed")
    def test_fish(self):
        script = self.folder / "muster.fish"
        script.write_text(self.assert_ok(self.muster("completion", "fish")).out)

        def offers(line):
            done = subprocess.run(
                ["fish", "--no-config", "-c", f"source {script}; complete -C '{line}'"],
                capture_output=True, text=True, cwd=self.folder)
            self.assertEqual(done.stderr, "")
            return [offer.split("\t")[0] for offer in done.stdout.splitlines()]

        self.assertEqual(offers("muster tr"), ["train"])
        self.assertEqual(sorted(offers("muster config ")), ["check", "explain", "schema", "show"])
        self.assertIn("--run-dir", offers("muster train --"))
        self.assertEqual(offers("muster train -s optimizer.l"), ["optimizer.lr="])
        self.assertIn("optimizer.kind=adamw", offers("muster train -s optimizer.kind=adam"))


if __name__ == "__main__":
    main()
