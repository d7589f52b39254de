//! Messages compressed with zstd, as a whole, because their columns are short and the descriptions of these are
//! long. In a message of a dozen snapshots with a hundred regions each, one half is descriptions.

use std::cell::RefCell;
use std::io::Read;

use arrow_buffer::Buffer;
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::{CParameter, get_frame_content_size};

use crate::bad::InvalidField;
use crate::frame::MAX_PAYLOAD;

/// Level 9 produces 7 % less than level 3 for busy regions, and costs half a microsecond per region. Higher
/// levels gain little on these columns.
const ZSTD_LEVEL: i32 = 9;
/// zstd searches the last 256 KiB. That compresses as well as the 2 MiB that the level uses for long messages,
/// and needs 3 MiB of memory instead of 11.
const WINDOW_LOG: u32 = 18;
/// The largest window that isotherm reads, 8 MiB, as of level 19: zstd allocates it before it reads the content.
const MAX_WINDOW_LOG: u32 = 23;
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

thread_local! {
    /// To unpack messages: a new one for each would have to allocate its tables again.
    static UNPACKER: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Compresses a message.
pub(crate) fn pack(message: &[u8]) -> Result<Vec<u8>, InvalidField> {
    let length = message.len();
    if length > MAX_PAYLOAD {
        return Err(InvalidField::because(format!(
            "{length} bytes are above the limit of {MAX_PAYLOAD}"
        )));
    }
    let packed = Compressor::new(ZSTD_LEVEL).and_then(|mut zstd| {
        zstd.set_parameter(CParameter::WindowLog(WINDOW_LOG))?;
        zstd.compress(message)
    });
    packed.map_err(|e| InvalidField::because(format!("it cannot be packed: {e}")))
}

/// The message in a payload. An uncompressed message is returned unchanged.
pub(crate) fn unpack(payload: Buffer) -> Result<Buffer, InvalidField> {
    if !payload.starts_with(&MAGIC) {
        return Ok(payload);
    }
    let length = get_frame_content_size(&payload).ok().flatten();
    let length = length.and_then(|n| usize::try_from(n).ok()).filter(|&n| n <= MAX_PAYLOAD);
    let length = length.ok_or(InvalidField::new("it unpacks to more than a frame may hold"))?;
    let message = UNPACKER.with_borrow_mut(|unpacker| match unpacker {
        Some(zstd) => zstd.decompress(&payload, length),
        None => unpacker.insert(Decompressor::new()?).decompress(&payload, length),
    });
    message
        .map(Buffer::from_vec)
        .map_err(|e| InvalidField::because(format!("it cannot be unpacked: {e}")))
}

/// At most the first `length` bytes of the message in a payload.
pub(crate) fn beginning(payload: &Buffer, length: usize) -> Result<Buffer, InvalidField> {
    if !payload.starts_with(&MAGIC) {
        return Ok(payload.slice_with_length(0, length.min(payload.len())));
    }
    let mut bytes = Vec::new();
    let unpacked = zstd::stream::read::Decoder::with_buffer(payload.as_slice());
    let read = unpacked.and_then(|mut zstd| {
        zstd.window_log_max(MAX_WINDOW_LOG)?;
        zstd.take(length as u64).read_to_end(&mut bytes)
    });
    read.map_err(|e| InvalidField::because(format!("it cannot be unpacked: {e}")))?;
    Ok(Buffer::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoding_and_decoding_give_the_same_values() {
        for message in [&b""[..], b"a", &[7; 100_000]] {
            let packed = Buffer::from_vec(pack(message).unwrap());
            assert_eq!(unpack(packed.clone()).unwrap().as_slice(), message);
            let head = beginning(&packed, 10).unwrap();
            assert_eq!(head.as_slice(), &message[..message.len().min(10)]);
        }
        let plain = Buffer::from_vec(b"plain".to_vec());
        assert_eq!(unpack(plain.clone()).unwrap(), plain);
        assert_eq!(beginning(&plain, 2).unwrap().as_slice(), b"pl");
    }

    #[test]
    fn too_large_or_broken_data_is_refused() {
        assert!(pack(&vec![0; MAX_PAYLOAD + 1]).is_err());
        let bomb = zstd::bulk::compress(&vec![0; MAX_PAYLOAD + 1], 1).unwrap();
        assert!(unpack(Buffer::from_vec(bomb)).is_err());
        let mut cut = pack(&[3; 1000]).unwrap();
        cut.pop();
        assert!(unpack(Buffer::from_vec(cut)).is_err());
        assert!(unpack(Buffer::from_vec(MAGIC.to_vec())).is_err());
    }

    /// Found by an audit: a message of a few bytes made zstd allocate 128 MiB.
    #[test]
    fn a_window_that_no_record_has_is_refused() {
        // a frame with a window of 2^log bytes, and one block of one byte
        let framed = |log: u8| {
            let frame = [&MAGIC[..], &[0, (log - 10) << 3], &[9, 0, 0], b"a"].concat();
            beginning(&Buffer::from_vec(frame), 10)
        };
        assert_eq!(framed(23).unwrap().as_slice(), b"a");
        assert!(framed(24).is_err() && framed(27).is_err());
    }
}
