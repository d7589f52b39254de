//! The page in a real browser. Without Chromium these tests print that and pass; `apt-get install
//! chromium-headless-shell` has it. `ISOTHERM_SCREENSHOTS=DIR` keeps pictures of the page.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "tests, and what helps them")]

mod chromium;
mod records;
#[path = "../scene/mod.rs"]
mod scene;

use serde_json::{Value, json};

use crate::chromium::Browser;
use crate::scene::Scene;

const HOSTILE: &str = "<img src=x onerror=alert(1)><script>document.title='owned'</script>";

fn browser_or_skip() -> Option<Browser> {
    let browser = Browser::start();
    if browser.is_none() {
        assert!(std::env::var_os("ISOTHERM_REQUIRE_ALL").is_none(), "Chromium is missing");
        eprintln!("skipped: there is no Chromium (apt-get install chromium-headless-shell)");
    }
    browser
}

/// Keeps a picture of the page, if requested.
fn keep(browser: &mut Browser, name: &str) {
    if let Some(dir) = std::env::var_os("ISOTHERM_SCREENSHOTS") {
        std::fs::write(std::path::Path::new(&dir).join(name), browser.screenshot()).unwrap();
    }
}

const DRAWN: &str = "Number(document.querySelector('.heat')?.dataset.drawn ?? 0)";

/// The middle of the heat map, in the window.
fn middle(browser: &mut Browser) -> (f64, f64) {
    let place = browser.value(
        "(() => { const b = document.querySelector('.heat').getBoundingClientRect(); \
         return [b.left + b.width / 2, b.top + b.height / 2]; })()",
    );
    (place[0].as_f64().unwrap(), place[1].as_f64().unwrap())
}

/// A checksum of the pixels of the heat map.
fn pixels(browser: &mut Browser) -> Value {
    browser.value(
        "(() => { const c = document.querySelector('.heat'); \
         const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; \
         let s = 0; for (let i = 0; i < d.length; i += 7) s = (s * 31 + d[i]) | 0; return s; })()",
    )
}

/// The view that was drawn last: ms, and bytes of the axis.
const VIEW: &str = "JSON.parse(document.querySelector('.heat').dataset.view)";

fn view(browser: &mut Browser) -> Value {
    browser.value(VIEW)
}

fn span(view: &Value, from: &str, to: &str) -> f64 {
    view[to].as_f64().unwrap() - view[from].as_f64().unwrap()
}

fn texts(browser: &mut Browser, selector: &str) -> String {
    let text = format!(
        "[...document.querySelectorAll({selector:?})].map((e) => e.textContent).join('\\n')"
    );
    browser.value(&text).as_str().unwrap_or_default().to_owned()
}

#[test]
fn the_live_view_moves_and_zooms_and_says_what_is_there() {
    let Some(mut browser) = browser_or_skip() else { return };
    let mut scene = Scene::new(&["redis-server", "postgres"]);
    scene.snapshots(160, 2);
    browser.open(scene.server.address());
    browser.until(&format!("{DRAWN} > 0"), || {});
    assert_eq!(browser.value("location.search"), json!(""), "the token has left the address");
    // It moves: the page follows what is known, and draws it.
    let before = view(&mut browser);
    browser.until(&format!("{VIEW}.to > {} + 1000", before["to"]), || scene.snapshots(2, 2));
    let after = view(&mut browser);
    assert_eq!(span(&after, "from", "to"), span(&before, "from", "to"));
    browser.until("document.querySelectorAll('tbody tr').length === 2", || scene.snapshots(1, 2));
    keep(&mut browser, "live-light.png");
    // The wheel zooms in, at the mouse.
    let (x, y) = middle(&mut browser);
    browser.value("document.getElementById('all').click()");
    browser.until(&format!("{VIEW}.from === 0"), || {});
    let before = view(&mut browser);
    browser.mouse("mouseWheel", x, y, json!({ "deltaX": 0, "deltaY": -900 }));
    browser.until(&format!("{VIEW}.from > 0"), || {});
    let after = view(&mut browser);
    for (from, to) in [("from", "to"), ("low", "high")] {
        let factor = span(&before, from, to) / span(&after, from, to);
        assert!((7.9..8.1).contains(&factor), "{from}: {factor}");
    }
    // The crosshair says what is below the mouse.
    browser.mouse("mouseMoved", x, y + 20.0, json!({}));
    browser.until("document.querySelector('.point').textContent.includes('95 % interval')", || {});
    let point = texts(&mut browser, ".point dd");
    assert!(
        point.contains("[heap]") && point.contains("Hz") && point.contains("kept its heat"),
        "{point}"
    );
    // The keyboard does too.
    browser.value("document.querySelector('.heat').focus()");
    browser.key("ArrowRight", 0);
    browser.key("+", 0);
    browser.key("ArrowDown", 0);
    let drawn = browser.value(DRAWN);
    browser.key("0", 0);
    browser.until(&format!("{DRAWN} > {drawn}"), || {});
    // Dark.
    browser.value("document.getElementById('theme').click()");
    assert_eq!(
        browser.value("getComputedStyle(document.body).backgroundColor"),
        json!("rgb(18, 21, 27)")
    );
    browser.until("document.querySelector('.point').textContent !== ''", || {});
    keep(&mut browser, "live-dark.png");
    assert!(browser.console.is_empty(), "{:?}", browser.console);
}

/// The page fetches only new columns: the picture is that of a page that has fetched everything.
#[test]
fn new_columns_complete_the_picture() {
    let Some(mut browser) = browser_or_skip() else { return };
    let mut scene = Scene::new(&["app"]);
    scene.snapshots(150, 1);
    browser.open(scene.server.address());
    let known = "Number(document.querySelector('.heat')?.dataset.known ?? 0)";
    browser.until(&format!("{known} === 37500"), || {});
    // Beyond the end of a tile, and of the window.
    for n in 1..=40 {
        scene.snapshots(3, 1);
        browser.until(&format!("{known} >= {}", 37_500 + 750 * n), || {});
    }
    let grown = pixels(&mut browser);
    browser.value("(window.isOld = true, location.reload())");
    browser.until(&format!("window.isOld === undefined && {known} === 67500"), || {});
    assert_eq!(pixels(&mut browser), grown);
    assert!(browser.console.is_empty(), "{:?}", browser.console);
}

/// Browsers send no strict cookie with a click in another site, nor with a redirect that follows.
#[test]
fn a_link_of_another_site_opens_the_page() {
    let Some(mut browser) = browser_or_skip() else { return };
    let mut scene = Scene::new(&["app"]);
    scene.snapshots(40, 1);
    browser.open(&format!("data:text/html,<a id=a href='{}'>open</a>", scene.server.address()));
    browser.until("document.getElementById('a') !== null", || {});
    browser.value("document.getElementById('a').click()");
    browser.until(&format!("{DRAWN} > 0"), || {});
    assert_eq!(browser.value("location.search"), json!(""), "the token has left the address");
    assert!(browser.console.is_empty(), "{:?}", browser.console);
}

#[test]
fn hostile_names_are_text() {
    let Some(mut browser) = browser_or_skip() else { return };
    let mut scene = Scene::new(&[HOSTILE, "app"]);
    scene.snapshots(40, 2);
    browser.open(scene.server.address());
    browser.until(&format!("{DRAWN} > 0"), || {});
    browser.until("document.querySelectorAll('tbody tr').length === 2", || {});
    let (x, y) = middle(&mut browser);
    browser.mouse("mouseMoved", x, y, json!({}));
    browser.until("document.querySelector('.point').textContent.includes('Hz')", || {});
    assert!(
        texts(&mut browser, "tbody").contains(HOSTILE)
            && texts(&mut browser, "option").contains(HOSTILE)
    );
    assert_eq!(browser.value("document.images.length + document.scripts.length"), json!(1));
    assert_eq!(browser.value("document.title"), json!("isotherm"));
    assert!(browser.console.is_empty(), "{:?}", browser.console);
}

/// Text on its background has a contrast of at least 4.5 in both themes, and everything that can be clicked has a name.
#[test]
fn it_can_be_read_and_operated() {
    let Some(mut browser) = browser_or_skip() else { return };
    let mut scene = Scene::new(&["app"]);
    scene.snapshots(40, 1);
    browser.open(scene.server.address());
    browser.until("document.querySelectorAll('tbody tr').length === 1", || {});
    for theme in ["light", "dark"] {
        browser.value(&format!("document.documentElement.dataset.theme = '{theme}'"));
        let lowest = browser.value(CONTRAST);
        assert!(lowest.as_f64() >= Some(4.5), "{theme}: {lowest}");
    }
    let unnamed = browser.value(
        "[...document.querySelectorAll('button, select, canvas[tabindex], canvas[role]')]\
         .filter((e) => !(e.textContent || e.labels?.length || e.ariaLabel)).map((e) => e.className)",
    );
    assert_eq!(unnamed, json!([]));
    // Tab reaches the heat map.
    for _ in 0..12 {
        browser.key("Tab", 0);
        if browser.value("document.activeElement.classList.contains('heat')") == json!(true) {
            return;
        }
    }
    panic!("Tab does not reach the heat map");
}

/// The lowest contrast of a text to its background, as WCAG defines it.
const CONTRAST: &str = "(() => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (c) => { const [r, g, b] = c.map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  let lowest = 99;
  for (const e of document.querySelectorAll('p, h1, h2, h3, button, th, td, span, select, label')) {
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || !e.offsetParent) continue;
    let at = e, back = [0, 0, 0, 0];
    while (at && back.length === 4 && back[3] === 0) { back = rgb(getComputedStyle(at).backgroundColor); at = at.parentElement; }
    const [a, b] = [light(rgb(getComputedStyle(e).color).slice(0, 3)), light(back.slice(0, 3))];
    lowest = Math.min(lowest, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
  }
  return lowest;
})()";
