//! The text of metrics: OpenMetrics 1.0, or the older Prometheus text format 0.0.4, which node_exporter reads.

use std::fmt::{Display, Write};

use isotherm_report::is_printable;

/// The form of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExpositionFormat {
    /// OpenMetrics 1.0
    OpenMetrics,
    /// text format 0.0.4
    Prometheus,
}

/// The type of a metric family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricType {
    Gauge,
    /// never decreases; the names of its samples end in `_total`
    Counter,
    /// always 1; the names of its samples end in `_info`
    Info,
}

impl MetricType {
    fn name(self, form: ExpositionFormat) -> &'static str {
        match (self, form) {
            (MetricType::Counter, _) => "counter",
            (MetricType::Info, ExpositionFormat::OpenMetrics) => "info",
            _ => "gauge",
        }
    }

    fn suffix(self) -> &'static str {
        match self {
            MetricType::Gauge => "",
            MetricType::Counter => "_total",
            MetricType::Info => "_info",
        }
    }
}

/// A family: metrics of one name.
#[derive(Debug, Clone, Copy)]
pub struct Family<'a> {
    /// name; it ends in the unit, if there is one
    pub name: &'a str,
    /// unit, or empty
    pub unit: &'a str,
    pub kind: MetricType,
    /// description, in one line
    pub help: &'a str,
}

/// Names and values of labels.
pub type Labels<'a> = [(&'a str, &'a str)];

/// The text, written family by family.
pub struct MetricsText {
    form: ExpositionFormat,
    out: String,
    /// name of the current family, with its suffix
    name: String,
}

impl MetricsText {
    pub fn new(form: ExpositionFormat) -> Self {
        MetricsText { form, out: String::new(), name: String::new() }
    }

    /// Starts a family; the samples that follow belong to it.
    pub fn family(&mut self, f: Family<'_>) {
        self.name = format!("{}{}", f.name, f.kind.suffix());
        let (name, kind) = match self.form {
            ExpositionFormat::OpenMetrics => (f.name, f.kind.name(self.form)),
            ExpositionFormat::Prometheus => (&*self.name, f.kind.name(self.form)),
        };
        let _ = writeln!(self.out, "# TYPE {name} {kind}");
        if self.form == ExpositionFormat::OpenMetrics && !f.unit.is_empty() {
            let _ = writeln!(self.out, "# UNIT {name} {}", f.unit);
        }
        let _ = writeln!(self.out, "# HELP {name} {}", escaped(f.help));
    }

    /// Adds a sample to the current family. Labels without a value are left out.
    pub fn sample(&mut self, labels: &Labels<'_>, value: impl Display) {
        let pairs = labels.iter().filter(|(_, value)| !value.is_empty());
        let pairs: Vec<String> =
            pairs.map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let labels =
            if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) };
        let _ = writeln!(self.out, "{}{labels} {value}", self.name);
    }

    /// The complete text.
    pub fn end(mut self) -> String {
        if self.form == ExpositionFormat::OpenMetrics {
            self.out += "# EOF\n";
        }
        self.out
    }
}

/// Escapes a label value, because names of programs may contain any character. Characters that a reader might
/// take for the end of a line are replaced.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out += "\\\\",
            '"' => out += "\\\"",
            '\n' => out += "\\n",
            c if is_printable(c) => out.push(c),
            _ => out.push(char::REPLACEMENT_CHARACTER),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(form: ExpositionFormat) -> String {
        let mut text = MetricsText::new(form);
        let name = "isotherm_x_bytes";
        let help = "What x is.";
        text.family(Family { name, unit: "bytes", kind: MetricType::Counter, help });
        text.sample(&[("comm", "a\"b\\c\nd\re"), ("pid", "7"), ("reason", "")], 12);
        text.family(Family { name: "isotherm_build", unit: "", kind: MetricType::Info, help });
        text.sample(&[], 1);
        text.end()
    }

    #[test]
    fn both_forms() {
        let samples = "isotherm_x_bytes_total{comm=\"a\\\"b\\\\c\\nd\u{fffd}e\",pid=\"7\"} 12\n";
        assert_eq!(
            text(ExpositionFormat::OpenMetrics),
            format!(
                "# TYPE isotherm_x_bytes counter\n# UNIT isotherm_x_bytes bytes\n\
                 # HELP isotherm_x_bytes What x is.\n{samples}\
                 # TYPE isotherm_build info\n# HELP isotherm_build What x is.\n\
                 isotherm_build_info 1\n# EOF\n"
            )
        );
        assert_eq!(
            text(ExpositionFormat::Prometheus),
            format!(
                "# TYPE isotherm_x_bytes_total counter\n\
                 # HELP isotherm_x_bytes_total What x is.\n{samples}\
                 # TYPE isotherm_build_info gauge\n# HELP isotherm_build_info What x is.\n\
                 isotherm_build_info 1\n"
            )
        );
    }
}
