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

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

use crate::bad::InvalidField;

/// First bytes of every frame, and therefore of every record.
pub(crate) const MAGIC: [u8; 8] = *b"\x89ISOTHM\n";
/// The version that this program writes. It determines the columns of the tables.
pub(crate) const VERSION: u16 = 8;
/// Maximal size of a payload in bytes, compressed or uncompressed.
pub(crate) const MAX_PAYLOAD: usize = 64 << 20;
/// Maximal number of rows in a frame of a table whose rows become events: equal rows pack to almost nothing.
pub(crate) const MAX_ROWS: usize = 1 << 18;
/// Bytes before the payload.
const HEADER_LEN: usize = 24;
/// A disk writes this many bytes completely, or none of them.
const SECTOR: u64 = 512;
/// Bytes per read of the input: less than most frames, so that those that are left out are hardly read.
const BUFFER: usize = 8 << 10;
/// Most bytes of a payload that are allocated before any was read.
const FIRST_BYTES: usize = 64 << 10;

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

/// The bytes of a record.
pub(crate) trait FrameInput: Read {
    /// Leaves out up to `n` bytes. Returns how many there were.
    fn leave_out(&mut self, n: u64) -> io::Result<u64> {
        io::copy(&mut Read::take(self, n), &mut io::sink())
    }
}

/// An input that must be read to its end.
pub(crate) struct StreamInput<R>(pub R);

impl<R: Read> Read for StreamInput<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out)
    }
}

impl<R: Read> FrameInput for StreamInput<R> {}

impl FrameInput for File {
    fn leave_out(&mut self, n: u64) -> io::Result<u64> {
        let at = self.stream_position()?;
        let n = n.min(self.metadata()?.len().saturating_sub(at));
        self.seek(SeekFrom::Start(at + n))?;
        Ok(n)
    }
}

impl<R: FrameInput + ?Sized> FrameInput for Box<R> {
    fn leave_out(&mut self, n: u64) -> io::Result<u64> {
        (**self).leave_out(n)
    }
}

/// Splits an input into frames, without trusting their lengths.
pub(crate) struct Frames<R> {
    input: BufReader<R>,
    /// offset of the last frame that was begun
    begin: u64,
    /// offset of the first byte of `ahead`
    at: u64,
    /// bytes read that belong to no frame yet, at most one header
    ahead: Vec<u8>,
}

impl<R: FrameInput> Frames<R> {
    pub(crate) fn new(input: R) -> Self {
        let input = BufReader::with_capacity(BUFFER, input);
        Frames { input, begin: 0, at: 0, ahead: Vec::with_capacity(HEADER_LEN) }
    }

    /// Reads on from `at`, where `input` stands.
    pub(crate) fn after(input: R, at: u64) -> Self {
        Frames { at, ..Frames::new(input) }
    }

    /// Offset of the next frame.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Offset of the last frame that [`Frames::next`] has come to, or of the end of the input.
    pub(crate) fn begin(&self) -> u64 {
        self.begin
    }

    /// The next frame of a kind that is `wanted`, or none at the end of the input. The payloads of the others are
    /// neither read nor checked.
    pub(crate) fn next(
        &mut self,
        mut wanted: impl FnMut(FrameKind) -> bool,
    ) -> Result<Option<Frame>, FrameError> {
        loop {
            self.begin = self.at;
            self.fill()?;
            if self.ahead.is_empty() {
                return Ok(None);
            }
            let header = self.parsed()?;
            if wanted(header.kind) {
                return self.frame(header).map(Some);
            }
            let length = header.length as u64;
            let passed = self.leave_out(length)?;
            self.at += HEADER_LEN as u64 + passed;
            if passed < length {
                return Err(FrameError::Torn { at: self.begin });
            }
        }
    }

    /// The header in `ahead`, which is empty afterwards.
    fn parsed(&mut self) -> Result<Header, FrameError> {
        let at = self.at;
        let header = match self.header() {
            Some(bytes) => parse(&bytes, at),
            None if self.ahead.iter().zip(&MAGIC).all(|(a, b)| a == b) => {
                return Err(FrameError::Torn { at });
            }
            None => Err(FrameError::NoMagic { at }),
        };
        match header {
            Ok(header) => {
                self.ahead.clear();
                Ok(header)
            }
            Err(FrameError::Version(found)) => Err(FrameError::Version(found)),
            Err(e) => Err(self.torn_or(e, at, trailing_zeros(&self.ahead))),
        }
    }

    /// The frame behind its header.
    fn frame(&mut self, header: Header) -> Result<Frame, FrameError> {
        let at = self.at;
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
        Ok(Frame { version: header.version, kind: header.kind, at, payload })
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
        let mut payload = Vec::with_capacity(length.min(FIRST_BYTES));
        self.input.by_ref().take(length as u64).read_to_end(&mut payload)?;
        Ok(payload)
    }

    /// Leaves out up to `length` bytes. Returns how many there were.
    fn leave_out(&mut self, length: u64) -> io::Result<u64> {
        let buffered = (self.input.buffer().len() as u64).min(length);
        self.input.consume(buffered as usize);
        match length - buffered {
            0 => Ok(buffered),
            rest => Ok(buffered + self.input.get_mut().leave_out(rest)?),
        }
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

    fn frames(bytes: &[u8]) -> Frames<StreamInput<&[u8]>> {
        Frames::new(StreamInput(bytes))
    }

    #[test]
    fn frames_come_back_in_order() {
        let bytes = two();
        let mut frames = frames(bytes.as_slice());
        let one =
            Frame { version: VERSION, kind: FrameKind::Targets, at: 0, payload: b"one".to_vec() };
        assert_eq!(frames.next(|_| true).unwrap(), Some(one));
        let two =
            Frame { version: VERSION, kind: FrameKind::End, at: 27, payload: b"two".to_vec() };
        assert_eq!(frames.next(|_| true).unwrap(), Some(two));
        assert_eq!(frames.next(|_| true).unwrap(), None);
        assert_eq!(frames.at(), 54);
    }

    /// In a file, whose payloads are longer than a read.
    #[test]
    fn frames_that_are_not_wanted_are_left_out() {
        let long = seal(FrameKind::Snapshots, &[7; 3 * BUFFER]).unwrap();
        let bytes = [long.clone(), two(), long.clone()].concat();
        let dir = tempfile::tempdir().unwrap();
        let (path, cut) = (dir.path().join("r"), bytes.len() - 1);
        for length in [bytes.len(), cut] {
            std::fs::write(&path, &bytes[..length]).unwrap();
            let mut file = Frames::new(File::open(&path).unwrap());
            let mut stream = frames(&bytes[..length]);
            let mut both = || {
                let wanted = |kind| kind != FrameKind::Snapshots;
                let (one, other) = (file.next(wanted), stream.next(wanted));
                let place = |one: Result<Option<Frame>, FrameError>| one.map(|f| f.map(|f| f.at));
                (format!("{:?}", place(one)), format!("{:?}", place(other)), file.begin())
            };
            let at = long.len() as u64;
            for frame in [at, at + 27] {
                let found = format!("Ok(Some({frame}))");
                assert_eq!(both(), (found.clone(), found, frame));
            }
            let (end, begin) = match length == cut {
                true => (format!("Err(Torn {{ at: {} }})", at + 54), at + 54),
                false => ("Ok(None)".to_owned(), bytes.len() as u64),
            };
            assert_eq!(both(), (end.clone(), end, begin));
        }
    }

    #[test]
    fn a_flip_in_the_first_frame_costs_only_that() {
        for byte in 0..27 {
            for bit in 0..8 {
                let mut bytes = two();
                bytes[byte] ^= 1 << bit;
                let mut frames = frames(bytes.as_slice());
                let error = frames.next(|_| true).unwrap_err();
                assert!(
                    matches!(
                        error,
                        FrameError::Damaged { at: 0, .. } | FrameError::NoMagic { at: 0 }
                    ),
                    "{byte}: {error}"
                );
                frames.skip().unwrap();
                assert_eq!(frames.next(|_| true).unwrap().unwrap().payload, b"two", "byte {byte}");
            }
        }
    }

    #[test]
    fn a_truncated_file_is_torn_at_its_end() {
        let bytes = two();
        for end in 28..bytes.len() {
            let mut frames = frames(&bytes[..end]);
            assert!(frames.next(|_| true).unwrap().is_some());
            assert!(matches!(frames.next(|_| true), Err(FrameError::Torn { at: 27 })), "{end}");
        }
    }

    /// A length of nearly 4 GiB, with checksums that are right.
    #[test]
    fn a_hostile_length_is_refused() {
        let mut bytes = two();
        bytes[12..16].copy_from_slice(&0xffff_fff0_u32.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..20]);
        bytes[20..24].copy_from_slice(&crc.to_le_bytes());
        let error = frames(bytes.as_slice()).next(|_| true).unwrap_err();
        assert!(matches!(error, FrameError::Damaged { .. }), "{error}");
    }

    #[test]
    fn a_version_of_the_future_is_distinguished_from_damage() {
        let mut bytes = two();
        let later = VERSION + 1;
        bytes[8..10].copy_from_slice(&later.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..20]);
        bytes[20..24].copy_from_slice(&crc.to_le_bytes());
        let found = frames(bytes.as_slice()).next(|_| true);
        assert!(matches!(found, Err(FrameError::Version(v)) if v == later));
    }
}
