//! The Debian package, and a container.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::alone::Alone;
use crate::disk::with_own_mounts;
use crate::reclaim::{EAGER, Service, stranger};
use crate::run::{Done, QUICK, finish, has_or_skip, needs_root, root_or_skip, run_in, until};
use crate::schemes::swapped;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn done(command: &mut Command) -> Done {
    let done = finish(command);
    assert_eq!(done.status, 0, "{command:?}: {}", done.err);
    done
}

/// Whether packages can be built and installed here, which requires tools of Debian.
fn dpkg_or_skip(test: &str) -> bool {
    let has_dpkg = Command::new("dpkg-deb").arg("--version").output().is_ok();
    has_or_skip(has_dpkg, test, "dpkg")
}

/// The package with the program of this test. It is not compressed, because that takes long.
fn package(dir: &Path) -> PathBuf {
    let mut deb = Command::new(repository().join("packaging/deb"));
    deb.arg(env!("CARGO_BIN_EXE_isotherm")).arg(dir).arg("-Znone");
    PathBuf::from(done(&mut deb).text().trim())
}

/// A tree in which no package is installed.
fn bare(dir: &Path) -> PathBuf {
    let root = dir.join("root");
    for folder in ["updates", "info"] {
        fs::create_dir_all(root.join("var/lib/dpkg").join(folder)).unwrap();
    }
    fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
    root
}

/// The program has the paths of sources in its panics: each such crate must be in the list of crates.
fn assert_lists_all_crates(sbom: &Path) {
    let sbom: Value = serde_json::from_slice(&fs::read(sbom).unwrap()).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let listed = sbom["components"].as_array().unwrap().iter();
    let listed: BTreeSet<String> =
        listed.map(|c| format!("{}-{}", text(&c["name"]), text(&c["version"]))).collect();
    let program = fs::read(env!("CARGO_BIN_EXE_isotherm")).unwrap();
    let mark = b"/registry/src/";
    let crates = program.windows(mark.len()).enumerate().filter(|(_, part)| part == mark);
    let crates: BTreeSet<String> = crates
        .filter_map(|(at, _)| {
            let path = &program[at + mark.len()..program.len().min(at + 300)];
            Some(String::from_utf8_lossy(path.split(|&b| b == b'/' || b == 0).nth(1)?).into_owned())
        })
        .collect();
    assert!(crates.len() > 20 && listed.len() > 100, "{crates:?} of {listed:?}");
    let missing: Vec<&String> = crates.difference(&listed).collect();
    assert!(missing.is_empty(), "{missing:?} are not listed");
    for library in ["std-", "libc6-dev-", "libgcc-"] {
        assert!(listed.iter().any(|name| name.starts_with(library)), "{library} is not listed");
    }
}

#[test]
fn the_package_is_installed_and_taken_away() {
    const NAME: &str = "the_package_is_installed_and_taken_away";
    if !root_or_skip(NAME) || !dpkg_or_skip(NAME) {
        return;
    }
    let dir = TempDir::new().unwrap();
    let deb = package(dir.path());
    let name = format!("isotherm_{}_amd64.deb", env!("CARGO_PKG_VERSION"));
    assert_eq!(deb.file_name().unwrap().to_str(), Some(&*name));
    let info = done(Command::new("dpkg-deb").arg("--info").arg(&deb));
    assert!(info.text().contains("Package: isotherm"), "{}", info.text());

    let root = bare(dir.path());
    let dpkg = |args: &[&str]| {
        let mut dpkg = Command::new("dpkg");
        dpkg.arg(format!("--root={}", root.display())).arg("--force-script-chrootless");
        dpkg.arg(format!("--log={}", dir.path().join("log").display()));
        done(dpkg.args(args))
    };
    dpkg(&["--install", deb.to_str().unwrap()]);
    let unit =
        fs::read_to_string(root.join("usr/lib/systemd/system/isotherm-reclaim.service")).unwrap();
    assert!(unit.contains("\nExecStart=/usr/bin/isotherm reclaim --config /etc/isotherm/"));
    let agent =
        fs::read_to_string(root.join("usr/lib/systemd/system/isotherm-agent.service")).unwrap();
    assert!(agent.contains("\nExecStart=/usr/bin/isotherm agent --lake ${LAKE}"), "{agent}");
    for file in [
        "isotherm/schemes/prcl.txt",
        "isotherm/fleet/isotherm.json",
        "isotherm/fleet/isotherm-agent-s3.conf",
        "doc/isotherm/copyright",
        "man/man1/isotherm.1.gz",
        "man/man1/isotherm-service-status.1.gz",
        "bash-completion/completions/isotherm",
        "zsh/vendor-completions/_isotherm",
        "fish/vendor_completions.d/isotherm.fish",
    ] {
        let file = format!("usr/share/{file}");
        assert!(root.join(&file).is_file(), "{file}");
    }
    assert_lists_all_crates(&root.join("usr/share/doc/isotherm/isotherm.cdx.json"));
    let doc = root.join("usr/share/doc/isotherm");
    let readme = fs::read_to_string(doc.join("README.md")).unwrap();
    let links = readme.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
    for link in links.filter(|link| !link.starts_with("http")) {
        assert!(doc.join(link).is_file(), "README.md leads to {link}, which is not in the package");
    }
    assert!(doc.join("docs/abi/testing/control.md").is_file());
    let program = root.join("usr/bin/isotherm");
    let doctor = finish(Command::new(&program).args(["system", "doctor"]));
    assert!(doctor.text().contains("way to look"), "{}{}", doctor.text(), doctor.err);

    let config = root.join("etc/isotherm/reclaim.toml");
    let records = root.join("var/lib/isotherm");
    fs::create_dir(&records).unwrap();
    fs::write(records.join("a.rec"), "").unwrap();
    dpkg(&["--remove", "isotherm"]);
    let agent = root.join("etc/isotherm/agent.env");
    assert!(!program.exists() && config.exists() && agent.exists(), "an operator's files stay");
    assert!(records.join("a.rec").exists());
    dpkg(&["--purge", "isotherm"]);
    assert!(!config.exists() && !agent.exists() && !records.exists());
}

/// As shipped, and with all options in comments enabled.
#[test]
fn the_config_that_is_shipped_is_understood() {
    let shipped = fs::read_to_string(repository().join("packaging/reclaim.toml")).unwrap();
    let is_option =
        |line: &&str| line.starts_with('#') && !line.starts_with("# ") && !line.contains("# none");
    let options: Vec<&str> = shipped.lines().filter(is_option).collect();
    assert!(options.len() > 6, "{options:?}");
    let all: String = options.iter().map(|line| format!("{}\n", &line[1..])).collect();
    let dir = TempDir::new().unwrap();
    for text in [shipped, format!("all = true\n{all}")] {
        fs::write(dir.path().join("r.toml"), &text).unwrap();
        // Errors of the command line are reported after those of the file.
        let args = ["reclaim", "--config", "r.toml", "--quota", "2s/1s"];
        let done = run_in(dir.path(), &args);
        assert!(done.err.contains("no more time than that"), "{text}: {}", done.err);
    }
}

/// As in a container with `--pid=host`: a root folder with only the program, and the mounts and the
/// capabilities of `packaging/README.md`.
#[test]
fn a_container_reclaims_memory_of_the_machine() {
    needs_root!();
    let Some(_alone) = Alone::with_swap(128) else { return };
    with_own_mounts(|| {
        let dir = TempDir::new().unwrap();
        let root = dir.path().join("root");
        let script = format!(
            "set -e; mkdir -p root/usr root/proc root/sys root/run/isotherm c\n\
             for d in bin sbin lib lib64; do ln -s usr/$d root/$d; done\n\
             for d in usr sys; do mount --rbind /$d root/$d; mount -o remount,bind,ro root/$d; done\n\
             mount --bind /proc root/proc; mount --bind c root/run/isotherm\n\
             cp {} root/isotherm; mount --rbind root root; mount -o remount,bind,ro root",
            env!("CARGO_BIN_EXE_isotherm")
        );
        done(Command::new("sh").args(["-c", &script]).current_dir(dir.path()));
        let readme = include_str!("../../../../packaging/README.md");
        let names = readme.split("--cap-add=").skip(1).map(|rest| {
            rest.split(|c: char| c != '_' && !c.is_ascii_uppercase()).next().unwrap().to_lowercase()
        });
        let names: BTreeSet<String> = names.collect();
        let kept: String = names.iter().map(|name| format!(",+{name}")).collect();
        let mut sleeper = stranger();
        let mut command = Command::new("chroot");
        command.arg(&root).arg("setpriv").arg(format!("--bounding-set=-all{kept}"));
        command.args(["--inh-caps=-all", "--no-new-privs", "/isotherm", "reclaim"]);
        command.args(["--pid", &sleeper.id().to_string()]).args(EAGER).args(QUICK);
        let service = Service::by_command(command, dir);
        until("what is cold", || swapped(sleeper.id().cast_signed()) > 0);
        let status =
            run_in(service.dir.path(), &["service", "status", "--control", "c/control.sock"]);
        assert!(status.text().contains("at work"), "{}{}", status.text(), status.err);
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
    });
}
