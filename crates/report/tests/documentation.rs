//! The Markdown files of the repository: every relative link and every anchor leads somewhere, and
//! the tables of contents have every page.

#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Folders that hold what a build or a bench has made.
const MADE: [&str; 4] = ["target", "demo-out", "evaluation-out", "evaluation-short"];

fn root() -> PathBuf {
    fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap()
}

/// All Markdown files below a folder, but none in hidden folders and in those of [`MADE`].
fn pages(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            if !name.starts_with('.') && !MADE.contains(&name.as_str()) {
                found.extend(pages(&entry.path()));
            }
        } else if name.ends_with(".md") {
            found.push(entry.path());
        }
    }
    found.sort();
    found
}

/// The lines outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// The line without code between backticks: `](` in there is no link.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

/// The targets of links and pictures that are not addresses on the network.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        for rest in without_code(line).split("](").skip(1) {
            let target = rest.split([')', ' ']).next().unwrap_or_default();
            if !target.contains("://") && !target.starts_with("mailto:") {
                found.push(target.to_owned());
            }
        }
    }
    found
}

/// The visible text of a heading: the text of its links, without marks.
fn shown(heading: &str) -> String {
    let mut text = String::new();
    let mut rest = heading;
    while let Some((before, after)) = rest.split_once("](") {
        text.push_str(before);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    text
}

/// The anchors of the headings, by the rules of mdBook and of most other renderers.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut times = BTreeMap::<String, u32>::new();
    let headings = prose(text).filter_map(|line| line.strip_prefix('#'));
    let slugs = headings.map(|heading| {
        let shown = shown(heading.trim_start_matches('#').trim());
        let kept = shown.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    });
    let numbered = slugs.map(|slug| {
        let time = times.entry(slug.clone()).or_default();
        *time += 1;
        if *time == 1 { slug } else { format!("{slug}-{}", *time - 1) }
    });
    numbered.collect()
}

/// The path without `.` and `..`, as a browser resolves it.
fn resolved(path: &Path) -> PathBuf {
    let mut whole = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                whole.pop();
            }
            Component::CurDir => {}
            other => whole.push(other),
        }
    }
    whole
}

/// The file or folder that a link of a page leads to, and the anchor in it.
fn target<'a>(page: &Path, link: &'a str) -> (PathBuf, &'a str) {
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let file = match path {
        "" => page.to_owned(),
        path => resolved(&page.parent().unwrap().join(path)),
    };
    (file, anchor)
}

/// Why a link of a page leads nowhere.
fn fault(page: &Path, link: &str) -> Option<&'static str> {
    let (file, anchor) = target(page, link);
    if !file.exists() {
        return Some("no such file");
    }
    if anchor.is_empty() || file.extension() != Some(OsStr::new("md")) {
        return None;
    }
    let missing = !anchors(&fs::read_to_string(file).unwrap()).contains(anchor);
    missing.then_some("no such heading")
}

#[test]
fn every_link_leads_somewhere() {
    let root = root();
    let mut checked = 0;
    let mut dead = Vec::new();
    for page in pages(&root) {
        for link in links(&fs::read_to_string(&page).unwrap()) {
            checked += 1;
            if let Some(why) = fault(&page, &link) {
                let page = page.strip_prefix(&root).unwrap().display();
                dead.push(format!("{page}: {link}: {why}"));
            }
        }
    }
    assert!(dead.is_empty(), "dead links:\n{}", dead.join("\n"));
    assert!(checked > 300, "only {checked} links were found");
}

#[test]
fn the_tables_of_contents_have_every_page() {
    let docs = root().join("docs");
    let tables = [docs.join("README.md"), docs.join("SUMMARY.md")];
    for table in &tables {
        let text = fs::read_to_string(table).unwrap();
        let linked: BTreeSet<_> = links(&text).iter().map(|link| target(table, link).0).collect();
        for page in pages(&docs) {
            let listed = linked.contains(&page) || tables.contains(&page);
            assert!(listed, "{} does not link {}", table.display(), page.display());
        }
    }
}

#[test]
fn a_link_in_code_is_none() {
    let text = "[a](b.md) and `[c](d.md)`, [`e`](f.md#g \"h\")\n```\n[i](j.md)\n```\n![k](l.png)";
    assert_eq!(links(text), ["b.md", "f.md#g", "l.png"]);
    assert!(links("[a](https://example.org) [b](mailto:c@example.org)").is_empty());
}

#[test]
fn a_heading_has_an_anchor() {
    let text = "# What is hot, and why?\n## `run` and [acting](a.md)\n## Limits\n### Limits\n";
    let expected = ["limits", "limits-1", "run-and-acting", "what-is-hot-and-why"];
    assert_eq!(anchors(text), expected.map(str::to_owned).into());
}

#[test]
fn a_dead_link_is_found() {
    let page = root().join("docs/README.md");
    assert_eq!(fault(&page, "no-such-page.md"), Some("no such file"));
    assert_eq!(fault(&page, "../README.md#no-such-heading"), Some("no such heading"));
    assert_eq!(fault(&page, "../README.md#limits"), None);
    assert_eq!(fault(&page, "#start"), None);
    assert_eq!(fault(&page, "../crates"), None);
}

/// The modules of `crates/core` by their paths, `scheme::aim` for instance, with what they import. Tests are left out.
struct Modules(BTreeMap<Vec<String>, Vec<Import>>);

/// One path of a `use` declaration, or in the code.
struct Import {
    path: Vec<String>,
    is_public: bool,
}

impl Modules {
    fn of(src: &Path) -> Self {
        let mut modules = BTreeMap::new();
        let mut folders = vec![src.to_owned()];
        while let Some(folder) = folders.pop() {
            for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                let name = path.file_stem().unwrap().to_str().unwrap();
                if path.is_dir() {
                    folders.push(path);
                } else if !name.ends_with("tests") && name != "testing" {
                    let relative = path.strip_prefix(src).unwrap().with_extension("");
                    let words = relative.iter().map(|word| word.to_str().unwrap().to_owned());
                    let module = words.filter(|word| word != "mod" && word != "lib").collect();
                    modules.insert(module, imports(&fs::read_to_string(&path).unwrap()));
                }
            }
        }
        Modules(modules)
    }

    /// The module that defines what `import` names in `module`. `None` for other crates and for names of its own.
    fn resolve(&self, module: &[String], import: &[String]) -> Option<&[String]> {
        let first = import.first()?.as_str();
        let up = import.iter().take_while(|word| *word == "super").count();
        let (base, rest) = match first {
            "crate" => (&[][..], &import[1..]),
            "self" => (module, &import[1..]),
            "super" => (&module[..module.len().checked_sub(up)?], &import[up..]),
            _ => (module, import),
        };
        let whole = [base, rest].concat();
        let known = (0..=whole.len()).rev().find(|&n| self.0.contains_key(&whole[..n]))?;
        if known <= base.len() && !["crate", "self", "super"].contains(&first) {
            return None;
        }
        let (found, imports) = self.0.get_key_value(&whole[..known])?;
        let exported = whole.get(known).and_then(|name| {
            let by_name = |i: &&Import| i.is_public && i.path.last() == Some(name);
            imports.iter().find(by_name).and_then(|i| self.resolve(found, &i.path))
        });
        Some(exported.unwrap_or(found))
    }

    /// The modules that each module imports. A re-export is no import.
    fn edges(&self) -> BTreeMap<&[String], BTreeSet<&[String]>> {
        let imported = |(module, imports): (&Vec<String>, &Vec<Import>)| {
            let used = imports.iter().filter(|i| !i.is_public);
            used.filter_map(|i| self.resolve(module, &i.path)).filter(|to| to != module).collect()
        };
        self.0.iter().map(|entry| (entry.0.as_slice(), imported(entry))).collect()
    }
}

/// What the code of a file imports, without its tests.
fn imports(text: &str) -> Vec<Import> {
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
    let code = lines.collect::<Vec<_>>().join("\n");
    let mut found = Vec::new();
    for statement in code.split(';') {
        let begin = statement.rfind("\nuse ").or(statement.rfind("\npub use "));
        if let Some(begin) = begin {
            let (public, tree) = statement[begin..].split_once("use ").unwrap();
            let is_public = public.contains("pub");
            expand(&[], tree, &mut |path| found.push(Import { path, is_public }));
        }
    }
    for root in ["crate::", "super::"] {
        for (at, _) in code.match_indices(root) {
            let path =
                code[at..].split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').next();
            expand(&[], path.unwrap(), &mut |path| found.push(Import { path, is_public: false }));
        }
    }
    found
}

/// Each path of a tree such as `crate::act::{Action, PageKind as Kind}`.
fn expand(base: &[String], tree: &str, take: &mut impl FnMut(Vec<String>)) {
    let (path, group) = match tree.split_once('{') {
        Some((path, rest)) => (path, rest.rsplit_once('}').map(|(inside, _)| inside)),
        None => (tree, None),
    };
    let words = path.split(" as ").next().unwrap().split("::").map(|word| word.trim().to_owned());
    let base: Vec<String> = base.iter().cloned().chain(words.filter(|w| !w.is_empty())).collect();
    let Some(group) = group else { return take(base) };
    let mut depth = 0;
    let is_end = |c: char| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    };
    group
        .split(is_end)
        .filter(|part| !part.trim().is_empty())
        .for_each(|part| expand(&base, part, take));
}

#[test]
fn no_file_of_core_imports_a_file_that_imports_it() {
    let modules = Modules::of(&root().join("crates/core/src"));
    let edges = modules.edges();
    assert!(edges.values().map(BTreeSet::len).sum::<usize>() > 200, "{edges:?}");
    for module in edges.keys() {
        let (mut reached, mut next) = (BTreeSet::new(), vec![*module]);
        while let Some(from) = next.pop() {
            next.extend(edges[from].iter().filter(|to| reached.insert(**to)));
        }
        let way: Vec<String> = reached.iter().map(|m| m.join("::")).collect();
        assert!(
            !reached.contains(module),
            "{} imports itself, through some of {way:?}",
            module.join("::")
        );
    }
}
