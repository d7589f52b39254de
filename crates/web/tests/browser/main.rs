//! The page in a real browser. Without Chromium these tests print that and pass; `apt-get install
//! chromium-headless-shell` has it. `ISOTHERM_SCREENSHOTS=DIR` keeps pictures of the page.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "tests, and what helps them")]

mod chromium;
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

/// Keeps a picture of the page, if somebody wants it.
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
    // It moves.
    let before = (pixels(&mut browser), texts(&mut browser, ".note"));
    let drawn = browser.value(DRAWN);
    browser.until(&format!("{DRAWN} > {drawn} + 2"), || scene.snapshots(2, 2));
    assert_ne!(pixels(&mut browser), before.0);
    assert_ne!(texts(&mut browser, ".note"), before.1);
    browser.until("document.querySelectorAll('tbody tr').length === 2", || scene.snapshots(1, 2));
    keep(&mut browser, "live-light.png");
    // The wheel zooms in.
    let (x, y) = middle(&mut browser);
    let before = pixels(&mut browser);
    browser.value("document.getElementById('all').click()");
    browser.mouse("mouseWheel", x, y, json!({ "deltaX": 0, "deltaY": -900 }));
    let drawn = browser.value(DRAWN);
    browser.until(&format!("{DRAWN} > {drawn}"), || {});
    assert_ne!(pixels(&mut browser), before);
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
