#!/usr/bin/env python3
"""Captures isotherm top and isotherm web beside two redis servers: docs/img/top.svg and docs/img/web.png. Prints the
table of isotherm top as text.

Usage, as root: docs/img/live.py ISOTHERM. It requires tmux, redis-server, redis-benchmark, chromium-headless-shell and
the packages of crates/web/tests/browser/requirements.txt.
"""

import html
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

from playwright.sync_api import sync_playwright

COLUMNS, LINES = 100, 30
WIDTH, HEIGHT = 8, 17  # of a character, in pixels
INK, PAPER = "#d8dee9", "#14161b"
SIXTEEN = ["#14161b", "#bf616a", "#a3be8c", "#ebcb8b", "#81a1c1", "#b48ead", "#88c0d0", INK]


class Style:
    """What the codes so far say of the next characters."""

    def __init__(self):
        self.front, self.back, self.bold, self.turned = None, None, False, False

    def take(self, codes):
        codes = [int(c or 0) for c in codes.split(";")]
        while codes:
            c = codes.pop(0)
            if c == 0:
                self.__init__()
            elif c == 1:
                self.bold = True
            elif c == 7:
                self.turned = True
            elif c == 27:
                self.turned = False
            elif c in (38, 48) and codes[0] == 2:
                color, codes = "#%02x%02x%02x" % tuple(codes[1:4]), codes[4:]
                self.set(c, color)
            elif c in (39, 49):
                self.set(c - 1, None)
            elif 30 <= c < 38 or 40 <= c < 48:
                self.set(38 if c < 40 else 48, SIXTEEN[c % 10])

    def set(self, kind, color):
        if kind == 38:
            self.front = color
        else:
            self.back = color

    def shown(self):
        front, back = self.front or INK, self.back or PAPER
        return (back, front) if self.turned else (front, back)


def svg(text):
    """The screen as a picture: one rectangle for each half of a block, one text for each word."""
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {COLUMNS * WIDTH} {LINES * HEIGHT}" '
        f'font-family="monospace" font-size="13">',
        f'<rect width="100%" height="100%" fill="{PAPER}"/>',
    ]

    def rect(x, y, n, height, color):
        if color != PAPER:
            out.append(f'<rect x="{x * WIDTH}" y="{y}" width="{n * WIDTH}" height="{height}" fill="{color}"/>')

    # tmux does not repeat the codes of a line that begins as the previous one ended.
    style = Style()
    for row, line in enumerate(text.split("\n")[:LINES]):
        x, y = 0, row * HEIGHT
        for codes, run in re.findall(r"(?:\x1b\[([\d;]*)m)|([^\x1b]+)", line):
            if not run:
                style.take(codes)
                continue
            front, back = style.shown()
            for part in re.findall(r"▀+|▄+| +|[^▀▄ ]+", run):
                rect(x, y, len(part), HEIGHT, back)
                if part[0] in "▀▄":
                    rect(x, y + (part[0] == "▄") * 8.5, len(part), 8.5, front)
                elif part.strip():
                    bold = ' font-weight="bold"' if style.bold else ""
                    out.append(
                        f'<text x="{x * WIDTH}" y="{y + 13}" fill="{front}" textLength="{len(part) * WIDTH}"'
                        f"{bold}>{html.escape(part)}</text>"
                    )
                x += len(part)
    return "\n".join(out + ["</svg>", ""])


def redis(folder, keys):
    """A server with this many values of 8 KB, and its socket."""
    path = f"{folder}/redis{keys}"
    words = ["redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--dir", folder]
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    while not os.path.exists(path):
        assert server.poll() is None, f"{' '.join(words)} has ended with {server.returncode}"
        time.sleep(0.1)
    fill = f'for i = 1, {keys} do redis.call("SET", "cart:" .. i, string.rep("x", 8000)) end'
    subprocess.run(["redis-cli", "-s", path, "EVAL", fill, "0"], check=True, stdout=subprocess.DEVNULL)
    return server, path


def use(socket):
    """Leaves a server alone, uses it for 25 s, and leaves it alone again."""
    time.sleep(15)
    bench = ["redis-benchmark", "-s", socket, "-q", "-l", "-c", "4", "-t", "get,set", "-r", "3000", "-d", "4000"]
    load = subprocess.Popen(bench, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(25)
    load.kill()
    load.wait()
    time.sleep(15)


def picture(name):
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), name)


def top(isotherm, folder, server, socket):
    tmux = ["tmux", "-S", f"{folder}/tmux", "-f", "/dev/null"]

    def run(*args):
        return subprocess.run([*tmux, *args], check=True, capture_output=True, text=True).stdout

    try:
        command = f"COLORTERM=truecolor exec {isotherm} top --comm redis-server"
        run("new-session", "-d", "-x", str(COLUMNS), "-y", str(LINES), f"exec sh -c '{command}'")
        run("send-keys", "-")
        use(socket)
        print(run("capture-pane", "-p"))
        # The selected row is that which was the first one at the start: any of the two.
        run("send-keys", "/", str(server.pid), "Enter")
        run("send-keys", "Enter")
        time.sleep(2)
        with open(picture("top.svg"), "w") as file:
            file.write(svg(run("capture-pane", "-e", "-p")))
        print(run("capture-pane", "-p"))
        run("send-keys", "q")
    finally:
        subprocess.run([*tmux, "kill-server"], capture_output=True)


def screenshot(address, path):
    """The page after some seconds, with the mouse over the heat map."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium-headless-shell"))
        page = browser.new_page(viewport={"width": 1280, "height": 1270})
        page.goto(address)
        time.sleep(6)
        page.mouse.move(520, 420)
        time.sleep(1)
        page.screenshot(path=path)
        browser.close()


def web(isotherm, folder, _, socket):
    words = [isotherm, "web", "--comm", "redis-server"]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        address = server.stdout.readline().strip()
        use(socket)
        screenshot(address, picture("web.png"))
    finally:
        server.terminate()
        server.wait()


def main():
    isotherm, servers = os.path.abspath(sys.argv[1]), []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for keys in (25000, 5000):
                servers.append(redis(folder, keys))
            for watch in (top, web):
                watch(isotherm, folder, *servers[0])
        finally:
            for server, _ in servers:
                server.kill()
                server.wait()


main()
