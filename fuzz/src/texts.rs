//! Texts that people and other programs write: schemes, options, requests.

use std::path::Path;
use std::time::Duration;

use isotherm::control::Request;
use isotherm::options_file::{OptionKind, OptionsFile};
use isotherm::schemes::{SchemeSyntax, parse_as};
use isotherm_core::scheme::Engine;

use crate::bounded;

/// Length of an interval, for ages without a unit.
const INTERVAL: Duration = Duration::from_millis(100);

/// Parses schemes, one per line.
pub fn scheme_text(bytes: &[u8]) -> bool {
    bounded(|| schemes(bytes, SchemeSyntax::Txt))
}

/// Parses schemes in TOML.
pub fn scheme_toml(bytes: &[u8]) -> bool {
    bounded(|| schemes(bytes, SchemeSyntax::Toml))
}

/// What is a scheme by its text must be one for the engine, or be refused with a reason.
fn schemes(bytes: &[u8], form: SchemeSyntax) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    match parse_as(form, text, INTERVAL, &[]) {
        Ok(schemes) => {
            let names: Vec<_> = schemes.iter().map(|scheme| scheme.name.clone()).collect();
            let again = parse_as(form, text, INTERVAL, &schemes);
            assert!(
                form == SchemeSyntax::Toml || again.is_ok(),
                "lines have no names to collide: {names:?}"
            );
            if let Err(e) = Engine::new(schemes) {
                assert!(!e.to_string().is_empty());
            }
        }
        Err(why) => assert!(!why.is_empty()),
    }
    true
}

/// Reads a file of options, with schemes.
pub fn options_file(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    bounded(|| {
        let kind = |name: &str| match name {
            "all" | "pages" => Ok(OptionKind::Flag),
            "comm" | "goal" => Ok(OptionKind::Several),
            name if name.len() > 12 => Err("there is no such option".to_owned()),
            _ => Ok(OptionKind::One),
        };
        let read =
            |text: &str| OptionsFile::read(Path::new("f"), text.to_owned(), kind, |_| Ok(()));
        if let Ok(file) = read(text) {
            let _ = file.args(|name| name == "all").count();
            let _ = file.schemes(INTERVAL, "reclaim");
            assert!(file.check_change(&file, &["all", "comm"]).is_ok(), "it is as before");
        }
        true
    })
}

/// Parses requests of the control socket. What is printed of a request is a request: the last digit of a number may
/// differ, as serde_json parses it.
pub fn control(bytes: &[u8]) -> bool {
    bounded(|| {
        match Request::parse(bytes) {
            Ok(request) => {
                let text = serde_json::to_string(&request).unwrap();
                assert!(Request::parse(text.as_bytes()).is_ok(), "{text}");
                if let Request::Commit { schemes, form } = request {
                    let _ = parse_as(form, &schemes, INTERVAL, &[]);
                }
            }
            Err(why) => assert!(why.contains("not a valid request")),
        }
        true
    })
}
