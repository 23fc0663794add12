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

/// Methods without a function in `dxgk_miniport.h`, version 1.
const NOT_IN_C: [&str; 49] = [
    // The daemon does them for the driver: `process/engines.rs`, `process/exchange.rs`.
    "start",
    "advertised_features",
    "per_engine_tdr_ddis",
    "fail_reset",
    "lose_interrupt",
    "hang_engine",
    "update_page_table",
    "held_bytes",
    "next_deadline",
    "has_begun",
    "running_context",
    "engine_state",
    "pending_faults",
    "has_died",
    "take_died",
    "runs_outside",
    "take_answers",
    "supply_answers",
    "event_signaled",
    "memory_evicted",
    // Answered without a driver in C.
    "describe_allocation",
    "work",
    "pending_writes_of_submission",
    "pending_writes",
    "happens_before",
    "begin_exclusive_access",
    "iommu_mapping_changed",
    "end_exclusive_access",
    // Not supported.
    "set_scheduling_log_buffer",
    "engine_to_f1",
    "create_doorbell",
    "connect_doorbell",
    "disconnect_doorbell",
    "doorbell_disconnected",
    "destroy_doorbell",
    "ring_doorbell",
    "notify_work_submission",
    "ring_bytes",
    "set_native_fence_log_buffers",
    "update_native_fence_logs",
    "memory_written",
    "update_monitored_values",
    "update_current_values_from_cpu",
    "create_periodic_frame_notification",
    "destroy_periodic_frame_notification",
    "create_native_fence",
    "open_native_fence",
    "close_native_fence",
    "destroy_native_fence",
];

/// A new DDI gets a row for drivers in C, or stands in the list above.
#[test]
fn every_ddi_has_a_function_in_c_or_is_known_to_have_none() {
    let ddi = include_str!("../../dxgkrnl/src/ddi/mod.rs");
    let (_, body) = ddi.split_once("pub trait Miniport {").expect("the trait");
    let methods = methods(body);
    for name in &methods {
        let in_c = driver_host::abi::DDIS.iter().any(|row| row.model == *name);
        let absent = NOT_IN_C.contains(name);
        assert!(in_c || absent, "{name}: a row in driver_host's ddis.rs, or a line in NOT_IN_C");
        assert!(!(in_c && absent), "{name} has a function in C");
    }
    for row in driver_host::abi::DDIS.iter() {
        assert!(methods.contains(&row.model), "{}: there is no method {}", row.name, row.model);
    }
}
