//! Figures that the source of snapshots does not report.

/// Figures that the source of snapshots does not report, such as a recording of another tool. In their place the
/// snapshots have bounds, which reports show as unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Missing {
    /// The ages of regions: each is a lower bound, because it counts from the first snapshot.
    pub ages: bool,
    /// The resident part of regions: all of their memory counts as resident.
    pub residency: bool,
}

impl Missing {
    const NAMES: [&str; 2] = ["ages", "residency"];

    /// The names of the missing figures.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let missing = [self.ages, self.residency];
        Missing::NAMES.into_iter().zip(missing).filter_map(|(name, is)| is.then_some(name))
    }

    /// The missing figures among `names`. Other names, of later versions, are ignored.
    #[must_use]
    pub fn from_names<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Self {
        let [ages, residency] = Missing::NAMES.map(|name| names.clone().any(|n| n == name));
        Missing { ages, residency }
    }

    /// The figures that either source does not report.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Missing { ages: self.ages || other.ages, residency: self.residency || other.residency }
    }

    /// `value` if the source reports residency.
    #[must_use]
    pub fn resident<T>(self, value: T) -> Option<T> {
        (!self.residency).then_some(value)
    }

    /// `value` if the source reports ages.
    #[must_use]
    pub fn age<T>(self, value: T) -> Option<T> {
        (!self.ages).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_for_the_missing_figures() {
        for (ages, residency) in [(false, false), (true, false), (false, true), (true, true)] {
            let missing = Missing { ages, residency };
            let names: Vec<&str> = missing.names().collect();
            assert_eq!(Missing::from_names(names.iter().copied()), missing);
            assert_eq!(
                (missing.age(1), missing.resident(1)),
                ((!ages).then_some(1), (!residency).then_some(1))
            );
        }
        assert_eq!(Missing::from_names(["later"].into_iter()), Missing::default());
    }
}
