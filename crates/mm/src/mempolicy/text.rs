//! Parsers of the kernel for texts: lib/kstrtox.c.

/// `kstrtou8` with base 0: 0x is hexadecimal, a leading 0 octal; a plus sign and one trailing newline are
/// permitted.
pub(super) fn parse_u8(text: &str) -> Option<u8> {
    let text = text.strip_suffix('\n').unwrap_or(text);
    let text = text.strip_prefix('+').unwrap_or(text);
    let hex = ["0x", "0X"].iter().find_map(|p| text.strip_prefix(p));
    let (digits, base) = match hex {
        Some(digits) => (digits, 16),
        None if text.starts_with('0') => (text, 8),
        None => (text, 10),
    };
    // Rust permits a sign before the digits; the kernel does not.
    let plain = digits.bytes().all(|b| b.is_ascii_hexdigit());
    if plain { u8::from_str_radix(digits, base).ok() } else { None }
}

/// `kstrtobool`: only the first character counts, or the first two of `on` and `off`.
pub(super) fn parse_bool(text: &str) -> Option<bool> {
    let mut letters = text.bytes().map(|b| b.to_ascii_lowercase());
    match (letters.next()?, letters.next()) {
        (b'y' | b't' | b'1', _) | (b'o', Some(b'n')) => Some(true),
        (b'n' | b'f' | b'0', _) | (b'o', Some(b'f')) => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        for (text, number) in [("0", 0), ("255\n", 255), ("0x1f", 31), ("017", 15), ("+9", 9)] {
            assert_eq!(parse_u8(text), Some(number), "{text:?}");
        }
        for text in ["", "\n", "256", "-1", "08", "0x", "0x+1", "++1", "1\n\n", " 1", "1 "] {
            assert_eq!(parse_u8(text), None, "{text:?}");
        }
    }

    #[test]
    fn yes_and_no() {
        for (text, on) in [("Y", true), ("N", false), ("oN", true), ("OFF", false), ("1x", true)] {
            assert_eq!(parse_bool(text), Some(on), "{text}");
        }
        for text in ["", "o", "2", " 1"] {
            assert_eq!(parse_bool(text), None, "{text:?}");
        }
    }
}
