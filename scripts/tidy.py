#!/usr/bin/env python3
"""tidy.py ROOT --build DIR... --cache DIR [--all] [--minutes N] [--jobs N]: clang-tidy on changed modules.

Changed means: differs from where this branch left origin/main (or main, or else from the last commit),
or is not committed. A module is a folder with a CMakeLists.txt. With --all: every file.

A clean result is remembered under the hash of everything it follows from that lives in the repository:
the file, every header of ours it includes, .clang-tidy, the compile command and clang-tidy's version. A
new version of a system header is not noticed; delete the cache folder then.

With --minutes, no file is begun after that time, and the last line says how many were left. The files
that changed last come first, so the time goes to what is new, and what was looked at is remembered, so
the next run gets further. Which commits came since somebody last looked does not matter, nor whether
this clone knows a main branch: what has not been seen clean is looked at.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

TIDY = "clang-tidy-19"
COMPILER = "clang++-19"
LLVM_HEADERS = Path("/usr/lib/llvm-19/include")
PLUGIN = Path(__file__).resolve().with_name("tidy_plugin.cc")
KEEP_DAYS = 60
# The static analyzer explores a function in so many steps at most; its own default of 225,000 takes four
# times as long over everything else together.
ANALYZER = ["--extra-arg=-Xclang", "--extra-arg=-analyzer-config", "--extra-arg=-Xclang", "--extra-arg=max-nodes=20000"]
PRECOMPILED = re.compile(r"-include-pch -Xclang (\S+)")
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


def newest_first(root, files, closure):
    """The files, those that changed last in front: by the youngest of a file and our headers it includes,
    then by its own age. A file that is not committed as it is counts as changed now."""
    changed_at = {}
    date = 0
    for line in git(root, "log", "--format=%x00%ct", "--name-only", "--no-renames") or []:
        if line.startswith("\0"):
            date = int(line[1:])
        elif line:
            changed_at.setdefault(root / line, date)
    for line in git(root, "status", "--porcelain", "--no-renames", "--untracked-files=all") or []:
        changed_at[root / line[3:]] = sys.maxsize
    def age(file):
        return max(changed_at.get(each, 0) for each in closure(file)), changed_at.get(file, 0)
    return sorted(sorted(files), key=age, reverse=True)


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
    """Hashes of files together with all of our headers they include; each is read once."""

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


def plugin_options(cache, version):
    """What makes clang-tidy load tidy_plugin.cc, compiled into the cache; nothing where that cannot be."""
    library = cache / f"plugin-{hashlib.sha256(PLUGIN.read_bytes() + version).hexdigest()}.so"
    if not library.exists():
        if not (LLVM_HEADERS / "clang-tidy").exists() or not (LLVM_HEADERS / "llvm").exists():
            print(f"tidy: no headers of clang-tidy in {LLVM_HEADERS}, so this takes five times as long (./dev setup)")
            return []
        fresh = library.with_suffix(f".{os.getpid()}")
        subprocess.run([COMPILER, "-std=c++17", "-fno-rtti", "-O1", "-fPIC", "-shared", "-isystem", str(LLVM_HEADERS),
                        str(PLUGIN), "-o", str(fresh)], check=True)
        fresh.rename(library)
    library.touch()  # still in use
    return [f"--load={library}", "--checks=muster-ours-only"]


def run_tidy(root, path, build, options):
    begin = time.monotonic()
    # In root, because the HeaderFilterRegex that counts is that of the current directory's .clang-tidy.
    result = subprocess.run([TIDY, "--quiet", *options, *ANALYZER, "-p", str(build), str(path)], cwd=root,
                            capture_output=True, text=True)
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
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    root = args.root.resolve()

    builds = [build.resolve() for build in args.build]
    # CMake notices files that are new or gone only when something is built, and the headers that the build
    # generates must be there.
    for build in builds:
        if (build / "CMakeCache.txt").exists():
            subprocess.run(["cmake", "--build", str(build), "--target", "muster_generated"], check=True,
                           stdout=subprocess.DEVNULL)
    known = {file: entry for file, entry in commands(builds).items()
             if root in file.parents and (root / "build") not in file.parents}
    what = "all"
    if not args.all:
        changed, base = changed_files(root)
        if changed is not None:
            modules = {module_of(root, path) for path in changed if path.endswith((".cc", ".h"))}
            known = {file: entry for file, entry in known.items() if module_of(root, file.relative_to(root)) in modules}
            what = f"modules changed since {base}: {', '.join(sorted(map(str, modules))) or 'none'}"

    args.cache.mkdir(parents=True, exist_ok=True)
    prune(args.cache)
    version = subprocess.run([TIDY, "--version"], capture_output=True, check=True).stdout
    options = plugin_options(args.cache, version)
    common = version + " ".join(ANALYZER).encode() + (root / ".clang-tidy").read_bytes()
    hasher = Hasher(root)
    todo = []
    for file in newest_first(root, known, hasher.closure):
        build, command = known[file]
        mark = args.cache / hasher.key(file, command, common)
        if mark.exists():
            mark.touch()  # still in use
        else:
            todo.append((file, build, command, mark))
    print(f"tidy: {len(known)} files ({what}), {len(known) - len(todo)} known to be clean", flush=True)

    # A precompiled header that a file uses must be there. Ninja knows each by its path in the build folder.
    headers = {(build, pch) for _, build, command, _ in todo for pch in PRECOMPILED.findall(command)}
    for build in {build for build, _ in headers}:
        targets = [os.path.relpath(pch, build) for of, pch in sorted(headers) if of == build]
        subprocess.run(["cmake", "--build", str(build), "-j", str(args.jobs), "--target", *targets], check=True,
                       stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60 * args.minutes

    def look(file, build, command, mark):
        if time.monotonic() > deadline:
            return None
        found = run_tidy(root, file, build, options)
        # Somebody may have edited the file meanwhile; then this says nothing about what the mark stands for.
        if found[0] and mark.name == Hasher(root).key(file, command, common):
            mark.touch()
        return found

    failed = looked = 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        runs = {pool.submit(look, *each): each[0] for each in todo}
        for run in concurrent.futures.as_completed(runs):
            if run.result() is None:
                continue
            clean, output, seconds = run.result()
            looked += 1
            print(f"[{looked}/{len(todo)}] {runs[run].relative_to(root)} {seconds:.1f} s", flush=True)
            if not clean:
                failed += 1
                print(output, flush=True)
    if looked < len(todo):
        print(f"tidy: {args.minutes:g} minutes are over: {len(todo) - looked} of {len(known)} files, those that changed "
              "longest ago, were not looked at; the next run goes on there, ./dev check --all tidy to the end")
    if failed:
        sys.exit(f"tidy: {failed} files have findings")


if __name__ == "__main__":
    main()
