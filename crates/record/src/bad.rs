//! What is wrong with a value. Whoever knows the file adds where.

use std::borrow::Cow;

use arrow_schema::ArrowError;

/// A value that may not stand in a record, in words that complete "the frame is damaged: ".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Bad(pub Cow<'static, str>);

impl Bad {
    /// From fixed words.
    pub(crate) const fn new(words: &'static str) -> Self {
        Bad(Cow::Borrowed(words))
    }

    /// From words made up for the case.
    pub(crate) fn because(words: String) -> Self {
        Bad(Cow::Owned(words))
    }
}

impl From<ArrowError> for Bad {
    fn from(e: ArrowError) -> Self {
        Bad::because(format!("it is no Arrow message that fits its table ({e})"))
    }
}

/// `Ok` if `holds`, else what is wrong.
pub(crate) fn ensure(holds: bool, words: &'static str) -> Result<(), Bad> {
    if holds { Ok(()) } else { Err(Bad::new(words)) }
}
