//! Files of published results.

use serde::Deserialize;

use super::latency::Curve;
use super::network::MAX_LINES_IN_FLIGHT;

/// Maximum number of runs or claims.
const MAX_ROWS: usize = 100;

/// Published measurements, in a file like `crates/sim/lab/interleave.toml`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// the source
    pub about: String,
    /// latency over load
    pub curve: Curve,
    /// several expanders, their weights unknown
    pub mlc: Mlc,
    /// one expander, by 9:1
    pub stream: StreamResult,
    /// time instead of bandwidth
    pub xsbench: Xsbench,
    /// claimed gains
    #[serde(default)]
    pub claim: Vec<PublishedGain>,
}

/// See [`Published::mlc`].
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mlc {
    /// the machine
    pub about: String,
    /// possible numbers of expanders
    pub expanders: Vec<u32>,
    /// by mix of reads and writes
    pub run: Vec<MlcRun>,
}

/// Bandwidths in 10^9 bytes a second.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MlcRun {
    /// name of the mix
    pub name: String,
    /// DRAM alone
    pub dram: f64,
    /// plain interleave
    pub even: f64,
    /// interleave by weights
    pub weighted: f64,
}

/// See [`Published::stream`].
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamResult {
    /// the machine
    pub about: String,
    /// of DRAM and of the expander
    pub weights: [u8; 2],
    /// likewise
    pub idle_ns: [f64; 2],
    /// bytes of an access
    pub line_bytes: u32,
    /// by function
    pub run: Vec<StreamRun>,
}

/// Bandwidths in 10^9 bytes a second.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamRun {
    /// name of the function
    pub name: String,
    /// DRAM alone
    pub dram: f64,
    /// the expander alone
    pub cxl: f64,
    /// plain interleave
    pub even: f64,
    /// all memory of the process by weights
    pub global: f64,
    /// only the arrays by weights
    pub targeted: f64,
}

/// Run times in seconds.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Xsbench {
    /// the machine
    pub about: String,
    /// DRAM alone
    pub dram: f64,
    /// plain interleave
    pub even: f64,
    /// interleave by weights
    pub weighted: f64,
}

/// A published claim of a gain.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedGain {
    /// the table
    pub table: String,
    /// the run; all runs if it is missing
    pub run: Option<String>,
    /// the claim as published
    pub text: String,
    /// its number
    pub stated: f64,
    /// its unit: `x` or `%`
    pub unit: ClaimUnit,
    /// the layout with the gain
    pub layout: String,
    /// the layout with which it is compared
    pub over: String,
}

/// The unit of a claimed gain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum ClaimUnit {
    /// a factor
    #[serde(rename = "x")]
    Times,
    /// percent
    #[serde(rename = "%")]
    Percent,
}

/// The reason for which a file does not contain published results.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishedError {
    /// not TOML, or an unknown key
    #[error("the figures cannot be read: {0}")]
    Toml(#[from] toml::de::Error),
    /// an invalid figure
    #[error("{0} is out of range: figures are above 0, weights and expanders 1 or more")]
    Figure(String),
    /// an invalid curve
    #[error(
        "the curve is out of range: it requires 0 < flat < straight < 1, rise from 0 on, full from 1 + rise on"
    )]
    Curve,
    /// the number of runs or claims
    #[error("there are {0} runs or claims in a place: choose 1 to {MAX_ROWS}, of stream 2 or more")]
    Runs(usize),
}

impl Published {
    /// Parses a file.
    ///
    /// # Errors
    /// If it is not TOML, or a value is invalid.
    pub fn parse(text: &str) -> Result<Self, PublishedError> {
        let found: Published = toml::from_str(text)?;
        found.check()?;
        Ok(found)
    }

    fn check(&self) -> Result<(), PublishedError> {
        if !self.curve.is_plausible() {
            return Err(PublishedError::Curve);
        }
        let counts = [
            (self.mlc.run.len(), 1),
            // The lines in flight of one run are fitted to the other runs.
            (self.stream.run.len(), 2),
            (self.mlc.expanders.len(), 1),
            (self.claim.len(), 0),
        ];
        if let Some(bad) = counts.iter().find(|(n, least)| n < least || *n > MAX_ROWS) {
            return Err(PublishedError::Runs(bad.0));
        }
        match self.figures().into_iter().find(|f| !(f.1 > 0.0 && f.1.is_finite())) {
            Some((name, _)) => Err(PublishedError::Figure(name)),
            None => Ok(()),
        }
    }

    fn figures(&self) -> Vec<(String, f64)> {
        let mut all = Vec::new();
        let mut add = |name: &str, figures: &[f64]| {
            all.extend(figures.iter().map(|&f| (name.to_owned(), f)));
        };
        for r in &self.mlc.run {
            add(&r.name, &[r.dram, r.even, r.weighted]);
        }
        for r in &self.stream.run {
            add(&r.name, &[r.dram, r.cxl, r.even, r.global, r.targeted]);
        }
        let (s, x) = (&self.stream, &self.xsbench);
        add("stream", &s.idle_ns);
        add("stream", &s.weights.map(f64::from));
        add(
            "line_bytes",
            &[f64::from(if s.line_bytes > MAX_LINES_IN_FLIGHT { 0 } else { s.line_bytes })],
        );
        add("xsbench", &[x.dram, x.even, x.weighted]);
        let expanders: Vec<f64> = self.mlc.expanders.iter().map(|&k| f64::from(k)).collect();
        add("expanders", &expanders);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::interleave::PUBLISHED_TOML;

    #[test]
    fn built_in_figures_parse_and_invalid_ones_are_refused() {
        let found = Published::parse(PUBLISHED_TOML).unwrap();
        assert_eq!(found.stream.run.len(), 4);
        for (good, bad) in [
            ("dram = 298.8", "dram = -1.0"),
            ("cxl = 22.2097", "cxl = nan"),
            ("expanders = [2, 3, 4]", "expanders = []"),
            ("expanders = [2, 3, 4]", "expanders = [0]"),
            ("weights = [9, 1]", "weights = [9, 0]"),
            ("line_bytes = 64", "line_bytes = 0"),
            ("full = 2.0", "full = 1.1"),
            ("unit = \"x\"", "unit = \"y\""),
            ("[xsbench]", "[xsbunch]"),
        ] {
            assert!(PUBLISHED_TOML.contains(good), "{good}");
            assert!(Published::parse(&PUBLISHED_TOML.replacen(good, bad, 1)).is_err(), "{bad}");
        }
    }
}
