//! A control socket whose answers the caller makes.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use isotherm::control::{Request, Response};
use serde_json::Value;

/// Answers requests at `path` in a thread of its own, until the process ends.
pub fn serve(
    path: &Path,
    mut answer: impl FnMut(Request) -> Response<Value> + Send + 'static,
) -> io::Result<()> {
    let listener = UnixListener::bind(path)?;
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // A client that has ended needs no answer.
            let _ = stream.and_then(|stream| exchange(&stream, &mut answer));
        }
    });
    Ok(())
}

fn exchange(
    mut stream: &UnixStream,
    answer: &mut impl FnMut(Request) -> Response<Value>,
) -> io::Result<()> {
    let mut line = Vec::new();
    BufReader::new(stream).read_until(b'\n', &mut line)?;
    let answer = match Request::parse(&line) {
        Ok(request) => answer(request),
        Err(why) => Response::refused(why),
    };
    let mut text = serde_json::to_vec(&answer)?;
    text.push(b'\n');
    stream.write_all(&text)
}
