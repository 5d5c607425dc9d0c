"""What a wheel puts into bin/ (python/src/start.cc), compiled as CMake does it for a wheel."""

import os
import pathlib
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2] / "python" / "src" / "start.cc"
PYTHON = "python3.11"


class Start(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="muster-start-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.root = pathlib.Path(cls.folder.name).resolve()
        cls.compiled = cls.root / "start"
        subprocess.run([os.environ.get("CXX", "c++"), "-std=c++20", "-Werror", "-Wall", "-Wno-format-truncation",
                        f'-DPYTHON_FOLDER="{PYTHON}"', '-DTORCH_VERSION="2.15.0"', '-DMUSTER_VERSION="0.1"', str(SOURCE), "-o", str(cls.compiled)], check=True)

    def install(self, name, packages):
        """A prefix with bin/muster, and the program that it becomes: it prints its arguments and MUSTER_PYTHON."""
        prefix = self.root / name
        (prefix / "bin").mkdir(parents=True)
        start = prefix / "bin" / "muster"
        start.write_bytes(self.compiled.read_bytes())
        start.chmod(0o755)
        if packages:
            program = prefix / packages / "muster" / "bin" / "muster"
            program.parent.mkdir(parents=True)
            program.write_text('#!/bin/sh\necho "$0|$1|$MUSTER_PYTHON"\nexit 7\n')
            program.chmod(0o755)
        return prefix

    def call(self, program, **environment):
        base = {key: value for key, value in os.environ.items() if key != "MUSTER_PYTHON"}
        return subprocess.run([str(program), "a word"], capture_output=True, text=True, env={**base, **environment})

    def test_it_finds_the_package_where_pip_and_debian_put_it(self):
        for i, packages in enumerate([f"lib/{PYTHON}/site-packages", f"lib64/{PYTHON}/site-packages",
                                      f"lib/{PYTHON}/dist-packages", f"local/lib/{PYTHON}/dist-packages",
                                      "lib/python3/dist-packages"]):
            prefix = self.install(f"prefix-{i}", packages)
            done = self.call(prefix / "bin" / "muster")
            self.assertEqual(done.returncode, 7, packages + done.stderr)
            program, word, python = done.stdout.strip().split("|")
            self.assertEqual(os.path.realpath(program), str(prefix / packages / "muster" / "bin" / "muster"))
            self.assertEqual((word, python), ("a word", ""))

    def test_the_python_beside_it_is_the_programs(self):
        prefix = self.install("venv", f"lib/{PYTHON}/site-packages")
        python = prefix / "bin" / "python3"
        python.symlink_to("/bin/sh")
        self.assertEqual(self.call(prefix / "bin" / "muster").stdout.strip().split("|")[2], str(python))
        named = self.call(prefix / "bin" / "muster", MUSTER_PYTHON="/my/python").stdout
        self.assertEqual(named.strip().split("|")[2], "/my/python")

    def install_worker(self, name, version):
        """A package with the worker, and `torch` of this version beside it; what is in bin/."""
        site = f"lib/{PYTHON}/site-packages"
        prefix = self.install(name, site)
        for place in (prefix / "bin", prefix / site / "muster" / "bin"):
            (place / "muster-worker").write_bytes(self.compiled.read_bytes())
            (place / "muster-worker").chmod(0o755)
        program = prefix / site / "muster" / "bin" / "torch" / "muster-worker"
        program.parent.mkdir()
        program.write_text('#!/bin/sh\necho "$0|$1"\nexit 7\n')
        program.chmod(0o755)
        if version:
            (prefix / site / "torch").mkdir()
            (prefix / site / "torch" / "version.py").write_text(f"from typing import Optional\n\n__version__ = '{version}'\n")
        return prefix

    def test_the_worker_starts_with_the_torch_that_it_was_built_for(self):
        for i, version in enumerate(("2.15.0", "2.15.0+cpu")):
            prefix = self.install_worker(f"good-{i}", version)
            for place in ("bin", f"lib/{PYTHON}/site-packages/muster/bin"):  # of the user, of `muster`
                done = self.call(prefix / place / "muster-worker")
                self.assertEqual(done.returncode, 7, done.stderr)
                self.assertTrue(done.stdout.strip().endswith("muster/bin/torch/muster-worker|a word"), done.stdout)

    def test_another_torch_is_named(self):
        for i, (version, sentence) in enumerate((
                ("2.9.1+cu130", "muster-train 0.1 was built for torch 2.15.0, and this environment has 2.9.1: pip install "
                                "torch==2.15.0, or install a muster-train that was built for 2.9.1\n"),
                ("2.15.0a0", "this environment has 2.15.0a0"),
                ("", "muster's training loop needs torch 2.15.0: pip install torch==2.15.0\n"))):
            prefix = self.install_worker(f"other-{i}", version)
            done = self.call(prefix / "bin" / "muster-worker")
            self.assertEqual(done.returncode, 8, done.stderr)
            self.assertIn(sentence, done.stderr)
            self.assertEqual(self.call(prefix / "bin" / "muster").returncode, 7, "which needs no torch")

    def test_a_package_that_is_not_there(self):
        done = self.call(self.install("nothing", "") / "bin" / "muster")
        self.assertEqual(done.returncode, 1)
        self.assertIn("install it again", done.stderr)


if __name__ == "__main__":
    unittest.main()
