//! This tree: its claims are sound, and its page says what they say.

use std::path::Path;

use conformance::{Tree, check, page, read_tree};

/// How many rows the reference has, beside what was observed.
const ROWS: usize = 434;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate lies two folders deep")
}

fn tree() -> Tree {
    read_tree(root()).expect("the tree is read")
}

#[test]
fn every_row_of_the_reference_is_there() {
    let tree = tree();
    let groups = tree.rules.groups.iter().filter(|group| !group.is_observed);
    assert_eq!(groups.map(|group| group.rules.len()).sum::<usize>(), ROWS);
}

#[test]
fn claims_have_no_defects() {
    let defects: Vec<String> = tree().claims.defects.iter().map(ToString::to_string).collect();
    assert!(defects.is_empty(), "{defects:#?}");
}

#[test]
fn what_was_built_first_is_covered() {
    let tree = tree();
    assert!(tree.rules.required.len() > 40, "the list is read");
    assert_eq!(check::uncovered(&tree).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn the_page_says_what_rules_and_claims_say() {
    let drift = check::drift(&tree(), &page::read(root()));
    assert!(drift.is_empty(), "{drift:#?}");
}
