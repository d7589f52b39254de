//! The figures of a setting over time.

/// Most parts of a course. Beyond it, two are joined into one.
const MAX_PARTS: usize = 480;

/// A part of the time. Times are in s since the first snapshot; memory is the mean over the part.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CoursePart {
    /// begin
    pub from: f64,
    /// end
    pub to: f64,
    /// memory of known age, in bytes: resident or paged out
    pub memory: f64,
    /// the part of it that is paged out
    pub saved: f64,
    /// bytes paged out in this time
    pub paged_out: f64,
    /// paged-out bytes that were touched in this time
    pub returned: f64,
    /// CPU time spent acting, in s
    pub acting: f64,
    /// time in quota windows that were used up, in s
    pub full: f64,
    /// accesses, as far as a record shows them: at most one in some milliseconds for each page
    pub accesses: f64,
    /// pages touched in each tier
    pub touched: Vec<f64>,
    /// bytes that moved down from each tier
    pub moved: Vec<f64>,
}

impl CoursePart {
    /// Length in s.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.to - self.from
    }

    /// Both parts together; `later` follows this one.
    fn joined(mut self, later: &CoursePart) -> CoursePart {
        let (a, b) = (self.seconds(), later.seconds());
        let mean = |x: f64, y: f64| (x * a + y * b) / (a + b).max(1e-9);
        (self.memory, self.saved) =
            (mean(self.memory, later.memory), mean(self.saved, later.saved));
        self.paged_out += later.paged_out;
        self.returned += later.returned;
        self.acting += later.acting;
        self.full += later.full;
        self.accesses += later.accesses;
        for (sum, more) in [(&mut self.touched, &later.touched), (&mut self.moved, &later.moved)] {
            sum.resize(sum.len().max(more.len()), 0.0);
            sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        }
        CoursePart { to: later.to, ..self }
    }
}

/// The parts of the time, in order.
#[derive(Debug, Default)]
pub(super) struct Course {
    moments: Vec<CoursePart>,
    /// Least length of a part, in s.
    least: f64,
}

impl Course {
    pub fn push(&mut self, m: CoursePart) {
        match self.moments.pop() {
            Some(last) if last.seconds() < self.least => self.moments.push(last.joined(&m)),
            Some(last) => self.moments.extend([last, m]),
            None => self.moments.push(m),
        }
        if self.moments.len() > MAX_PARTS {
            let joined = |pair: &[CoursePart]| match pair {
                [a, b] => a.clone().joined(b),
                [a, ..] => a.clone(),
                [] => CoursePart::default(),
            };
            self.moments = self.moments.chunks(2).map(joined).collect();
            let span = self.moments.last().map_or(0.0, |m| m.to);
            self.least = span / self.moments.len().max(1) as f64;
        }
    }

    /// Everything from a time on; `None` if there is nothing.
    pub fn since(&self, from: f64) -> Option<CoursePart> {
        let later = self.moments.iter().filter(|m| m.from >= from);
        later.cloned().reduce(|a, b| a.joined(&b))
    }

    pub fn span(&self) -> f64 {
        self.moments.last().map_or(0.0, |m| m.to)
    }

    pub fn into_moments(self) -> Vec<CoursePart> {
        self.moments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_course_keeps_sums_and_means() {
        let mut course = Course::default();
        for i in 0..5000 {
            let from = f64::from(i);
            let saved = if i < 2500 { 0.0 } else { 100.0 };
            course.push(CoursePart {
                from,
                to: from + 1.0,
                saved,
                returned: 2.0,
                touched: vec![1.0; 2],
                ..CoursePart::default()
            });
        }
        let all = course.since(0.0).unwrap();
        assert_eq!((all.returned, all.touched), (10_000.0, vec![5000.0; 2]));
        assert!((all.saved - 50.0).abs() < 1e-6);
        let late = course.since(2600.0).unwrap();
        assert!((late.saved - 100.0).abs() < 1e-9);
        assert_eq!(course.span(), 5000.0);
        assert_eq!(course.since(5000.0), None);
        let moments = course.into_moments();
        assert!((MAX_PARTS / 2..=MAX_PARTS).contains(&moments.len()), "{}", moments.len());
        assert!(moments.windows(2).all(|m| m[0].to == m[1].from));
    }
}
