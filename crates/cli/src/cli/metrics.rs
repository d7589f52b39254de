//! Options of metrics.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use clap::Args;
use isotherm::metrics::MetricsTo;
use isotherm::units;

/// The minimum of `--metrics-every`: each export counts all regions.
const SECOND: Duration = Duration::from_secs(1);

/// Where isotherm exports metrics, and how often.
#[derive(Debug, Args)]
pub struct Metrics {
    /// Export metrics for Prometheus: to FILE.prom, which isotherm replaces as a whole each time
    /// (for the textfile collector of node_exporter), or at http://127.0.0.1:PORT/metrics, for this
    /// machine only
    #[arg(long = "metrics", value_name = "FILE.prom|127.0.0.1:PORT", value_parser = to)]
    pub to: Option<MetricsTo>,
    /// Time between two writes of the file
    #[arg(long = "metrics-every", value_name = "TIME", default_value = "15s", requires = "to")]
    #[arg(value_parser = units::at_least(SECOND, "metrics are exported at most once a second"))]
    pub every: Duration,
}

/// A file, or a loopback address and a port.
fn to(text: &str) -> Result<MetricsTo, String> {
    if Path::new(text).extension().is_some_and(|extension| extension == "prom") {
        return Ok(MetricsTo::File(text.into()));
    }
    let port = |port: &str| Some(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port.parse().ok()?));
    let local = text.strip_prefix("localhost:").and_then(port);
    let address: SocketAddr = local.or_else(|| text.parse().ok()).ok_or_else(|| {
        format!(
            "{text:?} is not a destination for metrics: name a file that ends in .prom, because \
             node_exporter reads no others, or a port of this machine, for example 127.0.0.1:9100"
        )
    })?;
    match address.ip() {
        IpAddr::V4(ip) if ip.is_loopback() => Ok(MetricsTo::Port(address)),
        IpAddr::V6(ip) if ip.is_loopback() => Ok(MetricsTo::Port(address)),
        ip => Err(format!(
            "{ip} can be reached from outside, and anybody there could read which processes run here: \
             use 127.0.0.1 or [::1], and put a proxy with authentication before it"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_or_a_port_of_this_machine() {
        assert_eq!(to("/var/lib/x.prom"), Ok(MetricsTo::File("/var/lib/x.prom".into())));
        let port = |text: &str| match to(text) {
            Ok(MetricsTo::Port(address)) => address.to_string(),
            other => format!("{other:?}"),
        };
        assert_eq!(port("127.0.0.1:9100"), "127.0.0.1:9100");
        assert_eq!(port("localhost:9100"), "127.0.0.1:9100");
        assert_eq!(port("[::1]:0"), "[::1]:0");
        for outside in ["0.0.0.0:9100", "192.0.2.7:80", "[::]:9100", "[::ffff:127.0.0.1]:9100"] {
            assert!(to(outside).unwrap_err().contains("from outside"), "{outside}");
        }
        for neither in ["", "metrics", "x.txt", "127.0.0.1", ":9100", "127.0.0.1:99999"] {
            assert!(to(neither).unwrap_err().contains(".prom"), "{neither}");
        }
    }
}
