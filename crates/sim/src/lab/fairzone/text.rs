//! Text output of the experiment.

use std::fmt::Write;

use super::published::{FigureSource, published};
use super::run::{PhaseFigures, Run, ZoneFigures};
use super::{Fairzone, Property, Scenario};

/// Width of the first column, and of a column of numbers, in characters.
const NAME_WIDTH: usize = 24;
const COLUMN: usize = 11;

impl Fairzone {
    /// Rates by policy next to the published ones, then figures of memory with the first number of threads.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = format!(
            "machine: {}\nworkload: {}\nseed: {}\n",
            self.machine, self.workload, self.seed
        );
        let policies: Vec<&str> = self.policies();
        out += &head("\nmean MB/s", &policies);
        for (phase, threads) in self.rows() {
            out += &self.rates(&phase, threads, &policies);
        }
        out += &legend(&policies);
        // Only the first, because all would be long; JSON has them.
        let first = self.runs.first().map(|r| r.threads);
        for run in self.runs.iter().filter(|r| Some(r.threads) == first) {
            for phase in &run.phases {
                out += &memory(run, phase);
            }
        }
        out
    }

    /// The names of the policies, in their order.
    #[must_use]
    pub fn policies(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for run in &self.runs {
            if !names.contains(&run.policy.as_str()) {
                names.push(&run.policy);
            }
        }
        names
    }

    /// Phases by number of threads.
    fn rows(&self) -> Vec<(String, u32)> {
        let mut rows: Vec<(String, u32)> = Vec::new();
        let first = self.runs.first().map_or(&[][..], |r| &r.phases);
        for phase in first.iter().filter(|p| p.mb_s > 0.0) {
            for run in &self.runs {
                let row = (phase.name.clone(), run.threads);
                if !rows.contains(&row) {
                    rows.push(row);
                }
            }
        }
        rows
    }

    /// The figures of a phase.
    #[must_use]
    pub fn phase(&self, policy: &str, threads: u32, phase: &str) -> Option<&PhaseFigures> {
        let run = self.runs.iter().find(|r| r.policy == policy && r.threads == threads)?;
        run.phases.iter().find(|p| p.name == phase)
    }

    fn rates(&self, phase: &str, threads: u32, policies: &[&str]) -> String {
        let rate = |policy: &str| self.phase(policy, threads, phase).map(|p| p.mb_s);
        let baseline = rate("baseline");
        let against = |policy: &str| {
            let (mb_s, baseline) = (rate(policy)?, baseline?);
            Some(format!("{:+.2} %", (mb_s / baseline - 1.0) * 100.0))
        };
        let other = |policy: &str| {
            let (mb_s, source) = published(policy, phase, threads)?;
            Some(format!("{mb_s:.2}{}", if source == FigureSource::Seed { "" } else { "*" }))
        };
        let mut out =
            line(&format!("{phase}-{threads}"), policies, |p| rate(p).map(|r| format!("{r:.2}")));
        if baseline.is_some() {
            out += &line("  against baseline", policies, against);
        }
        if policies.iter().any(|p| other(p).is_some()) {
            out += &line("  published", policies, other);
        }
        out
    }
}

fn head(name: &str, columns: &[&str]) -> String {
    line(name, columns, |c| Some(c.to_owned()))
}

fn line(name: &str, columns: &[&str], value: impl Fn(&str) -> Option<String>) -> String {
    let name_width = NAME_WIDTH + name.len() - name.trim_start_matches('\n').len();
    let mut out = format!("{name:<name_width$}");
    for column in columns {
        let _ = write!(out, "{:>COLUMN$}", value(column).unwrap_or_else(|| "-".to_owned()));
    }
    out.trim_end().to_owned() + "\n"
}

fn legend(policies: &[&str]) -> String {
    let mut out = "published: the mail of 2014-05-29, of another machine\n".to_owned();
    if policies.contains(&"high-only") {
        out += "* the mail of 2014-07-01 on v4r8, of a third one, whose baseline has 129.66 with one thread\n";
    }
    out
}

fn memory(run: &Run, phase: &PhaseFigures) -> String {
    let mut out = format!(
        "\n{} {}-{}: {:.1} s, {:.1} % of the pages read were in memory\n",
        run.policy, phase.name, run.threads, phase.seconds, phase.hits_percent
    );
    if phase.touches_s > 0.0 {
        let (touches, faults) = (phase.counts.touches, phase.counts.faults);
        let _ =
            writeln!(out, "{touches} accesses, {:.0} a second, {faults} faults", phase.touches_s);
    }
    let a = &phase.allocator;
    let _ = writeln!(
        out,
        "{} allocations: {:.2} resets per 1000, {:.3} passes each, {} slow paths, {} stalls, {} remote",
        a.allocations, phase.resets_per_1000, phase.passes, a.slow_paths, a.stalls, a.remote
    );
    let columns = ["size %", "pgalloc %", "pgalloc", "kswapd", "direct", "stolen", "age s"];
    out += &head("zone", &columns);
    for zone in phase.zones.iter().filter(|z| z.stats.allocated > 0 || z.size_percent > 1.0) {
        out += &zone_line(zone, &columns);
    }
    out
}

fn zone_line(z: &ZoneFigures, columns: &[&str]) -> String {
    let s = &z.stats;
    line(&format!("node {} {}", z.node, z.kind), columns, |column| match column {
        "size %" => Some(format!("{:.1}", z.size_percent)),
        "pgalloc %" => Some(format!("{:.1}", z.allocated_percent)),
        "pgalloc" => Some(s.allocated.to_string()),
        "kswapd" => Some(s.scanned_kswapd.to_string()),
        "direct" => Some(s.scanned_direct.to_string()),
        "stolen" => Some(s.reclaimed().to_string()),
        _ => z.age_s.map(|age| format!("{age:.1}")),
    })
}

/// The scenarios as tables.
#[must_use]
pub fn scenarios_text(scenarios: &[Scenario]) -> String {
    let mut out = String::new();
    for s in scenarios {
        let _ = writeln!(out, "{}: {}", s.name, s.about);
        let mut columns = vec!["asked", "resets", "passes", "slow paths"];
        columns.extend(&s.zones[..s.zones.len().min(2)]);
        out += &head("policy", &columns);
        for o in &s.outcomes {
            out += &line(o.policy, &columns, |column| {
                let zone = || s.zones.iter().position(|z| *z == column);
                match column {
                    "asked" => Some(o.allocations.to_string()),
                    "resets" => Some(o.resets.to_string()),
                    "passes" => Some(format!("{:.2}", o.passes)),
                    "slow paths" => Some(o.slow_paths.to_string()),
                    _ => zone().and_then(|z| o.allocated.get(z)).map(u64::to_string),
                }
            });
        }
        out.push('\n');
    }
    out
}

/// The properties, one per line.
#[must_use]
pub fn properties_text(properties: &[Property]) -> String {
    let mut out = String::new();
    for p in properties {
        let _ = writeln!(out, "{} of {}  {}", p.held, p.tried, p.claim);
        if let Some(against) = &p.against {
            let _ = writeln!(out, "        not on {against}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::fairzone::{LabLoad, STREAMS_TOML, policies, run};
    use crate::paged::MachineSpec;

    const SMALL: &str = "about = 'small'\n[[node]]\nzones = [{ kind = 'dma32', pages = 4000 }, \
                         { kind = 'normal', pages = 6000 }]\n";

    fn small(seed: u64) -> Fairzone {
        let spec = MachineSpec::parse(SMALL).unwrap();
        let load = LabLoad::parse(STREAMS_TOML).unwrap();
        let one = |name| run(&spec, (name, policies::find(name).unwrap()), &load, 2, seed).unwrap();
        Fairzone::new(seed, &spec, &load, vec![one("baseline"), one("v1")])
    }

    #[test]
    fn published_figures_stand_beside_ours() {
        let text = small(1).text();
        for part in ["SeqRead-2", "100.81     113.61", "against baseline", "node 0 DMA32"] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes_and_another_does_not() {
        let json = |seed| serde_json::to_string(&small(seed)).unwrap();
        assert_eq!(json(1), json(1));
        assert_ne!(json(1), json(2).replace("\"seed\":2", "\"seed\":1"));
    }
}
