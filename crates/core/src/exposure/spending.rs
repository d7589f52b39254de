//! The cost limits of a round, and its length.

use std::time::Duration;

use super::budget::{Mean, Prices, TokenBucket};
use super::plan::Allowance;
use super::target::ExposureTarget;
use crate::attrs::Attrs;
use crate::call::Cost;
use crate::range::PAGE_SIZE;
use crate::snapshot::Restraint;
use crate::survey::BLOCK_SIZE;
use crate::time::Nanos;
use crate::tuning::{LONG_REGION_TURN, MAX_REGION_TURN};

/// Share of the budget for reading all memory and processing the results. If that is not sufficient, memory
/// is read less often.
const READING_SHARE: f64 = 0.5;
/// The same after a recent change: rounds must be short then, and samples need less of the budget than turns.
const RESTLESS_READING_SHARE: f64 = 0.7;
/// Minimum share of this for reading, however much processing costs.
const MIN_READING_SHARE: f64 = 0.3;
/// Share of the budget for asking about memory whose accessed bits carry no information.
const ASKING_SHARE: f64 = 0.25;
/// Shortest time between two reads of all memory, if the budget allows it.
const MIN_ROUND: Duration = Duration::from_millis(250);
/// Longest round while some work can be deferred. If the budget is not sufficient to read all memory in this
/// time, each round reads a different part.
const MAX_ROUND: Duration = Duration::from_millis(2500);
/// Rounds lengthen until mandatory work fits in this share of the budget: with very many targets, or if
/// processing costs more than reading.
const STRETCH_SHARE: f64 = 0.7;
/// Minimum share of the budget that remains, regardless of the use by other code in this thread.
const MIN_BUDGET_SHARE: f64 = 0.25;
/// Later rounds pay for use by other code beyond its share of the budget, up to the income of this time, in s.
const OWED_S: f64 = 5.0;
/// Time constant of the average of this use, in s.
const OVERHEAD_TIME_CONSTANT_S: f64 = 5.0;
/// Maximum growth of the round from one round to the next: the first reads cost more than later ones.
const MAX_ROUND_GROWTH: u32 = 4;
/// Minimum number of pages per target that a round reads, on average: for fewer pages, a visit is not worth its
/// fixed cost.
const MIN_PAGES_PER_TARGET: u64 = (64 << 20) / PAGE_SIZE;
/// Minimum part of all memory that a round reads.
const MIN_ROUND_SHARE: f64 = 1e-3;
/// A round that could read this part of all memory reads all of it. Where the length of a round follows from the cost of
/// reading all memory, the part is 1 except for rounding, and only a round that reads all may be calm.
const ALMOST_ALL: f64 = 0.99;
/// Share of a CPU for clearing memory for the first time.
const SWEEP_SHARE: f64 = 0.1;
/// CPU seconds in addition to the budget for the first clears of memory that is added later, and the share of the
/// budget that refills this account.
const BURST_SECONDS: f64 = 1.0;
const BURST_SHARE: f64 = 0.05;
/// Rounds between two turns of a region: four are an interval; half a round is subtracted for jitter.
const TURN_ROUNDS: f64 = 3.5;
/// The budget is plentiful if clears leave more than the income of this time, in s.
const PLENTIFUL_S: f64 = 0.1;
/// Number of rounds for which unspent budget is kept.
const KEPT_ROUNDS: f64 = 1.5;
/// Pages in a block.
const BLOCK_PAGES: u64 = BLOCK_SIZE / PAGE_SIZE;
/// Limits per round if shootdowns are not limited: runs, and samples of a large target.
const MAX_RUNS: u32 = 256;
const MAX_SAMPLES: u32 = 1 << 20;
/// Share of the reading budget for untouched samples of large targets.
const SENTINEL_SHARE: f64 = 0.8;
/// Minimum price of reading a sample, in s: its page table is not in the cache.
const MIN_SAMPLE_PRICE_S: f64 = 100e-9;

/// The accounts of a monitor; all costs are in s.
pub(super) struct Spending {
    /// length of a round
    pub round: Duration,
    /// part of all memory that a round reads, 0 to 1
    pub part: f64,
    /// Stretches of memory have changed recently.
    restless: bool,
    /// The last clears were not limited by the budget.
    is_plentiful: bool,
    /// number of targets
    targets: usize,
    /// number of targets that were read in this round
    read: usize,
    pub prices: Prices,
    /// cost since the last snapshot
    cost: Cost,
    interval: Duration,
    /// maximum time between two turns of a small region
    longest: Duration,
    seconds: TokenBucket,
    /// `None` without a limit
    shootdowns: Option<TokenBucket>,
    /// account for the first clears of memory that was added later, in addition to the budget
    burst: TokenBucket,
    /// account for asking about hidden memory
    asking: TokenBucket,
    /// for targets that were present at the start: pages cleared for the first time in this round, and number
    /// of such targets
    swept: (u64, u64),
    /// cost of reading in this round
    reading: f64,
    /// cost of reading all memory
    readings: MeanCost,
    /// cost in this round of work other than reading and clearing
    rest: f64,
    /// cost of this other work per round, however much is read
    rests: MeanCost,
    /// price of reading one untouched sample of a large target
    sentinel: Mean,
    /// budget for reading these samples in a round
    for_sentinels: f64,
    /// cost of other code in this thread since the round began
    by_others: f64,
    /// cost of other code that is not paid yet
    owed: f64,
    /// this cost per second in the previous round
    last_rate: f64,
    /// average of this cost per second
    others: f64,
    settled: Option<Nanos>,
}

/// An average cost, and the average number of targets that caused it.
#[derive(Debug, Clone, Copy, Default)]
struct MeanCost {
    all: Mean,
    targets: Mean,
}

impl MeanCost {
    fn add(&mut self, all: f64, targets: usize) {
        self.all.add(all);
        self.targets.add(targets as f64);
    }

    /// The expected cost for `targets` targets. After a change of the targets this is a guess for one round.
    fn of(&self, targets: usize) -> f64 {
        self.all.get() * targets as f64 / self.targets.get().max(1.0)
    }
}

/// The extent of the watched memory.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Extent {
    pub targets: usize,
    /// resident pages of all targets
    pub pages: u64,
    /// At least one target is observed by samples.
    pub is_large: bool,
    /// Stretches of memory have changed recently.
    pub is_restless: bool,
}

impl Extent {
    /// Minimum part of all memory that a round must read.
    fn least_part(self) -> f64 {
        let pages = MIN_PAGES_PER_TARGET as f64 * self.targets.max(1) as f64;
        (pages / self.pages.max(1) as f64).clamp(MIN_ROUND_SHARE, 1.0)
    }
}

impl Spending {
    pub fn new(attrs: &Attrs) -> Self {
        let budget = budget(attrs);
        Spending {
            round: first_round(attrs),
            part: 1.0,
            restless: false,
            is_plentiful: false,
            targets: 1,
            read: 0,
            prices: Prices::default(),
            cost: Cost::default(),
            interval: attrs.interval,
            longest: longest(attrs),
            seconds: TokenBucket::new(budget),
            shootdowns: shootdowns(attrs),
            burst: TokenBucket::with(BURST_SHARE * budget, BURST_SECONDS),
            asking: TokenBucket::new(ASKING_SHARE * budget),
            swept: (0, 0),
            reading: 0.0,
            readings: MeanCost::default(),
            rest: 0.0,
            rests: MeanCost::default(),
            sentinel: Mean::default(),
            for_sentinels: 0.0,
            by_others: 0.0,
            owed: 0.0,
            last_rate: 0.0,
            others: 0.0,
            settled: None,
        }
    }

    /// Applies changed attributes. The length of the round stays until the next round, unless no round has
    /// begun.
    pub fn set_attrs(&mut self, attrs: &Attrs) {
        let budget = budget(attrs);
        if self.settled.is_none() {
            self.round = first_round(attrs);
        }
        self.interval = attrs.interval;
        self.longest = longest(attrs);
        self.seconds.set_per_second(budget);
        self.shootdowns = shootdowns(attrs);
        self.burst.set_per_second(BURST_SHARE * budget);
        self.asking.set_per_second(ASKING_SHARE * budget);
    }

    /// Starts the clock of the budget.
    pub fn begin(&mut self, now: Nanos) {
        self.seconds.accrue(now, 0.0);
    }

    fn pay(&mut self, cost: Cost) -> f64 {
        let seconds = self.note(cost);
        self.seconds.spend(seconds);
        seconds
    }

    /// Adds a cost to the sum of all costs, and returns it in s.
    fn note(&mut self, cost: Cost) -> f64 {
        self.cost += cost;
        if let Some(shootdowns) = &mut self.shootdowns {
            shootdowns.spend(cost.clears as f64);
        }
        (cost.cpu + cost.lost).as_secs_f64()
    }

    /// Pays for reading one target's part in this round.
    pub fn pay_for_reading(&mut self, cost: Cost) {
        self.read += 1;
        self.reading += self.pay(cost);
    }

    /// Whether budget remains.
    pub fn is_in_credit(&self) -> bool {
        self.seconds.balance() > 0.0
    }

    /// Notes that a round has cleared all that it will.
    pub fn end_clears(&mut self) {
        self.is_plentiful = self.seconds.balance() > PLENTIFUL_S * self.seconds.per_second();
    }

    /// Whether the last clears were not limited by the budget.
    pub fn is_plentiful(&self) -> bool {
        self.is_plentiful
    }

    /// Whether the cost determines the length of a round, not an interval that the user chose.
    pub fn is_automatic(&self) -> bool {
        self.interval.is_zero()
    }

    /// Pays for reading `samples` untouched samples of a large target.
    pub fn pay_for_sentinels(&mut self, cost: Cost, samples: usize) {
        let seconds = self.pay(cost);
        self.sentinel.add(seconds / samples.max(1) as f64);
    }

    /// Number of untouched samples that may be read of each target.
    pub fn sentinels(&self) -> usize {
        let price = self.sentinel.get().max(MIN_SAMPLE_PRICE_S);
        (self.for_sentinels / self.targets.max(1) as f64 / price) as usize
    }

    /// Pays for processing and for small reads: costs that do not shrink with the part that is read.
    pub fn pay_for_rest(&mut self, cost: Cost) {
        self.rest += self.pay(cost);
    }

    /// Pays for an early read and its processing. During a large part of the first sweep, this cost is not
    /// representative of later rounds and is excluded from the average.
    pub fn pay_for_early(&mut self, cost: Cost) {
        let seconds = self.pay(cost);
        let (pages, targets) = self.swept;
        if pages <= MIN_PAGES_PER_TARGET * targets {
            self.rest += seconds;
        }
    }

    /// Pays for work with a constant cost per second, however long a round is, at the end of a round.
    pub fn pay_for_others(&mut self, cost: Cost) {
        self.by_others += self.note(cost);
    }

    /// Whether hidden memory may be asked about.
    pub fn may_ask(&self) -> bool {
        self.asking.balance() > 0.0
    }

    /// Pays for asking about hidden memory.
    pub fn pay_for_asking(&mut self, cost: Cost) {
        let seconds = self.note(cost);
        // It also has an account of its own.
        self.asking.spend(seconds);
        self.by_others += seconds;
    }

    /// Pays for clearing `pages` young pages, of which `first` were never cleared before. `is_new`: the
    /// target was present at the start.
    pub fn pay_for_clearing(&mut self, cost: Cost, pages: u64, first: u64, is_new: bool) {
        let seconds = self.pay(cost);
        if is_new {
            self.swept = (self.swept.0 + first, self.swept.1 + 1);
        } else if self.burst.balance() > 0.0 {
            let part = seconds * first as f64 / pages.max(1) as f64;
            self.burst.spend(part);
            self.seconds.spend(-part);
        }
        let shootdowns = u32::try_from(cost.clears).unwrap_or(u32::MAX);
        self.prices.learn(shootdowns, pages, cost.cpu + cost.lost);
    }

    /// Ends the round, and sets the length and the part of the next one from the cost of reading.
    pub fn settle(&mut self, now: Nanos, extent: Extent) {
        self.settle_others(now);
        let (_, sweeping) = std::mem::take(&mut self.swept);
        if sweeping > 0 {
            // The first sweep may exceed the budget; the allowance limits it.
            self.seconds.forgive();
        }
        let kept = self.round.as_secs_f64() * KEPT_ROUNDS;
        // A wholly young block must become affordable after some time, however small the budget.
        let block = self.prices.of(1, BLOCK_PAGES) * 1.5 + self.without_clearing();
        self.seconds.accrue(now, kept.max(block / self.seconds.per_second()));
        self.burst.accrue(now, kept);
        self.asking.accrue(now, kept);
        if let Some(shootdowns) = &mut self.shootdowns {
            shootdowns.accrue(now, kept.max(2.0 / shootdowns.per_second().max(1.0)));
        }
        // Targets at rest are not read, and processing them costs almost nothing.
        let (read, reading) = (std::mem::take(&mut self.read), std::mem::take(&mut self.reading));
        let rest = std::mem::take(&mut self.rest);
        if reading > 0.0 {
            self.readings.add(reading / self.part, read);
            self.rests.add(rest, read);
        }
        self.targets = extent.targets;
        // With very many targets, rounds are too long for samples anyway.
        self.restless = extent.is_restless && self.stretched(extent) < MAX_ROUND;
        let least = extent.least_part();
        let stretched = self.stretched(extent).min(self.round * MAX_ROUND_GROWTH);
        self.round = self.at_once().max(stretched);
        let (all, rest) = (self.readings.of(self.targets), self.rest_of_round());
        let both = self.reading_share() * self.left() * self.round.as_secs_f64();
        let for_reading = (both - rest).max(both * MIN_READING_SHARE);
        self.for_sentinels = if extent.is_large { for_reading * SENTINEL_SHARE } else { 0.0 };
        let for_reading = for_reading - self.for_sentinels;
        let part = for_reading / all.max(1e-9);
        self.part = if part > ALMOST_ALL { 1.0 } else { part.max(least) };
    }

    /// Pays for other code, which leaves the minimum share of the income since the last round: a debt would end all
    /// clears. Also averages its cost.
    fn settle_others(&mut self, now: Nanos) {
        let used = std::mem::take(&mut self.by_others);
        let seconds = self.settled.replace(now).map(|before| now.since(before).as_secs_f64());
        let income = self.seconds.per_second();
        let due = self.owed + used;
        let paid = due.min((1.0 - MIN_BUDGET_SHARE) * income * seconds.unwrap_or(0.0));
        self.seconds.spend(paid);
        self.owed = (due - paid).min(OWED_S * income);
        let Some(seconds) = seconds else { return };
        let rate = used / seconds.max(1e-3);
        // A single event, such as attaching many targets, does not predict the next round.
        let steady = rate.min(std::mem::replace(&mut self.last_rate, rate));
        // A measurement over 5 s has a weight of one half.
        self.others = (self.others * OVERHEAD_TIME_CONSTANT_S + steady * seconds)
            / (seconds + OVERHEAD_TIME_CONSTANT_S);
    }

    /// The expected length of a round, from the present cost estimates.
    pub fn length(&self, extent: Extent) -> Duration {
        self.at_once().max(self.stretched(extent))
    }

    /// Budget per second that other code in this thread leaves.
    fn left(&self) -> f64 {
        let budget = self.seconds.per_second();
        (budget - self.others).max(budget * MIN_BUDGET_SHARE)
    }

    fn reading_share(&self) -> f64 {
        if self.restless { RESTLESS_READING_SHARE } else { READING_SHARE }
    }

    /// Length of a round while some work can be deferred to the next round.
    fn at_once(&self) -> Duration {
        if !self.interval.is_zero() {
            return self.interval / 4;
        }
        // The time in which all memory can be read within the budget.
        let all = self.readings.of(self.targets) + self.rest_of_round();
        let affordable = all / (self.reading_share() * self.left());
        let (low, high) = (MIN_ROUND.as_secs_f64(), MAX_ROUND.as_secs_f64());
        Duration::from_secs_f64(affordable.clamp(low, high))
    }

    /// Length of a round in which the mandatory work fits.
    fn stretched(&self, extent: Extent) -> Duration {
        let all = self.readings.of(extent.targets) * extent.least_part();
        let needed = (all + self.rests.of(extent.targets)) / (STRETCH_SHARE * self.left());
        Duration::try_from_secs_f64(needed).unwrap_or(Duration::MAX)
    }

    /// Expected cost per round of work other than reading and clearing.
    fn rest_of_round(&self) -> f64 {
        self.rests.of(self.targets)
    }

    /// Expected cost per round of all work except clearing.
    fn without_clearing(&self) -> f64 {
        self.readings.of(self.targets) * self.part + self.rest_of_round()
    }

    /// The allowance for clearing a target. `nr_targets` is the number of targets that have not had their
    /// turn in this round, including this one.
    pub fn allowance(
        &self,
        nr_targets: usize,
        w: &ExposureTarget,
        restraint: Restraint,
    ) -> Allowance {
        let targets = nr_targets as f64;
        // The expected cost of reading and processing that is still due in this round.
        let reserve = (self.without_clearing() - self.reading - self.rest).max(0.0);
        let round = self.round.as_secs_f64();
        let turn = self.round.mul_f64(TURN_ROUNDS);
        let first = (w.is_new || self.burst.balance() > 0.0) && restraint == Restraint::None;
        Allowance {
            // Each target may use its share; the unused rest goes to the next one.
            seconds: (self.seconds.balance() - reserve) / targets,
            runs: match self.shootdowns.map(|l| l.balance()) {
                None if w.is_large() => MAX_SAMPLES,
                None => MAX_RUNS,
                Some(left) if left < 1.0 => 0,
                // Whole shootdowns: if there are fewer than targets, the targets whose turn it is get them.
                Some(left) => (left / targets).ceil() as u32,
            },
            urgent: self.seconds.per_second() * round / targets,
            sweep: if first { SWEEP_SHARE * round / targets } else { 0.0 },
            turn,
            longest: self.longest,
            restraint,
        }
    }

    /// The cost since the last call.
    pub fn take_cost(&mut self) -> Cost {
        std::mem::take(&mut self.cost)
    }
}

fn budget(attrs: &Attrs) -> f64 {
    f64::from(attrs.budget_ppm) / 1e6
}

fn shootdowns(attrs: &Attrs) -> Option<TokenBucket> {
    (attrs.max_clears > 0).then(|| TokenBucket::new(attrs.max_clears.into()))
}

/// With `windows`, small regions are measured as well as large ones.
fn longest(attrs: &Attrs) -> Duration {
    if attrs.windows { LONG_REGION_TURN } else { MAX_REGION_TURN }
}

fn first_round(attrs: &Attrs) -> Duration {
    if attrs.interval.is_zero() { MIN_ROUND } else { attrs.interval / 4 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(s: f64) -> Cost {
        Cost { cpu: Duration::from_secs_f64(s), ..Cost::default() }
    }

    /// Reads the part due in a round of `targets` targets, all of which cost `all` seconds.
    fn read(spending: &mut Spending, targets: usize, all: f64) {
        let each = cpu(all * spending.part / targets.max(1) as f64);
        (0..targets).for_each(|_| spending.pay_for_reading(each));
    }

    /// State after many rounds with targets of 1 GiB, in which reading all memory costs `all` seconds, and
    /// other work `rest` seconds per target.
    fn settled(targets: usize, all: f64, rest: f64) -> Spending {
        let mut spending = Spending::new(&Attrs::default());
        let mut now = Nanos(0);
        spending.begin(now);
        let pages = targets as u64 * BLOCK_PAGES * 512;
        let extent = Extent { targets, pages, ..Extent::default() };
        for _ in 0..200 {
            now = now + spending.round;
            spending.settle(now, extent);
            read(&mut spending, targets, all);
            spending.pay_for_rest(cpu(rest * targets as f64));
        }
        spending
    }

    #[test]
    fn reading_and_reckoning_have_half_of_the_budget() {
        // 1 ms is 0.4 % of the shortest round, and 5 ms are 0.5 % of a second.
        let s = settled(1, 0.001, 0.0);
        assert_eq!((s.round, s.part), (MIN_ROUND, 1.0));
        let s = settled(1, 0.003, 0.002);
        assert!((s.round.as_secs_f64() - 1.0).abs() < 0.01 && s.part > 0.99, "{:?}", s.round);
    }

    /// The length of a round is rounded to ns. A round may be calm only if it may read all memory.
    #[test]
    fn rounding_leaves_no_memory_for_the_next_round() {
        for nr in 0..200 {
            let s = settled(1, 0.0013 + f64::from(nr) * 3e-6, 0.0017);
            assert!(s.round > MIN_ROUND && s.round < MAX_ROUND, "{nr}: {:?}", s.round);
            assert!(s.part >= 1.0, "{nr}: {}", s.part);
        }
    }

    /// Processing per round must not count as a price of the part that is read: the part would shrink, and
    /// appear even more expensive.
    #[test]
    fn much_to_reckon_leaves_something_to_read() {
        let s = settled(1, 0.02, 0.008);
        assert!(
            s.round == MAX_ROUND && (s.part - 0.225).abs() < 0.01,
            "12.5 ms less 8: {}",
            s.part
        );
    }

    /// Mandatory work lengthens rounds, and the budget is kept.
    #[test]
    fn rounds_are_as_long_as_what_is_to_be_done_in_each_takes() {
        // One target, with 30 ms of processing, and a sixteenth of 20 ms of reading.
        let s = settled(1, 0.02, 0.03);
        assert!((s.round.as_secs_f64() - 4.46).abs() < 0.01, "31.25 of 7 ms/s: {:?}", s.round);
        assert!((s.part - 0.335).abs() < 0.01, "three tenths of 22.3 ms: {}", s.part);
        // 1000 targets with 0.14 ms each, and a sixteenth of 80 ms.
        let s = settled(1000, 0.08, 0.000_14);
        assert!((s.round.as_secs_f64() - 20.71).abs() < 0.01, "145 of 7 ms/s: {:?}", s.round);
        let spent = 0.08 * s.part + 0.14;
        assert!(spent < 0.85 * 0.01 * s.round.as_secs_f64(), "{spent} s a round");
    }

    /// Small memory is read as a whole: the cost depends on the number of blocks, not on the length.
    #[test]
    fn little_targets_are_read_as_a_whole() {
        let part = |targets, pages| Extent { targets, pages, ..Extent::default() }.least_part();
        assert_eq!(part(1000, 1000 * 1024), 1.0);
        assert_eq!(part(1, 1 << 28), MIN_ROUND_SHARE, "1 TiB");
        assert_eq!(part(0, 0), 1.0);
    }

    /// Rounds from `at` on: number of targets, cost of reading all memory, other work, and cost of other
    /// code.
    fn rounds(spending: &mut Spending, of: &[(usize, f64, f64, f64)]) -> Vec<u128> {
        let mut at = Nanos(1 << 40);
        let mut round = |&(targets, all, rest, others): &(usize, f64, f64, f64)| {
            spending.settle(at, Extent { targets, ..Extent::default() });
            read(spending, targets, all);
            spending.pay_for_rest(cpu(rest));
            spending.pay_for_others(cpu(others));
            at = at + spending.round;
            spending.round.as_millis()
        };
        of.iter().map(&mut round).collect()
    }

    /// The first read costs more than later ones, and targets that have ended cost nothing.
    #[test]
    fn rounds_become_long_by_steps_and_short_at_once() {
        let mut spending = settled(1, 0.001, 0.0);
        let (one, all) = ((1, 0.001, 0.0, 0.0), (1000, 0.02, 0.2, 0.0));
        let rounds = rounds(&mut spending, &[one, all, all, all, all, all, (4, 1e-4, 1e-3, 0.0)]);
        assert_eq!(rounds[..3], [250, 2500, 10_000]);
        assert!((20_000..60_000).contains(&rounds[5]) && rounds[6] < 300, "{rounds:?}");
    }

    /// New targets are priced as such, not like the target that was present before.
    #[test]
    fn little_targets_beside_a_big_one() {
        let mut spending = settled(1, 0.02, 0.01);
        let both = (1001, 0.04, 0.21, 0.0);
        let rounds = rounds(&mut spending, &[both; 8]);
        assert!(*rounds.iter().max().unwrap() < 60_000, "{rounds:?}");
        assert!((30_000..50_000).contains(&rounds[7]), "250 of 7 ms/s: {rounds:?}");
    }

    /// A constant cost of other code reduces the budget; a single one is forgotten.
    #[test]
    fn what_others_take_is_left_out() {
        let each = |others| (1, 0.001, 0.02, others);
        let alone = rounds(&mut settled(1, 0.001, 0.02), &[each(0.0); 20]);
        let mut spending = settled(1, 0.001, 0.02);
        let steady: Vec<_> = (0..20).map(|_| each(0.004 * 5.0)).collect();
        let with = rounds(&mut spending, &steady);
        let (alone, with) = (alone[19], with[19]);
        // 21 ms at 7 ms/s; and at 70 % of the 10 ms/s minus 20 ms per round.
        assert!((2_900..3_100).contains(&alone), "{alone}");
        assert!((4_700..5_300).contains(&with), "{with}");
        let mut once = vec![each(0.0); 8];
        once[3].3 = 1.0;
        let once = rounds(&mut settled(1, 0.001, 0.02), &once);
        assert!(once.iter().all(|round| round.abs_diff(alone) < 200), "{once:?}");
    }

    /// Whether budget remains at the end of each round, with reads for half of the remaining budget, and then each of
    /// these costs of other code.
    fn in_credit(others: impl Iterator<Item = f64>) -> Vec<bool> {
        let mut spending = settled(1, 0.0, 0.0);
        let mut now = spending.settled.unwrap();
        let mut round = |others| {
            spending.pay_for_others(cpu(others));
            now = now + MIN_ROUND;
            spending.settle(now, Extent { targets: 1, ..Extent::default() });
            let affordable = spending.left() * MIN_ROUND.as_secs_f64() / 2.0;
            spending.pay_for_reading(cpu(affordable));
            spending.is_in_credit()
        };
        others.map(&mut round).collect()
    }

    /// Otherwise no memory would be cleared, also for a long time after.
    #[test]
    fn however_much_others_take_something_is_left_for_clears() {
        // Twice the budget for ten minutes.
        let steady = in_credit(std::iter::repeat_n(0.02 * 0.25, 2400));
        let last = steady.iter().rev().take(100).filter(|credit| **credit).count();
        assert!(last > 90, "{last} of the last 100 rounds");
        let long = steady.iter().take(120).filter(|credit| **credit).count();
        assert!(long > 60, "{long} of the first 120 rounds");
    }

    /// A single event is paid for later, up to the income of 5 s.
    #[test]
    fn a_debt_for_others_is_paid_but_limited() {
        let rounds = |event| {
            let credit = in_credit(std::iter::once(event).chain(std::iter::repeat_n(0.0, 200)));
            credit.iter().rposition(|credit| !credit).unwrap_or(0)
        };
        assert_eq!(rounds(0.001), 0);
        let (income_of_5_s, more) = (rounds(0.05), rounds(5.0));
        assert!((12..60).contains(&income_of_5_s), "{income_of_5_s}");
        assert!(more <= income_of_5_s + 4, "{more} rounds, not {income_of_5_s}");
    }
}
