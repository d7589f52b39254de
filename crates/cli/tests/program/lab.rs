//! `isotherm lab`.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::run::run_in;

const MACHINE: &str = "about = 'a small one'\n[[node]]\nzones = [{ kind = 'dma32', pages = 4000 }, \
                       { kind = 'normal', pages = 6000 }]\n";
const STREAMS: &str = "about = 'a file'\nsize = 1.5\nthreads = [1, 2]\n\
                       [[phase]]\nname = 'SeqWrite'\nop = 'write'\norder = 'sequential'\n\
                       [[phase]]\nname = 'SeqRead'\nop = 'read'\norder = 'sequential'\n";

/// A directory with a machine and a workload.
fn small() -> TempDir {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("machine.toml"), MACHINE).unwrap();
    fs::write(dir.path().join("streams.toml"), STREAMS).unwrap();
    dir
}

fn fairzone(dir: &Path, more: &[&str]) -> crate::run::Done {
    let args = ["lab", "fairzone", "--machine", "machine.toml", "--workload", "streams.toml"];
    run_in(dir, &[&args, more].concat())
}

#[test]
fn fairzone_by_file_in_text_and_json() {
    let dir = small();
    fs::write(dir.path().join("mine.toml"), "fair = 'v1'\nswappiness = 0\n").unwrap();
    let more = ["--policy", "baseline", "--policy", "mine.toml"];
    let done = fairzone(dir.path(), &more);
    assert_eq!(done.status, 0, "{}", done.err);
    for part in ["a small one", "SeqRead-2", "mine.toml", "node 0 DMA32", "resets per 1000"] {
        assert!(done.text().contains(part), "{part}: {}", done.text());
    }
    let json = fairzone(dir.path(), &[&more[..], &["--json", "--seed", "7"]].concat());
    let found = json.json();
    assert_eq!((&found["schema_version"], &found["seed"]), (&1.into(), &7.into()));
    assert_eq!(found["runs"].as_array().unwrap().len(), 4);
    let phase = &found["runs"][3]["phases"][1];
    assert_eq!(phase["name"], "SeqRead");
    assert_eq!(phase["counts"]["reads"], 15_000);
    let shares = phase["zones"].as_array().unwrap().iter();
    let sum: f64 = shares.map(|z| z["allocated_percent"].as_f64().unwrap()).sum();
    assert!((sum - 100.0).abs() < 1e-6, "{sum}");
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let dir = small();
    let run = || fairzone(dir.path(), &["--json"]).out;
    assert_eq!(run(), run());
}

#[test]
fn pictures() {
    let dir = small();
    for (name, figure) in [("a.svg", "ages"), ("r.svg", "rates"), ("a.png", "ages")] {
        let done = fairzone(dir.path(), &["-o", name, "--figure", figure]);
        assert_eq!(done.status, 0, "{}", done.err);
        assert!(fs::metadata(dir.path().join(name)).unwrap().len() > 1000);
    }
    let ages = fs::read_to_string(dir.path().join("a.svg")).unwrap();
    assert!(ages.contains("node 0 DMA32") && ages.contains("landed, 1 thread"));
    let rates = fs::read_to_string(dir.path().join("r.svg")).unwrap();
    assert!(rates.contains("Streaming readers") && rates.contains("published"));
}

#[test]
fn a_process_can_be_the_workload() {
    let dir = small();
    let text = "about = 'x'\nislands = 0\nregion = [{ name = 'r', size = '16M', gap = '0' }]\n\
                [[phase]]\nname = 'steady'\nduration = '1s'\naccess = [{ region = 'r', rate = 5 }]\n";
    fs::write(dir.path().join("streams.toml"), text).unwrap();
    let done = fairzone(dir.path(), &["--policy", "node-lru"]);
    assert_eq!(done.status, 0, "{}", done.err);
    assert!(
        done.text().contains("steady-1") && done.text().contains("accesses, "),
        "{}",
        done.text()
    );
}

#[test]
fn scenarios() {
    let dir = small();
    let done = run_in(dir.path(), &["lab", "fairzone", "--scenarios", "--json"]);
    let found = done.json();
    let names = found["scenarios"].as_array().unwrap().iter().map(|s| s["name"].clone());
    assert_eq!(names.collect::<Vec<_>>(), ["boundary", "window", "storm", "remote"]);
}

#[test]
fn invalid_values_are_reported() {
    let dir = small();
    fs::write(dir.path().join("bad.toml"), "fair = 'v9'").unwrap();
    fs::write(dir.path().join("tiny.toml"), MACHINE.replace("4000", "0")).unwrap();
    fs::write(dir.path().join("long.toml"), " ".repeat(2 << 20)).unwrap();
    for (args, status, said) in [
        (&["--policy", "no-such"][..], 1, "no-such is not a policy"),
        (&["--policy", "bad.toml"], 2, "v9"),
        (&["--machine", "tiny.toml"], 2, "choose 1 or more"),
        (&["--machine", "gone.toml"], 1, "gone.toml"),
        (&["--workload", "machine.toml"], 2, "machine.toml"),
        (&["--workload", "long.toml"], 1, "longer than 1 MiB"),
        (&["--threads", "0"], 2, "--threads"),
        (&["--workload", "zipf", "--threads", "2"], 2, "--threads is for streams"),
        (&["--properties", "0"], 2, "--properties"),
        (&["--scenarios", "--threads", "1"], 2, "--scenarios"),
        (&["-o", "x.jpeg"], 2, ".png or .svg"),
        (&["--figure", "ages"], 2, "--output"),
    ] {
        let done = run_in(dir.path(), &[&["lab", "fairzone"], args].concat());
        assert_eq!(done.status, status, "{args:?}: {}", done.err);
        assert!(done.err.contains(said), "{args:?}: {}", done.err);
        assert!(done.out.is_empty(), "{args:?}");
    }
}

/// The files in the documentation can be parsed.
#[test]
fn files_as_documented() {
    let document = include_str!("../../../../docs/abi/testing/lab.md");
    let files: Vec<&str> =
        document.split("```").filter_map(|part| part.strip_prefix("toml\n")).collect();
    let dir = TempDir::new().unwrap();
    for (name, text) in ["machine.toml", "rules.toml", "streams.toml"].iter().zip(&files) {
        // A small file suffices.
        let small = text.replace("size = 2.0", "size = 0.01").replace("4000", "40");
        fs::write(dir.path().join(name), small).unwrap();
    }
    let done = fairzone(dir.path(), &["--policy", "rules.toml", "--json"]);
    assert_eq!(done.status, 0, "{}", done.err);
    let found = done.json();
    for value in [&found, &found["runs"][0], &found["runs"][0]["phases"][0]] {
        for key in value.as_object().unwrap().keys() {
            assert!(document.contains(&format!("`{key}`")), "{key} is not documented");
        }
    }
}
