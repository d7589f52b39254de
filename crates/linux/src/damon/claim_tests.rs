use super::*;
use crate::walker::own_pid;

const ALL: &str = "sys/kernel/mm/damon/admin/kdamonds";

fn file(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A machine with one kdamond that runs as thread 607, and what an isotherm that was killed has
/// written of it.
fn left() -> (tempfile::TempDir, Mark) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    file(root, "proc/sys/kernel/random/boot_id", "this-boot\n");
    file(root, "proc/607/stat", &stat_line(1038));
    file(root, &format!("{ALL}/nr_kdamonds"), "1\n");
    file(root, &format!("{ALL}/0/state"), "on\n");
    file(root, &format!("{ALL}/0/pid"), "607\n");
    let mark = Mark {
        boot_id: "this-boot".into(),
        owner: Thread { pid: 42, start_ticks: 7 },
        making: false,
        directory: Some(fs::metadata(root.join(ALL).join("0")).unwrap().ino()),
        kdamond: Some(Thread { pid: 607, start_ticks: 1038 }),
        instance: None,
    };
    (dir, mark)
}

fn stat_line(start_ticks: u64) -> String {
    let zeros = "0 ".repeat(10);
    format!("607 (kdamond.0) I 2 0 0 0 -1 2129984 {zeros}0 0 {start_ticks} 0 0\n")
}

fn write(root: &Path, mark: &Mark) {
    file(root, PATH, &serde_json::to_string(mark).unwrap());
}

fn tree(root: &Path) -> [String; 2] {
    ["0/state", "nr_kdamonds"]
        .map(|name| fs::read_to_string(root.join(ALL).join(name)).unwrap().trim().to_owned())
}

/// The holder of the lock is not the process that the file names.
#[test]
fn a_short_lock_is_waited_for() {
    let (dir, mark) = left();
    write(dir.path(), &mark);
    let asks = state::lock(&dir.path().join(PATH), false).unwrap().unwrap();
    assert_eq!(standing(dir.path()), ClaimState::Living(42), "it does not end");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            sleep(WAIT * 2);
            drop(asks);
        });
        drop(ClaimFile::take(dir.path()).unwrap());
    });
    assert_eq!(tree(dir.path()), ["off", "0"]);
}

/// Killed before it could write which directory it has made.
#[test]
fn an_unfinished_kdamond_is_removed_while_it_is_empty() {
    for (contexts, state, goes) in [("0", "off", true), ("1", "off", false), ("0", "on", false)] {
        let (dir, mark) = left();
        let root = dir.path();
        file(root, &format!("{ALL}/0/contexts/nr_contexts"), contexts);
        file(root, &format!("{ALL}/0/state"), state);
        let kdamond = Some(Thread { pid: 8, start_ticks: 9 });
        write(root, &Mark { making: true, directory: None, kdamond, ..mark });
        sweep(root).unwrap();
        assert_eq!(tree(root)[1] == "0", goes, "{contexts} {state}");
    }
}

/// A shorter mark leaves no rest of a longer one.
#[test]
fn marks_are_written_over_each_other() {
    let (dir, _) = left();
    let root = dir.path();
    let mut claim = ClaimFile::take(root).unwrap();
    let instance = Some(PathBuf::from("tracing/instances/isotherm-42"));
    let kdamond = Some(Thread { pid: 607, start_ticks: 1038 });
    let marks = [Mark { instance, kdamond, ..claim.mark.clone() }, claim.mark.clone()];
    for mark in marks {
        claim.mark = mark;
        claim.save().unwrap();
        assert_eq!(fs::metadata(root.join(PATH)).unwrap().len(), SIZE as u64);
        assert_eq!(read(&File::open(root.join(PATH)).unwrap()), Some(claim.mark.clone()));
    }
    claim.mark.instance = Some(PathBuf::from("x".repeat(SIZE)));
    assert!(claim.save().is_err());
}

/// The count cannot be written: a later isotherm finds the remaining kdamond.
#[test]
fn a_kdamond_that_cannot_be_removed_stays_noted() {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    use std::os::fd::AsRawFd;
    let (dir, mark) = left();
    let root = dir.path();
    let mut claim = ClaimFile::take(root).unwrap();
    claim.mark.directory = mark.directory;
    claim.mark.kdamond = mark.kdamond;
    claim.save().unwrap();
    let sealed = memfd_create("nr_kdamonds", MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::io::write(&sealed, b"1\n").unwrap();
    fcntl_add_seals(&sealed, SealFlags::WRITE | SealFlags::SHRINK).unwrap();
    let count = root.join(ALL).join("nr_kdamonds");
    fs::remove_file(&count).unwrap();
    let link = format!("/proc/{}/fd/{}", own_pid(), sealed.as_raw_fd());
    std::os::unix::fs::symlink(link, &count).unwrap();
    drop(claim);
    assert_eq!(standing(root), ClaimState::Leftover);
    fs::remove_file(&count).unwrap();
    file(root, &format!("{ALL}/nr_kdamonds"), "1\n");
    assert!(sweep(root).unwrap().is_some());
    assert_eq!(tree(root), ["off", "0"]);
}

#[test]
fn the_note_is_locked_while_its_owner_lives() {
    let (dir, _) = left();
    let root = dir.path();
    assert_eq!(standing(root), ClaimState::None, "there is no file");
    let claim = ClaimFile::take(root).unwrap();
    assert_eq!(standing(root), ClaimState::Living(own_pid()));
    let second = ClaimFile::take(root).unwrap_err();
    assert!(matches!(second, DamonError::Held(DamonOwner::Isotherm(pid)) if pid == own_pid()));
    assert!(sweep(root).unwrap().is_none(), "the living are not swept");
    drop(claim);
    assert!(!root.join(PATH).exists());
    assert_eq!(tree(root), ["on", "1"]);
}

#[test]
fn a_leftover_kdamond_is_removed() {
    for kdamond in [Some(Thread { pid: 607, start_ticks: 1038 }), None] {
        let (dir, mark) = left();
        let root = dir.path();
        write(root, &Mark { kdamond, ..mark });
        assert_eq!(standing(root), ClaimState::Leftover);
        assert_eq!(sweep(root).unwrap(), Some(42));
        assert_eq!(tree(root), ["off", "0"]);
        assert!(!root.join(PATH).exists());
    }
}

/// A kdamond that has stopped by itself because its targets ended.
#[test]
fn a_kdamond_that_does_not_run_is_removed() {
    let (dir, mark) = left();
    file(dir.path(), &format!("{ALL}/0/state"), "off\n");
    file(dir.path(), &format!("{ALL}/0/pid"), "-1\n");
    write(dir.path(), &mark);
    drop(ClaimFile::take(dir.path()).unwrap());
    assert_eq!(tree(dir.path()), ["off", "0"]);
}

#[test]
fn a_changed_kdamond_is_left_alone() {
    let (dir, mark) = left();
    let root = dir.path();
    let directory = mark.directory.map(|n| n + 1);
    let others = [
        ("another boot", Mark { boot_id: "before".into(), ..mark.clone() }),
        ("another directory", Mark { directory, ..mark.clone() }),
        ("no directory yet", Mark { directory: None, ..mark.clone() }),
        (
            "another thread",
            Mark { kdamond: Some(Thread { pid: 8, start_ticks: 9 }), ..mark.clone() },
        ),
    ];
    for (what, other) in others {
        write(root, &other);
        assert_eq!(standing(root), ClaimState::None, "{what}");
        sweep(root).unwrap();
        assert_eq!(tree(root), ["on", "1"], "{what}");
        assert!(!root.join(PATH).exists(), "{what}");
    }
    write(root, &mark);
    file(root, "proc/607/stat", &stat_line(2000));
    sweep(root).unwrap();
    assert_eq!(tree(root), ["on", "1"], "a thread that has the pid by chance");
    file(root, PATH, "{ torn");
    assert_eq!(sweep(root).unwrap(), None);
    assert_eq!(tree(root), ["on", "1"], "a file that was not written to its end");
}

#[test]
fn only_instances_of_ours_are_removed() {
    let (dir, mark) = left();
    let instances = dir.path().join("tracing/instances");
    for (name, stays) in [("isotherm-42", false), ("perf", true)] {
        let instance = instances.join(name);
        fs::create_dir_all(&instance).unwrap();
        write(dir.path(), &Mark { instance: Some(instance.clone()), ..mark.clone() });
        sweep(dir.path()).unwrap();
        assert_eq!(instance.exists(), stays, "{name}");
    }
}
