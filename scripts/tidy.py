#!/usr/bin/env python3
"""tidy.py ROOT --build DIR... --cache DIR [--all] [--jobs N]: clang-tidy on changed modules.

Changed means: differs from where this branch left origin/main (or main, or else from the last commit),
or is not committed. A module is a folder with a CMakeLists.txt. With --all: every file.

A clean result is remembered under the hash of everything it follows from that lives in the repository:
the file, every header of ours it includes, .clang-tidy, the compile command and clang-tidy's version. A
new version of a system header is not noticed; delete the cache folder then.
"""

import argparse
import concurrent.futures
import hashlib
import json
import re
import subprocess
import sys
import time
from pathlib import Path

TIDY = "clang-tidy-19"
KEEP_DAYS = 60
# The static analyzer explores a function in so many steps at most; its own default of 225,000 takes four
# times as long over everything else together.
ANALYZER = ["--extra-arg=-Xclang", "--extra-arg=-analyzer-config", "--extra-arg=-Xclang", "--extra-arg=max-nodes=20000"]
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def git(root, *args):
    result = subprocess.run(["git", "-C", str(root), *args], capture_output=True, text=True)
    return result.stdout.splitlines() if result.returncode == 0 else None


def changed_files(root):
    """Paths that differ from the base of this branch, and the name of that base."""
    head = (git(root, "rev-parse", "HEAD") or [""])[0]
    for name in ("origin/main", "main", "HEAD~"):
        base = git(root, "merge-base", "HEAD", name)
        if base and (base[0] != head or name == "HEAD~"):
            break
    else:
        return None, "the beginning"
    changed = git(root, "diff", "--name-only", base[0]) or []
    fresh = git(root, "ls-files", "--others", "--exclude-standard") or []
    return changed + fresh, name


def module_of(root, path):
    """The nearest folder above `path` that has a CMakeLists.txt, relative to root."""
    folder = (root / path).parent
    while folder != root and root in folder.parents:
        if (folder / "CMakeLists.txt").exists():
            return folder.relative_to(root)
        folder = folder.parent
    return Path(".")


def commands(builds):
    """{source file: (build folder, command)}; the first build folder that knows a file counts."""
    found = {}
    for build in builds:
        database = build / "compile_commands.json"
        if not database.exists():
            sys.exit(f"tidy: there is no {database}: configure that preset first")
        for entry in json.loads(database.read_text()):
            found.setdefault(Path(entry["file"]), (build, entry["command"]))
    return found


class Hasher:
    """Hashes of files together with all of our headers they include, computed once each."""

    def __init__(self, root):
        self.root = root
        self.text = {}

    def closure(self, path):
        seen, todo = set(), [path]
        while todo:
            file = todo.pop()
            if file in seen:
                continue
            seen.add(file)
            if file not in self.text:
                self.text[file] = file.read_text(errors="replace")
            for name in INCLUDE.findall(self.text[file]):
                for candidate in (self.root / name, file.parent / name):
                    if candidate.is_file():
                        todo.append(candidate)
                        break
        return sorted(seen)

    def key(self, path, command, common):
        digest = hashlib.sha256(common)
        # Neither the place of the clone nor whether warnings are errors changes what clang-tidy finds.
        digest.update(command.replace(str(self.root), "ROOT").replace(" -Werror ", " ").encode())
        for file in self.closure(path):
            digest.update(str(file.relative_to(self.root)).encode() + b"\0")
            digest.update(self.text[file].encode() + b"\0")
        return digest.hexdigest()


def run_tidy(path, build):
    begin = time.monotonic()
    result = subprocess.run([TIDY, "--quiet", *ANALYZER, "-p", str(build), str(path)], capture_output=True, text=True)
    noise = re.compile(r"^\d+ warnings? (generated|treated)|^Suppressed |^Use -header-filter", re.M)
    errors = "\n".join(line for line in result.stderr.splitlines() if not noise.match(line))
    clean = result.returncode == 0 and "warning:" not in result.stdout
    return clean, (result.stdout + ("" if clean else errors)).strip(), time.monotonic() - begin


def prune(cache):
    oldest = time.time() - KEEP_DAYS * 86400
    for file in cache.iterdir():
        if file.stat().st_mtime < oldest:
            file.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("--build", type=Path, action="append", required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    root = args.root.resolve()

    known = {file: entry for file, entry in commands([build.resolve() for build in args.build]).items()
             if root in file.parents and (root / "build") not in file.parents}
    what = "all"
    if not args.all:
        changed, base = changed_files(root)
        if changed is not None:
            modules = {module_of(root, path) for path in changed if path.endswith((".cc", ".h"))}
            known = {file: entry for file, entry in known.items() if module_of(root, file.relative_to(root)) in modules}
            what = f"modules changed since {base}: {', '.join(sorted(map(str, modules))) or 'none'}"

    version = subprocess.run([TIDY, "--version"], capture_output=True, check=True).stdout
    common = version + " ".join(ANALYZER).encode() + (root / ".clang-tidy").read_bytes()
    hasher = Hasher(root)
    args.cache.mkdir(parents=True, exist_ok=True)
    prune(args.cache)
    todo = []
    for file, (build, command) in sorted(known.items()):
        mark = args.cache / hasher.key(file, command, common)
        if mark.exists():
            mark.touch()  # still in use
        else:
            todo.append((file, build, command, mark))
    print(f"tidy: {len(known)} files ({what}), {len(known) - len(todo)} known to be clean", flush=True)

    # Files that use the precompiled torch header need it to be there.
    for build in {build for _, build, command, _ in todo if "cmake_pch" in command}:
        subprocess.run(["cmake", "--build", str(build), "--target", "muster_torch_pch"], check=True,
                       stdout=subprocess.DEVNULL)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        runs = {pool.submit(run_tidy, file, build): (file, mark) for file, build, _, mark in todo}
        for count, run in enumerate(concurrent.futures.as_completed(runs), 1):
            file, mark = runs[run]
            clean, output, seconds = run.result()
            print(f"[{count}/{len(todo)}] {file.relative_to(root)} {seconds:.1f} s", flush=True)
            if clean:
                mark.touch()
            else:
                failed += 1
                print(output, flush=True)
    if failed:
        sys.exit(f"tidy: {failed} files have findings")


if __name__ == "__main__":
    main()
