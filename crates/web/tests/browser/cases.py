"""Runs a case of the browser tests: cases.py CASE CHROMIUM ADDRESS [FOLDER]. main.rs describes the scenes.

A case prints a line to ask its scene for more, and reads an empty line once that has happened.
"""

import os
import re
import sys
import time
import urllib.parse

from playwright.sync_api import expect, sync_playwright

# No step takes as long as this.
TIMEOUT_MS = 120_000
HOSTILE = "<img src=x onerror=alert(1)><script>document.title='owned'</script>"
HEATS = "[...document.querySelectorAll('.heat')]"
# How often the heat map was drawn, until when it was known, and its view: ms, and bytes of the axis.
DRAWN = "Number(document.querySelector('.heat')?.dataset.drawn ?? 0)"
KNOWN = "Number(document.querySelector('.heat')?.dataset.known ?? 0)"
VIEW = "JSON.parse(document.querySelector('.heat')?.dataset.view ?? '{}')"
# A checksum of the pixels of a canvas.
PIXELS = """(canvas) => {
  const d = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  let s = 0;
  for (let i = 0; i < d.length; i += 7) s = (s * 31 + d[i]) | 0;
  return s;
}"""
# The lowest contrast of a text to its background, as WCAG defines it, and that text.
CONTRAST = """() => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (c) => {
    const [r, g, b] = c.map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  let lowest = [99, ''];
  for (const e of document.querySelectorAll('body *')) {
    const text = [...e.childNodes].filter((n) => n.nodeType === 3).map((n) => n.data.trim()).join('');
    if (!text || !e.checkVisibility()) continue;
    let at = e, back = [0, 0, 0, 0];
    while (at && back.length === 4 && back[3] === 0) { back = rgb(getComputedStyle(at).backgroundColor); at = at.parentElement; }
    const [a, b] = [light(rgb(getComputedStyle(e).color).slice(0, 3)), light(back.slice(0, 3))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < lowest[0]) lowest = [contrast, text];
  }
  return lowest;
}"""
# The roles of what can be operated.
CONTROLS = {"application", "button", "checkbox", "combobox", "DisclosureTriangle", "image", "link", "listbox", "textbox"}


def scene(line):
    """Asks the scene to do something, and waits until it has."""
    print(line, flush=True)
    assert sys.stdin.readline(), "the scene has ended"


def until(page, expression, line=None):
    """Waits until an expression is true; meanwhile the scene does something again and again. The policy of the page
    forbids wait_for_function()."""
    end = time.monotonic() + TIMEOUT_MS / 1000
    while not page.evaluate(expression):
        assert time.monotonic() < end, (expression, page.console)
        if line:
            scene(line)
        page.wait_for_timeout(50)


def open_page(page, address):
    """Opens the page, which opens itself again without the token."""
    page.goto(address)
    page.wait_for_url(re.compile("/$"))


def drawn(page, address):
    open_page(page, address)
    until(page, f"{DRAWN} > 0")


def view(page):
    return page.evaluate(VIEW)


def span(shown, start, end):
    return shown[end] - shown[start]


def middle(page):
    """The middle of the heat map, in the window."""
    box = page.locator(".heat").first.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def pixels(page):
    return page.locator(".heat").evaluate(PIXELS)


def keep(page, name):
    """Keeps a picture of the page, if requested."""
    if folder := os.environ.get("ISOTHERM_SCREENSHOTS"):
        page.screenshot(path=os.path.join(folder, name))


def zoom_in(page):
    x, y = middle(page)
    page.mouse.move(x, y)
    page.mouse.wheel(0, -900)


def names(page):
    """The first column of the table."""
    return page.locator("tbody td:first-child").all_text_contents()


def moves_and_zooms(page, address, _):
    drawn(page, address)
    # It moves: the page follows what is known, and draws it.
    before = view(page)
    until(page, f"{VIEW}.to > {before['to']} + 1000", "2")
    assert span(view(page), "from", "to") == span(before, "from", "to")
    until(page, "document.querySelectorAll('tbody tr').length === 2", "1")
    keep(page, "live-light.png")
    # The wheel zooms in, at the mouse.
    page.get_by_role("button", name="Whole time").click()
    until(page, f"{VIEW}.from === 0")
    before = view(page)
    zoom_in(page)
    until(page, f"{VIEW}.from > 0")
    for start, end in (("from", "to"), ("low", "high")):
        factor = span(before, start, end) / span(view(page), start, end)
        assert 7.9 < factor < 8.1, (start, factor)
    # The crosshair says what is below the mouse.
    x, y = middle(page)
    page.mouse.move(x, y + 20)
    expect(page.locator(".point")).to_contain_text("95 % interval")
    words = page.locator(".point dt").all_text_contents()
    point = dict(zip(words, page.locator(".point dd").all_text_contents(), strict=True))
    assert point["mapping"] == "[heap]", point
    assert re.fullmatch(r"0x55\w+ to 0x55\w+, [\d.]+ MiB", point["range"]), point
    assert re.fullmatch(r"[\d.]+ Hz, 95 % interval [\d.]+ Hz to [\d.]+ Hz", point["rate"]), point
    assert re.fullmatch(r"has kept its heat for \d+ (s|min)", point["age"]), point
    # The keyboard does too.
    page.locator(".heat").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("+")
    page.keyboard.press("ArrowDown")
    before = page.evaluate(DRAWN)
    page.keyboard.press("0")
    until(page, f"{DRAWN} > {before}")
    page.get_by_role("button", name="Dark or light").click()
    expect(page.locator("body")).to_have_css("background-color", "rgb(18, 21, 27)")
    expect(page.locator(".point")).not_to_be_empty()
    keep(page, "live-dark.png")


def pans(page, address, _):
    drawn(page, address)
    page.get_by_role("button", name="Whole time").click()
    until(page, f"{VIEW}.from === 0")
    zoom_in(page)
    until(page, f"{VIEW}.from > 0")
    before, (x, y) = view(page), middle(page)
    box = page.locator(".heat").evaluate("(e) => [e.clientWidth - 70, e.clientHeight - 22]")
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 40, y - 30)
    page.mouse.move(x - 120, y - 60)
    page.mouse.up()
    # What was below the mouse still is.
    for start, end, moved in (("from", "to", 120 / box[0]), ("low", "high", -60 / box[1])):
        wide = span(before, start, end)
        until(page, f"Math.abs({VIEW}.{start} - {before[start] + moved * wide}) < {0.01 * wide}")
        assert abs(span(view(page), start, end) - wide) < 1e-6 * wide, (before, view(page))
    after = view(page)
    # Shift and an arrow pan back by an eighth.
    page.locator(".heat").focus()
    page.keyboard.press("Shift+ArrowLeft")
    until(page, f"{VIEW}.from < {after['from']}")
    assert abs(after["from"] - view(page)["from"] - span(after, "from", "to") / 8) < 1


def new_columns(page, address, _):
    open_page(page, address)
    until(page, f"{KNOWN} === 37500")
    # Beyond the end of a tile, and of the window.
    for n in range(1, 41):
        scene("3")
        until(page, f"{KNOWN} >= {37_500 + 750 * n}")
    grown = pixels(page)
    page.reload()
    until(page, f"{KNOWN} === 67500")
    assert pixels(page) == grown


def restarted(page, address, _):
    drawn(page, address)
    chosen = page.locator("select option:checked")
    expect(chosen).to_contain_text("app")
    scene("restart")
    expect(chosen).to_contain_text("other")
    until(page, f"{KNOWN} === 250")
    page.mouse.move(*middle(page))
    expect(page.locator(".point")).to_contain_text("to 0x550010100000")
    # The browser logs answers about the process that is gone, and about its axis.
    page.console[:] = [text for text in page.console if "404" not in text and "409" not in text]


def replaced(page, address, _):
    drawn(page, address)
    until(page, f"{KNOWN} === 10000")
    scene("replace 60")
    until(page, f"{KNOWN} === 15000")
    shown = pixels(page)
    page.reload()
    until(page, f"{KNOWN} === 15000")
    assert pixels(page) == shown


def link_of_another_site(page, address, _):
    page.goto(f"data:text/html,<a href='{address}'>open</a>")
    page.get_by_role("link").click()
    page.wait_for_url(re.compile("/$"))
    until(page, f"{DRAWN} > 0")


def refused(page, address, _):
    url = urllib.parse.urlsplit(address)
    for status, path in ((401, "/"), (401, "/?token=wrong"), (401, "/api/state")):
        assert page.goto(f"http://{url.netloc}{path}").status == status, path
    # A name that has the address of the server: main() has mapped it.
    foreign = f"http://foreign.example:{url.port}/?{url.query}"
    assert page.goto(foreign).status == 403
    assert not page.context.cookies()
    # The browser logs them.
    page.console.clear()
    drawn(page, address)


def hostile_names(page, address, _):
    drawn(page, address)
    until(page, "document.querySelectorAll('tbody tr').length === 2")
    page.mouse.move(*middle(page))
    expect(page.locator(".point")).to_contain_text("Hz")
    for selector in ("tbody", "select"):
        assert HOSTILE in page.locator(selector).text_content(), selector
    assert page.evaluate("document.images.length + document.scripts.length") == 1
    assert page.title() == "isotherm"


def accessible(page, address, _):
    open_page(page, address)
    until(page, "document.querySelectorAll('tbody tr').length === 1")
    page.mouse.move(*middle(page))
    expect(page.locator(".point")).to_contain_text("Hz")
    page.get_by_role("button", name="Keys").click()
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        lowest = page.evaluate(CONTRAST)
        assert lowest[0] >= 4.5, (theme, lowest)
    # The names and roles that the browser computes for a screen reader.
    tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    of = [(node["role"]["value"], node.get("name", {}).get("value")) for node in tree if not node["ignored"]]
    controls = [(role, name) for role, name in of if role in CONTROLS]
    assert {role for role, _ in controls} >= {"application", "button", "combobox", "image", "link"}, controls
    assert all(name and name.strip() for _, name in controls), controls
    # Tab reaches the heat map, from the start of the page.
    page.evaluate("document.activeElement.blur()")
    for _ in range(14):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.classList.contains('heat')"):
            return
    raise AssertionError("Tab does not reach the heat map")


def sorts_by_keys(page, address, _):
    open_page(page, address)
    until(page, "document.querySelectorAll('tbody tr').length === 3")
    head = page.locator("th", has_text="process")
    expect(page.locator("th", has_text="resident")).to_have_attribute("aria-sort", "descending")
    # From the button before it, by Tab.
    page.get_by_role("button", name="Show control groups").focus()
    page.keyboard.press("Tab")
    if not page.evaluate("document.activeElement.matches('th button')"):
        page.keyboard.press("Tab")
    expect(head.get_by_role("button")).to_be_focused()
    page.keyboard.press("Enter")
    expect(head).to_have_attribute("aria-sort", "ascending")
    assert names(page) == ["ant", "mole", "zebra"]
    page.keyboard.press("Space")
    expect(head).to_have_attribute("aria-sort", "descending")
    assert names(page) == ["zebra", "mole", "ant"]
    # Another column: ants have more saved memory than zebras, and moles the most.
    page.locator("th", has_text="saved").get_by_role("button").focus()
    page.keyboard.press("Enter")
    expect(page.locator("th", has_text="saved")).to_have_attribute("aria-sort", "descending")
    assert head.get_attribute("aria-sort") is None
    assert names(page) == ["mole", "ant", "zebra"]
    # Enter on a row shows its heat map.
    page.locator("tbody tr").first.focus()
    page.keyboard.press("Enter")
    expect(page.locator("select option:checked")).to_contain_text("mole")


def dark_and_light(page, address, _):
    pictures = {}
    for theme, paper in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(18, 21, 27)")):
        page.emulate_media(color_scheme=theme)
        drawn(page, address)
        expect(page.locator("body")).to_have_css("background-color", paper)
        pictures[theme] = pixels(page)
        corner = page.locator(".overview").evaluate("(e) => getComputedStyle(e).backgroundColor")
        assert corner == paper, theme
    assert pictures["light"] != pictures["dark"]
    # A page that is open follows the system.
    page.emulate_media(color_scheme="light")
    until(page, f"({PIXELS})(document.querySelector('.heat')) === {pictures['light']}")


def record(page, address, _):
    open_page(page, address)
    until(page, "document.getElementById('state').textContent.startsWith('record;')")
    scene("load")
    until(page, f"{DRAWN} > 0 && {VIEW}.to === 100000")
    # The browser logs the answers that the record was not ready.
    page.console.clear()
    assert view(page)["from"] == 0
    until(page, "document.querySelectorAll('tbody tr').length === 2")
    note = page.locator(".pane > .note")
    expect(note).to_have_text(re.compile("^400 snapshots"))
    expect(note).not_to_contain_text("reading")
    expect(page.locator("#follow")).to_be_hidden()
    expect(page.locator(".bar .note")).to_contain_text("at the end")
    # A click shows the table of that time.
    page.mouse.click(*middle(page))
    expect(page.locator(".bar .note")).to_have_text(re.compile(r"^at \d"))


def read_while_refreshing(page, address, _):
    open_page(page, address)
    until(page, "document.getElementById('state').textContent.startsWith('record;')")
    held = []
    page.route(re.compile(r"/table\?ms=25000&"), lambda route: held.append(route))
    # After the first sample the table waits for its next turn, so that the page asks for it by itself.
    scene("50")
    scene("100")
    end = time.monotonic() + TIMEOUT_MS / 1000
    while not held:
        assert time.monotonic() < end, page.console
        page.wait_for_timeout(50)
    scene("load")
    # The page learns that all is read before it gets the answer about the sample.
    page.wait_for_timeout(2000)
    held[0].fulfill(status=503)
    until(page, "document.querySelectorAll('tbody tr').length === 2")
    expect(page.locator(".bar .note")).to_contain_text("at the end")
    # The browser logs the answers that the record was not ready.
    page.console.clear()


def two_records(page, address, _):
    open_page(page, address)
    until(page, "document.getElementById('state').textContent.startsWith('record and record;')")
    # Both are read while the page is open.
    scene("load")
    views = f"{HEATS}.map((e) => JSON.parse(e.dataset.view))"
    until(page, f"{HEATS}.length === 2 && {HEATS}.every((e) => Number(e.dataset.drawn) > 0)")
    expect(page.locator("#state")).to_have_text(re.compile("^record and record;"))
    titles = page.locator("h2.name").all_text_contents()
    assert [os.path.basename(title) for title in titles] == ["long.rec", "short.rec"]
    left, right = (heat.bounding_box() for heat in page.locator(".heat").all())
    assert left["y"] == right["y"] and left["x"] + left["width"] <= right["x"], (left, right)
    # Both show the whole time of the longer one.
    whole = f"{views}.every((v) => v.from === 0 && v.to === 100000)"
    until(page, whole)
    # The browser logs the answers that the records were not ready.
    page.console.clear()
    choices = page.locator("select")
    expect(choices.nth(0).locator("option")).to_have_count(2)
    expect(choices.nth(1).locator("option")).to_have_count(3)
    keep(page, "two-records.png")
    # Zoomed in one, they still show the same.
    zoom_in(page)
    until(page, f"{views}.every((v) => v.from > 0)")
    shown = page.evaluate(views)
    assert (shown[0]["from"], shown[0]["to"]) == (shown[1]["from"], shown[1]["to"])
    assert span(shown[1], "from", "to") < 20_000
    # The key in the shorter one shows the whole time of both.
    page.locator(".heat").nth(1).focus()
    page.keyboard.press("0")
    until(page, whole)


def marks(page, address, _):
    scene("load")
    drawn(page, address)
    box = page.locator(".marks")
    expect(box).to_be_hidden()
    page.get_by_text("What schemes did").click()
    # The newest is the first.
    expect(box.locator("li")).to_have_text(["1:00: cold (pageout) 5.00 MiB", "21 s: cold (pageout) 3.00 MiB"])
    # The triangles above the time line are as dark as text, and only there.
    at = """(part) => {
      const canvas = document.querySelector('.overview');
      const x = 64 + part * (canvas.clientWidth - 64);
      return `${canvas.getContext('2d').getImageData(x, 4, 1, 1).data}`;
    }"""
    for part, color in ((0.205, "27,31,39,255"), (0.6, "27,31,39,255"), (0.4, "0,0,0,0")):
        until(page, f"({at})({part}) === '{color}'")


def saves(page, address, folder):
    scene("load")
    drawn(page, address)
    for button, name, kind in (
        ("PNG", "isotherm.png", "image/png"),
        ("SVG", "isotherm.svg", "image/svg+xml"),
        ("Record of this span", "isotherm.rec", "application/octet-stream"),
    ):
        with page.expect_download() as saved:
            page.get_by_role("button", name=button, exact=True).click()
        assert saved.value.suggested_filename == name
        saved.value.save_as(os.path.join(folder, name))
        headers = page.request.get(saved.value.url).headers
        assert headers["content-type"] == kind, headers
        assert headers["content-disposition"] == f'attachment; filename="{name}"', headers
    with open(os.path.join(folder, "isotherm.png"), "rb") as file:
        assert file.read().startswith(b"\x89PNG")
    with open(os.path.join(folder, "isotherm.svg"), encoding="utf-8") as file:
        assert "<svg" in file.read()


def main():
    case, chromium, address, folder = (*sys.argv[1:], None)[:4]
    expect.set_options(timeout=TIMEOUT_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium,
            args=["--host-resolver-rules=MAP foreign.example 127.0.0.1"],
        )
        page = browser.new_page(viewport={"width": 1280, "height": 1250})
        page.set_default_timeout(TIMEOUT_MS)
        # What the page writes, its errors and its dialogs. Warnings are about the test's own reading of pixels.
        page.console = []
        page.on("console", lambda message: message.type == "warning" or page.console.append(message.text))
        page.on("pageerror", lambda error: page.console.append(str(error)))
        page.on("dialog", lambda dialog: (page.console.append("a dialog"), dialog.dismiss()))
        globals()[case](page, address, folder)
        assert not page.console, page.console
        browser.close()


main()
