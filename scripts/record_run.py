#!/usr/bin/env python3
"""record_run.py [run|verify] [--programs DIR] [--out FILE]: the README's pictures, from real runs.

Runs Muster's commands in a pseudo-terminal, in a temporary folder, on the sample data of the repository.
run: a training that is killed on the way (SIGKILL to its worker, no chance to save), its resumption, the same
job undisturbed on another number of threads, and their comparison. verify: `muster verify`, which does such
things to four workers by itself. What the terminal showed, and when, is written as one SVG file that plays
once and then stands still; what does not animate shows the end.

Nothing is drawn by hand: the lines are the programs' own output, the times are measured and then all
divided by one factor, which the picture names.
"""

import argparse
import fcntl
import html
import json
import os
import pty
import re
import select
import signal
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COLUMNS, ROWS = 92, 60
WIDE = 112  # columns that the last line of verify needs
JOB = "examples/lenet-sample.yaml"
# The undisturbed run is quiet, so that the picture fits a page.
VERIFY = f"muster verify {JOB} --faults kill:6,suspend:1,leave:2,join:2 --seed 3 -q"
KILL_AT = 80  # the step that the screen shows when the worker is killed
PLAY_SECONDS = 15.0
BETWEEN = 0.4  # seconds of the picture between two commands

CONTROL = re.compile(r"\x1b\[([0-9;]*)([A-Za-z])")
COLOURS = {"32": "green", "31": "red", "33": "yellow", "1": "bold", "2": "dim"}


class Screen:
    """As much of a terminal as Muster uses: lines that wrap, carriage return, erase to the end, colours.

    Each row is a list of cells (character, style); `history` gets (time, row, cells) whenever a row
    has changed.
    """

    def __init__(self, columns=COLUMNS):
        self.columns = columns
        self.rows, self.row, self.column, self.style, self.rest = [[]], 0, 0, "", ""
        self.history = []

    def feed(self, text, now):
        text, self.rest = self.rest + text, ""
        changed, at = set(), 0
        while at < len(text):
            char = text[at]
            if char == "\x1b":
                control = CONTROL.match(text, at)
                if not control:
                    if len(text) - at < 16:  # the rest of it has not come yet
                        self.rest = text[at:]
                        break
                    raise ValueError(f"a control sequence that this script does not know: {text[at:at + 8]!r}")
                self.control(control.group(1), control.group(2))
                changed.add(self.row)
                at = control.end()
                continue
            if char == "\n":
                self.new_line()
            elif char == "\r":
                self.column = 0
            else:
                if self.column == self.columns:
                    changed.add(self.row)
                    self.new_line()
                line = self.rows[self.row]
                line.extend([(" ", "")] * (self.column + 1 - len(line)))
                line[self.column] = (char, self.style)
                self.column += 1
            changed.add(self.row)
            at += 1
        for row in sorted(changed):
            self.history.append((now, row, list(self.rows[row])))

    def new_line(self):
        self.row, self.column = self.row + 1, 0
        if self.row == len(self.rows):
            self.rows.append([])

    def control(self, arguments, letter):
        if letter == "K" and arguments in ("", "0"):
            del self.rows[self.row][self.column:]
        elif letter == "m":
            self.style = " ".join(COLOURS[code] for code in arguments.split(";") if code in COLOURS)
        else:
            raise ValueError(f"a control sequence that this script does not know: {arguments}{letter}")

    def text(self):
        return "\n".join("".join(char for char, _ in row) for row in self.rows)


class Player:
    """Runs commands one after the other on one screen; its clock stands still between them."""

    def __init__(self, folder, environment, columns=COLUMNS):
        self.screen, self.folder, self.environment, self.clock = Screen(columns), folder, environment, 0.0
        self.marks = []  # where a command begins: (time, row)

    def show(self, text):
        self.screen.feed(text, self.clock)

    def run(self, command, watch=lambda text: None):
        """Types `command`, runs it, calls watch(screen's text since then) after each output."""
        self.marks.append((self.clock, self.screen.row))
        self.show(f"$ {command}\n")
        first_row = self.screen.row
        started = time.monotonic()
        before = self.clock
        child, terminal = pty.fork()
        if child == 0:
            os.chdir(self.folder)
            os.execvpe("bash", ["bash", "-c", command], self.environment)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, self.screen.columns, 0, 0))
        output = b""
        while True:
            select.select([terminal], [], [])
            try:
                piece = os.read(terminal, 65536)
            except OSError:  # the other side is closed
                piece = b""
            if not piece:
                break
            self.clock = before + time.monotonic() - started
            output += piece
            keep = len(output) - (output[-1] >= 0x80)  # do not cut a character in two
            self.show(output[:keep].decode("utf-8", "replace"))
            output = output[keep:]
            watch("\n".join(self.screen.text().split("\n")[first_row:]))
        os.close(terminal)
        _, status = os.waitpid(child, 0)
        self.clock = before + time.monotonic() - started
        return os.waitstatus_to_exitcode(status)


def kill_worker_at(step, run):
    """A watcher that ends the worker of `run` with SIGKILL once the screen shows this step."""
    done = []

    def watch(text):
        shown = [int(found) for found in re.findall(r"\bstep (\d+)/", text)]
        if shown and max(shown) >= step and not done:
            done.append(True)
            os.kill(json.loads((run / "status.json").read_text())["pid"], signal.SIGKILL)

    return watch, done


def play_run(player):
    watch, killed = kill_worker_at(KILL_AT, player.folder / "runs/killed")
    expect(player.run(f"muster train {JOB} --run-dir runs/killed", watch) != 0 and killed,
           "the run ended before it could be killed")
    expect(player.run("muster resume killed") == 0, "resume failed")
    expect(player.run(f"muster train {JOB} --run-dir runs/whole -s threads=1 --quiet") == 0, "the whole run failed")
    expect(player.run("muster runs compare whole killed") == 0, "compare failed")
    expect("bit for bit" in player.screen.text(), "the two runs differ")


def play_verify(player):
    code = player.run(VERIFY)
    expect(code == 0, f"verify left with {code}:\n{player.screen.text()}")
    expect("equal, bit for bit" in player.screen.text(), "verify says nothing")


# What can be recorded: how it is played, how wide, and what the picture shows, for those who cannot see it.
SCENES = {
    "run": (play_run, COLUMNS, "A run is killed and resumed; the same job is run without faults on one thread; the weights "
                               "are equal, bit for bit"),
    "verify": (play_verify, WIDE, "muster verify trains a job without faults, then on four workers while it kills, "
                                  "suspends, removes and adds workers; weights, ledger and metrics are equal, bit for bit"),
}


def play(scene, programs):
    with tempfile.TemporaryDirectory(prefix="muster-record-") as work:
        folder = Path(work)
        (folder / "examples").symlink_to(ROOT / "examples")
        environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "TERM": "xterm-256color"}
        scene_of, columns, _ = SCENES[scene]
        player = Player(folder, environment, columns)
        scene_of(player)
        return player


def expect(true, complaint):
    if not true:
        sys.exit(f"record_run: {complaint}")


# The picture.

def spans(cells):
    """Cells as tspans, one for each stretch of one style."""
    stretches = []
    for char, style in cells:
        if stretches and stretches[-1][1] == style:
            stretches[-1][0] += char
        else:
            stretches.append([char, style])
    return "".join(f'<tspan class="{style}">{html.escape(text)}</tspan>' if style else html.escape(text)
                   for text, style in stretches)


def versions(history):
    """{row: [[from, to, cells]]}: what stood in each row from when to when; `to` None: to the end."""
    rows = {}
    for now, row, cells in history:
        lines = rows.setdefault(row, [])
        while lines and lines[-1][0] >= now:  # replaced in the same moment: nobody saw it
            lines.pop()
        if lines and lines[-1][2] == cells:
            continue
        lines.append([now, None, cells])
    for lines in rows.values():
        for line, following in zip(lines, lines[1:]):
            line[1] = following[0]
    return rows


def thin(lines, least):
    """Leaves out what stood in a row for a moment only, where something else followed."""
    kept = []
    for begin, end, cells in lines:
        if kept and end is not None and begin - kept[-1][0] < least:
            continue
        if kept:
            kept[-1][1] = begin
        kept.append([begin, end, cells])
    return kept


STYLE = """
  .screen { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace;
            white-space: pre; fill: #d7dde5 }
  .prompt { fill: #7fd1b9; font-weight: 600 } .green { fill: #8fce6b } .red { fill: #f08a80 }
  .yellow { fill: #e6c067 } .bold { font-weight: 600 } .dim, .note { fill: #8a95a5 }
"""


def draw(player, command, title):
    total = player.clock
    factor = max(1.0, total / PLAY_SECONDS)
    rows = versions(player.screen.history)

    def at(moment, row):
        # Between two commands the picture rests, so that one can read.
        rests = sum(1 for mark, first in player.marks if row >= first and mark > 0)
        return moment / factor + rests * BETWEEN

    height, left, line_height, top = 0, 16, 18, 44
    prompts = {row for _, row in player.marks}
    drawn = []
    for row in sorted(rows):
        y = top + row * line_height
        for begin, end, cells in thin(rows[row], 0.12 * factor):
            if not cells:
                continue
            height = max(height, y)
            body = spans(cells)
            if row in prompts:
                body = f'<tspan class="prompt">$</tspan>{body[1:]}'
            start = at(begin, row)
            if end is None:
                hide = f'<set attributeName="display" to="none" begin="0s" dur="{start:.2f}s"/>' if start > 0 else ""
                drawn.append(f'<text x="{left}" y="{y}">{hide}{body}</text>')
            else:
                drawn.append(f'<text x="{left}" y="{y}" display="none"><set attributeName="display" to="inline" '
                             f'begin="{start:.2f}s" end="{at(end, row):.2f}s"/>{body}</text>')
    width, height = left * 2 + round(player.screen.columns * 7.83), height + 44
    speed = f"played {factor:.1f} times as fast as it ran" if factor > 1.05 else "played as fast as it ran"
    note = f"made by {command} from a real run, {speed}"
    return f"""<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">
<title>{html.escape(title)}</title>
<style>{STYLE}</style>
<rect width="{width}" height="{height}" rx="8" fill="#171b21"/>
<g fill="#3a424e"><circle cx="20" cy="16" r="5"/><circle cx="38" cy="16" r="5"/><circle cx="56" cy="16" r="5"/></g>
<g class="screen" xml:space="preserve">
{chr(10).join(drawn)}
<text class="note" x="{left}" y="{height - 14}" font-size="11">{html.escape(note)}</text>
</g>
</svg>
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scene", nargs="?", choices=SCENES, default="run", help="which picture; default: run")
    parser.add_argument("--programs", type=Path, default=ROOT / "build/release/bin", help="where the built muster is")
    parser.add_argument("--out", type=Path, help="default: docs/images/SCENE.svg")
    args = parser.parse_args()
    expect((args.programs / "muster").exists(), f"there is no muster in {args.programs}: ./dev build")
    out = args.out or ROOT / f"docs/images/{args.scene}.svg"
    player = play(args.scene, args.programs.resolve())
    out.parent.mkdir(parents=True, exist_ok=True)
    command = "scripts/record_run.py" if args.scene == "run" else f"scripts/record_run.py {args.scene}"
    out.write_text(draw(player, command, SCENES[args.scene][2]))
    print(f"{out}: {len(player.screen.history)} changes of the screen in {player.clock:.1f} s")


if __name__ == "__main__":
    main()
