//! Checks whether the content of a record is consistent over all frames: problems that no single frame can
//! show.

use std::collections::{BTreeSet, HashMap};

use isotherm_core::{
    AddrRange, Attribution, Attrs, Fault, Nanos, RegionView, Snapshot, TargetId, TargetView,
    join_touching,
};

use crate::event::Event;
use crate::header::{End, TargetInfo};

/// Each share is rounded separately, so that their sum may exceed the whole by this.
const ROUNDING_BP: u64 = 8;

/// The content of a record so far.
#[derive(Debug, Default)]
pub(crate) struct Content {
    targets: HashMap<TargetId, TargetInfo>,
    first_seq: Option<u64>,
    last: Option<(u64, Nanos)>,
    attrs: Option<Attrs>,
    /// in this recording
    pub snapshots: u64,
    /// over all recordings
    pub regions: u64,
    /// over all recordings
    pub all_targets: u64,
}

impl Content {
    /// Adds an event, and returns its problems.
    pub(crate) fn take(&mut self, event: &Event) -> Vec<String> {
        match event {
            Event::Header(_) => {
                let (regions, all_targets) = (self.regions, self.all_targets);
                *self = Content { regions, all_targets, ..Content::default() };
                Vec::new()
            }
            Event::Target(fact) => self.target(fact),
            Event::Mappings { .. } => Vec::new(),
            Event::Attribution(Attribution { target, .. })
            | Event::Fault(Fault { target, .. })
            | Event::Code { target, .. } => self.announced(*target).into_iter().collect(),
            Event::Trace(t) => {
                let targets: BTreeSet<TargetId> = t.accesses.iter().map(|a| a.target).collect();
                targets.into_iter().filter_map(|id| self.announced(id)).collect()
            }
            Event::Snapshot(s) => self.snapshot(s),
            Event::End(end) => self.end(end),
        }
    }

    /// Each file repeats the targets. A number never means another process, but that process may change its
    /// program.
    fn target(&mut self, fact: &TargetInfo) -> Vec<String> {
        match self.targets.insert(fact.id, fact.clone()) {
            Some(before) if before.pid != fact.pid => {
                vec![format!("target {} was {:?} before", fact.id.0, before.command)]
            }
            Some(_) => Vec::new(),
            None => {
                self.all_targets += 1;
                Vec::new()
            }
        }
    }

    fn snapshot(&mut self, s: &Snapshot) -> Vec<String> {
        let mut wrong = self.order(s);
        if self.attrs != Some(s.attrs) {
            wrong.extend(s.attrs.checked().err().map(|e| format!("its attributes: {e}")));
            self.attrs = Some(s.attrs);
        }
        let (regions, most) = (s.nr_regions(), s.attrs.max_regions);
        // The user's limit of regions does not apply to windows.
        if regions > most as usize && !s.attrs.windows {
            wrong.push(format!("{regions} regions are above the bound of {most}"));
        }
        for view in &s.targets {
            let all = cover(view).into_iter().chain(view.regions.iter().filter_map(region));
            wrong.extend(self.announced(view.id));
            wrong.extend(all.map(|what| format!("target {}: {what}", view.id.0)));
        }
        self.snapshots += 1;
        self.regions += regions as u64;
        wrong
    }

    fn announced(&self, target: TargetId) -> Option<String> {
        let known = self.targets.contains_key(&target);
        (!known).then(|| format!("target {}: it was not announced before", target.0))
    }

    fn order(&mut self, s: &Snapshot) -> Vec<String> {
        let mut wrong = Vec::new();
        self.first_seq.get_or_insert(s.seq);
        if s.start >= s.end {
            wrong.push("it ends when it starts".to_owned());
        }
        if let Some((seq, end)) = self.last.replace((s.seq, s.end)) {
            match s.seq - seq.min(s.seq) {
                1 => {}
                2 => wrong.push(format!("snapshot {} before it is missing", seq + 1)),
                _ => wrong.push(format!(
                    "snapshots {} to {} before it are missing",
                    seq + 1,
                    s.seq - 1
                )),
            }
            if s.start < end {
                wrong.push("it starts before the one before it ends".to_owned());
            }
        }
        wrong
    }

    /// Checks the end. Snapshots in older files that were deleted are known only by their count.
    fn end(&self, end: &End) -> Vec<String> {
        let first = self.first_seq.unwrap_or(0);
        if end.snapshots != first + self.snapshots {
            let (said, found) = (end.snapshots, first + self.snapshots);
            vec![format!("its end counts {said} snapshots, and there are {found}")]
        } else if first > 0 && end.files <= 1 {
            vec![format!("it begins with snapshot {first}, and there is no file before it")]
        } else {
            Vec::new()
        }
    }
}

/// Checks that regions and the omitted bytes are exactly the mapped memory, and that no region contains a gap.
fn cover(view: &TargetView) -> Option<String> {
    let areas = join_touching(view.mappings.iter().map(|m| m.range));
    let holds = |r: &AddrRange| {
        let i = areas.partition_point(|a| a.end <= r.start);
        areas.get(i).is_some_and(|a| a.start <= r.start && r.end <= a.end)
    };
    if let Some(r) = view.regions.iter().find(|r| !holds(&r.range)) {
        return Some(format!("the region {:?} lies outside of what is mapped", r.range));
    }
    let sum = |ranges: &mut dyn Iterator<Item = AddrRange>| -> u128 {
        ranges.map(|r| u128::from(r.len())).sum()
    };
    let covered = sum(&mut view.regions.iter().map(|r| r.range));
    let mapped = sum(&mut view.mappings.iter().map(|m| m.range));
    let left_out = u128::from(view.left_out);
    (covered + left_out != mapped).then(|| {
        format!(
            "its regions cover {covered} bytes and leave out {left_out}, but {mapped} are mapped"
        )
    })
}

/// Checks one region. Shares above one and a wrong order are damage of the frame, which is detected earlier.
fn region(r: &RegionView) -> Option<String> {
    let what = if r.range.is_empty() {
        "is empty"
    } else if !(r.rate.low <= r.rate.hz && r.rate.hz <= r.rate.high) {
        "has a rate outside of its interval"
    } else if r.unknown_bp.total() > u64::from(r.resident_bp) + ROUNDING_BP {
        "has more unknown than resident pages"
    } else {
        return None;
    };
    Some(format!("the region {:?} {what}", r.range))
}

#[cfg(test)]
#[path = "content_tests.rs"]
mod tests;
