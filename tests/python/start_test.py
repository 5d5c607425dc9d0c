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
                        f'-DPYTHON_FOLDER="{PYTHON}"', str(SOURCE), "-o", str(cls.compiled)], check=True)

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

    def test_a_package_that_is_not_there(self):
        done = self.call(self.install("nothing", "") / "bin" / "muster")
        self.assertEqual(done.returncode, 1)
        self.assertIn("install it again", done.stderr)


if __name__ == "__main__":
    unittest.main()
