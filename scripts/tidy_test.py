#!/usr/bin/env python3
"""What tidy.py decides: which files changed, and when a remembered result still holds."""

import subprocess
import tempfile
import unittest
from pathlib import Path

from tidy import Hasher, changed_files, module_of


class TidyTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve()
        self.write("muster/base/CMakeLists.txt", "")
        self.write("muster/base/a.cc", '#include "muster/base/a.h"\n')
        self.write("muster/base/a.h", '#include <string>\n#include "muster/base/b.h"\n')
        self.write("muster/base/b.h", "int b;\n")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def git(self, *args):
        subprocess.run(["git", "-C", str(self.root), "-c", "user.name=test", "-c", "user.email=test@localhost",
                        "-c", "init.defaultBranch=main", *args], check=True, capture_output=True)

    def commit(self, message):
        self.git("add", "-A")
        self.git("commit", "-q", "--no-verify", "-m", message)

    def key(self, command="c++ -c a.cc", common=b"version"):
        return Hasher(self.root).key(self.root / "muster/base/a.cc", command, common)

    def test_the_key_follows_from_everything_that_matters(self):
        keys = [self.key(), self.key("c++ -O1 -c a.cc"), self.key(common=b"another version")]
        self.write("muster/base/b.h", "long b;\n")  # included by an included header
        keys.append(self.key())
        self.assertEqual(len(set(keys)), len(keys))

    def test_the_key_does_not_change_without_reason(self):
        before = self.key(f"c++ -I{self.root} -c a.cc")
        self.write("muster/base/unrelated.h", "")
        self.assertEqual(self.key("c++ -IROOT -c a.cc"), before)  # nor with the place of the clone

    def test_headers_that_include_each_other_are_read_once(self):
        self.write("muster/base/b.h", '#include "muster/base/a.h"\n')
        self.assertEqual(len(Hasher(self.root).closure(self.root / "muster/base/a.cc")), 3)

    def test_a_module_is_the_nearest_folder_with_a_cmake_list(self):
        self.write("muster/base/deep/c.cc", "")
        self.assertEqual(module_of(self.root, "muster/base/deep/c.cc"), Path("muster/base"))
        self.assertEqual(module_of(self.root, "README.md"), Path("."))

    def test_changed_on_a_branch_means_since_main(self):
        self.git("init", "-q")
        self.commit("first")
        self.git("checkout", "-q", "-b", "work")
        self.write("muster/base/b.h", "long b;\n")
        self.commit("second")
        self.write("muster/base/a.h", "\n")   # not committed
        self.write("muster/base/new.cc", "")  # not even added
        changed, base = changed_files(self.root)
        self.assertEqual(base, "main")
        self.assertEqual(sorted(changed), ["muster/base/a.h", "muster/base/b.h", "muster/base/new.cc"])

    def test_changed_on_main_means_since_the_last_commit(self):
        self.git("init", "-q")
        self.commit("first")
        self.write("muster/base/b.h", "long b;\n")
        self.commit("second")
        changed, base = changed_files(self.root)
        self.assertEqual((changed, base), (["muster/base/b.h"], "HEAD~"))

    def test_without_a_past_everything_is_changed(self):
        self.git("init", "-q")
        self.commit("first")
        self.assertIsNone(changed_files(self.root)[0])


if __name__ == "__main__":
    unittest.main()
