//! The memory that page-out would really save: pages are simulated touch by touch.

use super::service::{Generation, PageClass, Service};
use super::{DAY, DAY_MINUTES, Fleet, MINUTE, NR_AGES};
use crate::random::{mix, unit};

/// Touches to simulate of a class of pages, about.
const TOUCHES: f64 = 200_000.0;
/// A page with more expected touches per minute than this counts as never idle for a minute. The probability that it is
/// idle is `exp(-BUSY_TOUCHES)` or less.
const BUSY_TOUCHES: f64 = 40.0;

/// The effect of page-out of a service at a minimum age, over the whole time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PageOutTruth {
    /// number of the service
    pub service: usize,
    /// the minimum age in s
    pub age: u64,
    /// mean memory paged out, of all groups
    pub saved_bytes: f64,
    /// mean memory touched again in a minute, of all groups
    pub returned_bytes: f64,
}

/// The truth of a service for every age of at least a minute.
#[must_use]
pub fn truth(fleet: &Fleet, service: usize) -> Vec<PageOutTruth> {
    let own = &fleet.services()[service];
    let end = f64::from(fleet.spec().days) * DAY;
    let change = own.deploy.as_ref().map_or(end, |d| f64::from(d.minute) * MINUTE);
    let key = mix(mix(fleet.spec().seed, 5), service as u64);
    // The first generation until the deploy, the first until the end, the second from the deploy on.
    let spans = [(0, change), (0, end), (own.generations.len() - 1, end)];
    let [before, whole, after] =
        spans.map(|(generation, end)| Span::new(fleet, own, generation, end, key));
    let bytes = own.bytes as f64 * (1.0 - own.unknown);
    let mut sum = [[0.0; 2]; NR_AGES];
    for group in fleet.groups().filter(|group| group.service == service) {
        let parts: &[&Span] = if group.deployed { &[&before, &after] } else { &[&whole] };
        for part in parts {
            for (sum, (own, once)) in sum.iter_mut().zip(part.own.iter().zip(&part.once)) {
                sum[0] += bytes * group.scale * (own.saved + group.extra * once.saved);
                sum[1] += bytes * group.scale * own.returned;
            }
        }
    }
    let minutes = f64::from(fleet.spec().days * DAY_MINUTES);
    let of = |(age, sum): (u64, [f64; 2])| PageOutTruth {
        service,
        age,
        saved_bytes: sum[0] / end,
        returned_bytes: sum[1] / minutes,
    };
    fleet.ages.into_iter().zip(sum).filter(|(age, _)| *age >= MINUTE as u64).map(of).collect()
}

/// Sums over a span of time, for a share of 1 of a service.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    /// time in page-out in s
    saved: f64,
    /// touches after it
    returned: f64,
}

/// A generation over a span of time.
struct Span {
    /// its pages
    own: [Sums; NR_AGES],
    /// a page that is touched only at the start
    once: [Sums; NR_AGES],
}

impl Span {
    fn new(fleet: &Fleet, service: &Service, generation: usize, end: f64, key: u64) -> Self {
        let generation = &service.generations[generation];
        let watch = Watch { ages: &fleet.ages, from: generation.born.max(0.0), end };
        let mut own = [Sums::default(); NR_AGES];
        for (i, class) in generation.classes.iter().enumerate() {
            add(
                &mut own,
                &watch.class(service, generation, class, mix(key, i as u64)),
                class.share,
            );
        }
        let leaked = generation.leak * (end - generation.born) / DAY;
        if leaked > 0.0 {
            add(&mut own, &watch.leak(generation.born), leaked);
        }
        let mut once = [Sums::default(); NR_AGES];
        watch.gap(generation.born, end, false, &mut once);
        Span { own, once }
    }
}

fn add(sums: &mut [Sums; NR_AGES], more: &[Sums; NR_AGES], share: f64) {
    for (sum, more) in sums.iter_mut().zip(more) {
        sum.saved += share * more.saved;
        sum.returned += share * more.returned;
    }
}

/// The time in which page-out is counted.
struct Watch<'a> {
    ages: &'a [u64; NR_AGES],
    from: f64,
    end: f64,
}

impl Watch<'_> {
    /// A page is not touched from `last` to `next`, and at `next` if `touched`.
    fn gap(&self, last: f64, next: f64, touched: bool, sums: &mut [Sums; NR_AGES]) {
        for (age, sum) in self.ages.iter().zip(sums) {
            let out = last + *age as f64;
            if out >= next {
                return;
            }
            sum.saved += (next - out.max(self.from)).max(0.0);
            sum.returned += f64::from(u8::from(touched && next >= self.from));
        }
    }

    /// The mean over pages of a class.
    fn class(
        &self,
        service: &Service,
        generation: &Generation,
        class: &PageClass,
        key: u64,
    ) -> [Sums; NR_AGES] {
        let mut sums = [Sums::default(); NR_AGES];
        if class.hz <= 0.0 {
            self.gap(generation.born, self.end, false, &mut sums);
            return sums;
        }
        // A page is surely touched in two days and the time of 500 touches, in which a job works for 20.
        let start = generation.born.max(self.from - 2.0 * DAY - 500.0 / class.hz);
        let load = service.load.until(self.end) - service.load.until(start);
        let pages = (TOUCHES / (class.hz * load)).clamp(2.0, 2000.0) as u64;
        for page in 0..pages {
            self.page(service, start, class.hz, mix(key, page), &mut sums);
        }
        sums.map(|sum| Sums {
            saved: sum.saved / pages as f64,
            returned: sum.returned / pages as f64,
        })
    }

    /// Simulates one page, minute by minute.
    fn page(&self, service: &Service, born: f64, hz: f64, key: u64, sums: &mut [Sums; NR_AGES]) {
        let mut draws = 0;
        let mut wait = || {
            draws += 1;
            -(1.0 - unit(mix(key, draws))).ln()
        };
        let mut last = born;
        let mut start = born;
        while start < self.end {
            let stop = ((start / MINUTE).floor() * MINUTE + MINUTE).min(self.end);
            let rate = hz * service.load.at((start + stop) / 2.0);
            if rate * MINUTE > BUSY_TOUCHES {
                self.gap(last, start + wait() / rate, true, sums);
                last = stop - wait() / rate;
            } else if rate > 0.0 {
                let mut next = start + wait() / rate;
                while next < stop {
                    self.gap(last, next, true, sums);
                    last = next;
                    next += wait() / rate;
                }
            }
            start = stop;
        }
        self.gap(last, self.end, false, sums);
    }

    /// The mean over pages that are touched once, at times that are spread evenly.
    fn leak(&self, born: f64) -> [Sums; NR_AGES] {
        const PAGES: u32 = 5000;
        let mut sums = [Sums::default(); NR_AGES];
        for i in 0..PAGES {
            let at = born + (self.end - born) * (f64::from(i) + 0.5) / f64::from(PAGES);
            self.gap(at, self.end, false, &mut sums);
        }
        sums.map(|sum| Sums { saved: sum.saved / f64::from(PAGES), ..sum })
    }
}
