//! How big a record may become.

/// A file smaller than this could not hold what every file begins with.
const SMALLEST_FILE: u64 = 64 << 10;
/// Files at most, as each rotation renames them all.
pub(crate) const MOST_FILES: u32 = 1000;

/// How big a record may become.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Bytes of all files together at most. Without `rotate` the recording ends there.
    pub max_size: Option<u64>,
    /// Files kept, the current one included, each with an equal part of `max_size`: FILE is the
    /// current one, FILE.1 the one before, and so on. The oldest makes room.
    pub rotate: Option<u32>,
}

/// What is wrong with limits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitsError {
    /// rotation without a size
    #[error("files cannot rotate without a limit of their size: give --max-size as well")]
    RotateWithoutSize,
    /// number of files
    #[error("a record cannot rotate through {0} files: choose 2 to {MOST_FILES}")]
    Files(u32),
    /// size
    #[error(
        "{size} bytes for {files} file(s) are too few: each needs {SMALLEST_FILE} at least, so give --max-size {least} or more"
    )]
    Size {
        /// asked size
        size: u64,
        /// asked number of files
        files: u32,
        /// what would do
        least: u64,
    },
}

impl Limits {
    /// Bytes that one file may have.
    ///
    /// # Errors
    /// If the limits make no sense; says what would.
    pub fn file_size(&self) -> Result<u64, LimitsError> {
        let files = self.rotate.unwrap_or(1);
        if self.rotate.is_some() && !(2..=MOST_FILES).contains(&files) {
            return Err(LimitsError::Files(files));
        }
        match self.max_size {
            None if self.rotate.is_some() => Err(LimitsError::RotateWithoutSize),
            None => Ok(u64::MAX),
            Some(size) if size / u64::from(files) < SMALLEST_FILE => {
                Err(LimitsError::Size { size, files, least: SMALLEST_FILE * u64::from(files) })
            }
            Some(size) => Ok(size / u64::from(files)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_share_the_size() {
        let file_size = |max_size, rotate| Limits { max_size, rotate }.file_size();
        assert_eq!(file_size(None, None), Ok(u64::MAX));
        assert_eq!(file_size(Some(1 << 20), None), Ok(1 << 20));
        assert_eq!(file_size(Some(1 << 20), Some(4)), Ok(1 << 18));
        assert_eq!(file_size(None, Some(4)), Err(LimitsError::RotateWithoutSize));
        assert_eq!(file_size(Some(1 << 20), Some(1)), Err(LimitsError::Files(1)));
        let least = 4 * SMALLEST_FILE;
        let size = least - 1;
        assert_eq!(
            file_size(Some(size), Some(4)),
            Err(LimitsError::Size { size, files: 4, least })
        );
    }
}
