//! The modules of a kernel that a guest requires.

/// A path as in `modules.dep`, without the suffix of its compression.
pub fn unpacked(path: &str) -> &str {
    path.find(".ko").map_or(path, |end| &path[..end + 3])
}

/// The name of a module as `modprobe` accepts it: `-` and `_` are equal.
fn name(path: &str) -> String {
    let file = unpacked(path).rsplit('/').next().unwrap_or_default();
    file.trim_end_matches(".ko").replace('-', "_")
}

/// The lines of `modules.dep` for the modules `wanted` and all their dependencies. A module that is built in,
/// or that the kernel does not have, has no line.
pub fn needed<'a>(modules_dep: &'a str, wanted: &[String]) -> Vec<&'a str> {
    let wanted: Vec<String> = wanted.iter().map(|w| name(w)).collect();
    let lines = || modules_dep.lines().filter_map(|l| l.split_once(':').map(|(path, _)| (path, l)));
    let asked = lines().filter(|(path, _)| wanted.contains(&name(path)));
    let mut paths: Vec<&str> = asked.flat_map(|(_, line)| paths(line)).collect();
    paths.sort_unstable();
    paths.dedup();
    lines().filter(|(path, _)| paths.binary_search(path).is_ok()).map(|(_, line)| line).collect()
}

/// The module of a line of `modules.dep`, and its dependencies.
pub fn paths(line: &str) -> impl Iterator<Item = &str> {
    line.split_whitespace().map(|path| path.trim_end_matches(':'))
}

/// The lines of `modules.alias` for the modules in these lines of `modules.dep`.
pub fn aliases<'a>(modules_alias: &'a str, needed: &[&str]) -> Vec<&'a str> {
    let names: Vec<String> = needed.iter().filter_map(|l| paths(l).next()).map(name).collect();
    let leads = |l: &&str| l.rsplit(' ').next().is_some_and(|to| names.contains(&name(to)));
    modules_alias.lines().filter(leads).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEP: &str = "\
kernel/crypto/lzo-rle.ko.xz:
kernel/drivers/zram/zram.ko.xz: kernel/mm/zsmalloc.ko.xz kernel/lib/lz4_compress.ko.xz
kernel/lib/lz4_compress.ko.xz:
kernel/mm/zsmalloc.ko.xz:
kernel/net/zram_like.ko.xz: kernel/net/other.ko.xz
kernel/net/other.ko.xz:
";

    fn names(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|l| name(l.split(':').next().unwrap())).collect()
    }

    #[test]
    fn what_is_wanted_comes_with_what_it_depends_on() {
        let wanted = ["zram".to_owned(), "virtio_pci".to_owned()];
        assert_eq!(names(&needed(DEP, &wanted)), ["zram", "lz4_compress", "zsmalloc"]);
    }

    #[test]
    fn dashes_are_underscores() {
        for spelling in ["lzo-rle", "lzo_rle"] {
            assert_eq!(names(&needed(DEP, &[spelling.to_owned()])), ["lzo_rle"]);
        }
    }

    #[test]
    fn aliases_lead_to_what_is_there() {
        let alias = "alias crypto-lzo-rle lzo_rle\nalias crypto-lz4 lz4\n";
        let needed = needed(DEP, &["lzo-rle".to_owned()]);
        assert_eq!(aliases(alias, &needed), ["alias crypto-lzo-rle lzo_rle"]);
    }

    #[test]
    fn a_path_loses_what_it_is_packed_with() {
        assert_eq!(unpacked("a/b.ko.xz"), "a/b.ko");
        assert_eq!(unpacked("a/b.ko"), "a/b.ko");
    }
}
