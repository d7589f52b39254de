//! Interrupts, as the kernel counts them.

use anyhow::{Context, Result};

/// TLB shootdowns that `cpus` have served since boot, from all senders.
pub fn tlb_shootdowns(cpus: &[usize]) -> Result<u64> {
    let text = std::fs::read_to_string("/proc/interrupts")?;
    sum(&text, cpus).context("no line of TLB shootdowns in /proc/interrupts")
}

fn sum(text: &str, cpus: &[usize]) -> Option<u64> {
    let line = text.lines().find_map(|l| l.trim_start().strip_prefix("TLB:"))?;
    let counts: Vec<u64> = line.split_whitespace().map_while(|w| w.parse().ok()).collect();
    cpus.iter().map(|&cpu| counts.get(cpu).copied()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_cpus_asked_for() {
        let text =
            "           CPU0       CPU1\n 35: 1 2 PCI-MSIX\nTLB:   20   300   TLB shootdowns\n";
        assert_eq!(sum(text, &[1]), Some(300));
        assert_eq!(sum(text, &[0, 1]), Some(320));
        assert_eq!(sum(text, &[2]), None);
        assert_eq!(sum("NMI: 0 0", &[0]), None);
    }
}
