//! What works on this machine.

pub(crate) fn bpf_help() -> String {
    "It takes root, or CAP_BPF and CAP_PERFMON, Linux 6.10 or later, and /sys/kernel/btf/vmlinux; \
     `isotherm doctor` says which of these is missing"
        .into()
}
