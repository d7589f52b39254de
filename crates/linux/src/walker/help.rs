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
    match lockdown {
        Ok(levels) if levels.contains("[confidentiality]") => {
            "This kernel is locked down for confidentiality (/sys/kernel/security/lockdown): \
             boot it with lockdown=integrity, or without"
        }
        Ok(_) => "This requires Linux 6.1 or later",
        // Few containers have the file system that contains it.
        Err(_) => {
            "This requires Linux 6.1 or later, without lockdown=confidentiality. If you mount securityfs at \
             /sys/kernel/security, isotherm can name the reason"
        }
    }
    .into()
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
        let write = |file: &str, text: &str| {
            let file = root.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        write("sys/kernel/btf/vmlinux", "");
        assert!(help(&[]).contains("mount securityfs"));
        let lockdown = "sys/kernel/security/lockdown";
        write(lockdown, "none integrity [confidentiality]\n");
        assert!(help(&[]).contains("locked down for confidentiality"));
        write(lockdown, "none [integrity] confidentiality\n");
        assert_eq!(help(&[]), "This requires Linux 6.1 or later");
    }
}
