#!/usr/bin/env python3
"""check_docs.py on small trees, with a muster program made of shell."""

import tempfile
import unittest
from pathlib import Path

from check_docs import Checker, slug

MUSTER = """#!/bin/sh
case "$*" in
  --help) printf 'usage: muster COMMAND\\n\\nCommands:\\n  train   trains\\n  config  shows\\n' ;;
  "train --help") printf 'usage: muster train JOB\\n  --help  explain this command\\n  --json  lines\\n  -s KEY=VALUE\\n' ;;
  "config --help") printf 'Commands:\\n  check  checks\\n' ;;
  "config check --help") printf 'usage: muster config check JOB\\n' ;;
  "train bad.yaml") echo "bad.yaml: no such file"; exit 3 ;;
  train*) printf 'step 1\\nstep 2\\ndone\\n' ;;
esac
"""
DEV = "#!/bin/sh\nprintf '  build [preset]  builds\\n  run -- x  runs\\n'\n"


class CheckDocsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve()
        self.files = []
        self.write("CMakePresets.json", '{"configurePresets": [{"name": "release"}, {"name": "base", "hidden": true}]}')
        self.write("dev", DEV).chmod(0o755)
        self.write("examples/lenet.yaml", "")
        self.write("docs/other.md", "# Other page\n\n## Twice\n\n## Twice\n")
        self.programs = self.root / "bin"
        self.write("bin/muster", MUSTER, tracked=False).chmod(0o755)

    def write(self, name, text, tracked=True):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if tracked:
            self.files.append(name)
        return path

    def check(self, text, programs=True):
        self.write("README.md", text)
        checker = Checker(self.root, self.programs if programs else None, self.files)
        self.counts = checker.counts
        return checker.check()

    def good(self, text):
        self.assertEqual(self.check(text), [])

    def bad(self, text, *parts):
        problems = self.check(text)
        self.assertEqual(len(problems), 1, problems)
        for part in parts:
            self.assertIn(part, problems[0])

    def test_links(self):
        self.good("# Here\n[a](docs/other.md) [b](docs/other.md#twice-1) [c](#here) [d](https://x.org) [e](docs)\n")
        self.bad("[a](docs/none.md)", "README.md:1", "leads nowhere")
        self.bad("\n[a](docs/other.md#thrice)", "README.md:2", "no heading")

    def test_links_in_code_do_not_count(self):
        self.good("`[a](nowhere)`\n```\n[a](nowhere)\n```\n")

    def test_slug(self):
        self.assertEqual(slug(" What `muster` does, and why"), "what-muster-does-and-why")

    def test_a_command_must_exist(self):
        self.good("```console\n$ muster train examples/lenet.yaml --json -s a=b\n$ muster config check examples/lenet.yaml\n```\n")
        self.bad("```console\n$ muster tarin x\n```\n", "README.md:2", "has no command 'tarin'")
        self.bad("```console\n$ muster config chekc x\n```\n", "has no command 'chekc'")
        self.bad("```console\n$ muster train x --jsno\n```\n", "does not know --jsno")
        self.bad("```console\n$ muster train examples/none.yaml\n```\n", "is not there")

    def test_output_lines_are_no_commands(self):
        self.good("```console\n$ muster train x\nfrobnicate\n```\n")

    def test_inline_commands(self):
        self.good("Use `muster train JOB`, `muster config`, `muster: 1` and `./dev build release`.")
        self.bad("Use `muster tarin`.", "has no command")
        self.bad("Use `./dev biuld`.", "./dev has no command")
        self.bad("Use `./dev build relaese`.", "no preset")

    def test_pipes_environment_and_continuation(self):
        self.good("```console\n$ A=1 muster train x \\\n    --json | head && ./dev run -- muster train y\n```\n")
        self.bad("```console\n$ ls | frobnicate\n```\n", "frobnicate")
        self.bad("```console\n$ ./dev run -- muster tarin y\n```\n", "tarin")

    def test_shell_blocks_are_commands_too(self):
        self.bad("```sh\n# a comment\nfrobnicate\n```\n", "README.md:3")

    def test_presets(self):
        self.good("```console\n$ cmake --preset release\n```\n")
        self.bad("```console\n$ cmake --preset base\n```\n", "no preset 'base'")

    def test_run_blocks_are_run(self):
        self.good("<!-- run -->\n```console\n$ muster train examples/lenet.yaml\n$ ls examples/lenet.yaml\n```\n")
        self.assertEqual(self.counts["blocks run"], 1)
        self.bad("<!-- run -->\n```console\n$ muster train bad.yaml\n```\n", "left with 3, not 0")
        self.good("<!-- run exit=3 -->\n```console\n$ muster train bad.yaml\n```\n")
        self.bad("<!-- run timeout=1 -->\n```console\n$ time tail -f /dev/null\n```\n", "longer than 1 s")

    def test_output_is_compared_where_asked(self):
        self.good("<!-- run match -->\n```console\n$ muster train x\nstep 1\n...\ndone\n```\n")
        self.bad("<!-- run match -->\n```console\n$ muster train x\nstep 2\n```\n", "did not print 'step 2'")

    def test_without_the_program_it_says_what_was_left_out(self):
        self.assertEqual(self.check("<!-- run -->\n```console\n$ muster tarin\n```\n", programs=False), [])
        self.assertEqual(self.counts["not checked"], 2)


if __name__ == "__main__":
    unittest.main()
