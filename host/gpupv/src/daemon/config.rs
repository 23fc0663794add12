//! The daemon's configuration file (TOML): what hardware there is, and the policy switches.
//!
//! ```toml
//! [policy]
//! lower_gpu_signal = "ignored"        # or "applied"
//! destroyed_wait = "success"          # or "device-removed"
//! refused_one_way = "stops-device"    # or "note-only"
//!
//! [[adapter]]
//! description = "my adapter"
//! luid = [0x67700001, 0]              # low, high
//! vendor = 0x1414
//! device = 0x6770
//! [[adapter.node]]
//! engine = "3D"                       # COMPUTE COPY VIDEO_DECODE VIDEO_PROCESS VIDEO_ENCODE
//! signals_at_write = true             # false: waiters are looked at when a command buffer completes
//! opaque_packet_ns = 100000
//! ```
//! What is left out keeps its default. Unknown keys are errors.

use std::path::Path;

use anyhow::{Context as _, bail};
use d3dkmt::Luid;
use dxgkrnl::{AdapterConfig, Config, EngineType, NodeConfig, Policy};
use toml::{Table, Value};

pub fn read(path: &Path) -> anyhow::Result<Config> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the configuration {}", path.display()))?;
    parse(&text).with_context(|| format!("in the configuration {}", path.display()))
}

/// Reads a configuration from its text.
pub fn parse(text: &str) -> anyhow::Result<Config> {
    let mut table: Table = text.parse()?;
    let mut config = Config::default();
    if let Some(policy) = table.remove("policy") {
        config.policy = read_policy(take_table(policy, "policy")?)?;
    }
    if let Some(adapters) = table.remove("adapter") {
        config.adapters = take_array(adapters, "adapter")?
            .into_iter()
            .map(|adapter| read_adapter(take_table(adapter, "adapter")?))
            .collect::<anyhow::Result<_>>()?;
        let most = d3dkmt::limits::ADAPTERS_MAX;
        let count = config.adapters.len();
        anyhow::ensure!((1..=most).contains(&count), "{count} adapters, allowed are 1 to {most}");
        for (at, adapter) in config.adapters.iter().enumerate() {
            let twice = config.adapters[..at].iter().any(|other| other.luid == adapter.luid);
            anyhow::ensure!(!twice, "two adapters have the LUID {}", adapter.luid);
        }
    }
    nothing_left(&table, "the top level")?;
    Ok(config)
}

fn read_policy(mut table: Table) -> anyhow::Result<Policy> {
    let mut policy = Policy::default();
    for (switch, values) in Policy::SWITCHES {
        let Some(value) = table.remove(switch) else { continue };
        let set = value.as_str().and_then(|value| policy.with(switch, value));
        policy = set.with_context(|| {
            format!("policy {switch} is {value}; it must be one of {}", values.join(", "))
        })?;
    }
    nothing_left(&table, "[policy]")?;
    Ok(policy)
}

fn read_adapter(mut table: Table) -> anyhow::Result<AdapterConfig> {
    let mut adapter = AdapterConfig::default();
    if let Some(description) = table.remove("description") {
        adapter.description = description.as_str().context("description must be a string")?.into();
    }
    if let Some(luid) = table.remove("luid") {
        let parts = take_array(luid, "luid")?;
        let [low, high] = parts.as_slice() else { bail!("luid must be two numbers: low, high") };
        let high = high.as_integer().and_then(|high| i32::try_from(high).ok());
        adapter.luid =
            Luid { low: number(low, "luid low")?, high: high.context("luid high must be 32 bits")? };
    }
    if let Some(vendor) = table.remove("vendor") {
        adapter.vendor = number(&vendor, "vendor")?;
    }
    if let Some(device) = table.remove("device") {
        adapter.device = number(&device, "device")?;
    }
    if let Some(nodes) = table.remove("node") {
        adapter.nodes = take_array(nodes, "node")?
            .into_iter()
            .map(|node| read_node(take_table(node, "node")?))
            .collect::<anyhow::Result<_>>()?;
        anyhow::ensure!(!adapter.nodes.is_empty(), "an adapter needs at least one node");
    }
    nothing_left(&table, "[[adapter]]")?;
    Ok(adapter)
}

fn read_node(mut table: Table) -> anyhow::Result<NodeConfig> {
    let engine = table.remove("engine").context("a node needs its engine")?;
    let engine = engine.as_str().context("engine must be a string")?;
    let engines = AdapterConfig::default().nodes;
    let known: Vec<&str> = engines.iter().map(|node| node.engine_type.name()).collect();
    let engine_type: EngineType = engines
        .iter()
        .map(|node| node.engine_type)
        .find(|known| known.name() == engine)
        .with_context(|| format!("engine {engine:?} is unknown; there are {}", known.join(", ")))?;
    let signals_at_write = match table.remove("signals_at_write") {
        Some(value) => value.as_bool().context("signals_at_write must be true or false")?,
        None => true,
    };
    let opaque_packet_ns = match table.remove("opaque_packet_ns") {
        Some(value) => number(&value, "opaque_packet_ns")?.into(),
        None => engines[0].opaque_packet_ns,
    };
    nothing_left(&table, "[[adapter.node]]")?;
    Ok(NodeConfig { engine_type, signals_at_write, opaque_packet_ns })
}

fn number(value: &Value, name: &str) -> anyhow::Result<u32> {
    let number = value.as_integer().and_then(|number| u32::try_from(number).ok());
    number.with_context(|| format!("{name} is {value}; it must be a number of 32 bits"))
}

fn take_table(value: Value, name: &str) -> anyhow::Result<Table> {
    match value {
        Value::Table(table) => Ok(table),
        other => bail!("{name} must be a table, not {}", other.type_str()),
    }
}

fn take_array(value: Value, name: &str) -> anyhow::Result<Vec<Value>> {
    match value {
        Value::Array(array) => Ok(array),
        other => bail!("{name} must be an array, not {}", other.type_str()),
    }
}

fn nothing_left(table: &Table, place: &str) -> anyhow::Result<()> {
    match table.keys().next() {
        None => Ok(()),
        Some(key) => bail!("{key:?} in {place} is unknown"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_is_the_default_and_every_switch_can_be_set() {
        assert_eq!(parse("").unwrap(), Config::default());
        let text = r#"
            [policy]
            lower_gpu_signal = "applied"
            destroyed_wait = "device-removed"
            refused_one_way = "note-only"
            [[adapter]]
            luid = [7, -1]
            [[adapter.node]]
            engine = "COPY"
            signals_at_write = false
        "#;
        let config = parse(text).unwrap();
        assert_eq!(config.policy.to_bits(), 0b111);
        assert_eq!(config.adapters[0].luid, Luid { low: 7, high: -1 });
        assert_eq!(config.adapters[0].nodes.len(), 1);
        assert!(!config.adapters[0].nodes[0].signals_at_write);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, named) in [
            ("colour = 1", "colour"),
            ("[policy]\nlower_gpu_signal = \"perhaps\"", "ignored, applied"),
            ("[[adapter]]\n[[adapter.node]]\nengine = \"4D\"", "VIDEO_DECODE"),
            ("[[adapter]]\nvendor = -1", "vendor"),
            ("[[adapter]]\nluid = [1, 0]\n[[adapter]]\nluid = [1, 0]", "LUID"),
            ("[policy", "TOML"),
        ] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
