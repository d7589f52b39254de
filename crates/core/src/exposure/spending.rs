//! What a round may cost, and how long it is.

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
use crate::tuning::{LONG_REGION_TURN, LONGEST_REGION_TURN};

/// Of the budget, reading everything and what is reckoned from it may take so much; else it is read less
/// often.
const READING_SHARE: f64 = 0.5;
/// Of that, reading gets so much, whatever reckoning takes.
const LEAST_READING: f64 = 0.3;
/// And asking about memory whose bits tell nothing so much.
const ASKING_SHARE: f64 = 0.25;
/// From one reading of everything to the next, at least, if the budget allows.
const SHORTEST_ROUND: Duration = Duration::from_millis(250);
/// And at most, as long as there is something that can be left for the next round: if the budget does not
/// allow to read everything in that time, a part is read, another one each time.
const LONGEST_ROUND: Duration = Duration::from_millis(2500);
/// What cannot be left may take so much of the budget; else rounds become longer still: with very many
/// targets, or when more is reckoned than read.
const STRETCH_SHARE: f64 = 0.7;
/// Whatever others take of the budget, so much of it is left.
const LEAST_LEFT: f64 = 0.25;
/// What they took is averaged over so many s.
const OF_LATE: f64 = 5.0;
/// By so much from one to the next: the first readings are dearer than those that follow.
const MOST_STRETCH: u32 = 4;
/// Of each target all is read at a time, or so many pages on the average: for less, a visit is not worth
/// what it takes.
const WORTH_A_VISIT: u64 = (64 << 20) / PAGE_SIZE;
/// What is read in a round at least, of everything.
const LEAST_PART: f64 = 1e-3;
/// While memory is cleared for the first time, that may take so much of a CPU.
const SWEEP_SHARE: f64 = 0.1;
/// Memory that comes later may take so many CPU seconds beside the budget at first, and such a share of
/// the budget from then on.
const BURST: f64 = 1.0;
const BURST_SHARE: f64 = 0.05;
/// Rounds from one turn of a region to the next: an interval, less what jitter makes.
const TURN_ROUNDS: f64 = 3.5;
/// Rounds for which what is not spent is kept.
const KEPT_ROUNDS: f64 = 1.5;
/// Pages of a block.
const BLOCK_PAGES: u64 = BLOCK_SIZE / PAGE_SIZE;
/// Without a bound on shootdowns, there are at most so many in a round, and of a large target, so many samples.
const MOST_RUNS: u32 = 256;
const MOST_SAMPLES: u32 = 1 << 20;
/// Of what reading gets, samples of large targets that nobody has touched get so much.
const SENTINEL_SHARE: f64 = 0.8;
/// Each takes so many s at least: its table is not in the cache.
const LEAST_SENTINEL: f64 = 100e-9;

/// The accounts of a monitor; times in s.
pub(super) struct Spending {
    /// how long a round is
    pub round: Duration,
    /// of everything, the part that is read in a round
    pub part: f64,
    /// who are looked at in it
    targets: usize,
    /// those of them that were read
    read: usize,
    pub prices: Prices,
    /// since the last snapshot
    cost: Cost,
    interval: Duration,
    /// from one turn of a little region to the next
    longest: Duration,
    seconds: TokenBucket,
    /// none without a bound on them
    shootdowns: Option<TokenBucket>,
    /// what clearing memory that came later for the first time may cost beside the budget
    burst: TokenBucket,
    /// what asking about hidden memory may cost
    asking: TokenBucket,
    /// of those who were there at the start, pages that were cleared for the first time in this round, and of
    /// how many targets
    swept: (u64, u64),
    /// of this round
    reading: f64,
    /// of all that there is to read, by target
    readings: Each,
    /// of this round: neither reading nor clearing
    rest: f64,
    /// of a round, however much is read in it, by target
    rests: Each,
    /// of a sample of a large target that nobody has touched
    sentinel: Mean,
    /// what reading those may take in a round
    for_sentinels: f64,
    /// since the round began: what others do in this thread
    by_others: f64,
    /// the same, in each second, in the round before
    last_rate: f64,
    /// what they take in each second, of late
    others: f64,
    settled: Option<Nanos>,
}

/// What something takes, by target.
#[derive(Debug, Clone, Copy, Default)]
struct Each {
    all: Mean,
    targets: Mean,
}

impl Each {
    fn add(&mut self, all: f64, targets: usize) {
        self.all.add(all);
        self.targets.add(targets as f64);
    }

    /// For so many. When there are others than before, that is as good as a guess, for a round.
    fn of(&self, targets: usize) -> f64 {
        self.all.get() * targets as f64 / self.targets.get().max(1.0)
    }
}

/// What there is to look at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    pub targets: usize,
    /// resident pages of all of them
    pub pages: u64,
    /// One of them is known by samples.
    pub is_large: bool,
}

impl Extent {
    /// Which part of everything is worth a round at least.
    fn least_part(self) -> f64 {
        let pages = WORTH_A_VISIT as f64 * self.targets.max(1) as f64;
        (pages / self.pages.max(1) as f64).clamp(LEAST_PART, 1.0)
    }
}

impl Spending {
    pub fn new(attrs: &Attrs) -> Self {
        let budget = budget(attrs);
        Spending {
            round: first_round(attrs),
            part: 1.0,
            targets: 1,
            read: 0,
            prices: Prices::default(),
            cost: Cost::default(),
            interval: attrs.interval,
            longest: longest(attrs),
            seconds: TokenBucket::new(budget),
            shootdowns: shootdowns(attrs),
            burst: TokenBucket::with(BURST_SHARE * budget, BURST),
            asking: TokenBucket::new(ASKING_SHARE * budget),
            swept: (0, 0),
            reading: 0.0,
            readings: Each::default(),
            rest: 0.0,
            rests: Each::default(),
            sentinel: Mean::default(),
            for_sentinels: 0.0,
            by_others: 0.0,
            last_rate: 0.0,
            others: 0.0,
            settled: None,
        }
    }

    /// Goes on by other attributes.
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

    /// Pays for reading the part of a target that is read in a round.
    pub fn pay_for_reading(&mut self, cost: Cost) {
        self.read += 1;
        self.reading += self.pay(cost);
    }

    /// Whether anything is left of what may be spent.
    pub fn is_in_credit(&self) -> bool {
        self.seconds.balance() > 0.0
    }

    /// Pays for reading so many samples of a large target that nobody has touched.
    pub fn pay_for_sentinels(&mut self, cost: Cost, samples: usize) {
        let seconds = self.pay(cost);
        self.sentinel.add(seconds / samples.max(1) as f64);
    }

    /// How many of those may be read of each target.
    pub fn sentinels(&self) -> usize {
        let price = self.sentinel.get().max(LEAST_SENTINEL);
        (self.for_sentinels / self.targets.max(1) as f64 / price) as usize
    }

    /// Pays for what is reckoned, and for little readings: what does not become less with the part.
    pub fn pay_for_rest(&mut self, cost: Cost) {
        self.rest += self.pay(cost);
    }

    /// Pays for reading what was cleared in this round, and what is reckoned from it. After much of the first
    /// sweep that says nothing of the rounds to come.
    pub fn pay_for_early(&mut self, cost: Cost) {
        let seconds = self.pay(cost);
        let (pages, targets) = self.swept;
        if pages <= WORTH_A_VISIT * targets {
            self.rest += seconds;
        }
    }

    /// Pays for what takes so much in a second, however long a round is.
    pub fn pay_for_others(&mut self, cost: Cost) {
        self.by_others += self.pay(cost);
    }

    /// Whether to ask about hidden memory.
    pub fn may_ask(&self) -> bool {
        self.asking.balance() > 0.0
    }

    /// Pays for asking about hidden memory.
    pub fn pay_for_asking(&mut self, cost: Cost) {
        let seconds = self.pay(cost);
        self.asking.spend(seconds);
        // It has an account of its own.
        self.by_others += seconds;
    }

    /// Pays for clearing `pages` young pages, of which a part was never cleared; `is_new`: of a target
    /// that was there at the start.
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

    /// Ends the round before: how long the next one is follows from what reading has cost.
    pub fn settle(&mut self, now: Nanos, extent: Extent) {
        let (_, sweeping) = std::mem::take(&mut self.swept);
        if sweeping > 0 {
            // What the first sweep costs is allowed beside the budget; its bound is in the allowance.
            self.seconds.forgive();
        }
        let kept = self.round.as_secs_f64() * KEPT_ROUNDS;
        // A block that is all young must be affordable at last, whatever the budget.
        let block = self.prices.of(1, BLOCK_PAGES) * 1.5 + self.without_clearing();
        self.seconds.accrue(now, kept.max(block / self.seconds.per_second()));
        self.burst.accrue(now, kept);
        self.asking.accrue(now, kept);
        if let Some(shootdowns) = &mut self.shootdowns {
            shootdowns.accrue(now, kept.max(2.0 / shootdowns.per_second().max(1.0)));
        }
        // Of those that rest nothing is read, and next to nothing reckoned.
        let (read, reading) = (std::mem::take(&mut self.read), std::mem::take(&mut self.reading));
        let rest = std::mem::take(&mut self.rest);
        if reading > 0.0 {
            self.readings.add(reading / self.part, read);
            self.rests.add(rest, read);
        }
        if let Some(before) = self.settled.replace(now) {
            let seconds = now.since(before).as_secs_f64();
            let rate = std::mem::take(&mut self.by_others) / seconds.max(1e-3);
            // What they did once, e.g. take hold of many targets, says nothing of the next round.
            let steady = rate.min(std::mem::replace(&mut self.last_rate, rate));
            // Of 5 s it counts half.
            self.others = (self.others * OF_LATE + steady * seconds) / (seconds + OF_LATE);
        }
        self.targets = extent.targets;
        let least = extent.least_part();
        let stretched = self.stretched(extent).min(self.round * MOST_STRETCH);
        self.round = self.at_once().max(stretched);
        let (all, rest) = (self.readings.of(self.targets), self.rest_of_round());
        let both = READING_SHARE * self.left() * self.round.as_secs_f64();
        let for_reading = (both - rest).max(both * LEAST_READING);
        self.for_sentinels = if extent.is_large { for_reading * SENTINEL_SHARE } else { 0.0 };
        let for_reading = for_reading - self.for_sentinels;
        self.part = (for_reading / all.max(1e-9)).clamp(least, 1.0);
    }

    /// In which a round would be over, by what is known of what it costs to look at so much.
    pub fn length(&self, extent: Extent) -> Duration {
        self.at_once().max(self.stretched(extent))
    }

    /// What others leave of the budget, in a second.
    fn left(&self) -> f64 {
        let budget = self.seconds.per_second();
        (budget - self.others).max(budget * LEAST_LEFT)
    }

    /// As long as something can be left for the next round.
    fn at_once(&self) -> Duration {
        if !self.interval.is_zero() {
            return self.interval / 4;
        }
        // In which all can be read.
        let all = self.readings.of(self.targets) + self.rest_of_round();
        let affordable = all / (READING_SHARE * self.left());
        let (low, high) = (SHORTEST_ROUND.as_secs_f64(), LONGEST_ROUND.as_secs_f64());
        Duration::from_secs_f64(affordable.clamp(low, high))
    }

    /// What cannot be left takes so long.
    fn stretched(&self, extent: Extent) -> Duration {
        let all = self.readings.of(extent.targets) * extent.least_part();
        let needed = (all + self.rests.of(extent.targets)) / (STRETCH_SHARE * self.left());
        Duration::try_from_secs_f64(needed).unwrap_or(Duration::MAX)
    }

    /// What is neither reading nor clearing, of a round.
    fn rest_of_round(&self) -> f64 {
        self.rests.of(self.targets)
    }

    /// Of a round.
    fn without_clearing(&self) -> f64 {
        self.readings.of(self.targets) * self.part + self.rest_of_round()
    }

    /// What may be cleared of a target, if so many of them are yet to come, this one included.
    pub fn allowance(
        &self,
        nr_targets: usize,
        w: &ExposureTarget,
        restraint: Restraint,
    ) -> Allowance {
        let targets = nr_targets as f64;
        // What is yet to be read and reckoned in this round.
        let reserve = (self.without_clearing() - self.reading - self.rest).max(0.0);
        let round = self.round.as_secs_f64();
        let turn = self.round.mul_f64(TURN_ROUNDS);
        let first = (w.is_new || self.burst.balance() > 0.0) && restraint == Restraint::None;
        Allowance {
            // Each may have its part; what one leaves is the next one's.
            seconds: (self.seconds.balance() - reserve) / targets,
            runs: match self.shootdowns.map(|l| l.balance()) {
                None if w.is_large() => MOST_SAMPLES,
                None => MOST_RUNS,
                Some(left) if left < 1.0 => 0,
                // Whole ones: where there are fewer than targets, those whose turn it is have them.
                Some(left) => (left / targets).ceil() as u32,
            },
            urgent: self.seconds.per_second() * round / targets,
            sweep: if first { SWEEP_SHARE * round / targets } else { 0.0 },
            turn,
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

fn shootdowns(attrs: &Attrs) -> Option<TokenBucket> {
    (attrs.max_clears > 0).then(|| TokenBucket::new(attrs.max_clears.into()))
}

/// Who wants windows wants the little to be as good as the great.
fn longest(attrs: &Attrs) -> Duration {
    if attrs.windows { LONG_REGION_TURN } else { LONGEST_REGION_TURN }
}

fn first_round(attrs: &Attrs) -> Duration {
    if attrs.interval.is_zero() { SHORTEST_ROUND } else { attrs.interval / 4 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(s: f64) -> Cost {
        Cost { cpu: Duration::from_secs_f64(s), ..Cost::default() }
    }

    /// Reads the part that is read in a round of so many targets, all of which takes `all` seconds.
    fn read(spending: &mut Spending, targets: usize, all: f64) {
        let each = cpu(all * spending.part / targets.max(1) as f64);
        (0..targets).for_each(|_| spending.pay_for_reading(each));
    }

    /// Rounds of so many targets of 1 GiB in which reading all takes `all` seconds, and the rest of each
    /// `rest`.
    fn settled(targets: usize, all: f64, rest: f64) -> Spending {
        let mut spending = Spending::new(&Attrs::default());
        let mut now = Nanos(0);
        spending.begin(now);
        let pages = targets as u64 * BLOCK_PAGES * 512;
        let extent = Extent { targets, pages, is_large: false };
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
        // 1 ms is .4 % of the shortest round, and 5 ms .5 % of a second.
        let s = settled(1, 0.001, 0.0);
        assert_eq!((s.round, s.part), (SHORTEST_ROUND, 1.0));
        let s = settled(1, 0.003, 0.002);
        assert!((s.round.as_secs_f64() - 1.0).abs() < 0.01 && s.part > 0.99, "{:?}", s.round);
    }

    /// What is reckoned anew in each round must not be taken for the price of the part that is read: the part
    /// would become smaller, and seem dearer still.
    #[test]
    fn much_to_reckon_leaves_something_to_read() {
        let s = settled(1, 0.02, 0.008);
        assert!(
            s.round == LONGEST_ROUND && (s.part - 0.225).abs() < 0.01,
            "12.5 ms less 8: {}",
            s.part
        );
    }

    /// What cannot be left for the next round makes rounds longer, and the budget is kept.
    #[test]
    fn rounds_are_as_long_as_what_is_to_be_done_in_each_takes() {
        // One target, of which 30 ms are reckoned, and a sixteenth of 20 ms must be read.
        let s = settled(1, 0.02, 0.03);
        assert!((s.round.as_secs_f64() - 4.46).abs() < 0.01, "31.25 of 7 ms/s: {:?}", s.round);
        assert!((s.part - 0.335).abs() < 0.01, "three tenths of 22.3 ms: {}", s.part);
        // 1000 with .14 ms each, and a sixteenth of 80 ms.
        let s = settled(1000, 0.08, 0.000_14);
        assert!((s.round.as_secs_f64() - 20.71).abs() < 0.01, "145 of 7 ms/s: {:?}", s.round);
        let spent = 0.08 * s.part + 0.14;
        assert!(spent < 0.85 * 0.01 * s.round.as_secs_f64(), "{spent} s a round");
    }

    /// Little memory is read as a whole: how many blocks it has tells what that takes, not its length.
    #[test]
    fn little_targets_are_read_as_a_whole() {
        let part = |targets, pages| Extent { targets, pages, is_large: false }.least_part();
        assert_eq!(part(1000, 1000 * 1024), 1.0);
        assert_eq!(part(1, 1 << 28), LEAST_PART, "1 TiB");
        assert_eq!(part(0, 0), 1.0);
    }

    /// Rounds from `at` on, by targets, what reading all of them takes, the rest, and what others do.
    fn rounds(spending: &mut Spending, of: &[(usize, f64, f64, f64)]) -> Vec<u128> {
        let mut at = Nanos(1 << 40);
        let mut round = |&(targets, all, rest, others): &(usize, f64, f64, f64)| {
            spending.settle(at, Extent { targets, pages: 0, is_large: false });
            read(spending, targets, all);
            spending.pay_for_rest(cpu(rest));
            spending.pay_for_others(cpu(others));
            at = at + spending.round;
            spending.round.as_millis()
        };
        of.iter().map(&mut round).collect()
    }

    /// The first reading is dearer than those that follow, and those who have ended take nothing.
    #[test]
    fn rounds_become_long_by_steps_and_short_at_once() {
        let mut spending = settled(1, 0.001, 0.0);
        let (one, all) = ((1, 0.001, 0.0, 0.0), (1000, 0.02, 0.2, 0.0));
        let rounds = rounds(&mut spending, &[one, all, all, all, all, all, (4, 1e-4, 1e-3, 0.0)]);
        assert_eq!(rounds[..3], [250, 2500, 10_000]);
        assert!((20_000..60_000).contains(&rounds[5]) && rounds[6] < 300, "{rounds:?}");
    }

    /// They take what they take, and not what the one takes who was there before.
    #[test]
    fn little_targets_beside_a_big_one() {
        let mut spending = settled(1, 0.02, 0.01);
        let both = (1001, 0.04, 0.21, 0.0);
        let rounds = rounds(&mut spending, &[both; 8]);
        assert!(*rounds.iter().max().unwrap() < 60_000, "{rounds:?}");
        assert!((30_000..50_000).contains(&rounds[7]), "250 of 7 ms/s: {rounds:?}");
    }

    /// What others do all the time is not there to be spent; what they did once is forgotten.
    #[test]
    fn what_others_take_is_left_out() {
        let each = |others| (1, 0.001, 0.02, others);
        let alone = rounds(&mut settled(1, 0.001, 0.02), &[each(0.0); 20]);
        let mut spending = settled(1, 0.001, 0.02);
        let steady: Vec<_> = (0..20).map(|_| each(0.004 * 5.0)).collect();
        let with = rounds(&mut spending, &steady);
        let (alone, with) = (alone[19], with[19]);
        // 21 ms at 7 ms/s, and at seven tenths of what 20 ms a round leave of 10 ms/s.
        assert!((2_900..3_100).contains(&alone), "{alone}");
        assert!((4_700..5_300).contains(&with), "{with}");
        let mut once = vec![each(0.0); 8];
        once[3].3 = 1.0;
        let once = rounds(&mut settled(1, 0.001, 0.02), &once);
        assert!(once.iter().all(|round| round.abs_diff(alone) < 200), "{once:?}");
    }
}
