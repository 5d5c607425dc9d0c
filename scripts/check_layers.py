#!/usr/bin/env python3
"""check_layers.py ROOT: who may include whom.

A module may use those above it in MODULES. So a reader can understand any module without those below it,
and the parts without libtorch stay quick to build and to start. Besides:
- libtorch's headers are seen only by the modules marked so, by tools/muster-worker, by bench/, tests/ and
  examples/, and by files named *_torch_test.cc or *_torch_benchmark.cc;
- a module's CMakeLists.txt names in DEPS exactly the modules its files include;
- a folder inside a module is named in its CMakeLists.txt (FOLDERS) or has one of its own, or it would not be built;
- *_testing.h, and the test libraries, are for tests;
- no source file is empty, but for __init__.py: a test file that lost its lines fails nowhere else.
"""

import re
import sys
from pathlib import Path

# Top to bottom: (name, may see libtorch).
MODULES = [("base", False), ("config", False), ("store", False), ("exact", False), ("sync", False), ("lab", False), ("comm", False), ("roster", False),
           ("ps", False), ("ckpt", False), ("pt2", False), ("data", False), ("track", False), ("copy", False), ("parts", False), ("optim", False), ("model", True),
           ("train", True), ("own_loop", True), ("launch", False)]
ORDER = {name: place for place, (name, _) in enumerate(MODULES)}
TORCH_MODULES = {name for name, torch in MODULES if torch}
# Folders beside the modules, which may use all of them: may they see libtorch?
TORCH_FOLDERS = {"tools/muster": False, "tools/muster-launch": False, "tools/muster-server": False, "tools/muster-data": False, "tools/muster-worker": True, "bench": True, "tests": True, "examples": True}

SOURCES = ("muster", "tools", "bench", "tests", "examples", "python", "scripts")

INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')
TORCH_HEADER = re.compile(r"^(torch|ATen|c10|caffe2)/")
TEST_LIBRARY = re.compile(r"^(gtest|gmock|benchmark)/")
FOR_TESTS = re.compile(r"_(test|benchmark|fuzz)\.cc$|_testing\.(h|cc)$")
TORCH_TEST = re.compile(r"_torch_(test|benchmark)\.cc$")
MODULE_CALL = re.compile(r"muster_module\(\s*(\w+)([^)]*)\)")


def includes(path):
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1) == "<", match.group(2)


def declared(cmake):
    """(name, TORCH?, DEPS) of a module's CMakeLists.txt, or None."""
    text = re.sub(r"#.*", "", cmake.read_text())
    match = MODULE_CALL.search(text)
    if not match:
        return None
    words = match.group(2).split()
    deps = []
    if "DEPS" in words:
        for word in words[words.index("DEPS") + 1:]:
            if word.isupper():
                break
            deps.append(word)
    return match.group(1), "TORCH" in words, deps


def check_file(path, where, module, may_torch):
    """Problems of one file, and the modules it includes. module: its module's name, or None."""
    problems, used = [], {}
    for_tests = bool(FOR_TESTS.search(path.name)) or where.parts[0] in ("tests", "bench")
    for number, angled, header in includes(path):
        place = f"{where}:{number}"
        if TORCH_HEADER.match(header) and not (may_torch or TORCH_TEST.search(path.name)):
            problems.append(f"{place}: <{header}> is libtorch's, which {where.parent} must not see; a test "
                            "that compares with libtorch is named *_torch_test.cc")
        if angled and TEST_LIBRARY.match(header) and not for_tests:
            problems.append(f"{place}: <{header}> is for tests and benchmarks")
        if header.endswith("_testing.h") and not for_tests:
            problems.append(f"{place}: {header} is for tests")
        if angled:
            continue
        parts = header.split("/")
        if parts[0] == "muster" and len(parts) > 2:
            if parts[1] not in ORDER:
                problems.append(f"{place}: there is no module '{parts[1]}' in scripts/check_layers.py")
            else:
                used.setdefault(parts[1], place)
        elif module:
            problems.append(f'{place}: write "muster/{module}/{header}", not "{header}"')
    if module:
        for other, place in used.items():
            if ORDER[other] > ORDER[module]:
                problems.append(f"{place}: {module} must not use {other}, which is below it")
    if not may_torch and not TORCH_TEST.search(path.name):
        for other, place in used.items():
            if other in TORCH_MODULES and other != module:
                problems.append(f"{place}: {where.parent} must not see libtorch, and {other} does")
    return problems, used


def check_module(root, folder):
    name = folder.name
    if name not in ORDER:
        return [f"muster/{name}: add the module to MODULES in scripts/check_layers.py, in its place"], 0
    problems, library, everything = [], {}, {}
    files = sorted(folder.rglob("*.cc")) + sorted(folder.rglob("*.h"))
    for path in files:
        found, used = check_file(path, path.relative_to(root), name, name in TORCH_MODULES)
        problems += found
        everything.update(used)
        if not FOR_TESTS.search(path.name):
            library.update(used)
    cmake = folder / "CMakeLists.txt"
    call = declared(cmake) if cmake.exists() else None
    if call:
        own, torch, deps = call
        place = cmake.relative_to(root)
        if own != name:
            problems.append(f"{place}: muster_module({own}) in the folder {name}")
        if torch != (name in TORCH_MODULES):
            problems.append(f"{place}: TORCH here and MODULES in scripts/check_layers.py disagree")
        words = re.findall(r"[\w-]+", cmake.read_text())
        for inside in sorted({path.parent.relative_to(folder).parts[0] for path in files if path.parent != folder}):
            if inside not in words and not (folder / inside / "CMakeLists.txt").exists():
                problems.append(f"{place}: its files in {inside}/ are not built: name it in FOLDERS")
        for dep in deps:
            if dep not in ORDER or ORDER[dep] >= ORDER[name]:
                problems.append(f"{place}: DEPS {dep} is not a module above {name}")
            elif dep not in everything:
                problems.append(f"{place}: DEPS {dep}, but no file of {name} includes it")
        for used, where in sorted(library.items()):
            if used != name and used not in deps:
                problems.append(f"{where}: includes {used}, which DEPS in {place} does not name")
    return problems, len(files)


def check_empty(root):
    problems = []
    for path in sorted(path for folder in SOURCES for path in (root / folder).rglob("*")):
        if path.suffix in (".cc", ".h", ".py") and path.name != "__init__.py" and not path.read_bytes().strip():
            problems.append(f"{path.relative_to(root)}: the file is empty; restore it (git log -- {path.relative_to(root)}) or delete it")
    return problems


def check(root):
    """All problems, and how many files were looked at."""
    problems, count = check_empty(root), 0
    for folder in sorted(path for path in (root / "muster").iterdir() if path.is_dir()):
        found, files = check_module(root, folder)
        problems += found
        count += files
    for name, may_torch in TORCH_FOLDERS.items():
        for path in sorted((root / name).rglob("*")):
            if path.suffix in (".cc", ".h"):
                found, _ = check_file(path, path.relative_to(root), None, may_torch)
                problems += found
                count += 1
    return problems, count


def main():
    problems, count = check(Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve())
    if problems:
        print("\n".join(problems))
        sys.exit(f"layers: {len(problems)} problems in {count} files")
    print(f"layers: {count} files")


if __name__ == "__main__":
    main()
