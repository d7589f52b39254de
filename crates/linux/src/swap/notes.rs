//! Permanent swap, noted in a file; and swap of a process, noted in a file that this process has locked: if the
//! lock is free, the process was killed.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use isotherm_core::{PAGE_SIZE, align_down};
use serde::{Deserialize, Serialize};

use super::checked;
use super::content::SwapContent;
use super::error::SwapError;
use super::zram::Zram;
use crate::state::{self, boot_id};

const DIR: &str = "run/isotherm";
/// The file that notes permanent swap without a name.
const PATH: &str = "run/isotherm/swap.json";
/// Maximal number of notes of processes.
const MAX_NOTES: u32 = 1024;
/// Maximal length of a name, in bytes.
const MAX_NAME: usize = 64;
const SIZE: usize = 4096;
const VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SwapState {
    version: u32,
    boot_id: String,
    /// none while the device is being added: the kernel chooses its number
    number: Option<u32>,
    bytes: u64,
    /// the devices before this one was added, while it has no number
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    before: Vec<u32>,
}

impl SwapState {
    fn of(boot_id: String, number: u32, bytes: u64) -> Self {
        SwapState { version: VERSION, boot_id, number: Some(number), bytes, before: Vec::new() }
    }

    /// An error if the process was killed while it added a device, and the device may be there.
    fn check_added(&self, root: &Path, path: &Path) -> Result<(), SwapError> {
        let is_left = |number: &u32| {
            !self.before.contains(number) && Zram::known(root, *number).bytes() == Some(0)
        };
        let left: Vec<u32> = match self.number {
            None => Zram::numbers(root).into_iter().filter(is_left).collect(),
            Some(_) => Vec::new(),
        };
        match left.is_empty() {
            true => Ok(()),
            false => Err(SwapError::Interrupted { numbers: left, noted: path.to_owned() }),
        }
    }
}

/// The file that notes swap of this name.
fn place(root: &Path, name: Option<&str>) -> Result<PathBuf, SwapError> {
    let Some(name) = name else { return Ok(root.join(PATH)) };
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    if !(1..=MAX_NAME).contains(&name.len()) || name.starts_with('.') || !name.bytes().all(is_plain)
    {
        return Err(SwapError::Name(name.to_owned()));
    }
    Ok(root.join(DIR).join(format!("swap@{name}.json")))
}

/// Makes permanent swap of `bytes`, rounded down to whole pages, and returns its device. The kernel uses it
/// before all other swap. It stays when isotherm ends. There is at most one per name, and one without a name.
///
/// # Errors
/// If swap of this name already exists, an earlier command was killed while it added a device, or the kernel has no
/// zram or refuses.
pub fn set_up(root: &Path, name: Option<&str>, bytes: u64) -> Result<PathBuf, SwapError> {
    let bytes = align_down(checked(root, bytes)?, PAGE_SIZE);
    let path = place(root, name)?;
    let (file, boot_id) = begin(root, &path)?;
    if let Some(earlier) = read(&file, &path)?.filter(|n| n.boot_id == boot_id) {
        earlier.check_added(root, &path)?;
        let zram = earlier.number.map(|number| Zram::known(root, number));
        if let Some(zram) = zram.filter(|zram| zram.bytes().is_some()) {
            let name = name.map_or_else(String::new, |name| format!(" --name {name}"));
            let restore = format!("isotherm system swap restore{name}");
            return Err(SwapError::InUse { device: zram.device(), bytes: earlier.bytes, restore });
        }
    }
    let zram = add(root, &file, &path, boot_id, bytes)?;
    zram.swap_on(bytes).map_err(|e| given_up(&zram, &path, e))?;
    Ok(zram.device())
}

/// Adds a device, and notes it in this file, which is locked. After a kill, a later isotherm names a device that has no
/// number there, and removes one that has.
fn add(
    root: &Path,
    file: &File,
    path: &Path,
    boot_id: String,
    bytes: u64,
) -> Result<Zram, SwapError> {
    let before = Zram::numbers(root);
    let adding =
        SwapState { version: VERSION, boot_id: boot_id.clone(), number: None, bytes, before };
    let zram = state::write(file, SIZE, &adding)
        .map_err(|e| failed("write", path, e))
        .and_then(|()| Zram::add(root))
        .inspect_err(|_| forget(path))?;
    let noted = SwapState::of(boot_id, zram.number, bytes);
    let done = state::write(file, SIZE, &noted).map_err(|e| failed("write", path, e));
    done.map_err(|e| given_up(&zram, path, e))?;
    Ok(zram)
}

/// Removes a device that cannot be used, and its note. If the device stays, its note stays too. Returns the
/// error for the caller.
fn given_up(zram: &Zram, note: &Path, why: SwapError) -> SwapError {
    let why = zram.given_up(why);
    if !matches!(why, SwapError::Left { .. }) {
        forget(note);
    }
    why
}

/// The note of swap that lives as long as this process.
#[derive(Debug)]
pub(super) struct SwapNote {
    path: PathBuf,
    // Locked while this value lives; unlocked after a kill.
    _file: File,
}

impl SwapNote {
    /// Adds a device, and notes it in the first file that is free.
    pub fn add(root: &Path, bytes: u64) -> Result<(Self, Zram), SwapError> {
        for number in 0..MAX_NOTES {
            let path = root.join(DIR).join(format!("swap-zram{number}.json"));
            let (file, boot_id) = match begin(root, &path) {
                Err(SwapError::Busy) => continue,
                begun => begun?,
            };
            // The note of a process that was killed stays for `restore_left`.
            if read(&file, &path).is_ok_and(|noted| noted.is_none_or(|n| n.boot_id != boot_id)) {
                let zram = add(root, &file, &path, boot_id, align_down(bytes, PAGE_SIZE))?;
                return Ok((SwapNote { path, _file: file }, zram));
            }
        }
        Err(SwapError::TooManyNotes(MAX_NOTES))
    }

    /// As [`given_up`], for the device of this note.
    pub fn given_up(&self, zram: &Zram, why: SwapError) -> SwapError {
        given_up(zram, &self.path, why)
    }

    /// Removes the note of a device that no longer exists.
    pub fn forget(&self) {
        forget(&self.path);
    }
}

/// Which swap to remove, and under which conditions.
#[derive(Debug, Clone, Default)]
pub struct Restore<'a> {
    /// the swap of this name; none: the swap without a name, and that of killed processes
    pub name: Option<&'a str>,
    /// remove it even if processes of others have memory in it
    pub force: bool,
    /// the caller: it and its descendants are the caller's own processes
    pub caller: Option<i32>,
}

/// Removes the swap that [`set_up`] has made, even if that was interrupted, and, if no name is given, that of
/// killed processes. Returns the devices; none if isotherm has made none. `tell` is called with the content of
/// each device before its removal.
///
/// # Errors
/// If another program has changed a device, other processes have memory in swap of [`set_up`], the content of a
/// device does not fit in memory or in the limits of cgroups, or the kernel refuses.
pub fn restore(
    root: &Path,
    o: &Restore<'_>,
    tell: &mut dyn FnMut(&SwapContent),
) -> Result<Vec<PathBuf>, SwapError> {
    let path = place(root, o.name)?;
    // The processes in swap of a killed owner can no longer be attributed to it, so they are not checked.
    let left = match o.name {
        None => take_away_left(root, tell),
        Some(_) => Ok(Vec::new()),
    };
    let mut check = |content: &SwapContent| {
        tell(content);
        if o.force { Ok(()) } else { content.check_foreign() }
    };
    let stays = match lock(&path, false)? {
        Locked::Ours(file) => take_away(root, &path, &file, o, &mut check)?,
        Locked::OfAnother => return Err(SwapError::Busy),
        Locked::Missing => None,
    };
    if let (Some(name), None) = (o.name, &stays) {
        return Err(SwapError::NoSuch(name.to_owned()));
    }
    let mut gone = left?;
    gone.extend(stays);
    Ok(gone)
}

/// Removes the swap of killed processes; returns its devices.
///
/// # Errors
/// As those of [`restore`]. If several removals fail, the first error, after all others were tried.
pub fn restore_left(root: &Path) -> Result<Vec<PathBuf>, SwapError> {
    take_away_left(root, &mut |_| ())
}

fn take_away_left(
    root: &Path,
    tell: &mut dyn FnMut(&SwapContent),
) -> Result<Vec<PathBuf>, SwapError> {
    let dir = root.join(DIR);
    let entries = match fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(failed("read", &dir, e)),
    };
    let (mut gone, mut failure) = (Vec::new(), None);
    for entry in entries {
        let name = entry.map_err(|e| failed("read", &dir, e))?.file_name();
        if !name.to_str().is_some_and(|n| n.starts_with("swap-zram") && n.ends_with(".json")) {
            continue;
        }
        let path = dir.join(name);
        // A live owner holds the lock, and removes the swap itself.
        let taken = lock(&path, false).and_then(|locked| match locked {
            Locked::Ours(file) => {
                let mut check = |content: &SwapContent| {
                    tell(content);
                    Ok(())
                };
                take_away(root, &path, &file, &Restore::default(), &mut check)
            }
            _ => Ok(None),
        });
        match taken {
            Ok(device) => gone.extend(device),
            Err(e) => failure = failure.or(Some(e)),
        }
    }
    failure.map_or(Ok(gone), Err)
}

/// Removes the swap of this note, and the note, unless `check` fails or the content does not fit in memory.
fn take_away(
    root: &Path,
    path: &Path,
    file: &File,
    o: &Restore<'_>,
    check: &mut dyn FnMut(&SwapContent) -> Result<(), SwapError>,
) -> Result<Option<PathBuf>, SwapError> {
    let boot_id = boot_id(root).map_err(|e| failed("mark", path, e))?;
    let noted = read(file, path)?.filter(|n| n.boot_id == boot_id);
    if let Some(noted) = &noted {
        noted.check_added(root, path)?;
    }
    let zram = noted.as_ref().and_then(|n| n.number).map(|number| Zram::known(root, number));
    let Some((noted, zram, bytes)) = noted.zip(zram).and_then(|(n, z)| {
        let bytes = z.bytes()?;
        Some((n, z, bytes))
    }) else {
        forget(path);
        return Ok(None);
    };
    if bytes != 0 && bytes != noted.bytes {
        let noted = path.to_owned();
        return Err(SwapError::NotOurs { device: zram.device(), bytes, noted });
    }
    let content = SwapContent::of(root, zram.device(), o.name.map(str::to_owned), o.caller);
    check(&content)?;
    content.check_fits(root)?;
    zram.remove()?;
    forget(path);
    Ok(Some(zram.device()))
}

/// The note, created if necessary and locked, and the id of this boot.
fn begin(root: &Path, path: &Path) -> Result<(File, String), SwapError> {
    let dir = root.join(DIR);
    state::make_dir(&dir).map_err(|e| failed("make", &dir, e))?;
    let Locked::Ours(file) = lock(path, true)? else { return Err(SwapError::Busy) };
    let boot_id = boot_id(root).map_err(|e| failed("mark", path, e))?;
    Ok((file, boot_id))
}

/// The result of locking a note.
enum Locked {
    Ours(File),
    OfAnother,
    Missing,
}

fn lock(path: &Path, create: bool) -> Result<Locked, SwapError> {
    match state::lock(path, create) {
        Ok(Some(file)) => Ok(Locked::Ours(file)),
        Ok(None) => Ok(Locked::OfAnother),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(Locked::Missing),
        Err(e) => Err(failed("lock", path, e)),
    }
}

/// The content of a note; none in a new file.
fn read(mut file: &File, path: &Path) -> Result<Option<SwapState>, SwapError> {
    let mut text = String::new();
    let read = (&mut file).take(SIZE as u64).read_to_string(&mut text);
    read.map_err(|e| failed("read", path, e))?;
    match serde_json::from_str::<SwapState>(&text) {
        Ok(noted) if noted.version == VERSION => Ok(Some(noted)),
        _ if text.trim().is_empty() => Ok(None),
        _ => Err(SwapError::Noted(path.to_owned())),
    }
}

fn forget(path: &Path) {
    let _ = fs::remove_file(path);
}

fn failed(what: &'static str, path: &Path, source: io::Error) -> SwapError {
    SwapError::File { what, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::Command;

    use super::*;
    use crate::testing::{put, tree};

    /// A machine on which isotherm has made `/dev/zram7` of 4 MiB, of which the device says `disksize`.
    fn machine(disksize: &str, noted: &str) -> tempfile::TempDir {
        tree([
            ("proc/sys/kernel/random/boot_id", "this\n"),
            ("proc/meminfo", "MemTotal: 1000000 kB\nMemFree: 1 kB\nMemAvailable: 1 kB\n"),
            ("sys/block/zram7/disksize", disksize),
            (PATH, noted),
        ])
    }

    fn restored(root: &Path) -> Result<Vec<PathBuf>, SwapError> {
        restore(root, &Restore::default(), &mut |_| ())
    }

    #[test]
    fn each_name_has_its_own() {
        let root = machine("4194304\n", &noted("this"));
        let by = |name| Restore { name: Some(name), ..Restore::default() };
        let said = restore(root.path(), &by("web"), &mut |_| ()).unwrap_err().to_string();
        assert!(said.contains("no swap called web"), "{said}");
        assert!(root.path().join(PATH).exists(), "that of another stays");
        fs::rename(root.path().join(PATH), root.path().join("run/isotherm/swap@web.json")).unwrap();
        assert!(restored(root.path()).unwrap().is_empty(), "it has a name");
        let said = set_up(root.path(), Some("web"), 4 << 20).unwrap_err().to_string();
        assert!(said.contains("swap restore --name web"), "{said}");
        let mut contents = Vec::new();
        let said =
            restore(root.path(), &by("web"), &mut |c: &SwapContent| contents.push(c.to_string()));
        assert!(matches!(said, Err(SwapError::Off { .. })), "here is no such device: {said:?}");
        assert!(contents[0].contains("zram7 (--name web) holds 0.0 MiB"), "{contents:?}");
        for bad in ["", ".x", "a/b", "a b", &"x".repeat(65)] {
            let said = set_up(root.path(), Some(bad), 4 << 20).unwrap_err();
            assert!(matches!(said, SwapError::Name(_)), "{bad}: {said}");
        }
    }

    fn noted(boot_id: &str) -> String {
        let boot_id = boot_id.to_owned();
        let noted = SwapState::of(boot_id, 7, 4 << 20);
        serde_json::to_string(&noted).unwrap()
    }

    #[test]
    fn foreign_devices_are_left_alone() {
        let root = machine("8388608\n", &noted("this"));
        let said = restored(root.path()).unwrap_err().to_string();
        assert!(said.contains("isotherm leaves") && said.contains("zram7"), "{said}");
        assert!(root.path().join(PATH).exists());
        let said = set_up(root.path(), None, 4 << 20).unwrap_err();
        assert!(matches!(said, SwapError::InUse { .. }), "{said}");
    }

    #[test]
    fn notes_from_before_the_last_boot_are_forgotten() {
        let root = machine("4194304\n", &noted("another"));
        assert!(restored(root.path()).unwrap().is_empty());
        assert!(!root.path().join(PATH).exists());
        assert!(restored(root.path()).unwrap().is_empty(), "nothing is noted");
    }

    #[test]
    fn a_held_device_belongs_to_its_process_until_its_end() {
        let root = machine("4194304\n", "");
        put(root.path(), "sys/class/zram-control/hot_add", "7\n");
        let (held, _) = SwapNote::add(root.path(), (4 << 20) + 1).unwrap();
        assert!(restore_left(root.path()).unwrap().is_empty());
        assert!(held.path.exists());
        let (another, _) = SwapNote::add(root.path(), 4 << 20).unwrap();
        assert_ne!(another.path, held.path);
        another.forget();
        let path = held.path.clone();
        drop(held);
        // It is tried then; here is no such device.
        let said = restore_left(root.path()).unwrap_err();
        assert!(matches!(said, SwapError::Off { .. }), "{said}");
        assert!(path.exists(), "it stays noted");
        let (later, _) = SwapNote::add(root.path(), 4 << 20).unwrap();
        assert_ne!(later.path, path);
        later.forget();
        put(root.path(), "sys/block/zram7/disksize", "8388608\n");
        let said = restored(root.path()).unwrap_err();
        assert!(matches!(said, SwapError::NotOurs { .. }), "{said}");
        fs::remove_file(root.path().join("sys/block/zram7/disksize")).unwrap();
        assert!(restored(root.path()).unwrap().is_empty());
        assert!(!path.exists());
    }

    /// Found by an audit: a process added its device before it noted it. If it was killed in between, an empty device
    /// remained that no command named.
    #[test]
    fn the_device_of_a_process_is_noted_before_it_is_added() {
        let root = machine("4194304\n", "");
        let hot_add = root.path().join("sys/class/zram-control/hot_add");
        fs::create_dir_all(hot_add.parent().unwrap()).unwrap();
        assert!(Command::new("mkfifo").arg(&hot_add).status().unwrap().success());
        let note = root.path().join("run/isotherm/swap-zram0.json");
        let added = std::thread::spawn({
            let root = root.path().to_owned();
            move || SwapNote::add(&root, 4 << 20).unwrap()
        });
        // This waits until the other thread reads the number of the new device.
        let mut number = File::options().write(true).open(&hot_add).unwrap();
        let adding = fs::read_to_string(&note).unwrap();
        number.write_all(b"8\n").unwrap();
        drop(number);
        let (held, zram) = added.join().unwrap();
        assert_eq!((held.path.as_path(), zram.number), (note.as_path(), 8));
        let noted: SwapState = serde_json::from_str(&fs::read_to_string(&note).unwrap()).unwrap();
        assert_eq!(noted.number, Some(8));
        drop(held);
        // As if it had been killed while it added the device.
        fs::write(&note, adding).unwrap();
        put(root.path(), "sys/block/zram8/disksize", "0\n");
        let said = restored(root.path()).unwrap_err().to_string();
        assert!(said.contains("echo 8 > /sys/class/zram-control/hot_remove"), "{said}");
        assert!(note.exists(), "it is named until it is removed");
    }

    #[test]
    fn nonsense_is_reported_and_kept() {
        let root = machine("4194304\n", "{\"version\": 99}");
        for said in
            [restored(root.path()).unwrap_err(), set_up(root.path(), None, 4 << 20).unwrap_err()]
        {
            assert!(matches!(said, SwapError::Noted(_)), "{said}");
        }
        assert!(root.path().join(PATH).exists());
    }

    /// Found by `make harden`: a kill between the addition of the device and its note left an empty device that no
    /// command named.
    #[test]
    fn a_device_whose_addition_was_interrupted_is_named() {
        let adding = r#"{"version":1,"boot_id":"this","number":null,"bytes":4194304,"before":[7]}"#;
        let root = machine("0\n", adding);
        put(root.path(), "sys/block/zram9/disksize", "4096\n");
        assert!(restored(root.path()).unwrap().is_empty(), "none is empty and new");
        assert!(!root.path().join(PATH).exists());
        put(root.path(), PATH, adding);
        put(root.path(), "sys/block/zram8/disksize", "0\n");
        for said in
            [restored(root.path()).unwrap_err(), set_up(root.path(), None, 4 << 20).unwrap_err()]
        {
            let said = said.to_string();
            assert!(said.contains("echo 8 > /sys/class/zram-control/hot_remove"), "{said}");
            assert!(!said.contains("zram7") && !said.contains("zram9"), "{said}");
        }
        assert!(root.path().join(PATH).exists(), "it is named until it is removed");
        fs::remove_file(root.path().join("sys/block/zram8/disksize")).unwrap();
        assert!(restored(root.path()).unwrap().is_empty());
        assert!(!root.path().join(PATH).exists());
    }

    #[test]
    fn sizes_that_make_no_sense() {
        let root = machine("0\n", "");
        for bytes in [0, 4096, u64::MAX] {
            let said = set_up(root.path(), None, bytes).unwrap_err().to_string();
            assert!(said.contains("is out of range"), "{said}");
        }
        let said = set_up(root.path(), None, 4 << 20).unwrap_err().to_string();
        assert!(said.contains("modprobe zram"), "{said}");
        assert!(!root.path().join(PATH).exists());
    }

    /// Adding the device works; setting its size and removing it fail.
    #[test]
    fn why_there_is_none_is_reported_with_the_remainder() {
        let root = machine("0\n", "");
        put(root.path(), "sys/class/zram-control/hot_add", "8\n");
        let said = set_up(root.path(), None, 4 << 20).unwrap_err().to_string();
        for part in ["zram8/disksize", "cannot move the content of", "hot_remove"] {
            assert!(said.contains(part), "{part} is not in: {said}");
        }
        assert!(root.path().join(PATH).exists(), "what is left is noted");
    }
}
