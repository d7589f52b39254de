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
    /// of everything, the part that is read in a round
    pub part: f64,
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
    /// of this round: neither reading nor clearing
    rest: f64,
    /// of a round, however much is read in it
    rests: Mean,
}

impl Spending {
    pub fn new(attrs: &Attrs) -> Self {
        let budget = budget(attrs);
        Spending {
            round: first_round(attrs),
            part: 1.0,
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

    /// Pays for what is reckoned, and for little readings: what does not become less with the part.
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

    /// Ends the round before: how long the next one is follows from what reading has cost.
    pub fn settle(&mut self, now: Nanos) {
        if std::mem::take(&mut self.sweeping) {
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
        if self.reading > 0.0 {
            self.readings.add(std::mem::take(&mut self.reading) / self.part);
            self.rests.add(std::mem::take(&mut self.rest));
        }
        let (all, rest) = (self.readings.get(), self.rests.get());
        let share = READING_SHARE * self.seconds.per_second();
        if self.interval.is_zero() {
            // In which all can be read.
            let affordable = (all + rest) / share;
            let (low, high) = (SHORTEST.as_secs_f64(), LONGEST.as_secs_f64());
            self.round = Duration::from_secs_f64(affordable.clamp(low, high));
        }
        let both = share * self.round.as_secs_f64();
        let for_reading = (both - rest).max(both * LEAST_READING);
        self.part = (for_reading / all.max(1e-9)).clamp(LEAST_PART, 1.0);
    }

    /// Of a round.
    fn without_clearing(&self) -> f64 {
        self.readings.get() * self.part + self.rests.get()
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
        let reserve = (self.without_clearing() - self.reading - self.rest).max(0.0);
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

    /// Rounds in which reading all takes `all` seconds, and the rest `rest`: what is read at last.
    fn settled(all: f64, rest: f64) -> (Duration, f64) {
        let mut spending = Spending::new(&Attrs::default());
        let cpu = |s: f64| Cost { cpu: Duration::from_secs_f64(s), ..Cost::default() };
        let mut now = Nanos(0);
        spending.begin(now);
        for _ in 0..200 {
            now = now + spending.round;
            spending.settle(now);
            spending.pay_for_reading(cpu(all * spending.part));
            spending.pay_for_rest(cpu(rest));
        }
        (spending.round, spending.part)
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
