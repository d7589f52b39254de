//! `/sys/devices/system/memory`: the blocks in which memory is hot-plugged.

use std::path::Path;

use super::read_limited;

/// The size of each block in bytes, if this kernel has memory blocks (`CONFIG_MEMORY_HOTPLUG`).
#[must_use]
pub fn memory_block_size(root: &Path) -> Option<u64> {
    let path = root.join("sys/devices/system/memory/block_size_bytes");
    let size = u64::from_str_radix(read_limited(&path, 64).ok()?.trim(), 16).ok()?;
    size.is_power_of_two().then_some(size)
}

/// The properties of one block.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemoryBlock {
    /// the nodes with memory in the block, rarely more than one
    pub nodes: Vec<u32>,
    /// the zone that contains the whole block; `None` if there are several, or if the block is offline
    pub zone: Option<String>,
}

/// The block with this number. It begins at `number` times the size of a block. Properties that cannot be
/// read are left out.
#[must_use]
pub fn memory_block(root: &Path, number: u64) -> MemoryBlock {
    let dir = root.join(format!("sys/devices/system/memory/memory{number}"));
    let entries = std::fs::read_dir(&dir).into_iter().flatten().flatten();
    let node = |name: &str| name.strip_prefix("node")?.parse().ok();
    let nodes = entries.filter_map(|e| node(e.file_name().to_str()?)).collect();
    let zones = read_limited(&dir.join("valid_zones"), 256).unwrap_or_default();
    let online = read_limited(&dir.join("state"), 64).is_ok_and(|s| s.trim() == "online");
    let zone = match *zones.split_whitespace().collect::<Vec<_>>() {
        [one] if online && one != "none" => Some(one.to_owned()),
        _ => None,
    };
    MemoryBlock { nodes, zone }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("sys/devices/system/memory");
        assert_eq!(memory_block_size(root.path()), None);
        for (number, state, zones) in [
            (0, "online", "none"),
            (8, "online", "Normal"),
            (9, "offline", "Normal Movable"),
            (10, "offline", "Movable"),
        ] {
            let block = dir.join(format!("memory{number}"));
            std::fs::create_dir_all(block.join("node1")).unwrap();
            std::fs::create_dir(block.join("power")).unwrap();
            std::fs::write(block.join("state"), format!("{state}\n")).unwrap();
            std::fs::write(block.join("valid_zones"), format!("{zones}\n")).unwrap();
        }
        std::fs::write(dir.join("block_size_bytes"), "8000000\n").unwrap();
        assert_eq!(memory_block_size(root.path()), Some(128 << 20));
        let zones = [0, 8, 9, 10, 11].map(|n| memory_block(root.path(), n).zone);
        assert_eq!(zones, [None, Some("Normal".into()), None, None, None]);
        assert_eq!(memory_block(root.path(), 8).nodes, [1]);
        assert_eq!(memory_block(root.path(), 11), MemoryBlock::default());
    }
}
