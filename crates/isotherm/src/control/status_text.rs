//! The state of a service as text.

use isotherm_report::{bytes, counted, per_mib_saved, printable, significant};
use serde_json::Value;

/// Maximum number of processes in the text, those with the most cold memory first.
const MAX_SHOWN: usize = 20;

/// The state of a service, the answer to [`Request::Status`](super::Request::Status), as text.
#[must_use]
pub fn status_text(s: &Value) -> String {
    let doing = match (s["paused"].as_bool(), s["dry_run"].as_bool()) {
        (Some(true), _) => "paused",
        (_, Some(true)) => "dry run: does nothing",
        _ if s["schemes"].is_array() => "at work",
        _ => "recording",
    };
    let mut out = format!(
        "isotherm {}, process {}, since {}: {doing}\n",
        s["version"].as_str().unwrap_or("?"),
        s["pid"],
        s["since"].as_str().unwrap_or("?"),
    );
    out += &cost(&s["cost"]);
    if let Some(n) = s["postponed"].as_u64().filter(|n| *n > 0) {
        out += &format!("readings of processes that failed and were tried again: {n}\n");
    }
    out += &record(&s["record"]);
    out += &if s["targets"].is_array() { processes(s) } else { machine_text(&s["total"]) };
    if !s["schemes"].is_array() {
        return out;
    }
    out += &format!(
        "\n{:<16} {:<12} {:>10} {:>10} {:>10} {:>9} {:>8} {:>8}\n",
        "scheme", "action", "tried", "applied", "failed", "took", "exceeded", "inactive"
    );
    for r in s["schemes"].as_array().into_iter().flatten() {
        out += &scheme(r);
    }
    out + &refaults(&s["refaults"], s["total"]["saved"].as_u64())
}

/// The code that brings memory back, with its rate, and what each MiB of the saved bytes costs it.
fn refaults(r: &Value, saved: Option<u64>) -> String {
    let Some(rate) = r["per_second"].as_f64() else { return String::new() };
    let price = |rate| per_mib_saved(rate, saved.map(|bytes| bytes as f64)).map(significant);
    let all =
        price(rate).map_or_else(String::new, |n| format!(", {n} a minute for each MiB saved"));
    let mut out = format!("\nmemory comes back: {rate:.1} major faults a second{all}\n");
    for stack in r["stacks"].as_array().into_iter().flatten() {
        let frames: Vec<String> =
            stack["frames"].as_array().into_iter().flatten().map(frame).collect();
        let rate = stack["per_second"].as_f64().unwrap_or(0.0);
        out += &format!(
            "{rate:>10.1} {:>8} {:>8} {:<16} {}\n",
            price(rate).unwrap_or_default(),
            stack["pid"].as_u64().map_or_else(String::new, |pid| pid.to_string()),
            printable(stack["thread"].as_str().unwrap_or("")),
            printable(&frames.join(" > "))
        );
    }
    out
}

/// The function of a frame; without a name, its file and offset, or its address.
fn frame(f: &Value) -> String {
    let number = |key: &str| f[key].as_u64().unwrap_or(0);
    match (f["function"].as_str(), f["file"].as_str()) {
        (Some(name), _) => name.to_owned(),
        (None, Some(file)) => {
            let name = file.rsplit('/').next().unwrap_or(file);
            format!("{name}+{:#x}", number("offset"))
        }
        (None, None) => format!("{:#x}", number("address")),
    }
}

/// Memory of the whole machine, if its processes are not known: memory that the kernel never acts
/// on, and memory that only the kernel observes.
#[must_use]
pub fn machine_text(total: &Value) -> String {
    if !total.is_object() {
        return String::new();
    }
    let seen = reasons(&total["seen_by_kernel"]);
    let seen = seen.map(|by| {
        format!(
            "only the kernel observes it, and isotherm acts on it like \
                                      on other memory: {by}\n"
        )
    });
    let in_use = format!(
        "\n{} in use, of which {} is unknown\n",
        size(&total["resident"]),
        size(&total["unknown"])
    );
    in_use + &unknown(&total["unknown_by"]) + &seen.unwrap_or_default()
}

/// The memory of each process, by heat.
fn processes(s: &Value) -> String {
    let mut out = format!(
        "\n{:>8} {:<16} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}\n",
        "pid", "command", "resident", "hot", "warm", "cold", "unknown", "saved"
    );
    let mut targets: Vec<&Value> = s["targets"].as_array().into_iter().flatten().collect();
    targets.sort_by_key(|t| std::cmp::Reverse(t["cold"].as_u64()));
    for t in targets.iter().take(MAX_SHOWN) {
        let pid = t["pid"].as_u64().map_or_else(String::new, |pid| pid.to_string());
        out += &memory(&pid, &printable(t["comm"].as_str().unwrap_or("")), t);
    }
    if targets.len() > MAX_SHOWN {
        out += &format!("         and {} more\n", targets.len() - MAX_SHOWN);
    }
    out += &memory("all", "", &s["total"]);
    out + &unknown(&s["total"]["unknown_by"])
}

fn cost(c: &Value) -> String {
    let percent = |key: &str| c[key].as_f64().map(|share| share * 100.0);
    let startup = c["startup_seconds"].as_f64();
    let mut out = format!("own CPU {:.2} %", percent("own_cpu").unwrap_or(0.0));
    out += &startup.map_or_else(String::new, |s| format!(" and {s:.2} s to start"));
    out += &percent("lost").map_or_else(String::new, |p| format!(", the targets lost {p:.2} %"));
    out += &percent("budget").map_or_else(String::new, |p| format!(" (budget {} %)", as_typed(p)));
    let support = ["measured", "extended", "old"].map(|key| percent(key).map(|p| (key, p)));
    match support {
        [Some(measured), more @ ..] => {
            let more = more.into_iter().flatten().filter(|(_, p)| *p >= 0.5);
            for (key, p) in std::iter::once(measured).chain(more) {
                out += &format!(", {p:.0} % {key}");
            }
        }
        _ => out += &percent("coverage").map_or_else(String::new, |p| format!(", {p:.0} % seen")),
    }
    out + "\n"
}

/// A budget in percent as it was typed: rounded to a millionth of a CPU.
fn as_typed(percent: f64) -> f64 {
    (percent * 1e4).round() / 1e4
}

fn record(r: &Value) -> String {
    let Some(file) = r["file"].as_str() else { return String::new() };
    let snapshots = r["snapshots"].as_u64().unwrap_or_default();
    let so_far = format!("{}, {} in {file}", counted(snapshots, "snapshot"), size(&r["bytes"]));
    match r["ended"].as_str() {
        Some(why) => format!("recording has ended, {so_far}: {why}\n"),
        None => format!("recording: {so_far}\n"),
    }
}

fn size(v: &Value) -> String {
    v.as_u64().map_or_else(|| "?".to_owned(), bytes)
}

fn memory(pid: &str, comm: &str, m: &Value) -> String {
    let of = |key: &str| size(&m[key]);
    format!(
        "{pid:>8} {comm:<16} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}\n",
        of("resident"),
        of("hot"),
        of("warm"),
        of("cold"),
        of("unknown"),
        of("saved"),
    )
}

/// The memory that isotherm never acts on, by reason.
fn unknown(by: &Value) -> String {
    let reasons = reasons(by);
    reasons.map_or_else(String::new, |by| format!("unknown memory is never acted on: {by}\n"))
}

/// Bytes by reason; `None` if there are none.
fn reasons(by: &Value) -> Option<String> {
    let reasons = by.as_object().into_iter().flatten();
    let reasons: Vec<String> = reasons.map(|(why, n)| format!("{why} {}", size(n))).collect();
    (!reasons.is_empty()).then(|| reasons.join(", "))
}

fn scheme(r: &Value) -> String {
    let of = |key: &str| size(&r[key]["bytes"]);
    format!(
        "{:<16} {:<12} {:>10} {:>10} {:>10} {:>8.3}s {:>8} {:>8}\n",
        r["scheme"].as_str().unwrap_or("?"),
        r["action"].as_str().unwrap_or("?"),
        of("tried"),
        of("applied"),
        of("failed"),
        r["took_seconds"].as_f64().unwrap_or(0.0),
        r["quota_exceeded"].as_u64().unwrap_or(0),
        r["inactive"].as_u64().unwrap_or(0),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn example(processes: u64) -> Value {
        let memory = |pid: u64| {
            json!({ "pid": pid, "comm": "redis", "resident": 3 << 20, "hot": 0, "warm": 0,
                    "cold": pid << 20, "unknown": 1 << 20, "unknown_by": { "kvm": 1 << 20 } })
        };
        let count = json!({ "regions": 1, "bytes": 4096 });
        json!({
            "version": "0.1.0", "pid": 7, "since": "now", "paused": true, "dry_run": false,
            "cost": { "own_cpu": 0.01, "lost": 0.001, "budget": 0.01, "coverage": 1.0 },
            "total": memory(1),
            "targets": (1..=processes).map(memory).collect::<Vec<_>>(),
            "schemes": [{ "scheme": "reclaim", "action": "pageout", "tried": count, "applied": count,
                          "failed": count, "took_seconds": 0.5, "quota_exceeded": 3, "inactive": 4 }],
        })
    }

    #[test]
    fn readings_that_failed_are_counted() {
        let mut status = example(1);
        status["postponed"] = json!(3);
        let text = status_text(&status);
        assert!(text.contains("failed and were tried again: 3\n"), "{text}");
    }

    #[test]
    fn columns_stand_below_their_heads() {
        let text = status_text(&example(2));
        let long = |begin: &str| text.lines().find(|l| l.trim().starts_with(begin)).unwrap().len();
        assert_eq!((long("pid"), long("scheme")), (long("all"), long("reclaim")));
        assert!(text.contains("paused") && text.contains("own CPU 1.00 %"), "{text}");
        assert!(text.contains("never acted on: kvm 1.0 MiB"), "{text}");
        assert!(!text.contains("tried again"), "{text}");
        for (share, said) in
            [(0.007, "(budget 0.7 %)"), (0.0123, "(budget 1.23 %)"), (1.0, "(budget 100 %)")]
        {
            let line = cost(&json!({ "own_cpu": 0.0, "budget": share }));
            assert!(line.contains(said), "{line}");
        }
        let known = json!({ "own_cpu": 0.0, "coverage": 1.0, "measured": 0.92, "extended": 0.08, "old": 0.0 });
        assert_eq!(cost(&known), "own CPU 0.00 %, 92 % measured, 8 % extended\n");
        let untold = json!({ "own_cpu": 0.0, "coverage": 1.0 });
        assert_eq!(cost(&untold), "own CPU 0.00 %, 100 % seen\n");
    }

    #[test]
    fn refault_stacks_have_function_names() {
        let frames = json!([
            { "address": 9, "function": "main", "file": "/bin/a", "offset": 5 },
            { "address": 8, "function": null, "file": "/lib/b.so", "offset": 16 },
            { "address": 4096, "function": null },
        ]);
        let stack = json!({ "pid": 70, "thread": "worker", "per_second": 11.5, "frames": frames });
        let r = json!({ "per_second": 12.25, "stacks": [stack] });
        let expected = "\nmemory comes back: 12.2 major faults a second\n      11.5                70 worker           \
                        main > b.so+0x10 > 0x1000\n";
        assert_eq!([refaults(&r, None), refaults(&r, Some(0))], [expected; 2]);
        let text = refaults(&r, Some(5 << 20));
        assert!(text.contains(" second, 147 a minute for each MiB saved\n"), "{text}");
        assert!(text.contains("\n      11.5      138       70 worker "), "{text}");
        assert_eq!(refaults(&Value::Null, Some(5 << 20)), "");
    }

    #[test]
    fn kernel_reclaim_reports_the_machine_only() {
        let total = json!({ "resident": 9 << 20, "unknown": 3 << 20, "seen_by_kernel": { "shared": 1 << 20 },
                            "unknown_by": { "hugetlb": 2 << 20, "special": 1 << 20 } });
        let mut status = example(0);
        status.as_object_mut().unwrap().remove("targets");
        status["total"] = total;
        let said = status_text(&status);
        for part in [
            "9.0 MiB in use, of which 3.0 MiB is unknown\n",
            "never acted on: hugetlb 2.0 MiB, special 1.0 MiB\n",
            "isotherm acts on it like on other memory: shared 1.0 MiB\n",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(!said.contains("command"), "{said}");
        status["total"] = Value::Null;
        assert!(!status_text(&status).contains("in use"));
    }

    #[test]
    fn processes_with_the_most_cold_memory_are_shown() {
        let text = status_text(&example(25));
        assert!(text.contains("and 5 more"), "{text}");
        assert!(text.contains("25 redis") && !text.contains("  5 redis"), "{text}");
    }
}
