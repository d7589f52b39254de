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
