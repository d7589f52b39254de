//! Accounts of the budget, and the prices of operations.

use std::time::Duration;

use crate::time::Nanos;

/// An account with a constant income per second. Income that is not spent within
/// [`TokenBucket::KEPT_SECONDS`] is lost.
#[derive(Debug, Clone, Copy)]
pub(super) struct TokenBucket {
    per_second: f64,
    balance: f64,
    at: Option<Nanos>,
}

impl TokenBucket {
    /// Minimum of the income that may accumulate, in seconds of income.
    const KEPT_SECONDS: f64 = 0.5;

    pub fn new(per_second: f64) -> Self {
        TokenBucket::with(per_second, 0.0)
    }

    /// An account with an initial balance.
    pub fn with(per_second: f64, balance: f64) -> Self {
        TokenBucket { per_second, balance, at: None }
    }

    /// Adds the income until `now`. At most `seconds` of income may accumulate, or
    /// [`TokenBucket::KEPT_SECONDS`] if that is more.
    pub fn accrue(&mut self, now: Nanos, seconds: f64) {
        let passed = self.at.map_or(0.0, |at| now.since(at).as_secs_f64());
        let most = self.per_second * seconds.max(TokenBucket::KEPT_SECONDS);
        // The initial balance may exceed the limit.
        self.balance = (self.balance + self.per_second * passed).min(most.max(self.balance));
        self.at = Some(now);
    }

    pub fn spend(&mut self, amount: f64) {
        self.balance -= amount;
    }

    /// Cancels a debt that was permitted.
    pub fn forgive(&mut self) {
        self.balance = self.balance.max(0.0);
    }

    pub fn per_second(&self) -> f64 {
        self.per_second
    }

    pub fn set_per_second(&mut self, per_second: f64) {
        self.per_second = per_second;
    }

    /// The amount that may be spent; negative after an overrun.
    pub fn balance(&self) -> f64 {
        self.balance
    }
}

/// Only large targets clear more runs than this at once.
const MANY_RUNS: u32 = 256;

/// Cost of clearing for us and for the target, in s per run and s per page; learned.
#[derive(Debug, Clone, Copy)]
pub(super) struct Prices {
    pub run: f64,
    pub page: f64,
}

impl Default for Prices {
    /// A shootdown costs 25 us on each side; clearing a page costs 0.15 us, and touching it again 0.4 us.
    fn default() -> Self {
        Prices { run: 60e-6, page: 0.55e-6 }
    }
}

impl Prices {
    pub fn of(&self, runs: u32, pages: u64) -> f64 {
        self.run * f64::from(runs) + self.page * pages as f64
    }

    /// Scales both prices by the measured cost of a clear. One step changes them by a factor of 5 at most.
    pub fn learn(&mut self, runs: u32, pages: u64, cost: Duration) {
        let expected = self.of(runs, pages);
        if expected <= 0.0 || runs == 0 {
            // Pages that cannot be cleared cost little.
            return;
        }
        // A clear of many runs is a better measurement.
        let weight = if runs > MANY_RUNS { 0.9 } else { 0.3 };
        let factor = (cost.as_secs_f64() / expected).clamp(0.2, 5.0).powf(weight);
        self.run = (self.run * factor).clamp(1e-6, 5e-3);
        self.page = (self.page * factor).clamp(5e-9, 20e-6);
    }
}

/// An exponential moving average: each new value has a weight of 0.3. It is 0 before the first value.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mean(Option<f64>);

impl Mean {
    pub fn add(&mut self, value: f64) {
        self.0 = Some(self.0.map_or(value, |mean| mean + 0.3 * (value - mean)));
    }

    pub fn get(&self) -> f64 {
        self.0.unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// If clears are paid only from a positive balance, total spending is at most the income plus one overrun.
        #[test]
        fn nobody_spends_more_than_the_income(
            per_second in 0.0..1e3,
            steps in proptest::collection::vec((0_u64..1 << 40, 0.0..10.0, 0.0..5.0), 1..60),
        ) {
            let mut account = TokenBucket::new(per_second);
            let (mut now, mut spent, mut overrun) = (Nanos(0), 0.0, 0.0_f64);
            for (later, amount, seconds) in steps {
                now = Nanos(now.0 + later);
                account.accrue(now, seconds);
                let most = per_second * f64::max(seconds, TokenBucket::KEPT_SECONDS);
                prop_assert!(account.balance().is_finite());
                if account.balance() > 0.0 {
                    overrun = overrun.max(amount);
                    account.spend(amount);
                    spent += amount;
                }
                prop_assert!(account.balance() <= f64::max(most, per_second * 5.0));
            }
            let income = per_second * now.0 as f64 / 1e9;
            prop_assert!(spent <= income * (1.0 + 1e-9) + overrun, "{spent} of {income}");
        }

        /// However strange a measurement is, prices stay within their limits.
        #[test]
        fn prices_have_limits(
            clears in proptest::collection::vec((any::<u32>(), any::<u64>(), any::<u64>()), 1..60),
        ) {
            let mut prices = Prices::default();
            for (runs, pages, ns) in clears {
                prices.learn(runs, pages, Duration::from_nanos(ns));
                prop_assert!((1e-6..=5e-3).contains(&prices.run), "{prices:?}");
                prop_assert!((5e-9..=20e-6).contains(&prices.page), "{prices:?}");
            }
        }
    }

    #[test]
    fn income_is_kept_for_a_while() {
        let mut budget = TokenBucket::new(0.01);
        budget.accrue(Nanos(0), 0.0);
        budget.accrue(Nanos(1_000_000_000), 0.0);
        assert!((budget.balance() - 0.005).abs() < 1e-9);
        budget.accrue(Nanos(100_000_000_000), 2.0);
        assert!((budget.balance() - 0.02).abs() < 1e-9);
        budget.spend(0.05);
        budget.accrue(Nanos(102_000_000_000), 0.0);
        assert!((budget.balance() + 0.01).abs() < 1e-9, "a debt is paid off");
    }

    #[test]
    fn prices_follow_what_is_paid() {
        let mut prices = Prices::default();
        for _ in 0..40 {
            prices.learn(2, 1024, Duration::from_micros(200));
        }
        assert!((prices.of(2, 1024) / 200e-6 - 1.0).abs() < 0.05, "{prices:?}");
    }
}
