//! The error of an invalid value. A caller that knows the file adds the place.

use std::borrow::Cow;

use arrow_schema::ArrowError;

/// An invalid value, as text that completes "the frame is damaged: ".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Bad(pub Cow<'static, str>);

impl Bad {
    /// From a constant text.
    pub(crate) const fn new(words: &'static str) -> Self {
        Bad(Cow::Borrowed(words))
    }

    /// From a formatted text.
    pub(crate) fn because(words: String) -> Self {
        Bad(Cow::Owned(words))
    }
}

impl From<ArrowError> for Bad {
    fn from(e: ArrowError) -> Self {
        Bad::because(format!("it is no Arrow message that fits its table ({e})"))
    }
}

/// `Ok` if `holds`, otherwise an error with `words`.
pub(crate) fn ensure(holds: bool, words: &'static str) -> Result<(), Bad> {
    if holds { Ok(()) } else { Err(Bad::new(words)) }
}
