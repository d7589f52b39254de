//! Messages on standard error.

use std::fmt::{self, Display};
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use isotherm::words::STATUS;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Prints a line on standard error. An error is ignored: isotherm continues if standard error is
/// closed.
pub fn say(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Starts to print events, of more levels the greater `verbose` is.
pub fn begin(verbose: u8) {
    let level = match verbose {
        0 => Level::INFO,
        1 => Level::DEBUG,
        _ => Level::TRACE,
    };
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(|| Messages)
        .log_internal_errors(false)
        .event_format(Line { to_journal: is_journal() })
        .finish();
    // isotherm sets it only once, so this cannot fail.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

/// Messages that wait for the end of a view that fills the terminal.
static BUFFERED: Mutex<Option<Vec<u8>>> = Mutex::new(None);
/// Maximum size of these messages; later ones are dropped.
const MAX_BUFFERED_BYTES: usize = 64 << 10;

/// While this exists, messages are not printed. Its end prints them.
pub struct BufferedMessages;

impl BufferedMessages {
    /// Messages wait from now on.
    pub fn begin() -> Self {
        *BUFFERED.lock().unwrap_or_else(PoisonError::into_inner) = Some(Vec::new());
        BufferedMessages
    }
}

impl Drop for BufferedMessages {
    fn drop(&mut self) {
        let messages = BUFFERED.lock().unwrap_or_else(PoisonError::into_inner).take();
        let _ = io::stderr().write_all(&messages.unwrap_or_default());
    }
}

/// Standard error, or the messages that wait.
struct Messages;

impl Write for Messages {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut *BUFFERED.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(held) if held.len() < MAX_BUFFERED_BYTES => held.extend_from_slice(bytes),
            Some(_) => {}
            None => return io::stderr().write(bytes),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Whether standard error is the journal of systemd, which reads a priority before each line. Child
/// processes inherit `JOURNAL_STREAM`, so it counts only if it names standard error: `DEVICE:INODE`.
fn is_journal() -> bool {
    let named = std::env::var("JOURNAL_STREAM").ok();
    let stderr = rustix::fs::fstat(io::stderr()).ok();
    named.zip(stderr).is_some_and(|(named, is)| named == format!("{}:{}", is.st_dev, is.st_ino))
}

/// Formats `isotherm: message`, with the level only if `-v` is given.
struct Line {
    to_journal: bool,
}

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let meta = event.metadata();
        if self.to_journal {
            write!(out, "<{}>", priority(*meta.level()))?;
        }
        if meta.target() != STATUS {
            out.write_str("isotherm: ")?;
        }
        if *meta.level() > Level::INFO {
            write!(out, "{} {}: ", meta.level().as_str().to_lowercase(), meta.target())?;
        }
        ctx.format_fields(out.by_ref(), event)?;
        writeln!(out)
    }
}

/// The priority of syslog for a level.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}
