//! A minute of a group as an agent measures it.

use super::day::{Day, Expected};
use super::{DAY_MINUTES, Fleet, Group, MINUTE, NR_AGES};
use crate::random::{mix, unit};

/// Bytes that a page of the sample stands for: one window in 16 is counted.
const COUNTED_PAGE_BYTES: f64 = 65_536.0;
const PAGE: f64 = 4096.0;
/// Memory is cold from this age on, in s.
const COLD_S: u64 = 5;

/// The figures that an agent writes for a group and a minute, in bytes unless the name has another unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    /// memory in use
    pub resident: i64,
    /// at 10 Hz or more
    pub hot: i64,
    /// the rest
    pub warm: i64,
    /// untouched for 5 s or more
    pub cold: i64,
    /// cannot be observed
    pub unknown: i64,
    /// of known age
    pub aged: i64,
    /// idle for at least each age
    pub idle: [i64; NR_AGES],
    /// touched in this minute after at least each age
    pub returned: [i64; NR_AGES],
    /// CPU time of the agent in us
    pub own_cpu_us: i64,
    /// snapshots of the minute
    pub snapshots: i32,
}

impl Fleet {
    /// The figures that the agent measures for a group in a minute of a day.
    #[must_use]
    pub fn measure(&self, day: &Day, group: &Group, minute: u32) -> Measured {
        let service = &self.services()[group.service];
        let number = day.number() * DAY_MINUTES + minute;
        let generation = usize::from(group.is_new(service, number));
        let expected = day.minute(group.service, generation, minute);
        let lived = f64::from(number) * MINUTE - service.generations[generation].born;
        let noise = Noise::new(group.key, number, generation);
        let size = service.bytes as f64 * group.scale;
        let resident =
            size * (f64::from(expected.resident) + group.extra) * (1.0 + 0.001 * noise.minute);
        let aged = resident * (1.0 - service.unknown);
        let per_share = size * (1.0 - service.unknown);
        let known = day.ages_up_to(lived.max(0.0));
        let extra = |i: usize| if i < known { group.extra } else { 0.0 };
        let total = f64::from(expected.resident) + group.extra;

        let mut idle = noise.shifted(&expected.idle);
        for (i, idle) in idle.iter_mut().enumerate() {
            // The error of a share is greatest for a half, and none for all and nothing.
            let share = ((f64::from(*idle) + extra(i)) / total).min(1.0);
            *idle = (total * noise.of_share(share)) as f32;
        }
        let whole = |bytes: f64, quantum: f64| ((bytes / quantum).round() * quantum) as i64;
        let idle = idle.map(|share| whole(f64::from(share) * per_share, COUNTED_PAGE_BYTES));
        let resident = whole(resident, PAGE);
        let aged = whole(aged, PAGE).min(resident);
        let idle = idle.map(|bytes| bytes.clamp(0, aged));
        let hot = whole(f64::from(expected.hot) * per_share, PAGE);
        let cold = idle[day.age_index(COLD_S)].min(aged - hot.min(aged));
        let hot = hot.min(aged - cold);
        Measured {
            resident,
            hot,
            warm: aged - hot - cold,
            cold,
            unknown: resident - aged,
            aged,
            idle,
            returned: noise.returned(expected, per_share),
            own_cpu_us: (40_000.0 + 4_000.0 * noise.minute) as i64,
            snapshots: 60,
        }
    }
}

/// The errors of a monitor.
struct Noise {
    key: u64,
    /// of the sample of windows: it stays as long as the process
    sample: f64,
    /// of this minute
    minute: f64,
    /// by which ages are too small, in steps from one age of the columns to the next
    age: f32,
}

impl Noise {
    fn new(group: u64, number: u32, generation: usize) -> Self {
        let key = mix(group, 100 + u64::from(number));
        let lasting = mix(group, 50 + generation as u64);
        Noise {
            key,
            sample: normal(mix(lasting, 1)),
            minute: normal(mix(key, 1)),
            age: (0.02 + 0.05 * normal(mix(lasting, 2))).clamp(-0.2, 0.2) as f32,
        }
    }

    /// Cumulative shares with the error of ages: between them and those of the next age, by their logarithms, because
    /// shares fall with the age by a factor.
    fn shifted(&self, shares: &[f32; NR_AGES]) -> [f32; NR_AGES] {
        let part = self.age.abs();
        let mut out = *shares;
        for (i, out) in out.iter_mut().enumerate() {
            let next = if self.age > 0.0 { i + 1 } else { i.saturating_sub(1) };
            let next = shares.get(next).copied().unwrap_or(*out);
            let ratio = next / *out;
            // Nearly the same, and faster, where the curve is flat.
            let is_flat = (0.8..1.25).contains(&ratio) || *out <= 0.0 || next <= 0.0;
            *out = if is_flat { *out + part * (next - *out) } else { *out * ratio.powf(part) };
        }
        out
    }

    /// A share with the error of a sample. It never falls where the share rises.
    fn of_share(&self, share: f64) -> f64 {
        share + (0.03 * self.sample + 0.004 * self.minute).clamp(-0.2, 0.2) * share * (1.0 - share)
    }

    /// Touches of the pages of the sample, counted by age.
    fn returned(&self, expected: &Expected, per_share: f64) -> [i64; NR_AGES] {
        let shares = self.shifted(&expected.returned);
        let mut bytes = [0; NR_AGES];
        let mut sum = 0;
        let mut above = 0.0;
        for i in (0..NR_AGES).rev() {
            let here = f64::from((shares[i] - above).max(0.0));
            above = shares[i];
            sum += poisson(mix(self.key, 2 + i as u64), here * per_share / COUNTED_PAGE_BYTES)
                * COUNTED_PAGE_BYTES as i64;
            bytes[i] = sum;
        }
        bytes
    }
}

/// A number of events where `mean` are expected.
fn poisson(hash: u64, mean: f64) -> i64 {
    if mean > 12.0 {
        return (mean + mean.sqrt() * normal(hash)).round().max(0.0) as i64;
    }
    let u = unit(hash);
    let (mut n, mut p) = (0, (-mean).exp());
    let mut sum = p;
    while u >= sum && n < 60 {
        n += 1;
        p *= mean / n as f64;
        sum += p;
    }
    n
}

/// Nearly a standard normal number: the sum of four of 16 bits each.
fn normal(hash: u64) -> f64 {
    let sum: u64 = (0..4).map(|i| hash >> (16 * i) & 0xffff).sum();
    (sum as f64 / 65_536.0 - 2.0) * 3f64.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_their_mean_and_variance() {
        for mean in [0.01, 0.7, 5.0, 40.0] {
            let draws: Vec<f64> = (0..40_000).map(|i| poisson(mix(3, i), mean) as f64).collect();
            let found = draws.iter().sum::<f64>() / 4e4;
            let variance = draws.iter().map(|d| (d - found).powi(2)).sum::<f64>() / 4e4;
            assert!(
                (found / mean - 1.0).abs() < 0.15 * (0.1 / mean).sqrt().max(0.1),
                "{mean}: {found}"
            );
            assert!((variance / mean - 1.0).abs() < 0.2, "{mean}: {variance}");
        }
    }
}
