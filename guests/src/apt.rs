//! Packages of Debian's suites. apt uses lists and archives of our own; those of the machine are not changed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// Keyring whose signatures are accepted; from the package debian-archive-keyring.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Pause before a failed mirror is tried again.
const PAUSE: Duration = Duration::from_secs(2);

/// The mirrors from which the machine itself installs packages.
#[derive(Debug, PartialEq, Eq)]
struct Mirrors {
    debian: String,
    security: Option<String>,
}

impl Mirrors {
    /// Parses lines of a site and a label.
    fn parse(lines: &str) -> Option<Self> {
        let labelled = |label: &str| {
            let sites = lines.lines().filter_map(|l| l.split_once(' '));
            sites.filter(|(_, l)| *l == label).map(|(site, _)| site.to_owned()).next()
        };
        Some(Mirrors { debian: labelled("Debian")?, security: labelled("Debian-Security") })
    }

    /// A line of sources.list; `None` for a suite of which the machine has no mirror.
    fn source(&self, suite: &str) -> Option<String> {
        let security = suite.ends_with("-security");
        let site = if security { self.security.as_ref()? } else { &self.debian };
        Some(format!("deb [signed-by={KEYRING}] {site} {suite} main\n"))
    }
}

/// apt for a set of suites.
pub struct Apt {
    root: PathBuf,
    packages: Vec<String>,
}

impl Apt {
    /// Reads the lists of these suites, into `root`.
    pub fn open(root: &Path, suites: &BTreeSet<&str>) -> Result<Self> {
        Apt::over(&mirrors()?, root, suites)
    }

    fn over(mirrors: &Mirrors, root: &Path, suites: &BTreeSet<&str>) -> Result<Self> {
        for dir in ["lists/partial", "cache/archives/partial"] {
            std::fs::create_dir_all(root.join(dir))?;
        }
        let sources: String = suites.iter().filter_map(|s| mirrors.source(s)).collect();
        std::fs::write(root.join("sources.list"), sources)?;
        let mut apt = Apt { root: root.to_owned(), packages: Vec::new() };
        // Without this option, a list that cannot be fetched is only a warning.
        apt.fetch(&["update", "-q", "-o", "APT::Update::Error-Mode=any"], root)?;
        let names = apt.run("apt-cache", &["pkgnames", "linux-"], root)?;
        apt.packages = names.lines().map(str::to_owned).collect();
        Ok(apt)
    }

    /// Names of the packages of the kernel.
    pub fn packages(&self) -> &[String] {
        &self.packages
    }

    /// Downloads a package to `dir`.
    pub fn download(&self, package: &str, dir: &Path) -> Result<()> {
        self.fetch(&["download", "-q", package], dir)
    }

    /// Unpacks packages and all their dependencies into `root`, without configuring them.
    pub fn unpack_all(&self, packages: &[String], root: &Path) -> Result<()> {
        // Archives that an interrupted run has fetched may be of other versions.
        let archives = self.root.join("cache/archives");
        std::fs::remove_dir_all(&archives)?;
        std::fs::create_dir_all(archives.join("partial"))?;
        // The status file lists no installed package, so all dependencies are fetched too.
        let status = self.root.join("status");
        std::fs::write(&status, "")?;
        let status = format!("Dir::State::status={}", status.display());
        let state = format!("Dir::State={}", self.root.display());
        let options = ["--download-only", "--no-install-recommends", "-y", "-q"];
        let mut args = vec!["install", "-o", &state, "-o", &status];
        args.extend(options.into_iter().chain(packages.iter().map(String::as_str)));
        self.fetch(&args, &self.root)?;
        unpack_from(&archives, root)
    }

    /// Runs apt, and tries once more if the mirror fails.
    fn fetch(&self, args: &[&str], dir: &Path) -> Result<()> {
        let fetch = || self.run("apt-get", args, dir).map(drop);
        fetch().or_else(|_| {
            std::thread::sleep(PAUSE);
            fetch()
        })
    }

    /// Runs a program, and returns its output.
    fn run(&self, program: &str, args: &[&str], dir: &Path) -> Result<String> {
        let at = |name: &str| self.root.join(name).display().to_string();
        let options = [
            format!("Dir::Etc::sourcelist={}", at("sources.list")),
            "Dir::Etc::sourceparts=/dev/null".to_owned(),
            format!("Dir::State::lists={}", at("lists")),
            format!("Dir::Cache={}", at("cache")),
            // apt's own user may not write here.
            "APT::Sandbox::User=".to_owned(),
            // Without this option, apt retries some files and not others.
            "Acquire::Retries=0".to_owned(),
        ];
        let options = options.iter().flat_map(|o| ["-o", o]);
        output(Command::new(program).args(options).args(args).current_dir(dir))
    }
}

/// Unpacks all packages in `dir` into `to`, and removes them.
pub fn unpack_from(dir: &Path, to: &Path) -> Result<()> {
    for file in std::fs::read_dir(dir)? {
        let path = file?.path();
        if path.extension().is_some_and(|e| e == "deb") {
            output(Command::new("dpkg-deb").arg("-x").arg(&path).arg(to))?;
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// The mirrors of the machine.
fn mirrors() -> Result<Mirrors> {
    let format = ["indextargets", "--format", "$(SITE) $(LABEL)", "Created-By: Packages"];
    let lines = output(Command::new("apt-get").args(format))?;
    Mirrors::parse(&lines).context("apt knows no Debian mirror: run apt-get update")
}

/// The output of a command. An error contains the command's own message.
pub fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let out = command.output().with_context(|| format!("{program} cannot be run: install it"))?;
    if !out.status.success() {
        bail!("{program} failed: {}", String::from_utf8_lossy(&out.stderr).trim());
    }
    ensure!(out.stdout.len() <= 64 << 20, "{program} prints more than 64 MiB");
    Ok(String::from_utf8(out.stdout)?)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::sync::mpsc::channel;

    use super::*;

    const LINES: &str = "\
http://others.example/apt others
http://mirror.example/debian Debian
http://other.example/debian Debian
http://mirror.example/debian-security Debian-Security
";

    #[test]
    fn the_mirrors_of_the_machine_are_used() {
        let mirrors = Mirrors::parse(LINES).unwrap();
        let line = |site: &str, suite: &str| {
            Some(format!("deb [signed-by={KEYRING}] http://mirror.example/{site} {suite} main\n"))
        };
        assert_eq!(mirrors.source("sid"), line("debian", "sid"));
        assert_eq!(mirrors.source("trixie-security"), line("debian-security", "trixie-security"));
    }

    #[test]
    fn a_mirror_that_fails_is_tried_again_once_and_then_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let debian = format!("http://{}/debian", listener.local_addr().unwrap());
        let (asked, requests) = channel();
        // It ends with the test.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).unwrap();
                asked.send(line).unwrap();
                let answer = "HTTP/1.1 503 no\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        let dir = tempfile::tempdir().unwrap();
        let mirrors = Mirrors { debian, security: None };
        let error = Apt::over(&mirrors, dir.path(), &BTreeSet::from(["sid"])).err().unwrap();
        assert!(error.to_string().contains("503"), "{error}");
        let requests: Vec<String> = requests.try_iter().collect();
        let of = |file: &str| requests.iter().filter(|r| r.contains(file)).count();
        assert_eq!(of("/sid/InRelease"), 2, "{requests:?}");
    }

    #[test]
    fn without_a_mirror_of_debian_there_is_none() {
        assert_eq!(Mirrors::parse("http://others.example/apt others\n"), None);
        let mirrors = Mirrors::parse("http://mirror.example/debian Debian\n").unwrap();
        assert_eq!(mirrors.source("trixie-security"), None);
    }
}
