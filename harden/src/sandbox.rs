//! Namespaces of its own for each experiment: processes, mounts, network, IPC and host name.
//!
//! `/tmp` and `/run` are empty there, and the program is [`PROGRAM`]. All processes inside end with the experiment.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::ExperimentKind;

/// The program to test.
pub const PROGRAM: &str = "/tmp/isotherm";
/// Folder in which trials work, empty at first.
pub const WORK_DIR: &str = "/tmp/work";

/// Privileges of the processes inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privileges {
    /// those of the user `nobody`, without capabilities
    None,
    /// all
    Root,
}

/// The file by whose lock the tests of a machine share its swap. It is outside of the sandbox.
pub const SWAP_LOCK: &str = "/proc/self/fd/9";

/// The arguments of this script are the program to test, this program, and the command inside.
const PREPARE: &str = r#"
set -e
exec 9>"${TMPDIR:-/tmp}/isotherm-test-swap.lock"
program=$(realpath "$1") harden=$(realpath "$2")
mount -t tmpfs -o mode=1777 none /run
mkdir -p /run/bind
touch /run/bind/isotherm /run/bind/harden
mount --bind "$program" /run/bind/isotherm
mount --bind "$harden" /run/bind/harden
mount -t tmpfs -o mode=1777 none /tmp
mkdir -m 1777 /tmp/work
touch /tmp/isotherm /tmp/harden
mount --move /run/bind/isotherm /tmp/isotherm
mount --move /run/bind/harden /tmp/harden
rm -r /run/bind
ip link set lo up 2>/dev/null || true
shift 2
exec "$@"
"#;

/// The command that carries out trials `from..to`.
pub fn command(
    kind: ExperimentKind,
    program: &Path,
    seed: u64,
    from: u64,
    to: u64,
) -> Result<Command> {
    let own = std::env::current_exe().context("this program")?;
    let mut command = Command::new("unshare");
    command
        .args([
            "--mount",
            "--pid",
            "--net",
            "--ipc",
            "--uts",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ])
        .args(["sh", "-c", PREPARE, "sh"])
        .args([program, &own]);
    if kind.privileges() == Privileges::None {
        command.args(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.args(["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]);
    }
    command.args(["/tmp/harden", "inside", &kind.name()]);
    command.args([seed, from, to].map(|n| n.to_string()));
    command.stdin(Stdio::null());
    Ok(command)
}
