#!/usr/bin/env python3
"""unpack_libtorch.py on a small wheel."""

import tempfile
import unittest
import zipfile
from pathlib import Path

from unpack_libtorch import unpack

TORCH_H = "torch/include/torch/csrc/api/include/torch/torch.h"
KEPT = [TORCH_H, "torch/include/ATen/ATen.h", "torch/lib/libtorch_cpu.so", "torch/lib/libc10.so",
        "torch/lib/libgomp.so.1", "nvidia/cu13/lib/libcudart.so.13", "torch-2.15.0.dist-info/licenses/LICENSE"]
LEFT = ["torch/__init__.py", "torch/include/fmt/format.h", "torch/include/google/protobuf/any.h",
        "torch/lib/libtorch_cuda.so", "torch/lib/libc10_cuda.so", "nvidia/cu13/lib/libcudart_static.a"]


class UnpackTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = Path(folder.name)

    def wheel(self, names):
        path = self.work / "torch.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for name in names:
                archive.writestr(name, name)
        return path

    def test_unpacks_what_a_program_needs_and_nothing_else(self):
        prefix, shown = self.work / "prefix", []
        unpack(prefix, [self.wheel(KEPT + LEFT)], lambda done, total: shown.append((done, total)))
        files = [str(path.relative_to(prefix)) for path in prefix.rglob("*") if path.is_file()]
        self.assertEqual(sorted(files), sorted(KEPT))
        self.assertEqual(shown[-1][0], shown[-1][1])

    def test_a_wheel_without_the_library_is_refused(self):
        with self.assertRaisesRegex(FileNotFoundError, "libtorch_cpu"):
            unpack(self.work / "prefix", [self.wheel([TORCH_H])], lambda done, total: None)


if __name__ == "__main__":
    unittest.main()
