//! Limits of a workload.

use std::collections::BTreeSet;
use std::time::Duration;

use isotherm_core::PAGE_SIZE;

use super::layout::room_for_islands;
use super::{Access, Op, Order, Phase, TouchRate, Workload, WorkloadError, WorkloadRegion};

const MAX_WORKLOAD_REGIONS: usize = 256;
const MAX_PHASES: usize = 1000;
const MAX_ISLANDS: u32 = 1000;
const MAX_THREADS: u32 = 64;
const MAX_BYTES: u64 = 64 << 30;
const MAX_RATE_HZ: f64 = 1e6;
const MAX_EXPONENT: f64 = 10.0;
pub(super) const MAX_NAME: usize = 64;
const PHASE_TIME_RANGE: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(3600)];
/// Maximum length, both by its phases and repetitions and by `--duration`.
pub(super) const MAX_LENGTH: Duration = Duration::from_secs(24 * 3600);
/// Minimum time between two moves of a window, because each move ends an interval of the truth.
const MIN_EVERY: Duration = Duration::from_millis(100);
/// Maximum product of stretches and intervals. Each has three numbers in the truth, so the file stays below 20
/// MiB.
pub(super) const MAX_COUNTS: usize = 750_000;

type Checked = Result<(), WorkloadError>;

impl Workload {
    /// Returns the workload if it is valid.
    ///
    /// # Errors
    /// The first invalid part, and what would be valid.
    pub fn checked(self) -> Result<Self, WorkloadError> {
        number("regions", self.regions.len(), MAX_WORKLOAD_REGIONS)?;
        number("phases", self.phases.len(), MAX_PHASES)?;
        names("region", self.regions.iter().map(|r| r.name.as_str()))?;
        self.regions.iter().try_for_each(WorkloadRegion::check)?;
        self.check_bytes()?;
        if self.islands > MAX_ISLANDS || u64::from(self.islands) > room_for_islands(&self) {
            return Err(WorkloadError::Islands { islands: self.islands });
        }
        self.phases.iter().try_for_each(|p| self.check_phase(p))?;
        (0..self.regions.len()).try_for_each(|i| self.check_evenness(i))?;
        let total: Duration = self.phases.iter().map(|p| p.duration).sum();
        let length = total.checked_mul(self.repeat).unwrap_or(Duration::MAX);
        time("length of all phases and repetitions", length, [PHASE_TIME_RANGE[0], MAX_LENGTH])?;
        Ok(self)
    }

    fn check_bytes(&self) -> Checked {
        let sizes = self.regions.iter().map(|r| r.size.saturating_add(r.gap));
        let bytes = sizes.fold(0, u64::saturating_add);
        if bytes > MAX_BYTES { Err(WorkloadError::TooBig { bytes }) } else { Ok(()) }
    }

    fn check_phase(&self, phase: &Phase) -> Checked {
        names("phase", std::iter::once(phase.name.as_str()))?;
        time(&format!("duration of phase {}", phase.name), phase.duration, PHASE_TIME_RANGE)?;
        let mut seen = BTreeSet::new();
        for access in &phase.accesses {
            let (phase, region) = (phase.name.clone(), access.region.clone());
            let Some(i) = self.region_index(&region) else {
                let known: Vec<&str> = self.regions.iter().map(|r| r.name.as_str()).collect();
                return Err(WorkloadError::NoRegion { phase, region, known: known.join(", ") });
            };
            if !seen.insert(i) {
                return Err(WorkloadError::Twice { phase, region });
            }
            access.check(&self.regions[i])?;
        }
        Ok(())
    }

    /// All accesses of a region must agree on the parts of it that have the same pattern.
    fn check_evenness(&self, i: usize) -> Checked {
        let strides: BTreeSet<u64> = self.accesses_of(i).map(|a| a.order.stride()).collect();
        let blocks: BTreeSet<u64> = self.accesses_of(i).filter_map(|a| a.order.block()).collect();
        let strided_blocks = !blocks.is_empty() && strides.iter().any(|&s| s > 1);
        if strides.len() > 1 || blocks.len() > 1 || strided_blocks {
            return Err(WorkloadError::Uneven { region: self.regions[i].name.clone() });
        }
        Ok(())
    }
}

impl WorkloadRegion {
    fn check(&self) -> Checked {
        if self.size == 0 {
            return Err(self.bad("size", self.size, "more than nothing"));
        }
        for (what, size) in [("size", self.size), ("gap", self.gap)] {
            if !size.is_multiple_of(PAGE_SIZE) || size > MAX_BYTES {
                return Err(self.bad(what, size, "64G at most"));
            }
        }
        if self.huge && self.shared {
            return Err(WorkloadError::HugeShared { region: self.name.clone() });
        }
        Ok(())
    }

    fn bad(&self, what: &'static str, size: u64, hint: &'static str) -> WorkloadError {
        WorkloadError::Size { what, region: self.name.clone(), size, hint }
    }
}

impl Access {
    fn check(&self, region: &WorkloadRegion) -> Checked {
        let bad = |what, found, hint| {
            Err(WorkloadError::Value { what, region: region.name.clone(), found, hint })
        };
        match self.rate {
            TouchRate::Hz(hz) if !(hz > 0.0 && hz <= MAX_RATE_HZ) => {
                return bad(
                    "rate",
                    hz,
                    "above 0 and up to 1e6 touches of a page a second, or \"max\"",
                );
            }
            _ => {}
        }
        if self.threads == 0 || self.threads > MAX_THREADS {
            return bad("threads", self.threads.into(), "1 to 64");
        }
        if region.shared && self.op == Op::Write {
            return Err(WorkloadError::SharedWrite { region: region.name.clone() });
        }
        if let Some(block) = self.order.block()
            && (block == 0
                || !block.is_multiple_of(PAGE_SIZE)
                || !region.size.is_multiple_of(block))
        {
            return Err(region.bad("block or window", block, "of which the region is a multiple"));
        }
        match self.order {
            Order::Strided { stride } if stride < 2 || stride > region.size / PAGE_SIZE => {
                bad("stride", stride as f64, "2 pages or more, within the region")
            }
            Order::Zipf { exponent, .. } if !(0.0..=MAX_EXPONENT).contains(&exponent) => {
                bad("exponent", exponent, "0 to 10")
            }
            Order::Moving { every, .. } => time(
                &format!("time between moves in {}", region.name),
                every,
                [MIN_EVERY, PHASE_TIME_RANGE[1]],
            ),
            _ => Ok(()),
        }
    }
}

fn number(what: &'static str, found: usize, max: usize) -> Checked {
    if (1..=max).contains(&found) {
        Ok(())
    } else {
        Err(WorkloadError::Number { what, found, max })
    }
}

fn names<'a>(what: &'static str, names: impl Iterator<Item = &'a str>) -> Checked {
    let mut seen = BTreeSet::new();
    for name in names {
        if name.is_empty() || name.len() > MAX_NAME || !seen.insert(name) {
            return Err(WorkloadError::Name { what, name: name.to_owned() });
        }
    }
    Ok(())
}

pub(super) fn time(what: &str, found: Duration, range: [Duration; 2]) -> Checked {
    if range[0] <= found && found <= range[1] {
        return Ok(());
    }
    Err(WorkloadError::Time { what: what.to_owned(), found, range })
}
