//! damo's records as JSON (`json`), or as zlib-compressed JSON (`json_compressed`).
//!
//! A list of records, one for each target; each has a list of snapshots. Numbers may be numbers or texts, with
//! commas between thousands, with a fraction, or with a unit. Names that a version of damo does not write are
//! missing, and new ones are ignored.

use std::io::Read;

use super::fault::Fault;
use super::json::Json;
use super::series::{Intervals, NO_AGE, Name, Region, Results};

/// Reads a record. `input` is the uncompressed text.
pub(super) fn read(input: impl Read) -> Result<Results, Fault> {
    let mut results = Results::default();
    let mut json = Json::new(input);
    json.list(|json| record(json, &mut results))?;
    json.end()?;
    Ok(results)
}

/// The numbers by which records differ.
#[derive(Default)]
struct Indices {
    kdamond: Option<u64>,
    context: Option<u64>,
    scheme: Option<u64>,
    target: Option<u64>,
}

impl Indices {
    fn name(&self) -> Name {
        let index = |i: Option<u64>| i.and_then(|i| i64::try_from(i).ok()).unwrap_or(-1);
        let (kdamond, context) = (index(self.kdamond).max(0), index(self.context).max(0));
        match (self.scheme, self.target) {
            (None, Some(target)) => Name::Target(kdamond, context, target),
            (scheme, target) => Name::Scheme(kdamond, context, index(scheme), index(target)),
        }
    }
}

fn record(json: &mut Json<impl Read>, results: &mut Results) -> Result<(), Fault> {
    let at = json.at();
    let (mut indices, mut intervals) = (Indices::default(), Intervals::default());
    let series = results.series_of(Name::Target(0, 0, 0), true, at)?;
    json.object(|json, name| {
        match name {
            b"kdamond_idx" => indices.kdamond = index(json)?,
            b"context_idx" => indices.context = index(json)?,
            b"scheme_idx" => indices.scheme = index(json)?,
            b"target_id" => indices.target = whole(json)?,
            b"intervals" => json.object(|json, name| {
                match name {
                    b"sample_us" => intervals.sample = micros(json)?.unwrap_or(0),
                    b"aggr_us" => intervals.aggr = micros(json)?.unwrap_or(0),
                    b"ops_update_us" => intervals.update = micros(json)?.unwrap_or(0),
                    b"intervals_goal" => intervals.goal = goal(json)?,
                    _ => json.skip()?,
                }
                Ok(())
            })?,
            b"snapshots" => json.list(|json| snapshot(json, results, series, &intervals))?,
            _ => json.skip()?,
        }
        Ok(())
    })?;
    if let Some(series) = results.series.get_mut(series) {
        (series.name, series.intervals) = (indices.name(), intervals);
    }
    Ok(())
}

/// The limits of the sampling interval; `None` if DAMON did not tune it.
fn goal(json: &mut Json<impl Read>) -> Result<Option<(u64, u64)>, Fault> {
    let (mut aggrs, mut least, mut most) = (None, None, None);
    json.object(|json, name| {
        match name {
            b"aggrs" => aggrs = whole(json)?,
            b"min_sample_us" => least = micros(json)?,
            b"max_sample_us" => most = micros(json)?,
            _ => json.skip()?,
        }
        Ok(())
    })?;
    let limits = (least.unwrap_or(0), most.unwrap_or(u64::MAX));
    Ok(aggrs.filter(|n| *n > 0).map(|_| limits))
}

fn snapshot(
    json: &mut Json<impl Read>,
    results: &mut Results,
    series: usize,
    intervals: &Intervals,
) -> Result<(), Fault> {
    let at = json.at();
    let (mut start, mut end, mut sample_us) = (None, None, 0);
    json.object(|json, name| {
        match name {
            b"start_time" => start = scaled(json, TIMES)?,
            b"end_time" => end = scaled(json, TIMES)?,
            b"sample_interval_us" => sample_us = micros(json)?.unwrap_or(0),
            b"regions" => json.list(|json| {
                let at = json.at();
                let region = region(json, intervals)?;
                results.region(series, region, at)
            })?,
            _ => json.skip()?,
        }
        Ok(())
    })?;
    let end = end.ok_or_else(|| Fault::at(at, "a snapshot has no end_time"))?;
    // damo may write this time in ns. No sampling interval is longer than a snapshot, unless snapshots were cut. A tuned one
    // is not below its limit.
    let least = intervals.goal.map_or(0, |(least, _)| least);
    let is_longer = start.is_some_and(|start| sample_us > end.saturating_sub(start) / 1000);
    if is_longer && sample_us / 1000 >= least {
        sample_us /= 1000;
    }
    results.close(series, (start, end), u32::try_from(sample_us).unwrap_or(0), at)
}

fn region(json: &mut Json<impl Read>, intervals: &Intervals) -> Result<Region, Fault> {
    let at = json.at();
    let (mut start, mut end) = (None, None);
    let (mut samples, mut percent, mut age, mut age_us) = (None, None, None, None);
    json.object(|json, name| {
        match name {
            b"start" => start = scaled(json, SIZES)?,
            b"end" => end = scaled(json, SIZES)?,
            b"nr_accesses" => json.object(|json, name| {
                match name {
                    b"samples" => samples = whole(json)?,
                    b"percent" => percent = fraction(json)?,
                    _ => json.skip()?,
                }
                Ok(())
            })?,
            b"age" => json.object(|json, name| {
                match name {
                    b"aggr_intervals" => age = whole(json)?,
                    // damo's figures of `damon_stat` have the time since an access as a negative age.
                    b"usec" => age_us = signed(json, MICROS)?.map(|us| us.unwrap_or(0)),
                    _ => json.skip()?,
                }
                Ok(())
            })?,
            _ => json.skip()?,
        }
        Ok(())
    })?;
    let missing = |what| move || Fault::at(at, format!("a region has no {what}"));
    let whole = intervals.aggr.checked_div(intervals.sample);
    let of_percent = percent.zip(whole).map(|(p, n)| (p / 100.0 * n as f64).round() as u64);
    let nr_accesses = samples.or(of_percent).ok_or_else(missing("nr_accesses"))?;
    let age = age.or(age_us.and_then(|us| us.checked_div(intervals.aggr)));
    Ok(Region {
        start: start.ok_or_else(missing("start"))?,
        end: end.ok_or_else(missing("end"))?,
        nr_accesses: u32::try_from(nr_accesses).unwrap_or(u32::MAX),
        age: age.map_or(NO_AGE, |age| u32::try_from(age).unwrap_or(NO_AGE - 1)),
    })
}

/// Units and what they are, in the unit of a number without one.
type Units = &'static [(&'static str, f64)];
const NO_UNITS: Units = &[];
const PERCENT: Units = &[("%", 1.0)];
const SIZES: Units = &[
    ("B", 1.0),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
    ("PiB", 1_125_899_906_842_624.0),
];
/// in ns
const TIMES: Units =
    &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 6e10), ("h", 3.6e12)];
/// in us
const MICROS: Units =
    &[("ns", 1e-3), ("us", 1.0), ("ms", 1e3), ("s", 1e6), ("m", 6e7), ("h", 3.6e9)];

fn whole(json: &mut Json<impl Read>) -> Result<Option<u64>, Fault> {
    scaled(json, NO_UNITS)
}

/// An index; a negative one, such as the kdamond of a record of `damon_stat`, counts as missing.
fn index(json: &mut Json<impl Read>) -> Result<Option<u64>, Fault> {
    Ok(signed(json, NO_UNITS)?.flatten())
}

fn micros(json: &mut Json<impl Read>) -> Result<Option<u64>, Fault> {
    scaled(json, MICROS)
}

/// A number of which the part after the point counts.
fn fraction(json: &mut Json<impl Read>) -> Result<Option<f64>, Fault> {
    let at = json.at();
    json.word()?.map(|word| float(word, PERCENT).ok_or_else(|| no_number(at, word))).transpose()
}

/// A number without a sign; its part after the point is dropped, as damo's own figures drop it.
fn scaled(json: &mut Json<impl Read>, units: Units) -> Result<Option<u64>, Fault> {
    let at = json.at();
    json.word()?.map(|word| number(word, units).ok_or_else(|| no_number(at, word))).transpose()
}

/// The same for a number that may have a sign: `Some(None)` if it is negative.
fn signed(json: &mut Json<impl Read>, units: Units) -> Result<Option<Option<u64>>, Fault> {
    let at = json.at();
    let value = |word: &str| match word.strip_prefix('-') {
        Some(rest) => number(rest, units).map(|_| None),
        None => number(word, units).map(Some),
    };
    json.word()?.map(|word| value(word).ok_or_else(|| no_number(at, word))).transpose()
}

fn no_number(at: u64, word: &str) -> Fault {
    let word: String = word.chars().take(40).collect();
    Fault::at(at, format!("{word:?} is no number of a kind that belongs there"))
}

fn number(word: &str, units: Units) -> Option<u64> {
    let mut n = 0u64;
    for byte in word.bytes() {
        match byte {
            b'0'..=b'9' => n = n.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?,
            b',' => {}
            _ => {
                let value = float(word, units)?;
                return (0.0..u64::MAX as f64).contains(&value).then_some(value as u64);
            }
        }
    }
    (!word.is_empty()).then_some(n)
}

fn float(word: &str, units: Units) -> Option<f64> {
    let word = word.trim().replace(',', "");
    let value = word.parse().ok().or_else(|| sum(&word, units))?;
    (value.is_finite() && value >= 0.0).then_some(value)
}

/// The sum of numbers with units: `1 m 35 s 300 ms`.
fn sum(mut word: &str, units: Units) -> Option<f64> {
    let mut sum = 0.0;
    loop {
        let digits = word.find(|c: char| !matches!(c, '0'..='9' | '.' | 'e' | '+' | '-'))?;
        let (digits, unit) = word.split_at(digits);
        let unit = unit.trim_start();
        let end = unit.find(|c: char| c.is_ascii_digit() || c.is_whitespace());
        let (unit, next) = unit.split_at(end.unwrap_or(unit.len()));
        let value = digits.parse::<f64>().ok().filter(|value| *value >= 0.0)?;
        sum += value * units.iter().find(|(name, _)| *name == unit)?.1;
        word = next.trim_start();
        if word.is_empty() {
            return Some(sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_in_every_form_that_damo_has_written() {
        for (word, units, value) in [
            ("94,827,419,009,024", SIZES, 94_827_419_009_024),
            ("18446623438842320000", NO_UNITS, 18_446_623_438_842_320_000),
            ("539809434100.424", TIMES, 539_809_434_100),
            ("31.340 MiB", SIZES, 32_862_371),
            ("5 ms", MICROS, 5000),
            ("0 ns", TIMES, 0),
            ("1 m 35 s 300 ms", MICROS, 95_300_000),
            ("2 h 1 m 0.500 s", MICROS, 7_260_500_000),
        ] {
            assert_eq!(number(word, units), Some(value), "{word}");
        }
        for word in
            ["", " ", "-1", "x", "5 MiB", "1e99", "NaN", "inf", "5 3 s", "1 m -3 s", "1 s 5"]
        {
            assert_eq!(number(word, TIMES), None, "{word}");
        }
        assert_eq!(float("45.5 %", PERCENT), Some(45.5));
    }

    #[test]
    fn fields_missing_in_old_versions_are_optional() {
        let text = r#"[{"target_id": null, "snapshots": [{"start_time": 1, "end_time": "1,000",
            "regions": [{"start": 0, "end": "4 KiB", "nr_accesses": {"samples": 3}, "new": [{}]}]}]}]"#;
        let results = read(text.as_bytes()).unwrap();
        let series = &results.series[0];
        assert_eq!(series.name, Name::Scheme(0, 0, -1, -1));
        assert_eq!(
            series.regions(0),
            [Region { start: 0, end: 4096, nr_accesses: 3, age: NO_AGE }]
        );
        assert_eq!((series.spans[0].start, series.spans[0].end), (Some(1), 1000));
    }

    /// Found by an audit: damo's records of the figures of `damon_stat` were refused.
    #[test]
    fn records_of_damon_stat_are_read() {
        let text = r#"[{"kdamond_idx": -1, "context_idx": 0, "intervals": {"sample_us": "5000",
            "aggr_us": "100000", "ops_update_us": "60000000", "intervals_goal": {"access_bp": "400.000000",
            "aggrs": "3", "min_sample_us": "5000", "max_sample_us": "10000000"}}, "scheme_idx": null,
            "target_id": 0, "snapshots": [{"start_time": "1699999999900000000",
            "end_time": "1700000000000000000", "regions": [
            {"start": "0", "end": "1,073,741,824", "nr_accesses": {"samples": 10, "percent": null},
            "age": {"usec": "-5 ms", "aggr_intervals": null}, "sz_filter_passed": "0 B"},
            {"start": "1,073,741,824", "end": "2,147,483,648", "nr_accesses": {"samples": 0, "percent": null},
            "age": {"usec": "1 m 35 s 300 ms", "aggr_intervals": null}, "sz_filter_passed": "0 B"}],
            "sample_interval_us": "5000000"}], "data_source": "damon_stat"}]"#;
        let results = read(text.as_bytes()).unwrap();
        let series = &results.series[0];
        assert_eq!((series.name, series.spans[0].sample_us), (Name::Target(0, 0, 0), 5000));
        let found: Vec<_> = series.regions(0).iter().map(|r| (r.nr_accesses, r.age)).collect();
        assert_eq!(found, [(10, 0), (0, 953)]);
    }

    #[test]
    fn percent_and_microseconds_count_in_intervals() {
        let text = r#"[{"intervals": {"sample_us": "5 ms", "aggr_us": 100000}, "target_id": 7, "snapshots": [
            {"end_time": 5, "regions": [{"start": 0, "end": 1,
            "nr_accesses": {"samples": null, "percent": "25 %"}, "age": {"usec": "300,000"}}]}]}]"#;
        let results = read(text.as_bytes()).unwrap();
        let series = &results.series[0];
        assert_eq!(series.name, Name::Target(0, 0, 7));
        assert_eq!(series.regions(0), [Region { start: 0, end: 1, nr_accesses: 5, age: 3 }]);
    }
}
