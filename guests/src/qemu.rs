//! QEMU: its command line, and its process.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::cache::Kernel;
use crate::topology::Topology;
use crate::watch::{EmulatorState, EmulatorWatch};

const QEMU: &str = "qemu-system-x86_64";

/// The board without devices that a guest does not use, because they cost time at boot.
const MACHINE: &str = "q35,sata=off,smbus=off,i8042=off,hpet=off";

/// CPU features that are expensive to emulate and do not affect the tests.
const CPU: [(&str, &str); 5] =
    [("la57", "off"), ("pku", "off"), ("svm", "off"), ("smap", "off"), ("smep", "off")];

/// Arguments for all kernels: messages on the serial line, no delays, end at a panic.
const KERNEL_ARGS: [&str; 16] = [
    "console=ttyS0",
    "panic=-1",
    "quiet",
    "loglevel=4",
    "nokaslr",
    "mitigations=off",
    "no_timer_check",
    "tsc=reliable",
    "8250.nr_uarts=1",
    "random.trust_cpu=on",
    "audit=0",
    "apparmor=0",
    "nowatchdog",
    "rcupdate.rcu_expedited=1",
    "cryptomgr.notests",
    // The first process brings the other CPUs online. If a 6.1 kernel does so itself, it waits for a CPU that
    // gets no time.
    "maxcpus=1",
];

/// The guest's clock counts instructions, at 2 to the power of this many nanoseconds each. Therefore a script
/// measures the same times on a fast, a slow and a busy machine, and after a pause of its emulator. This value
/// is about the speed of an emulator. Values from 0 to 3 were tried and did not reduce CPU time.
const CLOCK_SHIFT: u32 = 1;
/// The emulated time stamp counter then counts nanoseconds.
const TSC_KHZ: u32 = 1_000_000;

/// Outputs of a guest in its directory: the text of its script.
pub const TEXT: &str = "text";
/// A tar archive of its `/out`.
pub const FILES_TAR: &str = "files.tar";
/// A byte for each second of its clock since its script started.
pub const HEARTBEAT: &str = "heartbeat";
/// The messages of its kernel.
pub const CONSOLE: &str = "console";
/// The messages of QEMU.
pub const ERRORS: &str = "qemu";

/// Whether QEMU is installed.
pub fn is_here() -> bool {
    let version = Command::new(QEMU).arg("--version").stdout(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// A guest to boot.
pub struct Boot<'a> {
    /// its kernel
    pub kernel: &'a Kernel,
    /// its first root file system
    pub initramfs: &'a Path,
    /// its machine
    pub topology: &'a Topology,
    /// arguments of the kernel, in addition to those of the topology
    pub kernel_args: &'a [String],
}

impl Boot<'_> {
    /// Boots it, and waits until it ends or `watch` ends it. Its output is then in `dir`.
    pub fn run(&self, dir: &Path, mut watch: EmulatorWatch) -> Result<()> {
        let errors = File::create(dir.join(ERRORS))?;
        // A guest without work continues at once with its next timer.
        let mut command = self.command("off");
        // QEMU splits its options at commas, unless they are doubled.
        let path = |name: &str| dir.join(name).display().to_string().replace(',', ",,");
        command.args(["-serial", &format!("file:{}", path(CONSOLE))]);
        for (i, name) in [TEXT, FILES_TAR, HEARTBEAT].into_iter().enumerate() {
            command.arg("-chardev");
            command.arg(format!("file,id=c{i},path={}", path(name)));
            command.args(["-device", &format!("virtserialport,chardev=c{i},name={name}")]);
        }
        // The guest asks through this port how much of its memory the host has. Standard input is the only file that
        // QEMU gets without an `unsafe` call here.
        let (ours, its) = UnixStream::pair()?;
        command.args(["-chardev", "socket,id=host,fd=0"]);
        command.args(["-device", "virtserialport,chardev=host,name=host"]);
        command.stdin(OwnedFd::from(its)).stdout(Stdio::null()).stderr(errors);
        let mut guest =
            Guest(command.spawn().context("setpriv cannot be run: install util-linux")?);
        drop(command);
        let pid = guest.0.id();
        let answers = std::thread::spawn(move || answer(&ours, || resident(pid)));
        let begin = Instant::now();
        while guest.0.try_wait()?.is_none() {
            let beats = fs::metadata(dir.join(HEARTBEAT)).map_or(0, |beats| beats.len());
            // A process that has just ended has no CPU time to read.
            if let Some(cpu) = cpu_time(guest.0.id())
                && let Some(why) =
                    watch.verdict(EmulatorState { elapsed: begin.elapsed(), cpu, beats })
            {
                bail!(why);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // It ends with its socket.
        let _ = answers.join();
        Ok(())
    }

    /// Boots it with its console on the terminal, until it ends.
    pub fn interact(&self) -> Result<()> {
        let mut command = self.command("on");
        command.args(["-serial", "mon:stdio"]);
        let mut guest =
            Guest(command.spawn().context("setpriv cannot be run: install util-linux")?);
        guest.0.wait()?;
        Ok(())
    }

    /// The command for QEMU, which the kernel kills when this process ends for any reason. `sleep`: whether
    /// QEMU waits in real time while its guest is idle.
    fn command(&self, sleep: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", QEMU]).args(self.args());
        command.args(["-icount", &format!("shift={CLOCK_SHIFT},sleep={sleep}")]);
        command
    }

    fn args(&self) -> Vec<String> {
        // /dev/kvm may exist without working, but the emulator always works. It runs in one thread, as a clock
        // that counts instructions requires.
        let fixed = "-nodefaults -no-user-config -display none -no-reboot -bios qboot.rom \
                     -accel tcg,thread=single,tb-size=512";
        let mut args: Vec<String> = fixed.split_whitespace().map(str::to_owned).collect();
        let hmat = if self.topology.has_hmat() { ",hmat=on" } else { "" };
        args.extend(["-machine".into(), format!("{MACHINE}{hmat}")]);
        args.extend(["-cpu".into(), cpu(self.topology)]);
        args.extend(self.topology.memory_args());
        args.extend(["-kernel".into(), self.image().display().to_string()]);
        args.extend(["-initrd".into(), self.initramfs.display().to_string()]);
        args.extend(["-append".into(), self.kernel_args()]);
        // Without ioeventfd, written data has arrived before the guest continues.
        args.extend(["-device".into(), "virtio-serial-pci,ioeventfd=off".into()]);
        args.extend(self.topology.qemu_args.iter().cloned());
        args
    }

    fn image(&self) -> &Path {
        match &self.kernel.vmlinux {
            Some(vmlinux) if !self.topology.has_five_levels() => vmlinux,
            _ => &self.kernel.vmlinuz,
        }
    }

    fn kernel_args(&self) -> String {
        let fixed = KERNEL_ARGS.map(str::to_owned).into_iter();
        let clock = format!("tsc_early_khz={TSC_KHZ}");
        let own = self.topology.kernel_args.iter().chain(self.kernel_args).cloned();
        fixed.chain([clock]).chain(own).collect::<Vec<_>>().join(" ")
    }
}

/// The model of the CPUs and its features.
fn cpu(topology: &Topology) -> String {
    let default = CPU.into_iter().filter(|(name, _)| !topology.cpu.contains_key(*name));
    let own = topology.cpu.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let features = default.chain(own).map(|(name, value)| format!(",{name}={value}"));
    format!("max{}", features.collect::<String>())
}

/// CPU time of all threads of a process; `None` if it has ended.
fn cpu_time(pid: u32) -> Option<Duration> {
    /// ticks per second: the same on all kernels for x86-64
    const TICKS: u64 = 100;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program may contain spaces; the third field follows it.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(14 - 3);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some(Duration::from_millis((ticks()? + ticks()?) * 1000 / TICKS))
}

/// Answers each line with a figure, until the other end is closed.
fn answer(stream: &UnixStream, figure: impl Fn() -> Option<u64>) {
    for line in BufReader::new(stream).lines() {
        let answer = format!("{}\n", figure().unwrap_or_default());
        let mut stream = stream;
        if line.is_err() || stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// Memory of the guest that is resident on this machine, in KiB: the only shared memory of QEMU. `None` if QEMU has
/// ended.
fn resident(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let shared = status.lines().find_map(|line| line.strip_prefix("RssShmem:"))?;
    shared.trim().strip_suffix(" kB")?.parse().ok()
}

/// A running QEMU, killed when dropped.
struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(topology: &str, kernel_args: &[String]) -> Vec<String> {
        let topology = Topology::named(topology).unwrap();
        let kernel = Kernel {
            series: "9.9".to_owned(),
            release: "9.9.9".to_owned(),
            vmlinux: Some("/vmlinux".into()),
            vmlinuz: "/vmlinuz".into(),
            modules: "/modules".into(),
        };
        let initramfs = Path::new("/i");
        Boot { kernel: &kernel, initramfs, topology: &topology, kernel_args }.args()
    }

    fn value<'a>(args: &'a [String], option: &str) -> &'a str {
        &args[args.iter().position(|a| a == option).unwrap() + 1]
    }

    #[test]
    fn a_feature_of_the_topology_counts() {
        assert!(value(&args("five-levels", &[]), "-cpu").contains(",la57=on"));
        assert!(!value(&args("five-levels", &[]), "-cpu").contains("la57=off"));
        assert!(value(&args("three-nodes", &[]), "-cpu").contains("la57=off"));
    }

    #[test]
    fn only_a_kernel_that_unpacks_itself_turns_on_five_levels() {
        assert_eq!(value(&args("five-levels", &[]), "-kernel"), "/vmlinuz");
        assert_eq!(value(&args("three-nodes", &[]), "-kernel"), "/vmlinux");
    }

    #[test]
    fn arguments_of_the_scenario_come_last() {
        let args = args("three-nodes", &["damon_stat.enabled=Y".to_owned()]);
        let append = value(&args, "-append");
        assert!(append.starts_with("console=ttyS0 "), "{append}");
        assert!(append.ends_with(" damon_stat.enabled=N damon_stat.enabled=Y"), "{append}");
    }

    #[test]
    fn our_own_cpu_time() {
        let before = cpu_time(std::process::id()).unwrap();
        while cpu_time(std::process::id()).unwrap() < before + Duration::from_millis(50) {}
        assert_eq!(cpu_time(u32::MAX), None);
    }

    #[test]
    fn each_line_gets_an_answer() {
        let (ours, its) = UnixStream::pair().unwrap();
        let answers = std::thread::spawn(move || answer(&ours, || Some(7)));
        (&its).write_all(b"resident\nresident\n").unwrap();
        let two: Vec<String> = BufReader::new(&its).lines().take(2).map(Result::unwrap).collect();
        assert_eq!(two, ["7", "7"]);
        drop(its);
        answers.join().unwrap();
        assert!(resident(std::process::id()).is_some());
        assert_eq!(resident(u32::MAX), None);
    }

    #[test]
    fn the_board_knows_of_hmat_where_there_is_one() {
        assert!(value(&args("three-nodes", &[]), "-machine").ends_with(",hmat=on"));
        assert!(!value(&args("five-levels", &[]), "-machine").contains("hmat"));
    }
}
