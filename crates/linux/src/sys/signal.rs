//! The action for a signal.

/// Whether this process ignores `signal`. A process that was started by `nohup`, or in the background of a
/// script, ignores some. An unknown signal is not ignored.
#[must_use]
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: all zeros are a valid `sigaction`. Without a new action the call only writes to it.
    let action = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0).then_some(action)
    };
    action.is_some_and(|a| a.sa_sigaction == libc::SIG_IGN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_ignores_closed_pipes_and_nothing_else() {
        assert!(is_ignored(libc::SIGPIPE));
        assert!(!is_ignored(libc::SIGUSR1));
        assert!(!is_ignored(-1));
    }
}
