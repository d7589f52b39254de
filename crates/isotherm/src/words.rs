//! Text for people.

/// The log target of progress messages, which are printed without a prefix.
pub const STATUS: &str = "isotherm::status";

/// An error and its causes, without causes that the preceding text already contains.
pub fn chain(e: &anyhow::Error) -> String {
    e.chain().map(ToString::to_string).fold(String::new(), |text, cause| {
        match (text.is_empty(), text.contains(&cause)) {
            (true, _) => cause,
            (_, true) => text,
            _ => format!("{text}: {cause}"),
        }
    })
}

/// Whether the reader of our output has closed the pipe, for example `head`.
pub fn is_closed_pipe(e: &anyhow::Error) -> bool {
    let io = e.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
    io.is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_named_once() {
        let inner = anyhow::anyhow!("no such file");
        assert_eq!(
            chain(&inner.context("cannot open x: no such file")),
            "cannot open x: no such file"
        );
        assert_eq!(
            chain(&anyhow::anyhow!("refused").context("cannot open x")),
            "cannot open x: refused"
        );
    }
}
