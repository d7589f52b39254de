//! Text for people.

use std::error::Error;

/// The log target of progress messages, which are printed without a prefix.
pub const STATUS: &str = "isotherm::status";

/// An error and its causes, without causes that the preceding text already contains.
#[must_use]
pub fn chain(e: &(dyn Error + 'static)) -> String {
    causes(e).map(ToString::to_string).fold(String::new(), |text, cause| {
        match (text.is_empty(), text.contains(&cause)) {
            (true, _) => cause,
            (_, true) => text,
            _ => format!("{text}: {cause}"),
        }
    })
}

/// Whether the reader of isotherm's output, for example `head`, has closed the pipe.
#[must_use]
pub fn is_closed_pipe(e: &(dyn Error + 'static)) -> bool {
    let io = causes(e).find_map(|cause| cause.downcast_ref::<std::io::Error>());
    io.is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}

/// An error and its causes.
fn causes<'a>(e: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(e), |&e| e.source())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_named_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("{text}")]
        struct Failure {
            text: &'static str,
            source: std::io::Error,
        }
        let chained = |text, why: &str| {
            chain(&Failure { text, source: std::io::Error::other(why.to_owned()) })
        };
        assert_eq!(
            chained("cannot open x: no such file", "no such file"),
            "cannot open x: no such file"
        );
        assert_eq!(chained("cannot open x", "refused"), "cannot open x: refused");
    }
}
