//! A headless Chromium, driven by its debugging protocol over a pipe.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// No step takes as long as this.
pub const TIMEOUT: Duration = Duration::from_secs(120);

pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    last: u64,
    session: String,
    /// what the page has written to its console, and its errors
    pub console: Vec<String>,
    /// the addresses of downloads
    pub downloads: Vec<String>,
    _profile: TempDir,
}

impl Browser {
    /// `None` if there is no Chromium here.
    pub fn start() -> Option<Self> {
        let names = [
            "chromium-headless-shell",
            "headless_shell",
            "chromium",
            "chromium-browser",
            "google-chrome",
        ];
        let path = std::env::var_os("PATH")?;
        let find = |name| {
            std::env::split_paths(&path).map(|dir: PathBuf| dir.join(name)).find(|p| p.exists())
        };
        let program = names.into_iter().find_map(find)?;
        let profile = tempfile::tempdir().unwrap();
        // The protocol is on descriptors 3 and 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1"])
            .arg(program)
            .args([
                "--headless",
                "--remote-debugging-pipe",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
            ])
            .args([
                "--disable-dev-shm-usage",
                "--force-color-profile=srgb",
                "--window-size=1280,1250",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, from) =
            (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let (session, console) = (String::new(), Vec::new());
        let downloads = Vec::new();
        let mut browser =
            Browser { child, to, from, last: 0, session, console, downloads, _profile: profile };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session = attached["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Runtime.enable", "Log.enable", "Page.enable"] {
            browser.call(domain, json!({}));
        }
        Some(browser)
    }

    /// Calls a method of the protocol, and returns its result.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let mut message = json!({ "id": self.last, "method": method, "params": params });
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).unwrap();
        loop {
            let mut bytes = Vec::new();
            assert!(self.from.read_until(0, &mut bytes).unwrap() > 0, "the browser has ended");
            bytes.pop();
            let message: Value = serde_json::from_slice(&bytes).unwrap();
            match message["method"].as_str() {
                // Warnings are about the test's own reading of pixels.
                Some("Log.entryAdded") if message["params"]["entry"]["level"] != "error" => {}
                Some("Runtime.exceptionThrown" | "Runtime.consoleAPICalled" | "Log.entryAdded") => {
                    self.console.push(message["params"].to_string());
                }
                Some("Page.downloadWillBegin") => {
                    self.downloads.push(message["params"]["url"].as_str().unwrap().to_owned());
                }
                Some("Page.javascriptDialogOpening") => self.console.push("a dialog".into()),
                _ => {}
            }
            if message["id"] == self.last {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
        }
    }

    pub fn open(&mut self, address: &str) {
        self.call("Page.navigate", json!({ "url": address }));
    }

    /// The value of an expression in the page.
    pub fn value(&mut self, expression: &str) -> Value {
        let params =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        self.call("Runtime.evaluate", params)["result"]["value"].clone()
    }

    /// Waits until an expression is true; `meanwhile` is called now and then.
    pub fn until(&mut self, expression: &str, mut meanwhile: impl FnMut()) {
        let begin = Instant::now();
        while self.value(expression) != json!(true) {
            assert!(
                begin.elapsed() < TIMEOUT,
                "{expression} does not come true: {:?}",
                self.console
            );
            meanwhile();
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub fn key(&mut self, key: &str, modifiers: u32) {
        for kind in ["keyDown", "keyUp"] {
            let params = json!({ "type": kind, "key": key, "modifiers": modifiers });
            self.call("Input.dispatchKeyEvent", params);
        }
    }

    pub fn mouse(&mut self, kind: &str, x: f64, y: f64, more: Value) {
        let mut params = json!({ "type": kind, "x": x, "y": y });
        for (name, value) in more.as_object().into_iter().flatten() {
            params[name] = value.clone();
        }
        self.call("Input.dispatchMouseEvent", params);
    }

    /// The page as a PNG.
    pub fn screenshot(&mut self) -> Vec<u8> {
        let data = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        decode(data["data"].as_str().unwrap())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Decodes base64.
fn decode(text: &str) -> Vec<u8> {
    let value = |c: u8| match c {
        b'A'..=b'Z' => u32::from(c - b'A'),
        b'a'..=b'z' => u32::from(c - b'a') + 26,
        b'0'..=b'9' => u32::from(c - b'0') + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut out = Vec::new();
    for group in text.trim_end_matches('=').as_bytes().chunks(4) {
        let bits = group.iter().fold(0, |bits, c| bits << 6 | value(*c)) << (6 * (4 - group.len()));
        out.extend(&bits.to_be_bytes()[1..group.len()]);
    }
    out
}
