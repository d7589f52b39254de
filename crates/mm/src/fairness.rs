//! A measure of fairness.

/// Jain's index of the values: (sum x)^2 / (n sum x^2). 1 if all values are equal, 1/n if all but one are
/// zero. `None` if there is no value, or all are zero.
///
/// For allocations, each value is the number of pages that a zone allocated, divided by its size. For example,
/// zones of 1 and 3 GiB that allocated 1 and 3 pages are used evenly.
///
/// Source: R. Jain, D. Chiu, W. Hawe, A Quantitative Measure of Fairness (1984).
#[must_use]
pub fn jain(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (mut n, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for x in values {
        n += 1.0;
        sum += x;
        squares += x * x;
    }
    (squares > 0.0).then(|| sum * sum / (n * squares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_and_uneven() {
        assert_eq!(jain([]), None);
        assert_eq!(jain([0.0, 0.0]), None);
        assert_eq!(jain([2.0, 2.0, 2.0]), Some(1.0));
        assert_eq!(jain([0.0, 5.0]), Some(0.5));
        assert_eq!(jain([1.0, 2.0]), Some(0.9));
    }
}
