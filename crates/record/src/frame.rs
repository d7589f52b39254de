//! Frames, the units of a record file. All numbers are little-endian.
//!
//! ```text
//!  0                  8         10     12        16         20          24            24 + length
//!  +------------------+---------+------+---------+----------+-----------+------ - - - ------+
//!  | magic            | version | kind | length  | crc32c   | crc32c    | payload:          |
//!  | 89 'ISOTHM' 0a   | u16     | u16  | u32     | of the   | of bytes  | one Arrow IPC     |
//!  |                  |         |      | <= 64Mi | payload  | 0 to 19   | message, packed   |
//!  +------------------+---------+------+---------+----------+-----------+------ - - - ------+
//! ```
//!
//! The header has its own checksum, so that isotherm uses a length only after checking it. It skips a damaged
//! payload at once. After a damaged header, it searches for the next header.

use std::io::{self, BufRead, BufReader, Read};

use crate::bad::InvalidField;

/// First bytes of every frame, and therefore of every record.
pub(crate) const MAGIC: [u8; 8] = *b"\x89ISOTHM\n";
/// The version that this program writes. It determines the columns of the tables.
pub(crate) const VERSION: u16 = 7;
/// Maximal size of a payload in bytes, compressed or uncompressed.
pub(crate) const MAX_PAYLOAD: usize = 64 << 20;
/// Bytes before the payload.
const HEADER_LEN: usize = 24;
/// A disk writes this many bytes completely, or none of them.
const SECTOR: u64 = 512;
/// Bytes per read of the input.
const BUFFER: usize = 64 << 10;

/// The table that a frame's message belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameKind {
    Snapshots = 1,
    Mappings = 2,
    Targets = 3,
    End = 4,
    Attribution = 5,
    Ages = 6,
    Faults = 7,
    Code = 8,
    Traces = 9,
}

impl FrameKind {
    /// All kinds, in the order at the beginning of a file.
    pub(crate) const ALL: [FrameKind; 9] = [
        FrameKind::Snapshots,
        FrameKind::Mappings,
        FrameKind::Targets,
        FrameKind::End,
        FrameKind::Attribution,
        FrameKind::Ages,
        FrameKind::Faults,
        FrameKind::Code,
        FrameKind::Traces,
    ];
}

/// A frame with correct checksums.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub version: u16,
    pub kind: FrameKind,
    /// offset of its first byte
    pub at: u64,
    pub payload: Vec<u8>,
}

/// The reason why there is no next frame.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The input ends within a frame.
    #[error("the input ends within the frame at byte {at}")]
    Torn { at: u64 },
    #[error("no frame begins at byte {at}, where one should")]
    NoMagic { at: u64 },
    #[error("{why}")]
    Damaged { at: u64, why: InvalidField },
    #[error("version {0}")]
    Version(u16),
}

struct Header {
    version: u16,
    kind: FrameKind,
    length: usize,
    crc: u32,
}

/// The frame around `payload`.
pub(crate) fn seal(kind: FrameKind, payload: &[u8]) -> Result<Vec<u8>, InvalidField> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    if payload.len() > MAX_PAYLOAD {
        return Err(InvalidField::because(format!(
            "{length} bytes are above the limit of {MAX_PAYLOAD}"
        )));
    }
    let mut frame = Vec::with_capacity(HEADER_LEN + payload.len());
    frame.extend_from_slice(&MAGIC);
    frame.extend_from_slice(&VERSION.to_le_bytes());
    frame.extend_from_slice(&(kind as u16).to_le_bytes());
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(&crc32c::crc32c(payload).to_le_bytes());
    frame.extend_from_slice(&crc32c::crc32c(&frame).to_le_bytes());
    frame.extend_from_slice(payload);
    Ok(frame)
}

fn u16_at(bytes: &[u8; HEADER_LEN], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8; HEADER_LEN], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn parse(bytes: &[u8; HEADER_LEN], at: u64) -> Result<Header, FrameError> {
    let damaged = |why| Err(FrameError::Damaged { at, why: InvalidField::new(why) });
    if bytes[..8] != MAGIC {
        return Err(FrameError::NoMagic { at });
    }
    if crc32c::crc32c(&bytes[..20]) != u32_at(bytes, 20) {
        return damaged("the checksum of the frame's header is wrong");
    }
    let version = u16_at(bytes, 8);
    if !(1..=VERSION).contains(&version) {
        return Err(FrameError::Version(version));
    }
    let Some(kind) = FrameKind::ALL.into_iter().find(|&k| k as u16 == u16_at(bytes, 10)) else {
        return damaged("the frame is of an unknown kind");
    };
    let length = u32_at(bytes, 12) as usize;
    if length > MAX_PAYLOAD {
        return damaged("the frame is longer than a frame may be");
    }
    Ok(Header { version, kind, length, crc: u32_at(bytes, 16) })
}

/// Splits an input into frames, without trusting their lengths.
pub(crate) struct Frames<R> {
    input: BufReader<R>,
    /// offset of the first byte of `ahead`
    at: u64,
    /// bytes read that belong to no frame yet, at most one header
    ahead: Vec<u8>,
}

impl<R: Read> Frames<R> {
    pub(crate) fn new(input: R) -> Self {
        let input = BufReader::with_capacity(BUFFER, input);
        Frames { input, at: 0, ahead: Vec::with_capacity(HEADER_LEN) }
    }

    /// Reads on from `at`, where `input` stands.
    pub(crate) fn after(input: R, at: u64) -> Self {
        Frames { at, ..Frames::new(input) }
    }

    /// Offset of the next frame.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// The next frame, or none at the end of the input.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        let at = self.at;
        self.fill()?;
        if self.ahead.is_empty() {
            return Ok(None);
        }
        let header = match self.header() {
            Some(bytes) => parse(&bytes, at),
            None if self.ahead.iter().zip(&MAGIC).all(|(a, b)| a == b) => {
                return Err(FrameError::Torn { at });
            }
            None => Err(FrameError::NoMagic { at }),
        };
        let header = match header {
            Ok(header) => header,
            Err(FrameError::Version(found)) => return Err(FrameError::Version(found)),
            Err(e) => return Err(self.torn_or(e, at, trailing_zeros(&self.ahead))),
        };
        self.ahead.clear();
        let payload = self.payload(header.length)?;
        self.at += (HEADER_LEN + payload.len()) as u64;
        if payload.len() < header.length {
            return Err(FrameError::Torn { at });
        }
        if crc32c::crc32c(&payload) != header.crc {
            let why = InvalidField::new("the checksum of the frame's payload is wrong");
            let damaged = FrameError::Damaged { at, why };
            return Err(self.torn_or(damaged, at, trailing_zeros(&payload)));
        }
        Ok(Some(Frame { version: header.version, kind: header.kind, at, payload }))
    }

    /// Returns `error`, unless the frame at `at` was never written completely. The last `zeros` bytes that were
    /// read are zero.
    fn torn_or(&mut self, error: FrameError, at: u64, zeros: u64) -> FrameError {
        match self.is_unwritten(at, zeros) {
            // a file of zeros is not a record
            Ok(true) if at > 0 => FrameError::Torn { at },
            Ok(_) => error,
            Err(e) => e.into(),
        }
    }

    /// Whether all bytes up to the end of the input are zero, starting at a sector or at the beginning of the
    /// frame. A file looks like this if it had grown but was not yet written when power failed.
    fn is_unwritten(&mut self, at: u64, zeros: u64) -> io::Result<bool> {
        let mut end = self.at + self.ahead.len() as u64;
        let first_zero = end - zeros;
        loop {
            let rest = self.input.fill_buf()?;
            if zeros == 0 || rest.iter().any(|&b| b != 0) {
                return Ok(false);
            }
            if rest.is_empty() {
                return Ok(first_zero <= at || (end - 1) / SECTOR * SECTOR >= first_zero);
            }
            let n = rest.len();
            self.input.consume(n);
            end += n as u64;
            self.at += n as u64;
        }
    }

    /// After damage: moves to the next valid header, or to the end of the input.
    pub(crate) fn skip(&mut self) -> io::Result<()> {
        loop {
            self.fill()?;
            let Some(bytes) = self.header() else {
                self.at += self.ahead.len() as u64;
                self.ahead.clear();
                return Ok(());
            };
            if parse(&bytes, self.at).is_ok() {
                return Ok(());
            }
            self.ahead.remove(0);
            self.at += 1;
        }
    }

    fn header(&self) -> Option<[u8; HEADER_LEN]> {
        self.ahead.as_slice().try_into().ok()
    }

    fn fill(&mut self) -> io::Result<()> {
        let missing = (HEADER_LEN - self.ahead.len()) as u64;
        self.input.by_ref().take(missing).read_to_end(&mut self.ahead)?;
        Ok(())
    }

    /// Reads up to `length` bytes. Memory grows with the available bytes, not with the stated length.
    fn payload(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut payload = Vec::new();
        self.input.by_ref().take(length as u64).read_to_end(&mut payload)?;
        Ok(payload)
    }
}

fn trailing_zeros(bytes: &[u8]) -> u64 {
    bytes.iter().rev().take_while(|&&b| b == 0).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Vec<u8> {
        [seal(FrameKind::Targets, b"one").unwrap(), seal(FrameKind::End, b"two").unwrap()].concat()
    }

    #[test]
    fn frames_come_back_in_order() {
        let bytes = two();
        let mut frames = Frames::new(bytes.as_slice());
        let one =
            Frame { version: VERSION, kind: FrameKind::Targets, at: 0, payload: b"one".to_vec() };
        assert_eq!(frames.next().unwrap(), Some(one));
        let two =
            Frame { version: VERSION, kind: FrameKind::End, at: 27, payload: b"two".to_vec() };
        assert_eq!(frames.next().unwrap(), Some(two));
        assert_eq!(frames.next().unwrap(), None);
        assert_eq!(frames.at(), 54);
    }

    #[test]
    fn a_flip_in_the_first_frame_costs_only_that() {
        for byte in 0..27 {
            for bit in 0..8 {
                let mut bytes = two();
                bytes[byte] ^= 1 << bit;
                let mut frames = Frames::new(bytes.as_slice());
                let error = frames.next().unwrap_err();
                assert!(
                    matches!(
                        error,
                        FrameError::Damaged { at: 0, .. } | FrameError::NoMagic { at: 0 }
                    ),
                    "{byte}: {error}"
                );
                frames.skip().unwrap();
                assert_eq!(frames.next().unwrap().unwrap().payload, b"two", "byte {byte}");
            }
        }
    }

    #[test]
    fn a_truncated_file_is_torn_at_its_end() {
        let bytes = two();
        for end in 28..bytes.len() {
            let mut frames = Frames::new(&bytes[..end]);
            assert!(frames.next().unwrap().is_some());
            assert!(matches!(frames.next(), Err(FrameError::Torn { at: 27 })), "{end}");
        }
    }

    /// A length of nearly 4 GiB, with checksums that are right.
    #[test]
    fn a_hostile_length_is_refused() {
        let mut bytes = two();
        bytes[12..16].copy_from_slice(&0xffff_fff0_u32.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..20]);
        bytes[20..24].copy_from_slice(&crc.to_le_bytes());
        let error = Frames::new(bytes.as_slice()).next().unwrap_err();
        assert!(matches!(error, FrameError::Damaged { .. }), "{error}");
    }

    #[test]
    fn a_version_of_the_future_is_distinguished_from_damage() {
        let mut bytes = two();
        let later = VERSION + 1;
        bytes[8..10].copy_from_slice(&later.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..20]);
        bytes[20..24].copy_from_slice(&crc.to_le_bytes());
        let found = Frames::new(bytes.as_slice()).next();
        assert!(matches!(found, Err(FrameError::Version(v)) if v == later));
    }
}
