//! The pages of the repository: the book has them all, and links lead somewhere.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use e2e::pages::{Page, normal};
use e2e::programs::tree;

const SUMMARY: &str = "docs/SUMMARY.md";

/// Pages below this folder are listed under this heading of the summary. `GPUPV_BLESS=1` writes the list.
const DECISIONS: (&str, &str) = ("docs/decisions", "# Decisions\n");

/// The pages that the summary names, in its order.
fn summary() -> Vec<PathBuf> {
    let page = Page::new(Path::new(SUMMARY));
    let paths = page.links().into_iter().map(|(_, link)| normal(&Path::new("docs").join(link)));
    paths.collect()
}

#[test]
fn the_summary_has_each_page_once() {
    let listed = summary();
    let once: BTreeSet<&PathBuf> = listed.iter().collect();
    assert_eq!(once.len(), listed.len(), "{SUMMARY} lists a page twice");
    for page in Page::all().iter().filter(|page| page.path != Path::new(SUMMARY)) {
        assert!(once.contains(&page.path), "{SUMMARY} lacks {}", page.name());
    }
}

#[test]
fn the_summary_lists_the_decisions_by_their_titles() {
    let (folder, heading) = DECISIONS;
    let pages = Page::all();
    let list: String = pages
        .iter()
        .filter(|page| page.path.starts_with(folder))
        .map(|page| {
            let path = page.path.strip_prefix("docs").expect("it is in the folder");
            format!("- [{}]({})\n", page.title(), path.display())
        })
        .collect();
    let text = Page::new(Path::new(SUMMARY)).text;
    let Some((before, rest)) = text.split_once(heading) else {
        assert!(list.is_empty(), "{SUMMARY} has no heading `{}`", heading.trim());
        return;
    };
    let end = rest.find("\n#").or(rest.find("\n---")).map_or("", |end| &rest[end..]);
    let wanted = format!("{before}{heading}\n{list}{end}");
    if std::env::var_os("GPUPV_BLESS").is_some() {
        std::fs::write(tree().join(SUMMARY), &wanted).expect("the tree is writable");
    } else {
        assert_eq!(text, wanted, "GPUPV_BLESS=1 writes the list of decisions");
    }
}

/// A folder has nothing to show in the book, so a link names a file.
#[test]
fn links_lead_to_files_and_headings() {
    let pages = Page::all();
    for page in &pages {
        for (line, link) in page.links().into_iter().filter(|(_, link)| !link.contains("://")) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let folder = page.path.parent().expect("a page is in a folder");
            let path = if path.is_empty() { page.path.clone() } else { normal(&folder.join(path)) };
            assert!(tree().join(&path).is_file(), "{}:{line}: {link} is no file", page.name());
            let target = pages.iter().find(|page| page.path == path);
            let found = target.is_some_and(|page| page.anchors().iter().any(|found| found == anchor));
            assert!(anchor.is_empty() || found, "{}:{line}: {link} is no heading", page.name());
        }
    }
}
