//! The error of an invalid value. A caller that knows the file adds the place.

use std::borrow::Cow;

use arrow_schema::ArrowError;

/// An invalid value, as text that completes "the frame is damaged: ".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct InvalidField(pub Cow<'static, str>);

impl InvalidField {
    /// From a constant text.
    pub(crate) const fn new(words: &'static str) -> Self {
        InvalidField(Cow::Borrowed(words))
    }

    /// From a formatted text.
    pub(crate) fn because(words: String) -> Self {
        InvalidField(Cow::Owned(words))
    }
}

impl From<ArrowError> for InvalidField {
    fn from(e: ArrowError) -> Self {
        InvalidField::because(format!("it is no Arrow message that fits its table ({e})"))
    }
}

/// `Ok` if `holds`, otherwise an error with `words`.
pub(crate) fn ensure(holds: bool, words: &'static str) -> Result<(), InvalidField> {
    if holds { Ok(()) } else { Err(InvalidField::new(words)) }
}
