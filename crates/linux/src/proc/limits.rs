//! `/proc/PID/limits`: the resource limits of a process.

use std::path::Path;

use rustix::process::Rlimit;

use super::{ProcError, pid_file, read_limited};

/// It has 17 lines.
const LIMIT: u64 = 1 << 16;

/// `RLIMIT_MEMLOCK` of `pid`, in bytes.
///
/// # Errors
/// If there is no such process, or the file has no such limit.
pub fn memlock_limit(root: &Path, pid: i32) -> Result<Rlimit, ProcError> {
    let path = pid_file(root, pid, "limits");
    let text = read_limited(&path, LIMIT)?;
    let line = text.lines().find_map(|line| line.strip_prefix("Max locked memory"));
    let limits = line.unwrap_or_default();
    parse(limits).ok_or_else(|| ProcError::parse(&path, limits))
}

/// `      8388608              unlimited            bytes     `
fn parse(limits: &str) -> Option<Rlimit> {
    let mut words = limits.split_whitespace();
    let mut limit = || match words.next()? {
        "unlimited" => Some(None),
        bytes => bytes.parse().ok().map(Some),
    };
    Some(Rlimit { current: limit()?, maximum: limit()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::put;

    #[test]
    fn both_limits() {
        let root = tempfile::tempdir().unwrap();
        let of = |limits: &str| {
            let text = format!(
                "Limit                     Soft Limit           Hard Limit           Units     \n\
                 Max open files            20000                20000                files     \n\
                 {limits}\n"
            );
            put(root.path(), "proc/7/limits", &text);
            memlock_limit(root.path(), 7)
        };
        let limit = |current, maximum| Rlimit { current, maximum };
        let bounded =
            "Max locked memory         65536                8388608              bytes     ";
        assert_eq!(of(bounded).unwrap(), limit(Some(65536), Some(8_388_608)));
        let unlimited =
            "Max locked memory         65536                unlimited            bytes     ";
        assert_eq!(of(unlimited).unwrap(), limit(Some(65536), None));
        for wrong in ["", "Max locked memory", "Max locked memory 1 many bytes"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
        assert!(memlock_limit(root.path(), 8).unwrap_err().is_gone());
    }

    #[test]
    fn our_own() {
        let own = memlock_limit("/".as_ref(), crate::walker::own_pid()).unwrap();
        assert_eq!(own, rustix::process::getrlimit(rustix::process::Resource::Memlock));
    }
}
