#!/usr/bin/env python3
"""Each rule of check_layers.py, on a small tree that breaks just that rule."""

import tempfile
import unittest
from pathlib import Path

from check_layers import check


class CheckLayersTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.write("muster/base/CMakeLists.txt", "muster_module(base LIBS fmt::fmt)")
        self.write("muster/data/CMakeLists.txt", "muster_module(data DEPS base LIBS ZLIB::ZLIB)")
        self.write("muster/model/CMakeLists.txt", "muster_module(model TORCH DEPS base data)")
        self.write("muster/base/hash.h", "#include <string>\n")
        self.write("muster/data/order.h", '#include "muster/base/hash.h"\n')
        self.write("muster/model/zoo.cc", '#include <torch/torch.h>\n#include "muster/base/hash.h"\n#include "muster/data/order.h"\n')

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def expect(self, *parts):
        problems, _ = check(self.root)
        self.assertEqual(len(problems), 1, problems)
        for part in parts:
            self.assertIn(part, problems[0])

    def test_a_right_tree_is_clean(self):
        problems, count = check(self.root)
        self.assertEqual(problems, [])
        self.assertEqual(count, 3)

    def test_a_module_must_not_use_one_below(self):
        self.write("muster/base/bad_test.cc", '#include <string>\n#include "muster/data/order.h"\n')
        self.expect("muster/base/bad_test.cc:2", "base must not use data")

    def test_torch_is_only_for_torch_modules(self):
        self.write("muster/data/bad.cc", "#include <ATen/ATen.h>\n")
        self.expect("muster/data/bad.cc:1", "libtorch")

    def test_a_torch_test_may_compare_with_torch(self):
        self.write("muster/data/order_torch_test.cc", "#include <torch/torch.h>\n")
        self.assertEqual(check(self.root)[0], [])

    def test_the_command_must_not_use_a_torch_module(self):
        self.write("tools/muster/main.cc", '#include "muster/model/zoo.h"\n')
        self.expect("tools/muster/main.cc:1", "must not see libtorch")

    def test_the_worker_may(self):
        self.write("tools/muster-worker/main.cc", '#include "muster/model/zoo.h"\n')
        self.assertEqual(check(self.root)[0], [])

    def test_a_folder_inside_a_module_must_be_built(self):
        self.write("muster/data/formats/csv.cc", '#include "muster/base/hash.h"\n')
        self.expect("muster/data/CMakeLists.txt", "formats/", "FOLDERS")
        self.write("muster/data/CMakeLists.txt", "muster_module(data FOLDERS formats DEPS base)")
        self.assertEqual(check(self.root)[0], [])

    def test_deps_must_name_what_is_included(self):
        self.write("muster/data/CMakeLists.txt", "muster_module(data)")
        self.expect("muster/data/order.h:1", "includes base")

    def test_deps_must_be_used(self):
        self.write("muster/config/node.h", "#include <string>\n")
        self.write("muster/data/CMakeLists.txt", "muster_module(data DEPS base config)")
        self.expect("DEPS config", "no file of data")

    def test_deps_must_be_above(self):
        self.write("muster/base/CMakeLists.txt", "muster_module(base DEPS data)")
        self.expect("DEPS data is not a module above base")

    def test_torch_mark_must_agree(self):
        self.write("muster/data/CMakeLists.txt", "muster_module(data TORCH DEPS base)")
        self.expect("TORCH here")

    def test_testing_headers_are_for_tests(self):
        self.write("muster/data/a.cc", '#include "muster/data/order_testing.h"\n')
        self.write("muster/data/a_test.cc", '#include "muster/data/order_testing.h"\n')
        self.expect("muster/data/a.cc:1", "is for tests")

    def test_a_library_must_not_include_gtest(self):
        self.write("muster/data/a.cc", "#include <gtest/gtest.h>\n")
        self.expect("muster/data/a.cc:1", "for tests")

    def test_includes_are_written_whole(self):
        self.write("muster/data/a.cc", '#include "order.h"\n')
        self.expect('write "muster/data/order.h"')

    def test_an_unknown_module_is_noticed(self):
        self.write("muster/extra/a.h", "#include <string>\n")
        self.expect("muster/extra", "add the module")

    def test_an_empty_file_is_noticed(self):
        for name in ("muster/data/order_test.cc", "muster/base/hash.h", "scripts/check_shell.py", "tests/cli/run_test.py"):
            with self.subTest(name):
                self.write(name, "\n")
                self.expect(name, "is empty")
                self.write(name, "#include <string>\n" if name.startswith("muster") else "pass\n")

    def test_an_empty_init_file_is_fine(self):
        self.write("python/muster/__init__.py", "")
        self.assertEqual(check(self.root)[0], [])


if __name__ == "__main__":
    unittest.main()
