//! How evenly something is shared.

/// Jain's index of the values: (sum x)^2 / (n sum x^2). 1 if all are equal, 1/n if one has all. None
/// if there is no value, or all are zero.
///
/// Of allocations, each value is what a zone gave over its size: zones of 1 and 3 GiB that gave 1 and
/// 3 pages are used evenly.
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
