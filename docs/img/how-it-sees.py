#!/usr/bin/env python3
"""Draws the pictures of docs/concepts/how-it-sees.md, beside itself: first-touches.svg and rounds.svg.

The curves are exact; the points are drawn at random, from a fixed seed. The rounds follow the rules of
crates/core/src/exposure/plan.rs, with memory that is touched in a known way. Takes nothing but Python.
"""

import math
import pathlib
import random

INK, QUIET, LINE, CLEARED = "#1f242e", "#5c6573", "#c4cad3", "#27408b"
EARLY_S = [0.001, 0.003, 0.01, 0.03, 0.1]


class Picture:
    def __init__(self, width, height, title, note):
        self.size, self.items = (width, height), []
        self.text(60, 40, title, size=22, weight=600)
        self.text(60, 65, note, color=QUIET)

    def text(self, x, y, text, anchor="start", color=INK, size=13, weight=400, turn=0):
        turned = f' transform="rotate({turn} {x:.1f} {y:.1f})"' if turn else ""
        self.items.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}" font-size="{size}"'
            f' font-weight="{weight}"{turned}>{text}</text>')

    def line(self, points, color=LINE, width=1.0, dash=""):
        dash = f' stroke-dasharray="{dash}"' if dash else ""
        at = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.items.append(
            f'<polyline points="{at}" fill="none" stroke="{color}" stroke-width="{width}"{dash}/>')

    def rect(self, x, y, width, height, color, opacity=1.0):
        self.items.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{color}"'
            f' fill-opacity="{opacity}"/>')

    def dot(self, x, y, color):
        self.items.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{color}"/>')

    def write(self, name):
        width, height = self.size
        body = "\n".join(self.items)
        (pathlib.Path(__file__).parent / name).write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
            f' height="{height}" font-family="Inter, Helvetica, Arial, sans-serif">\n'
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>\n{body}\n</svg>\n')


def found(pages, share, hz, reads, rng):
    """How many of `pages` were touched by each read, if a share of them is touched at `hz`."""
    first = [rng.expovariate(hz) for _ in range(round(pages * share))]
    return [sum(t <= read for t in first) for read in reads]


def first_touches():
    p = Picture(1200, 560, "From the clear to the first touch",
                "Share of the cleared pages that have turned young. Points: what each read finds of 4096"
                " pages, drawn at random. Curves: 1 - exp(-rate x time)")
    left, right, top, bottom = 110, 1130, 100, 480
    low, high = 0.0003, 3.0
    reads = EARLY_S + [0.25, 0.5, 0.75, 1.0]

    def x(t):
        return left + (right - left) * math.log(t / low) / math.log(high / low)

    def y(share):
        return bottom - (bottom - top) * share

    for share in (0, 0.25, 0.5, 0.75, 1):
        p.line([(left, y(share)), (right, y(share))])
        p.text(left - 10, y(share) + 5, f"{share * 100:.0f} %", "end")
    for read in reads:
        p.line([(x(read), top), (x(read), bottom)], dash="2 4")
    names = ["1 ms", "3 ms", "10 ms", "30 ms", "100 ms", "T/4", "T/2", "", "T = 1 s"]
    for read, name in zip(reads, names):
        p.text(x(read), bottom + 20, name, "middle")
    p.text((left + right) / 2, bottom + 48, "time since the clear; a dotted line is a read", "middle",
           QUIET)
    steps = [low * (high / low) ** (i / 300) for i in range(301)]
    rng = random.Random(1)
    # share, rate, colour, where its name is: share of the curve's height, and which side
    curves = [(1, 1000, "#b8920a", 0.8), (1, 100, "#e07b2e", 0.42), (1, 10, "#d6295a", 0.42),
              (1, 1, "#8a2fa0", 0.42), (1, 0.1, "#3b3a9e", 0.16)]
    for share, hz, color, height in curves:
        p.line([(x(t), y(share * -math.expm1(-hz * t))) for t in steps], color, 2)
        for read, n in zip(reads, found(4096, share, hz, reads, rng)):
            p.dot(x(read), y(n / 4096), color)
        at = -math.log(1 - height) / hz
        p.text(x(at) - 10, y(height), f"{hz:g} Hz", "end", color, 15, 600)
    teal = "#0c7c72"
    p.line([(x(t), y(-math.expm1(-500 / 16 * t))) for t in steps], teal, 1.5, "6 5")
    p.line([(x(t), y(-math.expm1(-500 * t) / 16)) for t in steps], teal, 2)
    for read, n in zip(reads, found(4096, 1 / 16, 500, reads, rng)):
        p.dot(x(read), y(n / 4096), teal)
    p.text(x(0.0115), y(0.085), "a sixteenth at 500 Hz", "start", teal, 15, 600)
    p.text(x(0.0335), y(0.62), "all at 31 Hz", "start", teal, 13)
    p.write("first-touches.svg")


PIECES = 48
# Pieces of 2 MiB that are hot until the move, hot from then on, and warm.
BEFORE, AFTER, WARM = range(4, 20), range(36, 44), range(24, 32)
MOVE_S, END_S = 0.6, 1.62


def plan_rounds(rng):
    """(time of the round, runs cleared in it) until the end, and when the move was published."""
    cleared = {i: -10.0 + i / 1000 for i in range(PIECES)}
    rounds, now, published = [], 0.03, None

    def young(i):
        warm = i in WARM
        moved = i in AFTER and now > MOVE_S
        left = i in BEFORE and cleared[i] < MOVE_S
        return warm or moved or left

    while now < END_S:
        runs = []
        if now > MOVE_S and published is None:
            runs.append(range(AFTER.start, AFTER.start + 1))
            published = now + EARLY_S[-1]
        known = [BEFORE, WARM] + ([AFTER] if published and now > published else [])
        for region in known:
            due = [i for i in region if young(i)]
            if due:
                first = min(due, key=lambda i: (cleared[i], i))
                most = len(region) if region is WARM else max(1, len(region) // 4)
                runs.append(range(first, min(first + most, region.stop)))
        for run in runs:
            cleared.update((i, now) for i in run)
        rounds.append((now, runs))
        now += 0.25 * rng.uniform(0.9, 1.1)
    return rounds, published


def rounds():
    p = Picture(1200, 640, "Rounds",
                "Each reads everything (grey line) and clears short runs (blue), which are read again"
                " after 1, 3, 10, 30 and 100 ms; then comes a snapshot (triangle)")
    left, right, top, bottom = 150, 1150, 120, 575

    def x(t):
        return left + (right - left) * t / END_S

    def y(piece):
        return bottom - (bottom - top) * piece / PIECES

    def band(pieces, begin, end, color):
        p.rect(x(begin), y(pieces.stop), x(end) - x(begin), y(pieces.start) - y(pieces.stop), color, 0.22)

    p.rect(left, top, right - left, bottom - top, "#f2f4f7")
    band(BEFORE, 0, MOVE_S, "#d6295a")
    band(AFTER, MOVE_S, END_S, "#d6295a")
    band(WARM, 0, END_S, "#8a2fa0")
    names = [(BEFORE, "hot, 32 MiB", "#d6295a"), (WARM, "warm, 16 MiB", "#8a2fa0"),
             (AFTER, "cold, then hot", "#d6295a")]
    for pieces, name, color in names:
        p.text(left - 12, y((pieces.start + pieces.stop) / 2) + 5, name, "end", color, 14, 600)
    p.text(x(0.04), y(AFTER.start) - 30, "cold: read, never cleared again", color=QUIET, size=14)
    p.text(x(MOVE_S) + 8, y(BEFORE.start) - 10, "no longer touched", color=QUIET)
    p.text(x(MOVE_S) + 6, y(AFTER.stop) - 8, "touched from here on", color="#d6295a")
    plan, published = plan_rounds(random.Random(3))
    for now, runs in plan:
        p.line([(x(now), top), (x(now), bottom)], "#8b95a5", 1.5)
        shown = now + EARLY_S[-1]
        for run in runs:
            height = y(run.start) - y(run.stop) - 1
            p.rect(x(now), y(run.stop) + 0.5, x(shown) - x(now), height, CLEARED, 0.85)
            for delay in EARLY_S:
                at = x(now + delay)
                p.line([(at, y(run.stop) + 0.5), (at, y(run.start) - 0.5)], "#ffffff", 1.2)
        if shown < END_S:
            p.items.append(f'<path d="M{x(shown) - 6:.1f} {top - 14} h12 l-6 10 z" fill="{INK}"/>')
    p.line([(x(published), top), (x(published), bottom)], INK, 1.2, "5 4")
    p.text(x(published), top - 22, f"this one has it: {published - MOVE_S:.2f} s after", "middle",
           weight=600)
    for tenth in range(0, 17, 2):
        p.text(x(tenth / 10), bottom + 22, f"{tenth / 10:g} s", "middle")
    p.text((left + right) / 2, bottom + 48, "time; up: addresses", "middle", QUIET)
    p.write("rounds.svg")


if __name__ == "__main__":
    first_touches()
    rounds()
