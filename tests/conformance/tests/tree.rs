//! This tree: its rules are complete, and each of its claims names one.

use std::path::Path;

use conformance::{Tree, read_tree};

/// Number of rules in the reference, without the observed ones.
const ROWS: usize = 512;

fn tree() -> Tree {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    read_tree(root.expect("the crate lies two folders deep")).expect("the tree is read")
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
