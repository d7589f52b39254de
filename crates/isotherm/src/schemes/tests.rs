//! Valid schemes, and the errors of invalid ones.

use isotherm_core::scheme::{FilterKind, Goal, Scope, WatermarkMetric};
use isotherm_core::{Action, PageKind};

use super::*;

const INTERVAL: Duration = Duration::from_millis(400);

/// A scheme with these lines in addition to its action.
fn one(more: &str) -> Result<Scheme, String> {
    let text = format!("[[scheme]]\naction = \"pageout\"\n{more}");
    let schemes = read(&text, INTERVAL, &[]).map_err(|e| e.to_string())?;
    Ok(schemes.into_iter().next().unwrap())
}

#[test]
fn all_that_can_be_said() {
    let text = include_str!("../../../../docs/abi/testing/scheme.md");
    let text = text.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let all = read(text, INTERVAL, &[]).unwrap();
    let [s] = &all[..] else { panic!("{all:?}") };
    assert_eq!((&*s.name, &s.action), ("reclaim", &Action::PageOut));
    assert_eq!((s.pattern.size.start(), s.pattern.size.end()), (&4096, &u64::MAX));
    assert!((s.pattern.hz.end() - 10.26).abs() < 0.01);
    assert_eq!(s.pattern.age, Duration::from_secs(5)..=Duration::MAX);
    assert_eq!(s.recheck, Some(Duration::from_millis(20)));
    assert_eq!((s.quota.time, s.quota.bytes), (Some(Duration::from_millis(10)), Some(128 << 20)));
    assert_eq!(s.quota.weights.age, 1);
    let goal = Goal::Stalled { of: Scope::Machine, target: Duration::from_millis(1) };
    assert_eq!(s.quota.goals, [goal]);
    let marks = s.watermarks.as_ref().unwrap();
    assert_eq!((marks.high, marks.mid, marks.low), (5000, 4000, 2000));
    assert_eq!(marks.metric, WatermarkMetric::Free);
    assert!(matches!(&s.filters[1].kind, FilterKind::Name(n) if &**n == "[heap]"));
    assert!(!s.filters[0].allow && s.filters[1].allow);
}

#[test]
fn units_of_schemes() {
    let s = one("age = { min = 5 }\nrate = { min = \"10Hz\", max = 50 }").unwrap();
    assert_eq!(*s.pattern.age.start(), INTERVAL * 5);
    assert_eq!(*s.pattern.hz.start(), 10.0);
    let s = one("quota = { goals = [{ refaults = { target = \"0.2%\" } }] }").unwrap();
    let of = Scope::Group(TARGETS.into());
    assert_eq!(s.quota.goals, [Goal::Refaults { of, ppm: 2000 }]);
    let s = one("filters = [{ kind = { touched_within = '5s' } }]").unwrap();
    let within = Duration::from_secs(5);
    assert_eq!(s.page_filters[0].kind, PageKind::Touched { within });
    assert!(
        one("filters = [{ kind = { touched_within = '9h' } }]").unwrap_err().contains("8 hours")
    );
    let s = one("filters = [{ kind = { young = false }, not = true }]").unwrap();
    assert_eq!((s.page_filters[0].kind, s.page_filters[0].matching), (PageKind::Young, true));
    let s = one("filters = [{ kind = { pid = 7 } }, { kind = { comm = \"a-name-of-16-byt\" } }]");
    let kinds: Vec<FilterKind> = s.unwrap().filters.into_iter().map(|f| f.kind).collect();
    assert_eq!(kinds, [FilterKind::Pid(7), FilterKind::Comm("a-name-of-16-by".into())]);
    let s = one("quota = { bytes = 0 }").unwrap();
    assert_eq!(s.quota.bytes, Some(0), "which is not none");
}

#[test]
fn names_are_made_and_distinguished() {
    let both = "[[scheme]]\naction = \"stat\"\n[[scheme]]\naction = \"stat\"\n";
    let names: Vec<_> =
        read(both, INTERVAL, &[]).unwrap().iter().map(|s| s.name.to_string()).collect();
    assert_eq!(names, ["stat", "stat-2"]);
    let same = both.replace("action", "name = \"x\"\naction");
    assert!(
        read(&same, INTERVAL, &[]).unwrap_err().to_string().contains("two schemes are called `x`")
    );
}

#[test]
fn errors_have_a_place_and_a_valid_value() {
    for (line, column, more, said) in [
        (3, 16, "size = { min = \"4Q\" }", "64M"),
        (3, 1, "sise = { min = \"4K\" }", "unknown field `sise`"),
        (4, 13, "\nage = { min=\"old\" }", "5s"),
        (3, 18, "quota = { time = \"soon\" }", "20ms"),
        (3, 18, "quota = { time = 5 }", "write \"5ms\" or \"5s\""),
        (3, 11, "recheck = 0.5", "is no time without its unit"),
        (3, 23, "filters = [{ kind = { colour = 1 } }]", "unknown variant `colour`"),
        (3, 8, "size = { min = \"8K\", max = \"4K\" }", "`size`: scheme `pageout`: the least"),
        (3, 19, "quota = { bytes = \"1K\" }", "`quota.bytes`"),
        (3, 19, "quota = { bytes = \"1K\" }", "4096 at least"),
        (3, 18, "quota = { time = \"2s\" }", "no more time than that"),
        (5, 8, "\n[scheme.quota]\ntime = \"2s\"", "`quota.time`"),
        (3, 19, "quota = { reset = \"1ms\" }", "`quota.reset`"),
        (3, 37, "quota = { goals = [{ free = \"1%\" }, { free = \"0%\" }] }", "`quota.goals.1`"),
        (4, 7, "name = \"pageout\"\nage = { min = 2, max = 1 }", "`age`"),
        (3, 11, "recheck = \"2s\"", "`recheck`"),
        (
            3,
            40,
            "watermarks = { metric = \"free\", high = \"1%\", mid = \"2%\", low = \"3%\" }",
            "`watermarks.high`: scheme `pageout`: watermarks 100, 200, 300",
        ),
        (
            3,
            52,
            "watermarks = { metric = \"free\", high = \"4%\", mid = \"2%\", low = \"3%\" }",
            "falling order",
        ),
        (
            3,
            38,
            "watermarks = { metric = \"free\", of = \"machine\", high = 3, mid = 2, low = 1 }",
            "choose `stalled`",
        ),
        (3, 21, "filters = [{ kind = { addresses = \"0x1..0x2\" } }]", "multiples of 4096"),
        (
            4,
            12,
            "filters = [{ kind = { pid = 7 } },\n  { kind = { cgroup = \"/no/such\" } }]",
            "`filters.1.kind`",
        ),
    ] {
        let why = one(more).unwrap_err();
        assert!(why.contains(said), "{more}: {why}");
        assert!(why.contains(&format!("line {line}, column {column}")), "{more}: {why}");
    }
    let twice =
        "[[scheme]]\naction = 'stat'\nname = 'x'\n\n[[scheme]]\naction = 'stat'\nname = 'x'\n";
    let why = read(twice, INTERVAL, &[]).unwrap_err().to_string();
    assert!(why.starts_with("line 7, column 8: `name`: two schemes are called `x`"), "{why}");
    assert!(one("action = \"pageout\"").unwrap_err().contains("duplicate key"));
    let why = read("[[scheme]]\naction = \"explode\"", INTERVAL, &[]).unwrap_err().to_string();
    assert!(why.contains("line 2, column 10") && why.contains("choose pageout"), "{why}");
}

#[test]
fn files_and_lines_go_one_after_the_other_and_keep_apart() {
    let mut all = Vec::new();
    load(Path::new("a.toml"), "[[scheme]]\naction = 'stat'\n", INTERVAL, &mut all).unwrap();
    load(Path::new("b.txt"), "null null null null null null stat\n", INTERVAL, &mut all).unwrap();
    load_line(1, "4k Max min 5 2S max PageOut", INTERVAL, &mut all).unwrap();
    load_line(2, "min max min max min max Stat # again", INTERVAL, &mut all).unwrap();
    let names: Vec<&str> = all.iter().map(|s| &*s.name).collect();
    assert_eq!(names, ["stat", "stat-2", "pageout", "stat-3"]);
    assert_eq!(*all[2].pattern.age.start(), Duration::from_secs(2));
    let mut fails = |n, line| load_line(n, line, INTERVAL, &mut all).unwrap_err().to_string();
    assert!(fails(1, "4K max min 5 2s max").starts_with("--scheme-line: line 1, column 20: "));
    let swapped = fails(3, "4K max min 5 5s 2s stat");
    assert!(swapped.starts_with("--scheme-line number 3: line 1, column 14: "), "{swapped}");
    assert!(fails(1, "").contains("no scheme"));
    assert_eq!(all.len(), 4, "what is wrong adds nothing");
    let same = "[[scheme]]\naction = 'cold'\nname = 'stat-2'\n";
    let why = load(Path::new("c.toml"), same, INTERVAL, &mut all).unwrap_err().to_string();
    assert!(why.starts_with("c.toml: line 3, column 8: `name`"), "{why}");
}

#[test]
fn shipped_schemes_are_valid() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemes");
    let mut names: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let mut schemes = Vec::new();
        load(&path, &text, INTERVAL, &mut schemes).unwrap();
        names.extend(schemes.iter().map(|s| s.name.to_string()));
    }
    names.sort();
    let want = ["demote", "hugepage", "nohugepage", "pageout", "promote", "reclaim", "refaults"];
    assert_eq!(names, want);
}

/// `UPDATE_SCHEMA=1` writes it.
#[test]
fn the_schema_is_that_of_the_code() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/abi/testing/scheme.schema.json");
    let made = serde_json::to_string_pretty(&schemars::schema_for!(File)).unwrap() + "\n";
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(path, &made).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), made, "UPDATE_SCHEMA=1 writes it");
}
