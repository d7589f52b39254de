//! Numbers and names that fit in few characters.

use std::time::Duration;

/// A name without characters that would move the cursor.
pub fn printable(text: &str) -> String {
    isotherm_report::printable(text).to_string()
}

/// A size in at most five characters: `0`, `340K`, `1.2G`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit > 0 && value < 9.95 {
        format!("{value:.1}{}", UNITS[unit])
    } else {
        format!("{value:.0}{}", UNITS[unit])
    }
}

/// A size, or `?` if the recording does not contain it.
pub fn known(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "?".to_owned(), size)
}

/// A duration in at most four characters: `5s`, `12m`, `3h`, `2d`.
pub fn age(d: Duration) -> String {
    match d.as_secs() {
        s @ 0..120 => format!("{s}s"),
        s @ 120..7200 => format!("{}m", s / 60),
        s @ 7200..172_800 => format!("{}h", s / 3600),
        s => format!("{}d", (s / 86_400).min(999)),
    }
}

/// A number in at most five characters.
pub fn number(value: f64) -> String {
    match value {
        v if v <= 0.0 => "0".to_owned(),
        v if v < 9.95 => format!("{v:.1}"),
        v => size(v as u64),
    }
}

/// A share of a CPU in percent, in at most four characters.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        p if p < 9.995 => format!("{p:.2}"),
        p if p < 99.95 => format!("{p:.1}"),
        p => format!("{p:.0}"),
    }
}

/// Minutes and seconds, or hours as well.
pub fn clock(d: Duration) -> String {
    let s = d.as_secs();
    match s / 3600 {
        0 => format!("{}:{:02}", s / 60, s % 60),
        h => format!("{h}:{:02}:{:02}", s / 60 % 60, s % 60),
    }
}

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A line of bars, one for each value, relative to the greatest; a blank where nothing is known.
pub fn sparkline(values: &[Option<f64>]) -> String {
    let most = values.iter().flatten().fold(0.0, |a: f64, b| a.max(*b));
    let bar = |v: &Option<f64>| match v {
        None => ' ',
        Some(v) if *v <= 0.0 || most <= 0.0 => BARS[0],
        Some(v) => BARS[((v / most * 7.0).round() as usize).min(7)],
    };
    values.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_fit() {
        let shown: Vec<String> =
            [0, 999, 1000, 10 << 10, 1_500_000, 1 << 30, u64::MAX].map(size).to_vec();
        assert_eq!(shown, ["0", "999", "1.0K", "10K", "1.4M", "1.0G", "16E"]);
        let shown = [0, 119, 120, 7200, 172_800].map(|s| age(Duration::from_secs(s)));
        assert_eq!(shown, ["0s", "119s", "2m", "2h", "2d"]);
        assert_eq!(clock(Duration::from_secs(3725)), "1:02:05");
        let shown = [0.0, 0.00049, 0.09996, 0.9996, 12.0].map(percent);
        assert_eq!(shown, ["0.00", "0.05", "10.0", "100", "1200"]);
    }

    #[test]
    fn a_sparkline_is_relative_to_its_peak() {
        assert_eq!(sparkline(&[None, Some(0.0), Some(5.0), Some(10.0)]), " ▁▅█");
        assert_eq!(sparkline(&[Some(0.0)]), "▁");
    }
}
