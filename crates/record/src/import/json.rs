//! Reads JSON from a stream, value by value, without ever holding more than one word.
//!
//! damo's records are lists of gigabytes, nine tenths of which are names and indentation. Therefore nothing
//! but the words that the caller asks for is copied.

use std::io::Read;

use super::fault::Fault;

/// Bytes per read of the input.
const BUFFER: usize = 256 << 10;
/// Maximal nesting: damo's records have eight levels.
const MAX_DEPTH: u32 = 64;
/// Maximal length of a name, a number or a text that is used.
const MAX_WORD_BYTES: usize = 4096;

pub(super) struct Json<R> {
    input: R,
    buffer: Box<[u8]>,
    next: usize,
    len: usize,
    /// offset of the buffer
    before: u64,
    depth: u32,
    word: Vec<u8>,
}

impl<R: Read> Json<R> {
    pub fn new(input: R) -> Self {
        let buffer = vec![0; BUFFER].into_boxed_slice();
        Json { input, buffer, next: 0, len: 0, before: 0, depth: 0, word: Vec::new() }
    }

    /// Offset of the next byte.
    pub fn at(&self) -> u64 {
        self.before + self.next as u64
    }

    fn wrong(&self, why: &'static str) -> Fault {
        Fault::at(self.at(), why)
    }

    /// The bytes in the buffer; none at the end of the input.
    fn rest(&mut self) -> Result<&[u8], Fault> {
        if self.next == self.len {
            self.before += self.len as u64;
            (self.next, self.len) = (0, 0);
            self.len = loop {
                match self.input.read(&mut self.buffer) {
                    Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                    // what the decompressor says of damaged data
                    Err(e) if is_damage(&e) => return Err(Fault::at(self.at(), e.to_string())),
                    other => break other?,
                }
            };
        }
        Ok(self.buffer.get(self.next..self.len).unwrap_or_default())
    }

    /// The next byte that is no white space, which stays.
    fn peek(&mut self) -> Result<u8, Fault> {
        loop {
            let rest = self.rest()?;
            if rest.is_empty() {
                return Err(self.wrong("the text ends too early"));
            }
            match rest.iter().position(|b| *b > b' ') {
                Some(blank) => {
                    self.next += blank;
                    return Ok(self.buffer[self.next]);
                }
                None => self.next = self.len,
            }
        }
    }

    fn expect(&mut self, byte: u8, why: &'static str) -> Result<(), Fault> {
        if self.peek()? != byte {
            return Err(self.wrong(why));
        }
        self.next += 1;
        Ok(())
    }

    fn deeper(&mut self) -> Result<(), Fault> {
        self.depth += 1;
        if self.depth > MAX_DEPTH { Err(self.wrong("it is nested too deeply")) } else { Ok(()) }
    }

    /// Reads an object: calls `entry` with each name, to read its value. A null has no entries.
    pub fn object(
        &mut self,
        mut entry: impl FnMut(&mut Self, &[u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if self.is_null()? {
            return Ok(());
        }
        self.expect(b'{', "an object should be here")?;
        self.deeper()?;
        if self.peek()? == b'}' {
            self.next += 1;
        } else {
            loop {
                self.quoted(true)?;
                // given back below, so that no name costs an allocation
                let name = std::mem::take(&mut self.word);
                self.expect(b':', "a colon should be here")?;
                entry(self, &name)?;
                self.word = name;
                if !self.another(b'}')? {
                    break;
                }
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// Reads a list: calls `item` to read each value. A null has no items.
    pub fn list(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if self.is_null()? {
            return Ok(());
        }
        self.expect(b'[', "a list should be here")?;
        self.deeper()?;
        if self.peek()? == b']' {
            self.next += 1;
        } else {
            loop {
                item(self)?;
                if !self.another(b']')? {
                    break;
                }
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// Reads a comma (true), or the end of a list or object.
    fn another(&mut self, end: u8) -> Result<bool, Fault> {
        let byte = self.peek()?;
        if byte != b',' && byte != end {
            return Err(self.wrong("a comma or an end should be here"));
        }
        self.next += 1;
        Ok(byte == b',')
    }

    fn is_null(&mut self) -> Result<bool, Fault> {
        if self.peek()? != b'n' {
            return Ok(false);
        }
        self.plain()?;
        if self.word == b"null" { Ok(true) } else { Err(self.wrong("a value should be here")) }
    }

    /// Reads a number, a text, or a constant, as its characters without quotes; `None` for null.
    pub fn word(&mut self) -> Result<Option<&str>, Fault> {
        match self.peek()? {
            b'"' => self.quoted(true)?,
            b'{' | b'[' => return Err(self.wrong("a number or text should be here")),
            _ => {
                self.plain()?;
                if self.word == b"null" {
                    return Ok(None);
                }
            }
        }
        let at = self.at();
        str::from_utf8(&self.word).map(Some).map_err(|_| Fault::at(at, "the text is no UTF-8"))
    }

    /// Skips a value.
    pub fn skip(&mut self) -> Result<(), Fault> {
        match self.peek()? {
            b'{' => self.object(|json, _| json.skip()),
            b'[' => self.list(Self::skip),
            b'"' => self.quoted(false),
            _ => self.plain(),
        }
    }

    /// Reads a number or constant into `word`.
    fn plain(&mut self) -> Result<(), Fault> {
        self.word.clear();
        self.peek()?;
        loop {
            let rest = self.rest()?;
            let more = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
            let (n, all) = (rest.iter().take_while(|b| more(b)).count(), rest.len());
            self.keep(n, true)?;
            if n < all || all == 0 {
                break;
            }
        }
        if self.word.is_empty() { Err(self.wrong("a value should be here")) } else { Ok(()) }
    }

    /// Reads a text into `word`, or skips it. An escaped character becomes the character after the backslash:
    /// no text that an importer uses has any.
    fn quoted(&mut self, keep: bool) -> Result<(), Fault> {
        self.expect(b'"', "a text should be here")?;
        self.word.clear();
        loop {
            let rest = self.rest()?;
            let (end, all) = (rest.iter().position(|b| matches!(b, b'"' | b'\\')), rest.len());
            if all == 0 {
                return Err(self.wrong("the text ends too early"));
            }
            self.keep(end.unwrap_or(all), keep)?;
            let Some(_) = end else { continue };
            let byte = self.rest()?.first().copied();
            self.next += 1;
            if byte == Some(b'"') {
                return Ok(());
            }
            let escaped = self.rest()?.len().min(1);
            self.keep(escaped, keep)?;
        }
    }

    /// Takes `n` bytes from the buffer.
    fn keep(&mut self, n: usize, keep: bool) -> Result<(), Fault> {
        if keep {
            if self.word.len() + n > MAX_WORD_BYTES {
                return Err(self.wrong("a number or text is longer than any is"));
            }
            self.word.extend(self.buffer.get(self.next..self.next + n).unwrap_or_default());
        }
        self.next += n;
        Ok(())
    }

    /// Checks that nothing follows.
    pub fn end(&mut self) -> Result<(), Fault> {
        loop {
            let rest = self.rest()?;
            if rest.is_empty() {
                return Ok(());
            }
            if rest.iter().any(|b| *b > b' ') {
                return Err(self.wrong("more follows after the end"));
            }
            self.next = self.len;
        }
    }
}

fn is_damage(e: &std::io::Error) -> bool {
    matches!(e.kind(), std::io::ErrorKind::InvalidInput | std::io::ErrorKind::InvalidData)
        || e.kind() == std::io::ErrorKind::UnexpectedEof
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words in a value, with a bracket for each beginning of a list or object.
    fn words(json: &mut Json<impl Read>, out: &mut Vec<String>) -> Result<(), Fault> {
        match json.peek()? {
            b'{' => json.object(|json, name| {
                out.push(format!("{}:", String::from_utf8_lossy(name)));
                words(json, out)
            }),
            b'[' => {
                out.push("[".into());
                json.list(|json| words(json, out))
            }
            _ => {
                let word = json.word()?;
                out.push(word.unwrap_or("-").to_owned());
                Ok(())
            }
        }
    }

    /// Gives one byte per read, so that every word lies across a border of the buffer.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
            let n = self.0.len().min(1);
            to[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    #[test]
    fn values_are_read_whatever_the_borders_of_reads() {
        let text = br#" [ {"a" : "1,2", "b":[], "c": {}, "d\"": null}, -1.5e3 , true ] "#;
        let expected = ["[", "a:", "1,2", "b:", "[", "c:", "d\":", "-", "-1.5e3", "true"];
        let mut whole = Vec::new();
        let mut json = Json::new(&text[..]);
        words(&mut json, &mut whole).unwrap();
        json.end().unwrap();
        assert_eq!(whole, expected);
        let mut slow = Vec::new();
        words(&mut Json::new(Slow(text)), &mut slow).unwrap();
        assert_eq!(slow, expected);
        Json::new(Slow(text)).skip().unwrap();
    }

    #[test]
    fn errors_have_an_offset() {
        let long = format!("[\"{}\"]", "x".repeat(5000));
        let deep = "[".repeat(100);
        for (text, offset) in [
            ("[1 2]", 3),
            ("{\"a\" 1}", 5),
            ("[", 1),
            ("[\"a", 3),
            ("", 0),
            ("[,]", 1),
            (&deep, 65),
            (&long, 2),
        ] {
            let fault = words(&mut Json::new(text.as_bytes()), &mut Vec::new()).unwrap_err();
            let Fault::At { at, why } = fault else { panic!("{text}: {fault:?}") };
            assert_eq!(at, offset, "{text}: {why}");
        }
        let mut json = Json::new(&b"1 x"[..]);
        json.word().unwrap();
        assert!(matches!(json.end(), Err(Fault::At { .. })));
    }
}
