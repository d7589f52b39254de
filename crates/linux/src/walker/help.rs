//! Advice for systems on which the BPF program does not load.

use std::path::Path;

use crate::sys::missing_capabilities;

/// Advice for a system on which the BPF program does not load, as far as isotherm can determine the reason.
pub(crate) fn bpf_help() -> String {
    help_with_bpf("/".as_ref(), &missing_capabilities())
}

fn help_with_bpf(root: &Path, missing: &[&str]) -> String {
    if missing.contains(&"CAP_BPF") || missing.contains(&"CAP_PERFMON") {
        return format!(
            "This process lacks {}: run as root, or give the program its capabilities \
             (setcap cap_bpf,cap_perfmon,cap_sys_nice,cap_sys_ptrace+ep)",
            missing.join(", ")
        );
    }
    if !root.join("sys/kernel/btf/vmlinux").exists() {
        return "There is no /sys/kernel/btf/vmlinux: use a kernel built with \
                CONFIG_DEBUG_INFO_BTF, as the large distributions build theirs"
            .into();
    }
    let lockdown = std::fs::read_to_string(root.join("sys/kernel/security/lockdown"));
    if lockdown.is_ok_and(|levels| levels.contains("[confidentiality]")) {
        return "This kernel is locked down for confidentiality (/sys/kernel/security/lockdown): \
                boot it with lockdown=integrity, or without"
            .into();
    }
    "This requires Linux 6.1 or later".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_against_bpf_is_named() {
        let root = tempfile::tempdir().unwrap();
        let help = |missing: &[&str]| help_with_bpf(root.path(), missing);
        assert!(help(&["CAP_PERFMON", "CAP_SYS_NICE"]).contains("lacks CAP_PERFMON, CAP_SYS_NICE"));
        assert!(
            help(&["CAP_SYS_PTRACE"]).contains("no /sys/kernel/btf/vmlinux"),
            "that is not the reason"
        );
        for (dir, file, text) in [
            ("sys/kernel/btf", "vmlinux", ""),
            ("sys/kernel/security", "lockdown", "none integrity [confidentiality]\n"),
        ] {
            std::fs::create_dir_all(root.path().join(dir)).unwrap();
            std::fs::write(root.path().join(dir).join(file), text).unwrap();
        }
        assert!(help(&[]).contains("locked down for confidentiality"));
        let lockdown = root.path().join("sys/kernel/security/lockdown");
        std::fs::write(lockdown, "none [integrity] confidentiality\n").unwrap();
        assert!(help(&[]).contains("Linux 6.1 "));
    }
}
