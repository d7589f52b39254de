//! Whether a figure settles at a target after a step, and its overshoot.

/// The mean of the last `over` of `values` at each of them, or of as many as there are.
pub fn smoothed(values: &[f64], over: usize) -> Vec<f64> {
    let mean = |end: usize| {
        let last = &values[end.saturating_sub(over)..end];
        last.iter().sum::<f64>() / last.len().max(1) as f64
    };
    (1..=values.len()).map(mean).collect()
}

/// The index from which all values are within 20 % of 1; `None` if the last one is not.
pub fn settled(shares: &[f64]) -> Option<usize> {
    let last_outside = shares.iter().rposition(|share| !(0.8..=1.2).contains(share));
    let from = last_outside.map_or(0, |at| at + 1);
    (from < shares.len()).then_some(from)
}

/// The highest value once 1 was reached, from below or from above: until then it is the step. `None` if
/// it was not.
pub fn overshoot(shares: &[f64]) -> Option<f64> {
    let began_above = *shares.first()? > 1.0;
    let reached = shares.iter().position(|&share| (share > 1.0) != began_above)?;
    shares[reached..].iter().copied().max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_settled_when_it_is_never_far_off_again() {
        assert_eq!(settled(&[0.1, 0.9, 1.5, 1.1, 0.9]), Some(3));
        assert_eq!(settled(&[1.0, 1.0]), Some(0));
        assert_eq!(settled(&[1.0, 0.7]), None);
        assert_eq!(settled(&[f64::NAN]), None);
        assert_eq!(settled(&[]), None);
    }

    #[test]
    fn it_overshoots_once_it_was_there() {
        assert_eq!(overshoot(&[0.1, 0.9, 1.5, 0.8, 1.2]), Some(1.5));
        assert_eq!(overshoot(&[2.5, 1.4, 0.9, 1.1]), Some(1.1), "down");
        assert_eq!(overshoot(&[0.1, 0.9]), None);
        assert_eq!(overshoot(&[]), None);
    }

    #[test]
    fn a_mean_is_of_what_there_is() {
        assert_eq!(smoothed(&[1.0, 3.0, 5.0, 7.0], 2), [1.0, 2.0, 4.0, 6.0]);
        assert!(smoothed(&[], 3).is_empty());
    }
}
