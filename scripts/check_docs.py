#!/usr/bin/env python3
"""check_docs.py ROOT [--programs DIR]: every link and every command in the *.md files.

Links: a relative link must name a file or folder that is there, and its #anchor a heading in it.

Commands: lines that begin with "$ " in a ```console block, and `muster ...` and `./dev ...` in running
text. A command must exist: a subcommand and its options stand in the help of the program, a preset in
CMakePresets.json, a file of ours is there. Any other program must be one of COMMON.

A console block right after <!-- run --> is really run, from top to bottom, in a temporary folder with
links to the repository's files, and DIR first on PATH. Each command must exit with 0, the last one with
N after <!-- run exit=N -->; `timeout=SECONDS` (120) limits each. With <!-- run match --> the lines
between commands must come in the output, in this order; a line "..." stands for any number of lines.

What needs the muster program is left out, and that is said, when it is not built.
"""

import argparse
import functools
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

COMMON = set("apt-get cat cd cmake cp ctest curl diff docker echo export git gunzip head kill ls mkdir mv "
             "ninja pip pkill python python3 rm sed sleep sort source sudo tail tar tensorboard time unzip uv wait zcat".split())
OUR_PROGRAMS = ("muster", "./dev")
LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
FENCE = re.compile(r"^\s*(```+|~~~+)\s*([\w-]*)")
RUN = re.compile(r"^\s*<!--\s*run\b([^>]*)-->\s*$")


def slug(heading):
    """GitHub's anchor for a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    text = re.sub(r"[^\w\- ]", "", text)
    return text.replace(" ", "-")


class Block:
    def __init__(self, line, language, run):
        self.line, self.language, self.run, self.lines = line, language, run, []

    def commands(self):
        """(line number, command, lines of output that follow it)."""
        found = []
        for offset, text in enumerate(self.lines):
            number = self.line + 1 + offset
            if found and found[-1][1].endswith("\\"):
                found[-1][1] = found[-1][1][:-1].rstrip() + " " + re.sub(r"^\s*(> )?\s*", "", text)
            elif self.language == "console" and text.startswith("$ "):
                found.append([number, text[2:], []])
            elif self.language in ("sh", "bash", "shell") and text.strip() and not text.lstrip().startswith("#"):
                found.append([number, text.strip(), []])
            elif found and self.language == "console":
                found[-1][2].append(text)
        return found


class Document:
    """A markdown file taken apart: anchors, links, inline code and fenced blocks."""

    def __init__(self, path):
        self.path, self.anchors, self.links, self.code, self.blocks = path, set(), [], [], []
        fence, block, run = None, None, None
        for number, line in enumerate(path.read_text().splitlines(), 1):
            mark = FENCE.match(line)
            if fence:
                if mark and mark.group(1).startswith(fence) and not mark.group(2):
                    fence = None
                else:
                    block.lines.append(line)
                continue
            if mark:
                fence, block = mark.group(1), Block(number, mark.group(2), run)
                self.blocks.append(block)
                run = None
                continue
            asked = RUN.match(line)
            if asked:
                run = asked.group(1)
                continue
            if line.strip() and run is not None:
                run = None
            if line.startswith("#"):
                self.add_anchor(slug(line.lstrip("#")))
            self.anchors.update(re.findall(r'<a (?:id|name)="([^"]+)"', line))
            self.code += [(number, code) for code in re.findall(r"`([^`]+)`", line)]
            bare = re.sub(r"`[^`]*`", "", line)
            self.links += [(number, link) for link in LINK.findall(bare)]

    def add_anchor(self, name):
        unique, count = name, 0
        while unique in self.anchors:
            count += 1
            unique = f"{name}-{count}"
        self.anchors.add(unique)


class Checker:
    def __init__(self, root, programs=None, files=None):
        self.root, self.problems, self.counts = root, [], {"links": 0, "commands": 0, "blocks run": 0, "not checked": 0}
        self.programs = programs if programs and (programs / "muster").exists() else None
        listed = files or subprocess.run(["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard"],
                                         capture_output=True, text=True, check=True).stdout.splitlines()
        self.files = [name for name in listed if (root / name).is_file()]
        self.top = {name.split("/")[0] for name in self.files}
        self.documents = {root / name: Document(root / name) for name in self.files if name.endswith(".md")}

    def problem(self, document, line, text):
        self.problems.append(f"{document.path.relative_to(self.root)}:{line}: {text}")

    # Links.

    def check_links(self, document):
        for line, link in document.links:
            if re.match(r"[a-z]+:", link):
                continue
            self.counts["links"] += 1
            name, _, anchor = link.partition("#")
            target = (document.path.parent / name).resolve() if name else document.path
            if not target.exists():
                self.problem(document, line, f"the link to '{link}' leads nowhere")
            elif anchor and target in self.documents and anchor not in self.documents[target].anchors:
                self.problem(document, line, f"'{name or document.path.name}' has no heading '#{anchor}'")

    # Commands.

    @functools.lru_cache(maxsize=None)
    def help_text(self, words):
        program = str(self.root / "dev") if words[0] == "./dev" else str(self.programs / words[0])
        asked = [program, "help"] if words[0] == "./dev" else [program, *words[1:], "--help"]
        result = subprocess.run(asked, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL)
        return result.stdout if result.returncode == 0 else None

    @functools.lru_cache(maxsize=None)
    def presets(self):
        listed = json.loads((self.root / "CMakePresets.json").read_text())["configurePresets"]
        return {preset["name"] for preset in listed if not preset.get("hidden")}

    def check_ours(self, words):
        """What is wrong with a command of our own programs, or None."""
        if words[0] == "./dev":
            if len(words) > 1 and not re.search(rf"^\s+{re.escape(words[1])}\b", self.help_text(("./dev",)), re.M):
                return f"./dev has no command '{words[1]}'"
            if words[1:2] == ["build"] and len(words) > 2 and words[2] not in self.presets() | {"python"}:
                return f"there is no preset '{words[2]}'"
            if words[1:2] == ["run"]:
                return self.check_words(words[3:] if words[2:3] == ["--"] else words[2:])
            return None
        if not self.programs:
            self.counts["not checked"] += 1
            return None
        path, help_text = (words[0],), self.help_text((words[0],))
        seen = help_text or ""
        for word in words[1:]:
            if word.startswith("-"):
                option = word.split("=")[0]
                if option not in ("-", "--") and not re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", seen):
                    return f"the help of '{' '.join(path)}' does not know {option}"
            elif help_text and re.search(r"^(sub)?commands:\s*$", help_text, re.I | re.M):
                if not re.match(r"[a-z][a-z-]*$", word):
                    return None  # a placeholder: nothing more can be said
                if not re.search(rf"^\s+{re.escape(word)}\b", help_text, re.M):
                    return f"'{' '.join(path)}' has no command '{word}'"
                path += (word,)
                help_text = self.help_text(path)
                if help_text is None:
                    return f"'{' '.join(path)} --help' fails"
                seen += help_text
        return None

    def check_words(self, words):
        while words and re.match(r"[A-Za-z_]\w*=", words[0]):
            words = words[1:]
        if not words:
            return None
        program = words[0]
        for word in words[1:]:
            # A path into the repository; what a program will write (runs/, build/) is not there yet.
            if "/" in word and word.split("/")[0] in self.top and not re.search(r"[*{<$]", word):
                if not (self.root / word).exists():
                    return f"'{word}' is not there"
        if program in OUR_PROGRAMS:
            return self.check_ours(words)
        if program == "cmake" and "--preset" in words[:-1]:
            preset = words[words.index("--preset") + 1]
            if preset not in self.presets():
                return f"there is no preset '{preset}'"
        if program in COMMON or program.startswith(("muster", "build/")):
            return None
        if "/" in program and (self.root / program).is_file():
            return None
        return f"'{program}' is not a program of ours, nor in COMMON in scripts/check_docs.py"

    def check_command(self, document, line, command):
        self.counts["commands"] += 1
        try:
            lexer = shlex.shlex(command, posix=True, punctuation_chars="|&;<>()")
            lexer.whitespace_split = True
            words = list(lexer)
        except ValueError as error:
            return self.problem(document, line, f"cannot read '{command}': {error}")
        one = []
        for word in words + [";"]:
            if re.match(r"[|&;]+$", word):
                wrong = self.check_words(one)
                if wrong:
                    self.problem(document, line, f"{wrong} (in '{command}')")
                one = []
            else:
                one.append(word)
        return None

    def check_inline(self, document):
        for line, code in document.code:
            words = code.split()
            if len(words) > 1 and words[0] in OUR_PROGRAMS and "=" not in words[1]:
                end = next((i for i, word in enumerate(words) if not re.match(r"[\w./=:,-]+$", word)), len(words))
                self.counts["commands"] += 1
                wrong = self.check_words(words[:end])
                if wrong:
                    self.problem(document, line, f"{wrong} (in `{code}`)")

    # Blocks that are run.

    def run_block(self, document, block):
        commands = block.commands()
        if not self.programs and any(re.search(r"\bmuster\b", command) for _, command, _ in commands):
            self.counts["not checked"] += len(commands)
            return
        self.counts["blocks run"] += 1
        status = int((re.search(r"exit=(\d+)", block.run) or [0, 0])[1])
        timeout = int((re.search(r"timeout=(\d+)", block.run) or [0, 120])[1])
        with tempfile.TemporaryDirectory(prefix="muster-docs-") as work:
            for name in self.top:
                (Path(work) / name).symlink_to(self.root / name)
            for index, (line, command, output) in enumerate(commands):
                want = status if index == len(commands) - 1 else 0
                try:
                    run = subprocess.run(["bash", "-c", command], cwd=work, timeout=timeout, text=True,
                                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                         env=self.environment())
                except subprocess.TimeoutExpired:
                    return self.problem(document, line, f"'{command}' took longer than {timeout} s")
                if run.returncode != want:
                    return self.problem(document, line, f"'{command}' left with {run.returncode}, not {want}:\n{run.stdout}")
                missing = first_missing(output, run.stdout) if "match" in block.run else None
                if missing is not None:
                    return self.problem(document, line, f"'{command}' did not print '{missing}' there, but:\n{run.stdout}")
        return None

    def environment(self):
        path = f"{self.programs}:{os.environ['PATH']}" if self.programs else os.environ["PATH"]
        return {**os.environ, "PATH": path, "TERM": "dumb"}

    def check(self):
        for document in self.documents.values():
            self.check_links(document)
            self.check_inline(document)
            for block in document.blocks:
                for line, command, _ in block.commands():
                    self.check_command(document, line, command)
                if block.run is not None and not self.problems:
                    self.run_block(document, block)
        return self.problems


def first_missing(expected, output):
    """The first expected line that does not come in its place in the output, or None."""
    lines, place, skip = output.splitlines(), 0, False
    for want in (line.rstrip() for line in expected):
        if want == "...":
            skip = True
            continue
        while skip and place < len(lines) and lines[place].rstrip() != want:
            place += 1
        if place >= len(lines) or lines[place].rstrip() != want:
            return want
        place, skip = place + 1, False
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("--programs", type=Path, help="where the built muster is")
    args = parser.parse_args()
    checker = Checker(args.root.resolve(), args.programs.resolve() if args.programs else None)
    problems = checker.check()
    counts = checker.counts
    if problems:
        print("\n".join(problems))
        sys.exit(f"docs: {len(problems)} problems")
    left_out = f"; {counts['not checked']} need the muster program: ./dev build" if counts["not checked"] else ""
    print(f"docs: {len(checker.documents)} files, {counts['links']} links, {counts['commands']} commands, "
          f"{counts['blocks run']} blocks run{left_out}")


if __name__ == "__main__":
    main()
