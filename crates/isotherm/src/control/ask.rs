//! The client side of the control socket: sends a request to a service.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tracing::warn;

use super::{ControlError, MAX_ANSWER, MAX_LINE, Request, default_path};

/// Limit for each read and write. A service that is acting answers within one step, which is shorter.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Sends `request` to the service at `path`, or at the default path if `path` is `None`, and returns the whole
/// answer.
///
/// # Errors
/// If no service listens there, it does not answer in time, or it refuses the request.
pub fn ask(path: Option<&Path>, request: &Request) -> Result<Value, ControlError> {
    let path = path.map_or_else(default_path, Path::to_owned);
    let name = || path.display().to_string();
    let speak = |source| ControlError::Speak { path: name(), source };
    let senseless = |what: &str| ControlError::Senseless { path: name(), what: what.to_owned() };
    let mut line = serde_json::to_vec(request).map_err(|e| speak(e.into()))?;
    if line.len() > MAX_LINE {
        return Err(ControlError::TooLong(line.len()));
    }
    line.push(b'\n');
    let stream = UnixStream::connect(&path).map_err(|e| match e.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            ControlError::NoService { path: name() }
        }
        _ => speak(e),
    })?;
    let answer = exchange(&stream, &line).map_err(|e| match e.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            ControlError::Silent { path: name(), seconds: TIMEOUT.as_secs() }
        }
        _ => speak(e),
    })?;
    let answer: Value = serde_json::from_str(&answer).map_err(|e| senseless(&e.to_string()))?;
    match (answer["ok"].as_bool(), answer["error"].as_str()) {
        (Some(true), _) => Ok(answer),
        (Some(false), Some(why)) => Err(ControlError::Refused(why.to_owned())),
        _ => Err(senseless("neither done nor refused")),
    }
}

/// Sends a request whose answer carries no data except notes, and prints these notes as warnings.
pub fn say_to(path: Option<&Path>, request: &Request) -> Result<(), ControlError> {
    let answer = ask(path, request)?;
    let notes = answer["notes"].as_array().into_iter().flatten();
    notes.filter_map(Value::as_str).for_each(|note| warn!("{note}"));
    Ok(())
}

fn exchange(mut stream: &UnixStream, line: &[u8]) -> io::Result<String> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    // A service refuses an unauthorized client before it reads the request. Then this write may fail, and the
    // answer still holds the reason.
    let sent = stream.write_all(line);
    let mut answer = String::new();
    let n = BufReader::new(stream.take(MAX_ANSWER)).read_line(&mut answer)?;
    if n == 0 {
        sent?;
        return Err(io::Error::new(ErrorKind::UnexpectedEof, "it ended without an answer"));
    }
    Ok(answer)
}
