use super::*;

const PICTURE: &str = r##"
about = "a picture"
repeat = 2
islands = 0
[picture]
size = "4M"
gap = "1M"
phase = "2s"
order = "sequential"
rates = { "#" = 40, "-" = 0.5, "!" = "max" }
rows = ["#.!", "-", " --"]
"##;

/// Each row is a region, the last the lowest; each column is a phase.
#[test]
fn a_picture_is_touched_as_it_is_drawn() {
    let w = Workload::parse(PICTURE).unwrap();
    let regions: Vec<(&str, u64, u64)> =
        w.regions.iter().map(|r| (r.name.as_str(), r.size, r.gap)).collect();
    let of = |name| (name, 4 << 20, 1 << 20);
    assert_eq!(regions, [of("row 3"), of("row 2"), of("row 1")]);
    let touched = |phase: &Phase| -> Vec<(String, TouchRate)> {
        assert!(phase.accesses.iter().all(|a| a.order == Order::Sequential));
        phase.accesses.iter().map(|a| (a.region.clone(), a.rate)).collect()
    };
    let phases: Vec<_> = w.phases.iter().map(touched).collect();
    let at = |row: &str, rate| (row.to_owned(), rate);
    assert_eq!(phases[0], [at("row 1", TouchRate::Hz(40.0)), at("row 2", TouchRate::Hz(0.5))]);
    assert_eq!(phases[1], [at("row 3", TouchRate::Hz(0.5))]);
    assert_eq!(phases[2], [at("row 1", TouchRate::Max), at("row 3", TouchRate::Hz(0.5))]);
    assert_eq!(w.phases[2].name, "column 3");
    assert_eq!(w.length(), Duration::from_secs(12));
}

#[test]
fn an_invalid_picture_is_refused() {
    for (from, to, said) in [
        ("#.!", "#.x", vec!["'x' in row 1, column 3", "'!', '#', '-'"]),
        ("[\"#.!\", \"-\", \" --\"]", "[]", vec!["0 regions"]),
        ("[\"#.!\", \"-\", \" --\"]", "[\"\"]", vec!["0 phases"]),
        ("\"2s\"", "\"2h\"", vec!["duration of phase column 1"]),
        ("\"4M\"", "\"5000\"", vec!["row 3", "multiple of 4K"]),
        ("\"#\" = 40", "\"##\" = 40", vec!["character", "line 10"]),
        ("repeat = 2", "region = []", vec!["region", "line 3"]),
    ] {
        assert!(PICTURE.contains(from), "{from}");
        let error = Workload::parse(&PICTURE.replace(from, to)).unwrap_err().to_string();
        said.iter().for_each(|part| assert!(error.contains(part), "{to}: {part}: {error}"));
    }
}
