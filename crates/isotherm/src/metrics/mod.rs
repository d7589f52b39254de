//! Metrics for other programs: in a file, or on a loopback port. `docs/abi/testing/metrics.md`.

mod families;
mod http;
mod text;

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use isotherm_core::Nanos;
use isotherm_linux::sys;
use tracing::warn;

use self::http::Http;
use crate::output_file::temporary_in;
use crate::served::Wait;
use crate::session::scene::Scene;

pub use text::ExpositionFormat;

/// A request within this time after the previous one gets the same figures again.
const FRESH_TIME: Duration = Duration::from_secs(1);

/// The destination of the metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetricsTo {
    /// a file, which is replaced as a whole each time
    File(PathBuf),
    /// a port of this machine
    Port(SocketAddr),
}

/// The reason why metrics cannot be exported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetricsError {
    /// the port cannot be opened
    #[error("cannot serve metrics on {address}: {source}; name another port with --metrics")]
    Listen {
        /// the address
        address: SocketAddr,
        /// the error of the operating system
        source: io::Error,
    },
    /// the file cannot be written
    #[error("cannot write the metrics {path}: {source}; name another file with --metrics")]
    Write {
        /// path of the file
        path: String,
        /// the error of the operating system
        source: io::Error,
    },
}

/// Exports metrics if an option asks for it.
#[derive(Default)]
pub struct MetricsExporter {
    to: Option<Exporter>,
}

enum Exporter {
    File { path: PathBuf, every: Duration, next: Nanos, failed: bool },
    Port { http: Http, kept: TextCache },
}

/// The last text in each form, and its time.
#[derive(Default)]
struct TextCache(BTreeMap<ExpositionFormat, (Nanos, String)>);

impl TextCache {
    /// Returns the last text if it is still fresh, else the text that `new` makes.
    fn text(&mut self, form: ExpositionFormat, now: Nanos, new: impl FnOnce() -> String) -> String {
        self.0.retain(|_, (at, _)| now.since(*at) < FRESH_TIME);
        self.0.entry(form).or_insert_with(|| (now, new())).1.clone()
    }
}

impl MetricsExporter {
    /// Opens the destination. When this returns, a file exists and is empty.
    pub fn open(to: Option<&MetricsTo>, every: Duration) -> Result<Self, MetricsError> {
        let to = match to {
            None => None,
            Some(MetricsTo::Port(address)) => {
                Some(Exporter::Port { http: Http::open(*address)?, kept: TextCache::default() })
            }
            Some(MetricsTo::File(path)) => {
                write(path, "")?;
                Some(Exporter::File { path: path.clone(), every, next: Nanos(0), failed: false })
            }
        };
        Ok(MetricsExporter { to })
    }

    /// Whether files are written during the run.
    pub fn writes(&self) -> bool {
        matches!(self.to, Some(Exporter::File { .. }))
    }

    /// The listener to wait for.
    pub fn listener(&mut self) -> Option<&mut dyn Wait> {
        match &mut self.to {
            Some(Exporter::Port { http, .. }) => Some(http),
            _ => None,
        }
    }

    /// When the file is to be written next.
    pub fn by(&self) -> Option<Nanos> {
        match &self.to {
            Some(Exporter::File { next, .. }) => Some(*next),
            _ => None,
        }
    }

    /// Writes the file if it is due, and answers clients that have asked.
    pub fn write_if_due(&mut self, scene: &Scene<'_>) {
        let now = sys::monotonic();
        match &mut self.to {
            None => {}
            Some(Exporter::Port { http, kept }) => {
                http.answer(|form| kept.text(form, now, || scene.text(form)));
            }
            Some(Exporter::File { path, every, next, failed }) if now >= *next => {
                *next = now + *every;
                let written = write(path, &scene.text(ExpositionFormat::Prometheus));
                // A full disk does not end the program, and is reported once.
                if let Some(e) = written.as_ref().err().filter(|_| !*failed) {
                    warn!("{e}");
                }
                *failed = written.is_err();
            }
            Some(Exporter::File { .. }) => {}
        }
    }
}

/// Removes the file at the end, so that no reader mistakes old figures for current ones.
impl Drop for MetricsExporter {
    fn drop(&mut self) {
        if let Some(Exporter::File { path, .. }) = &self.to {
            let _ = fs::remove_file(path);
        }
    }
}

/// Replaces the file atomically, readable by all users.
fn write(path: &Path, text: &str) -> Result<(), MetricsError> {
    let failed = |source| MetricsError::Write { path: path.display().to_string(), source };
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = temporary_in(dir, 0o600).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    file.as_file().set_permissions(Permissions::from_mode(0o644)).map_err(failed)?;
    file.persist(path).map_err(|e| failed(e.error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_requests_get_equal_figures_in_both_forms() {
        let (mut kept, mut made) = (TextCache::default(), 0);
        let mut ask = |form, ms: u64| {
            kept.text(form, Nanos(ms * 1_000_000), || {
                made += 1;
                format!("{form:?} {made}")
            })
        };
        let forms = [ExpositionFormat::OpenMetrics, ExpositionFormat::Prometheus];
        let first = forms.map(|form| ask(form, 5_000));
        assert_eq!(forms.map(|form| ask(form, 5_999)), first);
        let later = forms.map(|form| ask(form, 6_000));
        assert!(later != first && later[0] != later[1], "{later:?}");
        assert_eq!(made, 4);
    }
}
