#!/usr/bin/env python3
"""Accuracy against traffic, as a picture: one point for each setting, a bar from its least to its greatest figure.

    bench/strategies_picture.py FILE.json > docs/images/strategies.svg

FILE.json: {"title": ..., "points": [{"name": ..., "bytes": a step of a host sends, "accuracy": [one for each seed],
"other": true if it is PyTorch's}, ...]}.
"""
import html
import json
import math
import sys

WIDTH, HEIGHT = 860, 460
LEFT, RIGHT, TOP, BOTTOM = 70, 30, 40, 60
OURS, OTHERS, GREY = "#1f6feb", "#c4432b", "#8b949e"


def label(bytes_):
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if bytes_ >= unit:
            return f"{bytes_ / unit:g} {name}"
    return f"{bytes_:g} B"


def spread(wanted, room):
    """Heights near those wanted, at least `room` apart."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    placed = list(wanted)
    for before, after in zip(order, order[1:]):
        placed[after] = max(placed[after], placed[before] + room)
    return placed


def main():
    with open(sys.argv[1]) as file:
        data = json.load(file)
    points = data["points"]
    low = math.floor(math.log10(min(p["bytes"] for p in points)))
    high = math.ceil(math.log10(max(p["bytes"] for p in points)))
    figures = [a for p in points for a in p["accuracy"]]
    bottom = math.floor(min(figures) * 200) / 200
    top = math.ceil(max(figures) * 200) / 200
    def x(bytes_):
        return LEFT + (math.log10(bytes_) - low) / (high - low) * (WIDTH - LEFT - RIGHT)
    def y(accuracy):
        return TOP + (top - accuracy) / (top - bottom) * (HEIGHT - TOP - BOTTOM)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           f'<text x="{LEFT}" y="22" font-size="14">{html.escape(data["title"])}</text>']
    for power in range(low, high + 1):
        at = x(10 ** power)
        out.append(f'<line x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{HEIGHT - BOTTOM}" stroke="#eaeef2"/>')
        out.append(f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{label(10 ** power)}</text>')
    steps = round((top - bottom) * 200)
    for i in range(steps + 1):
        value = bottom + i / 200
        out.append(f'<line x1="{LEFT}" y1="{y(value):.1f}" x2="{WIDTH - RIGHT}" y2="{y(value):.1f}" stroke="#eaeef2"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value * 100:.1f} %</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 16}" text-anchor="middle">'
               'bytes that a host sends for a step (logarithmic)</text>')
    means = [sum(p["accuracy"]) / len(p["accuracy"]) for p in points]
    # Names stand to the right of their points, or to the left at the right edge; near ones move apart.
    groups = {}
    for i, p in enumerate(points):
        groups.setdefault(round(x(p["bytes"]) / 110), []).append(i)
    for members in groups.values():
        for i, height in zip(members, spread([y(means[i]) for i in members], 14)):
            p, at = points[i], x(points[i]["bytes"])
            color = OTHERS if p.get("other") else OURS
            out.append(f'<line x1="{at:.1f}" y1="{y(min(p["accuracy"])):.1f}" x2="{at:.1f}" y2="{y(max(p["accuracy"])):.1f}" '
                       f'stroke="{color}" stroke-width="2"/>')
            out.append(f'<circle cx="{at:.1f}" cy="{y(means[i]):.1f}" r="4" fill="{color}"/>')
            side, anchor = (-9, "end") if at > WIDTH - 170 else (9, "start")
            if abs(height - y(means[i])) > 2:
                out.append(f'<line x1="{at:.1f}" y1="{y(means[i]):.1f}" x2="{at + side:.1f}" y2="{height:.1f}" stroke="{GREY}" stroke-width="0.7"/>')
            out.append(f'<text x="{at + side:.1f}" y="{height + 4:.1f}" text-anchor="{anchor}" fill="{color}">{html.escape(p["name"])}</text>')
    out.append("</svg>")
    print("\n".join(out))


if __name__ == "__main__":
    main()
