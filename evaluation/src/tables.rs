//! The tables of the mails, with the figures of this machine.

use super::config::Config;
use super::estimate::Estimate;
use super::mails::{MAILS, Mail, reclamation};
use super::results::{Figure, Results};
use super::run::RunResult;
use super::statistics::summary;
use super::table::{TextTable, number, overhead};

const MIB: f64 = 1024.0 * 1024.0;

/// The tables of the mails: name, figure, and number of decimals.
const FIGURES: [(&str, Figure, usize); 3] = [
    ("runtime, or work a second: more than without, in percent", |f| Some(f.work.number()), 2),
    ("memused.avg in MiB", |f| Some(f.memory.used / MIB), 1),
    ("rss.avg in MiB", |f| Some(f.memory.resident / MIB), 1),
];

/// Run time, used memory and resident sets under orig, rec, thp, ethp and prcl, with the increase over orig
/// in percent.
pub fn columns(results: &Results<'_>) -> Vec<TextTable> {
    FIGURES.iter().map(|figure| column_table(results, figure)).collect()
}

fn column_table(
    results: &Results<'_>,
    (name, figure, digits): &(&str, Figure, usize),
) -> TextTable {
    let configs: Vec<Config> = Config::COLUMNS.into_iter().filter(|c| results.has(*c)).collect();
    let is_work = *name == FIGURES[0].0;
    let row = |name: &str, cell: &dyn Fn(Config) -> String, more: &dyn Fn(Config) -> String| {
        // Work under a scheme is compared with slices of the same run, not with orig's: the rates of two runs
        // must not be compared.
        let cells = configs.iter().flat_map(|&c| match c {
            Config::Orig if is_work => vec![],
            Config::Orig => vec![cell(c)],
            _ if is_work => vec![more(c)],
            _ => vec![cell(c), more(c)],
        });
        [name.to_owned()].into_iter().chain(cells).collect::<Vec<_>>()
    };
    let more = |w: &str, c| {
        if is_work { results.more_work(w, c) } else { results.overhead(w, c, *figure) }
    };
    let of = |w: &str| {
        row(w, &|c| number(results.mean(w, c, *figure), *digits), &|c| overhead(more(w, c)))
    };
    let mut rows: Vec<Vec<String>> = results.workloads().into_iter().map(of).collect();
    let average = |c| overhead(results.average(|w| more(w, c)));
    rows.push(row("average", &|_| String::new(), &average));
    if is_work {
        let slower = |c| overhead(results.mean_slowdown(c).map(|e| e.value));
        rows.push(row("average slowdown", &|_| String::new(), &slower));
    }
    let more_of = |c: Config| if is_work { c.to_string() } else { "(overhead)".to_owned() };
    let head = row("", &|c| c.to_string(), &more_of);
    TextTable { title: (*name).to_owned(), head, rows }
}

/// The averages next to those of the mails, in percent.
pub fn beside_mails(results: &Results<'_>) -> TextTable {
    let configs = &Config::COLUMNS[1..];
    let resident = |c| {
        let each = results.workloads().into_iter();
        let each = each.filter_map(|w| results.more(w, c, |f| Some(f.memory.resident)));
        Estimate::mean(&each.collect::<Vec<_>>())
    };
    let time: (_, fn(&Mail) -> _, &dyn Fn(Config) -> _) =
        ("more run time", |mail| mail.time, &|c| results.mean_slowdown(c));
    let memory: (_, fn(&Mail) -> _, &dyn Fn(Config) -> _) =
        ("more resident memory", |mail| mail.resident, &resident);
    let mut rows = Vec::new();
    for (figure, of_mail, here) in [time, memory] {
        let row =
            |whose: String, cells: Vec<String>| [vec![figure.to_owned(), whose], cells].concat();
        for mail in &MAILS {
            let whose = format!("mail of {}, 25 programs", mail.name);
            rows.push(row(whose, of_mail(mail).map(|value| number(value, 2)).to_vec()));
        }
        let cell = |&c: &Config| here(c).map_or("-".to_owned(), |e| e.to_string());
        let whose = format!("here, {} programs", results.workloads().len());
        rows.push(row(whose, configs.iter().map(cell).collect()));
    }
    let names = configs.iter().map(ToString::to_string).collect();
    let head = [vec![String::new(), "of".to_owned()], names].concat();
    TextTable { title: "beside the mails, in percent".to_owned(), head, rows }
}

/// The same figures for all configurations, with the spread of repetitions.
pub fn spread(results: &Results<'_>) -> Vec<TextTable> {
    let head = ["", "configuration", "runs", "average", "stdev", "min", "max"];
    let table = |(name, figure, digits): &(&str, Figure, usize)| {
        let rows = each(results).filter_map(|(w, c)| {
            let s = summary(&results.values(w, c, *figure))?;
            let cells = [s.mean, s.stdev, s.min, s.max].map(|v| number(Some(v), *digits));
            let first = [w.to_owned(), c.to_string(), s.count.to_string()];
            Some(first.into_iter().chain(cells).collect())
        });
        TextTable {
            title: (*name).to_owned(),
            head: head.map(str::to_owned).to_vec(),
            rows: rows.collect(),
        }
    };
    FIGURES.iter().map(table).collect()
}

/// Each workload under each configuration.
fn each<'a>(results: &Results<'a>) -> impl Iterator<Item = (&'a str, Config)> {
    let all = |w| Config::all().into_iter().map(move |c| (w, c));
    results.workloads().into_iter().flat_map(all)
}

/// All other figures, one row each.
pub fn details(results: &Results<'_>) -> TextTable {
    let head = [
        "",
        "configuration",
        "saved, %",
        "slowdown, %",
        "its standard error",
        "isotherm, % CPU",
        "of it acting",
        "major faults/s",
        "waiting for memory, %",
        "p50, us",
        "p99, us",
        "p99.9, us",
        "worst window, %",
        "median window, %",
        "swap compresses",
    ];
    let rows = each(results).filter_map(|(w, c)| {
        results.mean(w, c, |f| Some(f.seconds))?;
        let of = |figure: Figure, digits| number(results.mean(w, c, figure), digits);
        let slowdown = results.slowdown(w, c).filter(|_| c != Config::Orig);
        Some(vec![
            w.to_owned(),
            c.to_string(),
            number(results.saved(w, c), 1),
            number(slowdown.map(|e| e.value), 2),
            number(slowdown.and_then(|e| e.error), 2),
            of(|f| f.own_cpu, 2),
            of(|f| f.acting, 2),
            of(faults, 1),
            of(|f| Some(f.pressure), 2),
            of(|f| Some(f.latency?.p50), 0),
            of(|f| Some(f.latency?.p99), 0),
            of(|f| Some(f.latency?.p999), 0),
            of(|f| f.windows.filter(|w| w.count > 0).map(|w| w.worst), 1),
            of(|f| f.windows?.median, 1),
            of(|f| (f.memory.held > MIB).then(|| f.memory.held / f.memory.zram.max(1.0)), 2),
        ])
    });
    TextTable {
        title: "each workload".to_owned(),
        head: head.map(str::to_owned).to_vec(),
        rows: rows.collect(),
    }
}

fn faults(f: &RunResult) -> Option<f64> {
    Some(f.major_faults as f64 / f.seconds.max(1e-9))
}

/// Proactive reclaim with quotas: averages over all workloads except those for huge pages. The CPU of the
/// reclaimer in the mails corresponds to all CPU time of isotherm.
pub fn grid(results: &Results<'_>) -> TextTable {
    let results = results.of_the_grid();
    let head = [
        "time quota",
        "prioritisation",
        "memory saving",
        "CPU of the reclaimer",
        "slowdown",
        "of the CPU, acting",
        "major faults/s",
        "waiting for memory",
        "p99 more than orig's",
        "saving in the mail",
        "CPU in the mail",
        "slowdown in the mail",
    ];
    let percent = |value: Option<f64>| match value {
        Some(v) => format!("{v:.2} %"),
        None => "-".to_owned(),
    };
    let row = |c: Config| {
        let (quota, prioritised) = match c {
            Config::Quota { ms, prioritised } => (format!("{ms} ms/s"), prioritised),
            _ => ("none".to_owned(), false),
        };
        let average = |figure: Figure| results.average(|w| results.mean(w, c, figure));
        vec![
            quota,
            if prioritised { "yes" } else { "no" }.to_owned(),
            percent(results.average(|w| results.saved(w, c))),
            percent(average(|f| f.own_cpu)),
            results.mean_slowdown(c).map_or("-".to_owned(), |e| format!("{e} %")),
            percent(average(|f| f.acting)),
            number(average(faults), 1),
            percent(average(|f| Some(f.pressure))),
            percent(results.average(|w| results.overhead(w, c, |f| Some(f.latency?.p99)))),
            percent(reclamation(c).map(|mail| mail.saved)),
            percent(reclamation(c).map(|mail| mail.cpu)),
            percent(reclamation(c).map(|mail| mail.slowdown)),
        ]
    };
    TextTable {
        title: "proactive reclaim".to_owned(),
        head: head.map(str::to_owned).to_vec(),
        rows: Config::grid().into_iter().filter(|c| results.has(*c)).map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::run;
    use super::super::run::{Run, WorkDone};
    use super::super::table::TableFormat;
    use super::*;

    fn runs() -> Vec<Run> {
        let quota = Config::Quota { ms: 50, prioritised: true };
        vec![
            run("a", Config::Orig, WorkDone::Seconds(10.0), 100.0 * MIB, 0.0),
            run("a", Config::Rec, WorkDone::Seconds(10.1), 100.0 * MIB, 0.0),
            run("a", Config::Prcl, WorkDone::Seconds(11.0), 20.0 * MIB, 20.0 * MIB),
            run("a", quota, WorkDone::Seconds(10.5), 40.0 * MIB, 10.0 * MIB),
            run("b", Config::Orig, WorkDone::PerSecond(100.0), 10.0 * MIB, 0.0),
            run("b", Config::Prcl, WorkDone::PerSecond(100.0), 10.0 * MIB, 0.0),
        ]
    }

    #[test]
    fn the_form_of_the_mails() {
        let runs = runs();
        let tables = columns(&Results::of(runs.iter().collect()));
        let text = tables[0].print(TableFormat::Text);
        let lines: Vec<&str> = text.lines().collect();
        let words = |i: usize| lines[i].split_whitespace().collect::<Vec<_>>();
        assert_eq!(words(1), ["rec", "prcl"]);
        assert_eq!(words(2), ["a", "(1.00)", "(10.00)"]);
        assert_eq!(words(3), ["b", "-", "(0.00)"]);
        assert_eq!(words(4), ["average", "(1.00)", "(5.00)"]);
        assert!(tables[2].print(TableFormat::Text).contains("(-80.00)"));
        for table in tables.iter().chain(&spread(&Results::of(runs.iter().collect()))) {
            assert!(table.rows.iter().all(|row| row.len() == table.head.len()), "{table:?}");
        }
    }

    #[test]
    fn the_mails_stand_beside_it() {
        let runs = runs();
        let table = beside_mails(&Results::of(runs.iter().collect()));
        let row = |i: usize| table.rows[i].join("|");
        assert_eq!(row(0), "more run time|mail of DAMON, 25 programs|1.02|-4.29|-1.56|8.41");
        assert_eq!(row(2), "more run time|here, 2 programs|1.00|-|-|5.00");
        assert_eq!(row(4), "more resident memory|mail of its schemes, 25 programs|-|-|-|-23.59");
        assert_eq!(row(5), "more resident memory|here, 2 programs|0.00|-|-|-40.00");
        assert!(table.rows.iter().all(|row| row.len() == table.head.len()));
    }

    #[test]
    fn the_grid() {
        let runs = runs();
        let results = Results::of(runs.iter().collect());
        let table = grid(&results);
        assert_eq!(table.rows.len(), 2, "none, and 50 ms with priority");
        assert_eq!(table.rows[0][..5], ["none", "no", "30.00 %", "2.00 %", "5.00 %"]);
        assert_eq!(table.rows[1][..5], ["50 ms/s", "yes", "50.00 %", "2.00 %", "5.00 %"]);
        assert_eq!(table.rows[0][9..], ["47.16 %", "11.62 %", "5.40 %"]);
        assert!(table.rows.iter().all(|row| row.len() == table.head.len()));
        let details = details(&results);
        assert_eq!(details.rows.len(), 6);
        assert!(details.rows.iter().all(|row| row.len() == details.head.len()));
    }
}
