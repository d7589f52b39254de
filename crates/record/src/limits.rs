//! Limits for the size of a record.

/// Smallest size of a file in bytes: a smaller file could not hold the frames with which every file begins.
const SMALLEST_FILE: u64 = 64 << 10;
/// Maximal number of files, because each rotation renames all of them.
pub(crate) const MAX_ROTATED_FILES: u32 = 1000;

/// Limits for the size of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Maximal size of all files together, in bytes. Without `rotate`, the recording ends when it is reached.
    pub max_size: Option<u64>,
    /// Number of files to keep, including the current one. Each may have an equal part of `max_size`. FILE is
    /// the current one, FILE.1 the previous one, and so on; rotation deletes the oldest.
    pub rotate: Option<u32>,
}

/// The reason why limits are invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitsError {
    /// rotation without a maximal size
    #[error("files cannot rotate without a limit of their size: give --max-size as well")]
    RotateWithoutSize,
    /// the number of files is out of range
    #[error("a record cannot rotate through {0} files: choose 2 to {MAX_ROTATED_FILES}")]
    Files(u32),
    /// the maximal size is too small
    #[error(
        "{size} bytes for {files} file(s) are too few: each needs {SMALLEST_FILE} at least, so give --max-size {least} or more"
    )]
    Size {
        /// requested size in bytes
        size: u64,
        /// requested number of files
        files: u32,
        /// smallest valid size in bytes
        least: u64,
    },
}

impl Limits {
    /// The maximal size of one file in bytes.
    ///
    /// # Errors
    /// If the limits are invalid; the error contains valid ones.
    pub fn file_size(&self) -> Result<u64, LimitsError> {
        let files = self.rotate.unwrap_or(1);
        if self.rotate.is_some() && !(2..=MAX_ROTATED_FILES).contains(&files) {
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
