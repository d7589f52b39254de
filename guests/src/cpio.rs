//! An archive that the kernel unpacks into its initial root file system: cpio, "newc".
//!
//! The format: Documentation/driver-api/early-userspace/buffer-format.rst of the kernel.

use std::collections::BTreeSet;

/// Mode of a directory.
const DIRECTORY: u32 = 0o040_755;
/// Mode of a file.
const FILE: u32 = 0o100_644;
/// Mode of a program.
const PROGRAM: u32 = 0o100_755;
/// Mode of a symbolic link.
const LINK: u32 = 0o120_777;

/// A growing archive. Paths are relative to the root; parent directories are added automatically.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    directories: BTreeSet<String>,
    entries: u32,
}

impl Archive {
    /// Adds a directory.
    pub fn directory(&mut self, path: &str) {
        self.parents(path);
        if self.directories.insert(path.to_owned()) {
            self.entry(path, DIRECTORY, &[]);
        }
    }

    /// Adds a file.
    pub fn file(&mut self, path: &str, content: &[u8]) {
        self.parents(path);
        self.entry(path, FILE, content);
    }

    /// Adds a program.
    pub fn program(&mut self, path: &str, content: &[u8]) {
        self.parents(path);
        self.entry(path, PROGRAM, content);
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, path: &str, to: &str) {
        self.parents(path);
        self.entry(path, LINK, to.as_bytes());
    }

    /// The whole archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn parents(&mut self, path: &str) {
        let ends: Vec<usize> = path.match_indices('/').map(|(i, _)| i).collect();
        for end in ends {
            let parent = path[..end].to_owned();
            if self.directories.insert(parent.clone()) {
                self.entry(&parent, DIRECTORY, &[]);
            }
        }
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let size = u32::try_from(content.len()).unwrap_or(u32::MAX);
        let name_size = u32::try_from(name.len() + 1).unwrap_or(u32::MAX);
        // inode, mode, uid, gid, links, mtime, size, device (2), special device (2), name, checksum
        let fields = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(name.bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    /// The output of cpio(1) for it, with these options.
    fn listed(archive: Archive, options: &[&str]) -> String {
        let mut cpio = Command::new("cpio")
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        cpio.stdin.take().unwrap().write_all(&archive.finish()).unwrap();
        let out = cpio.wait_with_output().unwrap();
        assert!(out.status.success());
        String::from_utf8(out.stdout).unwrap()
    }

    #[test]
    fn another_program_reads_it() {
        let mut archive = Archive::default();
        archive.directory("proc");
        archive.program("bin/busybox", &[7; 4097]);
        archive.link("bin/sh", "busybox");
        archive.file("etc/a/b", b"text\n");
        let lines = listed(archive, &["-itv", "--quiet"]);
        let column = |n: usize| {
            lines.lines().map(|l| l.split_whitespace().nth(n).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(column(0)[..4], ["drwxr-xr-x", "drwxr-xr-x", "-rwxr-xr-x", "lrwxrwxrwx"]);
        assert_eq!(column(4), ["0", "0", "4097", "7", "0", "0", "5"]);
        assert_eq!(column(8), ["proc", "bin", "bin/busybox", "bin/sh", "etc", "etc/a", "etc/a/b"]);
    }

    #[test]
    fn contents_come_out_again() {
        let mut archive = Archive::default();
        archive.file("a", b"one");
        archive.file("b", b"other");
        assert_eq!(listed(archive, &["-i", "--to-stdout", "--quiet"]), "oneother");
    }
}
