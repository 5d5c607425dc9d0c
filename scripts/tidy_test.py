#!/usr/bin/env python3
"""What tidy.py decides: which files changed, and when a remembered result still holds."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from tidy import LLVM_HEADERS, TIDY, Hasher, changed_files, module_of, newest_first, plugin_options, run_tidy


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

    def git(self, *args, env=None):
        subprocess.run(["git", "-C", str(self.root), "-c", "user.name=test", "-c", "user.email=test@localhost",
                        "-c", "init.defaultBranch=main", *args], check=True, capture_output=True, env=env)

    def commit(self, message, date=None):
        self.git("add", "-A")
        env = {**os.environ, "GIT_COMMITTER_DATE": f"@{date} +0000"} if date else None
        self.git("commit", "-q", "--no-verify", "-m", message, env=env)

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

    def order(self):
        files = [path for path in self.root.glob("muster/*/*.cc")]
        return [path.name for path in newest_first(self.root, files, Hasher(self.root).closure)]

    def test_what_changed_last_comes_first_whatever_was_committed_after_it(self):
        self.git("init", "-q")
        self.commit("first", date=1000)
        self.write("muster/base/old.cc", "")
        self.commit("second", date=2000)
        self.write("muster/base/new.cc", "")
        self.commit("third", date=3000)
        self.write("README.md", "words")
        self.commit("only words", date=4000)
        self.assertEqual(self.order(), ["new.cc", "old.cc", "a.cc"])
        self.write("muster/base/b.h", "long b;\n")  # included by what a.cc includes
        self.commit("a header", date=5000)
        self.assertEqual(self.order(), ["a.cc", "new.cc", "old.cc"])
        self.write("muster/base/old.cc", "// not committed\n")
        self.write("muster/base/fresh.cc", "// nor even added\n")
        self.assertEqual(self.order(), ["fresh.cc", "old.cc", "a.cc", "new.cc"])

    def test_without_git_there_is_still_an_order(self):
        self.assertEqual(self.order(), ["a.cc"])

    def test_without_a_past_everything_is_changed(self):
        self.git("init", "-q")
        self.commit("first")
        self.assertIsNone(changed_files(self.root)[0])


@unittest.skipUnless(shutil.which(TIDY) and (LLVM_HEADERS / "clang-tidy").exists(),
                     f"{TIDY} and the headers of libclang-19-dev are not installed")
class PluginTest(unittest.TestCase):
    """Findings in our files are the same with the plugin as without; system headers are not looked at."""

    def test_it_keeps_our_findings_and_leaves_system_headers_alone(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        root = Path(folder.name).resolve()
        (root / "system").mkdir()
        (root / "system/theirs.h").write_text("#pragma once\ninline int* theirs() { return 0; }\n"
                                              "#define TEST_LIKE(name) int* name()\n")
        (root / "ours.h").write_text("#pragma once\ninline int* ours() { return 0; }\n")
        (root / "a.cc").write_text('#include <theirs.h>\n#include "ours.h"\n'
                                   "namespace std { struct Added { int* p = 0; }; }\n"
                                   "namespace { int* hidden() { return 0; } }\n"
                                   "template <typename T> T* pattern() { return 0; }\n"
                                   "int* all() { auto f = [] { return pattern<int>(); }; hidden(); return f(); }\n"
                                   "TEST_LIKE(by_macro) { return 0; }\n")
        (root / ".clang-tidy").write_text("Checks: '-*,modernize-use-nullptr'\nHeaderFilterRegex: '.*'\n"
                                          "SystemHeaders: true\n")
        (root / "compile_commands.json").write_text(json.dumps([{
            "directory": str(root), "file": str(root / "a.cc"),
            "command": f"clang++-19 -std=c++20 -isystem {root}/system -I{root} -c {root}/a.cc"}]))

        def found(options):
            output = run_tidy(root, root / "a.cc", root, options)[1]
            return set(re.findall(r"(\w+\.\w+:\d+):\d+: (?:warning|error): use nullptr", output))

        version = subprocess.run([TIDY, "--version"], capture_output=True, check=True).stdout
        ours = {"ours.h:2", "a.cc:3", "a.cc:4", "a.cc:5", "a.cc:7"}
        self.assertEqual(found([]), ours | {"theirs.h:2"})
        self.assertEqual(found(plugin_options(root, version)), ours)


if __name__ == "__main__":
    unittest.main()
