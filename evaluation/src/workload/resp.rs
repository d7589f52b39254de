//! The part of redis' protocol (RESP) that a load needs: many requests at once, and answers of known length.

use std::io::{Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// Bytes of a value.
pub const VALUE_BYTES: usize = 1000;
/// Number of answers to wait for at once when values are set.
const BATCH_ANSWERS: u32 = 256;
/// Time limit for an answer.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A request for the beginning of the value of a key. A short answer gives the client less work than the
/// server.
pub fn get(key: u32, to: &mut Vec<u8>) {
    // Writing to memory cannot fail.
    let _ = write!(to, "*4\r\n$8\r\nGETRANGE\r\n$14\r\nkey:{key:010}\r\n$1\r\n0\r\n$2\r\n99\r\n");
}

fn set(key: u32, value: &[u8], to: &mut Vec<u8>) {
    let _ = write!(to, "*3\r\n$3\r\nSET\r\n$14\r\nkey:{key:010}\r\n${}\r\n", value.len());
    to.extend_from_slice(value);
    to.extend_from_slice(b"\r\n");
}

/// The beginning of an answer to [`get`], and its length.
const HEAD: &[u8] = b"$100\r\n";
const ANSWER: usize = HEAD.len() + 100 + 2;

/// Counts answers with values in a stream that is read piece by piece.
#[derive(Debug, Default)]
pub struct Answers {
    /// bytes of the next answer that were already read
    begun: usize,
}

impl Answers {
    /// The number of answers that are complete with these bytes.
    pub fn take(&mut self, bytes: &[u8]) -> Result<u64> {
        let mut begin = ANSWER * usize::from(self.begun > 0) - self.begun;
        while let Some(rest) = bytes.get(begin..).filter(|rest| !rest.is_empty()) {
            let shown = rest.len().min(HEAD.len());
            ensure!(rest.get(..shown) == HEAD.get(..shown), "redis answers with no value");
            begin += ANSWER;
        }
        let all = self.begun + bytes.len();
        self.begun = all % ANSWER;
        Ok((all / ANSWER) as u64)
    }
}

/// Connects, with a time limit for answers.
pub fn connect(socket: &Path) -> Result<UnixStream> {
    let stream = UnixStream::connect(socket).context("redis does not listen")?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

/// Sets keys, in their order.
pub fn fill(socket: &Path, keys: Range<u32>, mut value: impl FnMut(&mut [u8])) -> Result<()> {
    let mut stream = connect(socket)?;
    let (mut requests, mut bytes) = (Vec::new(), [0; VALUE_BYTES]);
    for first in keys.clone().step_by(BATCH_ANSWERS as usize) {
        requests.clear();
        let batch = first..keys.end.min(first.saturating_add(BATCH_ANSWERS));
        let mut answers = vec![0; batch.len() * b"+OK\r\n".len()];
        for key in batch {
            value(&mut bytes);
            set(key, &bytes, &mut requests);
        }
        stream.write_all(&requests)?;
        stream.read_exact(&mut answers)?;
        let refused = || String::from_utf8_lossy(&answers).into_owned();
        ensure!(answers.chunks(5).all(|a| a == b"+OK\r\n"), "redis refuses: {}", refused());
    }
    Ok(())
}

/// Keeps a fixed number of requests pending on each of several connections, and counts answers: a closed
/// loop.
#[derive(Debug)]
pub struct ClosedLoop {
    streams: Vec<UnixStream>,
    requests: Vec<u8>,
    answers: Vec<u8>,
}

impl ClosedLoop {
    const CONNECTIONS: usize = 8;
    const EACH: usize = 16;

    /// Connects, and requests the first values.
    pub fn start(socket: &Path, mut key: impl FnMut() -> u32) -> Result<Self> {
        let streams: Result<Vec<_>> = (0..Self::CONNECTIONS).map(|_| connect(socket)).collect();
        let answers = vec![0; ANSWER * Self::EACH];
        let mut closed = ClosedLoop { streams: streams?, requests: Vec::new(), answers };
        (0..Self::CONNECTIONS).try_for_each(|i| closed.ask(i, &mut key))?;
        Ok(closed)
    }

    /// Waits for the answers of each connection in turn, and sends new requests. Returns the number of
    /// answers.
    pub fn round(&mut self, mut key: impl FnMut() -> u32) -> Result<u64> {
        let mut count = 0;
        for i in 0..self.streams.len() {
            if let Some(stream) = self.streams.get_mut(i) {
                stream.read_exact(&mut self.answers).context("redis does not answer")?;
            }
            count += Answers::default().take(&self.answers)?;
            self.ask(i, &mut key)?;
        }
        Ok(count)
    }

    fn ask(&mut self, i: usize, key: &mut impl FnMut() -> u32) -> Result<()> {
        self.requests.clear();
        (0..Self::EACH).for_each(|_| get(key(), &mut self.requests));
        let stream = self.streams.get_mut(i).context("no such connection")?;
        Ok(stream.write_all(&self.requests)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> Vec<u8> {
        [HEAD, &[b'x'; 100], b"\r\n"].concat()
    }

    #[test]
    fn answers_in_pieces_of_any_length() {
        let all = answer().repeat(5);
        for piece in [1, 3, 7, 100, ANSWER, ANSWER + 1, all.len()] {
            let mut answers = Answers::default();
            let count: u64 = all.chunks(piece).map(|c| answers.take(c).unwrap()).sum();
            assert_eq!((count, answers.begun), (5, 0), "in pieces of {piece}");
        }
    }

    #[test]
    fn what_is_no_value_is_reported() {
        assert!(Answers::default().take(b"-ERR no\r\n").is_err());
        assert!(Answers::default().take(b"$0\r\n\r\n").is_err(), "there is no such key");
        let mut answers = Answers::default();
        answers.take(&answer()[..50]).unwrap();
        let mut rest = answer()[50..].to_vec();
        rest.extend_from_slice(b"$0\r\n\r\n");
        assert!(answers.take(&rest).is_err());
    }

    #[test]
    fn requests() {
        let mut to = Vec::new();
        get(42, &mut to);
        assert!(to.starts_with(b"*4\r\n$8\r\nGETRANGE\r\n$14\r\nkey:0000000042\r\n"));
        set(1, b"ab", &mut to);
        assert!(to.ends_with(b"*3\r\n$3\r\nSET\r\n$14\r\nkey:0000000001\r\n$2\r\nab\r\n"));
    }
}
