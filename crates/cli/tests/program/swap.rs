//! `isotherm system swap`.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::alone::Alone;
use crate::load::Load;
use crate::run::{Done, finish, isotherm, needs_root};
use crate::schemes::{Run, swapped};

fn swap(args: &[&str]) -> Done {
    finish(isotherm(["system", "swap"]).args(args))
}

fn swaps() -> String {
    fs::read_to_string("/proc/swaps").unwrap()
}

/// Whether the kernel has zram. Without it, the command must print that.
fn has_zram() -> bool {
    let has = Path::new("/sys/class/zram-control").exists();
    assert!(has || std::env::var_os("ISOTHERM_REQUIRE_ALL").is_none(), "this takes zram");
    has
}

#[test]
fn swap_is_made_once_and_taken_away() {
    needs_root!();
    let Some(_alone) = Alone::without_swap() else { return };
    if !has_zram() {
        let said = swap(&["zram", "16M"]);
        assert!(said.status == 1 && said.err.contains("modprobe zram"), "{}", said.err);
        return;
    }
    let made = swap(&["zram", "16M"]);
    assert_eq!(made.status, 0, "{}", made.err);
    let device = made.text().split_whitespace().nth(2).unwrap().trim_end_matches(',').to_owned();
    let line = swaps().lines().find(|l| l.starts_with(&device)).map(str::to_owned).unwrap();
    let kib: u64 = line.split_whitespace().nth(2).unwrap().parse().unwrap();
    assert_eq!(kib, (16 << 10) - 4, "all but the page at its begin");
    let again = swap(&["zram", "16M"]);
    assert_eq!(again.status, 1);
    assert!(again.err.contains("already") && again.err.contains("swap restore"), "{}", again.err);
    let gone = swap(&["restore"]);
    assert_eq!(gone.status, 0, "{}", gone.err);
    assert!(gone.text().contains(&device), "{}", gone.text());
    assert!(!swaps().contains(&device) && !Path::new(&device).exists());
    let nothing = swap(&["restore"]);
    assert!(nothing.status == 0 && nothing.text().contains("no swap of isotherm's"));
}

/// Two scripts have swap of their own. Swap with pages of others stays, and so does swap that would not fit.
#[test]
fn swap_goes_by_name_and_not_from_under_others() {
    needs_root!();
    let Some(_alone) = Alone::without_swap() else { return };
    if !has_zram() {
        return;
    }
    let made = swap(&["zram", "64M", "--name", "mine"]);
    assert_eq!(made.status, 0, "{}", made.err);
    assert!(made.text().contains("swap restore --name mine"), "{}", made.text());
    let nothing = swap(&["restore"]);
    assert!(nothing.status == 0 && nothing.text().contains("no swap of isotherm's"));
    assert_eq!(swaps().lines().count(), 2, "that with a name stays");
    // A child of the test, which is the caller.
    let load = Load::start(16, 4);
    let mut out = Run::new("4K null null 5 1s null pageout", load.pid());
    let out = out.finish_when("what is cold", |_| swapped(load.pid()) > 4 << 20);
    assert_eq!(out.status, 0, "{}", out.err);
    // The caller is a shell that has not started it.
    let program = env!("CARGO_BIN_EXE_isotherm");
    let by_another = |more: &str| {
        let line = format!("{program} system swap restore --name mine {more}; exit $?");
        finish(Command::new("sh").args(["-c", &line]))
    };
    let refused = by_another("");
    let pid = format!("(pid {})", load.pid());
    for part in ["is not removed", &pid, "--force", "to be removed: /dev/zram"] {
        assert!(refused.err.contains(part), "{part}: {}", refused.err);
    }
    assert_eq!((refused.status, swaps().lines().count()), (1, 2));
    let gone = swap(&["restore", "--name", "mine"]);
    assert_eq!(gone.status, 0, "it is below the one who asks: {}", gone.err);
    assert_eq!(swaps().lines().count(), 1);
    let again = swap(&["restore", "--name", "mine"]);
    assert!(again.status == 1 && again.err.contains("no swap called mine"), "{}", again.err);
}

#[test]
fn senseless_sizes_are_wrong_usage() {
    for (size, said) in
        [("0", "is out of range"), ("1K", "1 MiB"), ("8000T", "twice"), ("x", "64M")]
    {
        let done = swap(&["zram", size]);
        assert_eq!(done.status, 2, "{size}: {}", done.err);
        assert!(done.err.contains(said), "{size}: {}", done.err);
    }
}

#[test]
fn swap_requires_root() {
    needs_root!();
    let Some(_alone) = Alone::without_swap() else { return };
    let nobody = finish(isotherm(["system", "swap", "zram", "16M"]).uid(65_534).current_dir("/"));
    assert_eq!(nobody.status, 1);
    assert!(nobody.err.contains("This requires root"), "{}", nobody.err);
    assert_eq!(swaps().lines().count(), 1);
}
