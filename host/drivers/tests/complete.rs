//! A DDI that [`dxgkrnl::ddi::Miniport`] has a default for is easily forgotten here: the default would answer for all.

/// Names of functions with a receiver in a piece of source.
fn methods(source: &str) -> Vec<&str> {
    let lines = source.lines().filter_map(|line| line.strip_prefix("    fn "));
    lines.filter_map(|line| line.split(['(', ' ']).next()).collect()
}

#[test]
fn every_ddi_is_routed_and_can_be_wrapped() {
    let ddi = include_str!("../../dxgkrnl/src/ddi/mod.rs");
    let (_, body) = ddi.split_once("pub trait Miniport {").expect("the trait");
    let methods_of_trait = methods(body);
    assert!(methods_of_trait.len() > 70, "the trait is read: {methods_of_trait:?}");
    let (_, list) = include_str!("../src/filter_driver.rs").split_once("\nddis! {").expect("the list");
    // Not handed on: what is around a driver may have a state of its own.
    let handed_on = methods_of_trait.iter().copied().filter(|name| !matches!(*name, "save" | "restore"));
    assert_eq!(methods(list), handed_on.collect::<Vec<_>>(), "around.rs has another list");
    let routed = include_str!("../src/ddis.rs");
    for name in methods_of_trait {
        let is_there = |line: &str| {
            let line = line.trim_start();
            line.strip_prefix("fn ")
                .unwrap_or(line)
                .strip_prefix(name)
                .is_some_and(|rest| rest.starts_with('('))
        };
        assert!(routed.lines().any(is_there), "ddis.rs routes no {name}");
    }
}
