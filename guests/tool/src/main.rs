//! A tool for scripts in guests, in addition to busybox: it reads JSON, and yields the time of CPU 0 to the other
//! CPUs.

use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Deserializer, Value};

const USAGE: &str = "guest-tool json FILE PATH [OTHERWISE]: the one value there; OTHERWISE if there is none\n\
    guest-tool all FILE PATH: all values there, of which there is one at least, a line each\n\
    guest-tool sum FILE PATH: the sum of all numbers there, of which there is one at least\n\
    guest-tool yield: lends the CPU to the others of the emulator, for ever\n\
    FILE holds JSON values, one after the other. PATH is names of keys with dots between them. Its first key is \
    found at any depth; after a dot, only at the top. KEY=VALUE in it stands for those elements of a list, or values of an object, that are \
    objects with this key and text.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let answer = match arguments[..] {
        ["json", file, path] => read(file).and_then(|text| one(&text, path, None)),
        ["json", file, path, otherwise] => {
            read(file).and_then(|text| one(&text, path, Some(otherwise)))
        }
        ["all", file, path] => read(file).and_then(|text| all(&text, path)),
        ["sum", file, path] => read(file).and_then(|text| sum(&text, path)),
        ["yield"] => lend(),
        _ => Err(USAGE.to_owned()),
    };
    match answer {
        Ok(answer) => {
            println!("{answer}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("guest-tool: {}: {why}", arguments.join(" "));
            ExitCode::FAILURE
        }
    }
}

/// With a clock that counts instructions, QEMU 7.2 runs its CPUs in turn up to the next timer, and begins
/// with CPU 0 after each timer. While CPU 0 is busy, no other CPU would run at all. This instruction hands
/// the time up to the next timer to the next CPU.
fn lend() -> ! {
    loop {
        std::hint::spin_loop();
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn read(file: &str) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|e| e.to_string())
}

fn word(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(_) | Value::Bool(_) => Ok(value.to_string()),
        other => Err(format!("it is no text, number or truth value: {other}")),
    }
}

/// The only value at a path, as text.
fn one(text: &str, path: &str, otherwise: Option<&str>) -> Result<String, String> {
    match (&at(text, path)?[..], otherwise) {
        ([], Some(otherwise)) => Ok(otherwise.to_owned()),
        ([value], _) => word(value),
        (values, _) => Err(format!("{} values, not one", values.len())),
    }
}

/// All values at a path, as lines.
fn all(text: &str, path: &str) -> Result<String, String> {
    let words: Vec<String> = at(text, path)?.iter().map(word).collect::<Result<_, _>>()?;
    if words.is_empty() { Err("no value".to_owned()) } else { Ok(words.join("\n")) }
}

/// The sum of all integers at a path.
fn sum(text: &str, path: &str) -> Result<String, String> {
    let values = at(text, path)?;
    let numbers = values.iter().map(|v| v.as_u64().ok_or(format!("it is no whole number: {v}")));
    let numbers: Vec<u64> = numbers.collect::<Result<_, _>>()?;
    if numbers.is_empty() {
        return Err("no value".to_owned());
    }
    let sum = numbers.into_iter().try_fold(0u64, u64::checked_add);
    sum.map(|sum| sum.to_string()).ok_or("the sum is too large".to_owned())
}

/// All values at a path.
fn at(text: &str, path: &str) -> Result<Vec<Value>, String> {
    let documents: Result<Vec<Value>, _> = Deserializer::from_str(text).into_iter().collect();
    let documents = documents.map_err(|e| e.to_string())?;
    if documents.is_empty() {
        return Err("it is empty".to_owned());
    }
    let mut steps = path.split('.');
    let mut found = Vec::new();
    match steps.next() {
        None | Some("") => found.extend(&documents),
        Some(first) => documents.iter().for_each(|d| anywhere(d, first, &mut found)),
    }
    for name in steps {
        let elements = found.into_iter().flat_map(|value| match value {
            // A key selects an element of a list.
            Value::Array(all) if !name.contains('=') => all.iter().collect(),
            value => vec![value],
        });
        found = elements.flat_map(|value| step(value, name)).collect();
    }
    Ok(found.into_iter().cloned().collect())
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(all) => all.iter().collect(),
        Value::Object(all) => all.values().collect(),
        _ => Vec::new(),
    }
}

/// One step down a path.
fn step<'a>(value: &'a Value, name: &str) -> Vec<&'a Value> {
    match name.split_once('=') {
        Some((key, text)) => {
            let is_it = |v: &&Value| v.get(key).and_then(Value::as_str) == Some(text);
            children(value).into_iter().filter(is_it).collect()
        }
        None => value.get(name).into_iter().collect(),
    }
}

/// That step, from any place at which it is possible.
fn anywhere<'a>(value: &'a Value, name: &str, found: &mut Vec<&'a Value>) {
    found.extend(step(value, name));
    children(value).into_iter().for_each(|child| anywhere(child, name, found));
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"start":1,"regions":[{"name":"hot","start":2,"n":[]},{"name":"a b","start":3}]}
        {"total":{"moved":4}} {"total":{"moved":5},"on":true,"word":"x"}"#;

    #[test]
    fn one_value_is_one() {
        assert_eq!(one(TEXT, "name=hot.start", None).unwrap(), "2");
        assert_eq!(one(TEXT, "regions.name=a b.start", None).unwrap(), "3");
        assert_eq!(all(TEXT, ".regions.start").unwrap(), "2\n3");
        assert_eq!(one(TEXT, ".start", None).unwrap(), "1");
        assert_eq!(one(TEXT, "on", None).unwrap(), "true");
        assert_eq!(one(TEXT, "word", Some("y")).unwrap(), "x");
        assert_eq!(one(TEXT, "end", Some("0")).unwrap(), "0");
        assert!(one(TEXT, "start", Some("0")).unwrap_err().contains("3 values"));
        assert_eq!(all(TEXT, "start").unwrap(), "1\n2\n3");
        assert!(all(TEXT, "end").unwrap_err().contains("no value"));
        for (path, why) in [
            ("start", "3 values"),
            ("total.moved", "2 values"),
            ("end", "0 values"),
            ("name=cold.start", "0 values"),
            ("n", "no text, number"),
            ("", "3 values"),
        ] {
            let said = one(TEXT, path, None).unwrap_err();
            assert!(said.contains(why), "{path}: {said}");
        }
    }

    #[test]
    fn a_sum_is_of_numbers() {
        assert_eq!(sum(TEXT, "total.moved").unwrap(), "9");
        assert_eq!(sum(TEXT, "start").unwrap(), "6");
        assert!(sum(TEXT, "end").unwrap_err().contains("no value"));
        assert!(sum(TEXT, "word").unwrap_err().contains("no whole number"));
        assert!(sum(&"{\"a\":18446744073709551615}".repeat(2), "a").unwrap_err().contains("large"));
    }

    #[test]
    fn what_is_no_json_is_an_error() {
        for text in ["", " \n", "{", "{\"a\":1} x"] {
            assert!(one(text, "a", None).is_err(), "{text}");
        }
    }
}
