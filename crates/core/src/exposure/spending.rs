//! What a round may cost, and how long it is.

use std::time::Duration;

use super::ledger::{Ledger, Mean, Prices};
use super::plan::{Allowance, LONG_TURN, LONGEST_TURN};
use super::watched::Watched;
use crate::attrs::Attrs;
use crate::ops::Cost;
use crate::range::PAGE_SIZE;
use crate::snapshot::Restraint;
use crate::survey::BLOCK_SIZE;
use crate::time::Nanos;

/// Of the budget, reading everything and what is reckoned from it may take so much; else it is read less
/// often.
const READING_SHARE: f64 = 0.5;
/// All is looked at if that costs so much more: a round is as long as all takes, give or take rounding.
const SLACK: f64 = 1.001;
/// Of that, reading gets so much, whatever reckoning takes.
const LEAST_READING: f64 = 0.3;
/// And asking about memory whose bits tell nothing so much.
const ASKING_SHARE: f64 = 0.25;
/// From one reading of everything to the next, at least, if the budget allows.
const SHORTEST: Duration = Duration::from_millis(250);
/// And at most: if the budget does not allow to read everything in that time, a part is read, another
/// one each time.
const LONGEST: Duration = Duration::from_millis(2500);
/// What is read in a round at least, of everything.
const LEAST_PART: f64 = 1e-3;
/// While memory is cleared for the first time, that may take so much of a CPU.
const SWEEP_SHARE: f64 = 0.1;
/// Memory that comes later may take so many CPU seconds beside the budget at first, and such a share of
/// the budget from then on.
const BURST: f64 = 1.0;
const BURST_SHARE: f64 = 0.05;
/// Rounds from one turn of a region to the next: an interval, less what jitter makes.
const TURN: f64 = 3.5;
/// Rounds for which what is not spent is kept.
const KEPT: f64 = 1.5;
/// Pages of a block.
const BLOCK_PAGES: u64 = BLOCK_SIZE / PAGE_SIZE;
/// Without a bound on shootdowns, there are at most so many in a round.
const MOST_RUNS: u32 = 256;

/// The accounts of a monitor; times in s.
pub(super) struct Spending {
    /// how long a round is
    pub round: Duration,
    /// of everything, the part that is read in this round
    part: f64,
    /// targets that are looked at in it
    visits: usize,
    /// what reading and reckoning may cost in it; not bounded if all is to be looked at
    for_visits: Option<f64>,
    pub prices: Prices,
    /// since the last snapshot
    cost: Cost,
    interval: Duration,
    /// from one turn of a little region to the next
    longest: Duration,
    seconds: Ledger,
    /// none without a bound on them
    shootdowns: Option<Ledger>,
    /// what clearing memory that came later for the first time may cost beside the budget
    burst: Ledger,
    /// what asking about hidden memory may cost
    asking: Ledger,
    /// memory of those who were there at the start was cleared for the first time in this round
    sweeping: bool,
    /// of this round
    reading: f64,
    /// of all that there is to read
    readings: Mean,
    /// of this round: neither reading nor clearing, but for the targets that are looked at
    reckoning: f64,
    /// of a target, however much is read of it
    reckonings: Mean,
    /// of this round, whoever is looked at: what others do with snapshots
    rest: f64,
    rests: Mean,
}

impl Spending {
    pub fn new(attrs: &Attrs) -> Self {
        let budget = budget(attrs);
        Spending {
            round: first_round(attrs),
            part: 1.0,
            visits: 0,
            for_visits: None,
            prices: Prices::default(),
            cost: Cost::default(),
            interval: attrs.interval,
            longest: longest(attrs),
            seconds: Ledger::new(budget),
            shootdowns: shootdowns(attrs),
            burst: Ledger::with(BURST_SHARE * budget, BURST),
            asking: Ledger::new(ASKING_SHARE * budget),
            sweeping: false,
            reading: 0.0,
            readings: Mean::default(),
            reckoning: 0.0,
            reckonings: Mean::default(),
            rest: 0.0,
            rests: Mean::default(),
        }
    }

    /// Goes on by other attributes.
    pub fn set_attrs(&mut self, attrs: &Attrs) {
        let budget = budget(attrs);
        self.round = first_round(attrs);
        self.interval = attrs.interval;
        self.longest = longest(attrs);
        self.seconds.set_per_second(budget);
        self.shootdowns = shootdowns(attrs);
        self.burst.set_per_second(BURST_SHARE * budget);
        self.asking.set_per_second(ASKING_SHARE * budget);
    }

    /// Time begins.
    pub fn begin(&mut self, now: Nanos) {
        self.seconds.accrue(now, 0.0);
    }

    fn pay(&mut self, cost: Cost) -> f64 {
        self.cost += cost;
        let seconds = (cost.cpu + cost.lost).as_secs_f64();
        self.seconds.spend(seconds);
        if let Some(shootdowns) = &mut self.shootdowns {
            shootdowns.spend(cost.clears as f64);
        }
        seconds
    }

    /// Pays for reading the part of everything that is read in a round.
    pub fn pay_for_reading(&mut self, cost: Cost) {
        self.reading += self.pay(cost);
    }

    /// Pays for what is reckoned of targets, and for little readings: what does not become less with the part
    /// that is read of one.
    pub fn pay_for_reckoning(&mut self, cost: Cost) {
        self.reckoning += self.pay(cost);
    }

    /// Pays for what is the same whoever is looked at.
    pub fn pay_for_rest(&mut self, cost: Cost) {
        self.rest += self.pay(cost);
    }

    /// Whether to ask about hidden memory.
    pub fn may_ask(&self) -> bool {
        self.asking.balance() > 0.0
    }

    /// Pays for asking about hidden memory.
    pub fn pay_for_asking(&mut self, cost: Cost) {
        let seconds = self.pay(cost);
        self.asking.spend(seconds);
        self.rest += seconds;
    }

    /// Pays for clearing `pages` young pages, of which a part was never cleared; `is_new`: of a target
    /// that was there at the start.
    pub fn pay_for_clearing(&mut self, cost: Cost, pages: u64, first: u64, is_new: bool) {
        let seconds = self.pay(cost);
        if is_new {
            self.sweeping = true;
        } else if self.burst.balance() > 0.0 {
            let part = seconds * first as f64 / pages.max(1) as f64;
            self.burst.spend(part);
            self.seconds.spend(-part);
        }
        let shootdowns = u32::try_from(cost.clears).unwrap_or(u32::MAX);
        self.prices.learn(shootdowns, pages, cost.cpu + cost.lost);
    }

    /// Ends the round before: how long the next one is follows from what looking at all of `nr_targets` costs.
    pub fn settle(&mut self, nr_targets: usize, now: Nanos) {
        let sweeping = std::mem::take(&mut self.sweeping);
        if sweeping {
            // What the first sweep costs is allowed beside the budget; its bound is in the allowance.
            self.seconds.forgive();
        }
        let kept = self.round.as_secs_f64() * KEPT;
        // A block that is all young must be affordable at last, whatever the budget.
        let block = self.prices.of(1, BLOCK_PAGES) * 1.5 + self.without_clearing();
        self.seconds.accrue(now, kept.max(block / self.seconds.per_second()));
        self.burst.accrue(now, kept);
        self.asking.accrue(now, 0.0);
        if let Some(shootdowns) = &mut self.shootdowns {
            shootdowns.accrue(now, kept.max(2.0 / shootdowns.per_second().max(1.0)));
        }
        if self.visits > 0 {
            if self.part > 0.0 {
                self.readings.add(self.reading / self.part);
            }
            self.reckonings.add(self.reckoning / self.visits as f64);
            self.rests.add(self.rest);
        }
        (self.reading, self.reckoning, self.rest) = (0.0, 0.0, 0.0);
        let (all, each, rest) = (self.readings.get(), self.reckonings.get(), self.rests.get());
        let every = all + each * nr_targets as f64;
        let share = READING_SHARE * self.seconds.per_second();
        if self.interval.is_zero() {
            // In which all can be looked at.
            let affordable = (every + rest) / share;
            let (low, high) = (SHORTEST.as_secs_f64(), LONGEST.as_secs_f64());
            self.round = Duration::from_secs_f64(affordable.clamp(low, high));
        }
        let both = share * self.round.as_secs_f64();
        // Many targets are to be looked at soon for the first time.
        let burst =
            if sweeping && nr_targets > 1 { SWEEP_SHARE * self.round.as_secs_f64() } else { 0.0 };
        let for_visits = (both - rest).max(both * LEAST_READING) + burst;
        // One is looked at in each round, and something is read of it, whatever reckoning takes.
        let least = each + (for_visits - each).max(both * LEAST_READING);
        self.for_visits = (every > for_visits * SLACK).then_some(for_visits.max(least));
    }

    /// Begins to look at targets with so much visible memory each: which part of each is read, of those from
    /// the first on for which there is time. At least one of them is looked at.
    ///
    /// E.g. four of the same size, of which each takes 2 ms to be reckoned and 4 to be read, and 10 ms: all of
    /// the first, and half of the second.
    pub fn visits(&mut self, memory: &[u64]) -> Vec<f64> {
        let total = memory.iter().sum::<u64>().max(1) as f64;
        let (all, each) = (self.readings.get(), self.reckonings.get());
        let mut left = self.for_visits.unwrap_or(f64::INFINITY);
        let mut parts = Vec::new();
        for bytes in memory {
            let whole = (all * *bytes as f64 / total).max(1e-9);
            let part = ((left - each) / whole).min(1.0);
            // The first has something read of it; the others are not worth a visit for less than a tenth.
            if part < 0.1 && !parts.is_empty() {
                break;
            }
            parts.push(part.max(LEAST_PART));
            left -= each + part * whole;
            if part < 1.0 {
                break;
            }
        }
        self.visits = parts.len();
        self.part = memory.iter().zip(&parts).map(|(m, p)| *m as f64 / total * p).sum();
        parts
    }

    /// Of a round.
    fn without_clearing(&self) -> f64 {
        let reckoning = self.reckonings.get() * self.visits as f64;
        self.readings.get() * self.part + reckoning + self.rests.get()
    }

    /// What may be cleared of a target, if so many of them are yet to come, this one included.
    pub fn allowance(
        &self,
        nr_targets: usize,
        w: &Watched,
        restraint: Restraint,
        now: Nanos,
    ) -> Allowance {
        let targets = nr_targets as f64;
        // What is yet to be read and reckoned in this round.
        let spent = self.reading + self.reckoning + self.rest;
        let reserve = (self.without_clearing() - spent).max(0.0);
        let round = self.round.as_secs_f64();
        let turn = self.round.mul_f64(TURN);
        let changing = w.changed.is_some_and(|at| now.since(at) < turn);
        let first = (w.is_new || self.burst.balance() > 0.0) && restraint == Restraint::None;
        Allowance {
            // Each may have its part; what one leaves is the next one's.
            seconds: (self.seconds.balance() - reserve) / targets,
            runs: match self.shootdowns.map(|l| l.balance()) {
                None => MOST_RUNS,
                Some(left) if left < 1.0 => 0,
                // Whole ones: where there are fewer than targets, those whose turn it is have them.
                Some(left) => (left / targets).ceil() as u32,
            },
            urgent: self.seconds.per_second() * round / targets,
            sweep: if first { SWEEP_SHARE * round / targets } else { 0.0 },
            turn: if changing { Duration::ZERO } else { turn },
            longest: self.longest,
            restraint,
        }
    }

    /// What looking has cost since this was last asked.
    pub fn take_cost(&mut self) -> Cost {
        std::mem::take(&mut self.cost)
    }
}

fn budget(attrs: &Attrs) -> f64 {
    f64::from(attrs.budget_ppm) / 1e6
}

fn shootdowns(attrs: &Attrs) -> Option<Ledger> {
    (attrs.max_clears > 0).then(|| Ledger::new(attrs.max_clears.into()))
}

/// Who wants windows wants the little to be as good as the great.
fn longest(attrs: &Attrs) -> Duration {
    if attrs.windows { LONG_TURN } else { LONGEST_TURN }
}

fn first_round(attrs: &Attrs) -> Duration {
    if attrs.interval.is_zero() { SHORTEST } else { attrs.interval / 4 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds in which reading all of `n` targets takes `all` seconds, to reckon each `each`, and what others
    /// do `rest`: how long they are at last, which part is read, and how many are looked at.
    fn settled_with(n: usize, all: f64, each: f64, rest: f64) -> (Duration, f64, usize) {
        let mut spending = Spending::new(&Attrs::default());
        let cpu = |s: f64| Cost { cpu: Duration::from_secs_f64(s), ..Cost::default() };
        let mut now = Nanos(0);
        spending.begin(now);
        for _ in 0..200 {
            now = now + spending.round;
            spending.settle(n, now);
            let visits = spending.visits(&vec![1 << 20; n]).len();
            spending.pay_for_reading(cpu(all * spending.part));
            spending.pay_for_reckoning(cpu(each * visits as f64));
            spending.pay_for_rest(cpu(rest));
        }
        (spending.round, spending.part, spending.visits)
    }

    fn settled(all: f64, each: f64) -> (Duration, f64) {
        let (round, part, visits) = settled_with(1, all, each, 0.0);
        assert_eq!(visits, 1);
        (round, part)
    }

    #[test]
    fn of_many_targets_some_are_looked_at_in_each_round() {
        // Of 100 there is time for 10: 12.5 ms, at .2 + 1 ms each.
        let (round, part, visits) = settled_with(100, 0.02, 0.001, 0.0);
        assert_eq!((round, visits), (LONGEST, 10));
        assert!((part - 0.1).abs() < 0.002, "{part}");
        // What others do leaves less time for them, and three tenths at least.
        assert_eq!(settled_with(100, 0.02, 0.001, 0.006).2, 5);
        assert_eq!(settled_with(100, 0.02, 0.001, 0.1).2, 4);
        let (round, part, visits) = settled_with(100, 0.001, 0.000_01, 0.0);
        assert_eq!((round, visits), (Duration::from_millis(400), 100));
        assert!(part > 0.999, "{part}");
    }

    #[test]
    fn reading_and_reckoning_have_half_of_the_budget() {
        // 1 ms is .4 % of the shortest round, and 5 ms .5 % of a second.
        assert_eq!(settled(0.001, 0.0), (SHORTEST, 1.0));
        let (round, part) = settled(0.003, 0.002);
        assert!((round.as_secs_f64() - 1.0).abs() < 0.01 && part > 0.99, "{round:?} {part}");
    }

    /// What is reckoned anew in each round must not be taken for the price of the part that is read: the part
    /// would become smaller, and seem dearer still.
    #[test]
    fn much_to_reckon_leaves_something_to_read() {
        let (round, part) = settled(0.02, 0.008);
        assert!(round == LONGEST && (part - 0.225).abs() < 0.01, "12.5 ms less 8: {part}");
        let (_, part) = settled(0.02, 0.03);
        assert!((part - 0.1875).abs() < 0.01, "three tenths of 12.5 ms: {part}");
    }
}
