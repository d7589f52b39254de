use super::*;
use isotherm_sim::{Calibrated, by_decade, calibrate};

/// The bench `calibration` has more seeds.
#[test]
fn intervals_hold_the_truth_in_nine_of_ten_regions() {
    let of = |seed| calibrate(seed, Attrs::default(), Duration::from_secs(10)).unwrap();
    let all: Vec<Calibrated> = (0..40).flat_map(of).filter(|c| c.true_hz > 0.0).collect();
    let held = all.iter().filter(|c| c.is_held()).count();
    assert!(all.len() > 150, "{} regions", all.len());
    assert!(held * 10 >= all.len() * 9, "{held} of {}: {:#?}", all.len(), by_decade(&all));
}
