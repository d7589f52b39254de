//! Extracts the kernel from a bzImage, because a guest boots it faster than one that unpacks itself.
//!
//! The header: Documentation/arch/x86/boot.rst of the kernel.

use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// Maximum length of a kernel, in bytes.
const MAX_KERNEL: u64 = 1 << 30;

/// The position of the packed kernel in a bzImage.
fn payload(image: &[u8]) -> Option<Range<usize>> {
    let u32_at = |at: usize| {
        let bytes = image.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    // 0 stands for 4, as in versions before this field existed.
    let sectors = usize::from(*image.get(0x1f1)?);
    let body = (if sectors == 0 { 4 } else { sectors } + 1) * 512;
    let start = body.checked_add(u32_at(0x248)?)?;
    let end = start.checked_add(u32_at(0x24c)?)?;
    (image.get(0x202..0x206).is_some() && end <= image.len()).then_some(start..end)
}

/// The program that unpacks it.
fn unpacker(payload: &[u8]) -> Option<&'static str> {
    match payload {
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some("xz"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some("zstd"),
        [0x02, 0x21, 0x4c, 0x18, ..] => Some("lz4"),
        [0x1f, 0x8b, ..] => Some("gzip"),
        _ => None,
    }
}

/// Writes the kernel in the bzImage `from` to `to`, as an ELF file.
pub fn extract(from: &Path, to: &Path) -> Result<()> {
    let image = std::fs::read(from)?;
    let payload = payload(&image).context("it is no bzImage")?;
    let packed = &image[payload];
    let unpacker = unpacker(packed).context("it is packed with an unknown program")?;
    // The length follows the packed kernel. Programs report it as trailing garbage.
    let length = packed.last_chunk().map_or(0, |&l| u64::from(u32::from_le_bytes(l)));
    ensure!(length <= MAX_KERNEL, "it says to be {length} bytes long");
    let mut child = Command::new(unpacker)
        .arg("-dc")
        .stdin(Stdio::piped())
        .stdout(File::create(to)?)
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("{unpacker} cannot be run: install it"))?;
    // The program may end before it has read the trailing bytes.
    let _ = child.stdin.take().map(|mut i| i.write_all(packed));
    child.wait()?;
    let unpacked = std::fs::metadata(to)?.len();
    if unpacked != length {
        bail!("{unpacker} made {unpacked} bytes of it, not {length}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bzImage with this payload.
    fn image(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 1024];
        image[0x1f1] = 1;
        image[0x248..0x24c].copy_from_slice(&100u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
        image.extend([0; 100]);
        image.extend(payload);
        image
    }

    /// Packed by gzip, whose last four bytes are the length anyway.
    fn packed(content: &[u8]) -> Vec<u8> {
        let mut gzip =
            Command::new("gzip").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        gzip.stdin.take().unwrap().write_all(content).unwrap();
        gzip.wait_with_output().unwrap().stdout
    }

    #[test]
    fn the_kernel_comes_out() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("vmlinuz"), dir.path().join("vmlinux"));
        std::fs::write(&from, image(&packed(b"a kernel"))).unwrap();
        extract(&from, &to).unwrap();
        assert_eq!(std::fs::read(to).unwrap(), b"a kernel");
    }

    #[test]
    fn half_a_kernel_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("vmlinuz"), dir.path().join("vmlinux"));
        let whole = image(&packed(b"a kernel"));
        for length in [0, 0x204, 1024, whole.len() - 1] {
            std::fs::write(&from, &whole[..length]).unwrap();
            assert!(extract(&from, &to).is_err(), "{length}");
        }
    }
}
