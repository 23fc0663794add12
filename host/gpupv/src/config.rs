//! The daemon's configuration file (TOML): what hardware there is, how the system is set up, and the policy
//! switches.
//!
//! ```toml
//! # All by default:
//! features = ["HARDWARE_SCHEDULING", "KMD_SIGNAL_CPU_EVENT", "NATIVE_FENCE", "USER_MODE_SUBMISSION", "LDA_GPUPV"]
//! gpu_virtualization_flags = 0        # GpuVirtualizationFlags: 0x1 every adapter serves VMs, 0x4 every VM is secure
//! test_signing = false                # the machine runs test-signed drivers
//!
//! [policy]                            # every switch of dxgkrnl::policy, by name
//! lower_gpu_signal = "ignored"        # or "applied"
//! destroyed_wait = "success"          # or "device-removed"
//! refused_one_way = "stops-device"    # or "note-only"
//!
//! [tdr]                               # the registry's TDR values; times in nanoseconds
//! level = 3                           # TdrLevel: 0 off, 1 bugcheck, 2 VGA, 3 recover
//! delay_ns = 2000000000               # TdrDelay
//! ddi_delay_ns = 5000000000           # TdrDdiDelay
//! limit_count = 5                     # TdrLimitCount
//! limit_time_ns = 60000000000         # TdrLimitTime
//! debug_mode = 2                      # TdrDebugMode
//! dod_present_delay_ns = 2000000000   # TdrDodPresentDelay
//! dod_vsync_delay_ns = 2000000000     # TdrDodVSyncDelay
//! test_mode = false                   # TdrTestMode
//!
//! [[grant]]                           # an object that several VMs may open by its name
//! name = "a name"
//! vms = ["one", "host"]               # host: processes of the host itself
//!
//! [[vm]]                              # a VM that is not as it says here
//! name = "vm-1"
//! secure = false                      # SecureVirtualMachine; needs iommu_isolation
//! iommu_isolation = true
//! linux = true                        # LinuxVirtualMachine
//! escapes = true                      # its escapes reach drivers
//! asynchronous = false                # submissions, GPU signals and GPU waits are one-way
//! adapters = [0, 1]                   # by ordinal; left out: all
//! features = ["NATIVE_FENCE"]         # what its guest knows of; left out: all
//!
//! [[adapter]]
//! description = "my adapter"
//! luid = [0x67700001, 0]              # low, high
//! vendor = 0x1414
//! device = 0x6770
//! caps = ["MULTI_ENGINE_AWARE", "PREEMPTION_AWARE"]    # DXGK_VIDSCHCAPS: all of them, by name
//! physical_adapters = 1               # of an LDA chain
//! paging_node = 0                     # PagingNode; left out: an engine of its own
//! kmd = "simulated"                   # the driver, by the name it is registered by: see docs/KMD.md
//! iommu = false
//! io_coherent = true
//! # Look for accesses to memory that race, and say what is missing between them.
//! hazards = false
//! kmd = "simulated"                   # which driver, by the name that it is registered by
//! paravirtualization = true           # ParavirtualizationSupported: it serves VMs
//! virtual_functions = 32              # NumVirtualFunctions: how many at a time
//! local_budget_bytes = 4294967296     # what each process may have resident: MEMORY_SEGMENT_GROUP_LOCAL
//! non_local_budget_bytes = 8589934592 # NON_LOCAL: its own memory counts here
//! wddm_version = 3200                 # the WDDM of its driver, as D3DKMT_DRIVERVERSION: 3000 is 3.0
//! [[adapter.registry]]                # a value of the registry, for user-mode drivers
//! key = "adapter"                     # or "service"
//! name = "UserModeDriverName"
//! text = "umd.dll"                    # or dword = 1, qword = 1, binary = [1, 2, 3]
//! [[adapter.target]]                  # what there is replaces the one of 60 Hz
//! id = 0                              # VidPnTargetId
//! vsync_ns = 16666667
//! [[adapter.node]]
//! engine = "3D"                       # COMPUTE COPY VIDEO_DECODE VIDEO_PROCESS VIDEO_ENCODE
//! signals_at_write = true             # false: waiters are looked at when a command buffer completes
//! opaque_packet_ns = 100000
//! hw_queues = true
//! max_in_flight_hw_queue_buffers = 0  # 0: no limit
//! ring_buffer_fence_release = false
//! user_mode_submission = true
//! doorbells = 4
//! overlap_seed = 0                     # in which order unordered commands of a submission begin; 0: that of the list
//! ```
//! What is left out keeps its default. Unknown keys are errors.

use std::path::Path;

use anyhow::{Context as _, bail};
use d3dkmt::Luid;
use dxgkrnl::{
    AdapterConfig, Config, EngineType, Features, Grant, Nanos, NodeConfig, Policy, RegistryData, RegistryKey,
    RegistryValue, TargetConfig, TdrConfig, VidSchCaps, VmConfig,
};
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
    if let Some(tdr) = table.remove("tdr") {
        config.tdr = read_tdr(take_table(tdr, "tdr")?)?;
    }
    if let Some(features) = table.remove("features") {
        config.features = read_features(features)?;
    }
    set_u32(&mut table, "gpu_virtualization_flags", &mut config.gpu_virtualization_flags)?;
    set_bool(&mut table, "test_signing", &mut config.test_signing)?;
    if let Some(grants) = table.remove("grant") {
        config.grants = take_array(grants, "grant")?
            .into_iter()
            .map(|grant| read_grant(take_table(grant, "grant")?))
            .collect::<anyhow::Result<_>>()?;
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
    if let Some(vms) = table.remove("vm") {
        config.vms = take_array(vms, "vm")?
            .into_iter()
            .map(|vm| read_vm(take_table(vm, "vm")?, config.adapters.len()))
            .collect::<anyhow::Result<_>>()?;
        for (at, vm) in config.vms.iter().enumerate() {
            let twice = config.vms[..at].iter().any(|other| other.name == vm.name);
            anyhow::ensure!(!twice, "two VMs are named {:?}", vm.name);
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

fn read_tdr(mut table: Table) -> anyhow::Result<TdrConfig> {
    let mut tdr = TdrConfig::default();
    set_u32(&mut table, "level", &mut tdr.level)?;
    anyhow::ensure!(tdr.level <= 3, "level is {}; TdrLevel is 0, 1, 2 or 3", tdr.level);
    set_nanos(&mut table, "delay_ns", &mut tdr.delay_ns)?;
    set_nanos(&mut table, "ddi_delay_ns", &mut tdr.ddi_delay_ns)?;
    set_u32(&mut table, "limit_count", &mut tdr.limit_count)?;
    set_nanos(&mut table, "limit_time_ns", &mut tdr.limit_time_ns)?;
    set_u32(&mut table, "debug_mode", &mut tdr.debug_mode)?;
    anyhow::ensure!(tdr.debug_mode <= 3, "debug_mode is {}; TdrDebugMode is 0, 1, 2 or 3", tdr.debug_mode);
    set_nanos(&mut table, "dod_present_delay_ns", &mut tdr.dod_present_delay_ns)?;
    set_nanos(&mut table, "dod_vsync_delay_ns", &mut tdr.dod_vsync_delay_ns)?;
    set_bool(&mut table, "test_mode", &mut tdr.test_mode)?;
    nothing_left(&table, "[tdr]")?;
    Ok(tdr)
}

fn read_features(value: Value) -> anyhow::Result<Features> {
    let named = |(name, feature): (&'static str, Features)| (name, feature.bits());
    let known: Vec<_> = Features::all().iter_names().map(named).collect();
    Ok(Features::from_bits_retain(bits(value, "features", &known)?))
}

fn read_vm(mut table: Table, adapters: usize) -> anyhow::Result<VmConfig> {
    let name = table.remove("name").context("a VM needs its name")?;
    let name = name.as_str().with_context(|| format!("name is {name}; it must be the name of a VM"))?;
    anyhow::ensure!(!name.is_empty() && name != "host", "{name:?} names no VM");
    let mut vm = VmConfig { name: name.into(), ..VmConfig::default() };
    set_bool(&mut table, "secure", &mut vm.secure)?;
    set_bool(&mut table, "iommu_isolation", &mut vm.iommu_isolation)?;
    set_bool(&mut table, "linux", &mut vm.linux)?;
    set_bool(&mut table, "escapes", &mut vm.escapes)?;
    set_bool(&mut table, "asynchronous", &mut vm.asynchronous)?;
    if let Some(ordinals) = table.remove("adapters") {
        let ordinal = |value: &Value| {
            let ordinal = number(value, "one of adapters")?;
            anyhow::ensure!(
                (ordinal as usize) < adapters,
                "there is no adapter {ordinal}, there are {adapters}"
            );
            Ok(ordinal)
        };
        let ordinals = take_array(ordinals, "adapters")?;
        vm.adapters = Some(ordinals.iter().map(ordinal).collect::<anyhow::Result<_>>()?);
    }
    if let Some(features) = table.remove("features") {
        vm.features = read_features(features)?;
    }
    nothing_left(&table, "[[vm]]")?;
    Ok(vm)
}

fn read_registry_value(mut table: Table) -> anyhow::Result<RegistryValue> {
    let text = |value: Option<Value>, what: &str| {
        let value = value.with_context(|| format!("a value of the registry needs its {what}"))?;
        value.as_str().map(str::to_owned).with_context(|| format!("{what} is {value}; it must be text"))
    };
    let key = match text(table.remove("key"), "key")?.as_str() {
        "service" => RegistryKey::Service,
        "adapter" => RegistryKey::Adapter,
        other => bail!("key is {other:?}; it must be service or adapter"),
    };
    let name = text(table.remove("name"), "name")?;
    let kinds: Vec<(String, Value)> = std::mem::take(&mut table).into_iter().collect();
    let [(kind, value)] = kinds.as_slice() else {
        bail!("value {name:?} of the registry needs one of dword, qword, text, binary, and nothing else");
    };
    let byte = |value: &Value| value.as_integer().and_then(|byte| u8::try_from(byte).ok());
    let data = match kind.as_str() {
        "dword" => RegistryData::Dword(number(value, "dword")?),
        "qword" => {
            let number = value.as_integer().and_then(|number| u64::try_from(number).ok());
            RegistryData::Qword(number.with_context(|| format!("qword is {value}; it must be a number"))?)
        }
        "text" => RegistryData::Text(text(Some(value.clone()), "text")?),
        "binary" => {
            let bytes = take_array(value.clone(), "binary")?.iter().map(byte).collect::<Option<_>>();
            RegistryData::Binary(bytes.with_context(|| format!("binary is {value}; it must be bytes"))?)
        }
        other => bail!("{other:?} is unknown; there are dword, qword, text, binary"),
    };
    Ok(RegistryValue { key, name, data })
}

fn read_grant(mut table: Table) -> anyhow::Result<Grant> {
    let text = |value: &Value, what: &str| {
        let text = value.as_str().filter(|text| !text.is_empty());
        text.map(str::to_owned).with_context(|| format!("{what} is {value}; it must be a name"))
    };
    let name = table.remove("name").context("a grant needs the name of an object")?;
    let vms = table.remove("vms").context("a grant needs its vms")?;
    let vms: Vec<_> =
        take_array(vms, "vms")?.iter().map(|vm| text(vm, "one of vms")).collect::<anyhow::Result<_>>()?;
    nothing_left(&table, "[[grant]]")?;
    Ok(Grant { name: text(&name, "name")?, vms })
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
    set_u32(&mut table, "vendor", &mut adapter.vendor)?;
    set_u32(&mut table, "device", &mut adapter.device)?;
    if let Some(caps) = table.remove("caps") {
        let named = |(name, cap): (&'static str, VidSchCaps)| (name, cap.bits());
        let known: Vec<_> = VidSchCaps::all().iter_names().map(named).collect();
        adapter.caps = VidSchCaps::from_bits_retain(bits(caps, "caps", &known)?);
    }
    set_u32(&mut table, "physical_adapters", &mut adapter.physical_adapters)?;
    let count = adapter.physical_adapters;
    let most = u32::BITS;
    anyhow::ensure!(
        (1..=most).contains(&count),
        "physical_adapters is {count}; an affinity mask has room for 1 to {most}"
    );
    if let Some(node) = table.remove("paging_node") {
        adapter.paging_node = Some(number(&node, "paging_node")?);
    }
    set_bool(&mut table, "iommu", &mut adapter.iommu)?;
    set_bool(&mut table, "io_coherent", &mut adapter.io_coherent)?;
    set_bool(&mut table, "hazards", &mut adapter.hazards)?;
    if let Some(kmd) = table.remove("kmd") {
        let kmd = kmd.as_str().filter(|kmd| !kmd.is_empty());
        adapter.kmd = kmd.context("kmd must be the name of a driver")?.into();
    }
    set_bool(&mut table, "paravirtualization", &mut adapter.paravirtualization)?;
    set_u32(&mut table, "virtual_functions", &mut adapter.virtual_functions)?;
    read_budgets(&mut table, &mut adapter)?;
    set_u32(&mut table, "wddm_version", &mut adapter.wddm_version)?;
    if let Some(values) = table.remove("registry") {
        adapter.registry = take_array(values, "registry")?
            .into_iter()
            .map(|value| read_registry_value(take_table(value, "registry")?))
            .collect::<anyhow::Result<_>>()?;
    }
    if let Some(targets) = table.remove("target") {
        adapter.targets = take_array(targets, "target")?
            .into_iter()
            .map(|target| read_target(take_table(target, "target")?))
            .collect::<anyhow::Result<_>>()?;
        check_targets(&adapter)?;
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

fn read_budgets(table: &mut Table, adapter: &mut AdapterConfig) -> anyhow::Result<()> {
    for (at, key) in ["local_budget_bytes", "non_local_budget_bytes"].into_iter().enumerate() {
        if let Some(bytes) = table.remove(key) {
            let bytes = bytes.as_integer().and_then(|bytes| u64::try_from(bytes).ok());
            adapter.budget_bytes[at] = bytes.with_context(|| format!("{key} must be a number of bytes"))?;
        }
    }
    Ok(())
}

fn check_targets(adapter: &AdapterConfig) -> anyhow::Result<()> {
    for (at, target) in adapter.targets.iter().enumerate() {
        let twice = adapter.targets[..at].iter().any(|other| other.id == target.id);
        anyhow::ensure!(!twice, "two targets have the id {}", target.id);
    }
    Ok(())
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
    let mut node = NodeConfig { engine_type, ..NodeConfig::default() };
    set_bool(&mut table, "signals_at_write", &mut node.signals_at_write)?;
    set_nanos(&mut table, "opaque_packet_ns", &mut node.opaque_packet_ns)?;
    set_bool(&mut table, "hw_queues", &mut node.hw_queues)?;
    set_u32(&mut table, "max_in_flight_hw_queue_buffers", &mut node.max_in_flight_hw_queue_buffers)?;
    set_bool(&mut table, "ring_buffer_fence_release", &mut node.ring_buffer_fence_release)?;
    set_bool(&mut table, "user_mode_submission", &mut node.user_mode_submission)?;
    set_u32(&mut table, "doorbells", &mut node.doorbells)?;
    if let Some(value) = table.remove("overlap_seed") {
        let seed = value.as_integer().and_then(|number| u64::try_from(number).ok());
        node.overlap_seed = seed.with_context(|| format!("overlap_seed is {value}; it must be a number"))?;
    }
    nothing_left(&table, "[[adapter.node]]")?;
    Ok(node)
}

fn read_target(mut table: Table) -> anyhow::Result<TargetConfig> {
    let mut target = TargetConfig { id: 0, vsync_ns: 0 };
    anyhow::ensure!(table.contains_key("id"), "a target needs its id");
    anyhow::ensure!(table.contains_key("vsync_ns"), "a target needs its vsync_ns");
    set_u32(&mut table, "id", &mut target.id)?;
    set_nanos(&mut table, "vsync_ns", &mut target.vsync_ns)?;
    anyhow::ensure!(target.vsync_ns > 0, "vsync_ns is 0; a target has time between two vsyncs");
    nothing_left(&table, "[[adapter.target]]")?;
    Ok(target)
}

/// The bits that an array of names stands for.
fn bits(value: Value, name: &str, known: &[(&str, u32)]) -> anyhow::Result<u32> {
    let one = |value: &Value| {
        let wanted = value.as_str().with_context(|| format!("{name} must be an array of names"))?;
        let bit = known.iter().find_map(|(known, bit)| (*known == wanted).then_some(*bit));
        let names = || known.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(", ");
        bit.with_context(|| format!("{wanted:?} in {name} is unknown; there are {}", names()))
    };
    take_array(value, name)?.iter().try_fold(0, |bits, value| Ok(bits | one(value)?))
}

fn set_u32(table: &mut Table, key: &str, target: &mut u32) -> anyhow::Result<()> {
    if let Some(value) = table.remove(key) {
        *target = number(&value, key)?;
    }
    Ok(())
}

fn set_nanos(table: &mut Table, key: &str, target: &mut Nanos) -> anyhow::Result<()> {
    if let Some(value) = table.remove(key) {
        let number = value.as_integer().and_then(|number| u64::try_from(number).ok());
        *target = number.with_context(|| format!("{key} is {value}; it must be a number of nanoseconds"))?;
    }
    Ok(())
}

fn set_bool(table: &mut Table, key: &str, target: &mut bool) -> anyhow::Result<()> {
    if let Some(value) = table.remove(key) {
        *target = value.as_bool().with_context(|| format!("{key} is {value}; it must be true or false"))?;
    }
    Ok(())
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
            kmd = "mine"
            [[adapter.node]]
            engine = "COPY"
            signals_at_write = false
        "#;
        let config = parse(text).unwrap();
        assert_eq!(config.policy.to_bits(), 0b111);
        assert_eq!(config.adapters[0].luid, Luid { low: 7, high: -1 });
        assert_eq!((config.adapters[0].nodes.len(), &config.adapters[0].kmd[..]), (1, "mine"));
        assert!(!config.adapters[0].nodes[0].signals_at_write);
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "one file with every setting")]
    fn the_system_and_the_hardware_can_be_set() {
        let text = r#"
            features = ["NATIVE_FENCE"]
            gpu_virtualization_flags = 4
            test_signing = true
            [[vm]]
            name = "one"
            secure = true
            iommu_isolation = false
            linux = false
            escapes = false
            asynchronous = true
            adapters = [0]
            features = ["LDA_GPUPV"]
            [[vm]]
            name = "two"
            [[grant]]
            name = "frame"
            vms = ["one", "host"]
            [tdr]
            level = 0
            limit_time_ns = 7
            test_mode = true
            [[adapter]]
            caps = ["PREEMPTION_AWARE", "NO_64_BIT_ATOMICS"]
            physical_adapters = 2
            paging_node = 0
            iommu = true
            io_coherent = false
            hazards = true
            kmd = "mine"
            paravirtualization = false
            virtual_functions = 2
            wddm_version = 2900
            local_budget_bytes = 0
            non_local_budget_bytes = 17179869184
            [[adapter.registry]]
            key = "service"
            name = "a"
            dword = 4294967295
            [[adapter.registry]]
            key = "adapter"
            name = "b"
            qword = 4294967296
            [[adapter.registry]]
            key = "adapter"
            name = "c"
            text = "t"
            [[adapter.registry]]
            key = "adapter"
            name = "d"
            binary = [0, 255]
            [[adapter.target]]
            id = 5
            vsync_ns = 8333333
            [[adapter.node]]
            engine = "3D"
            hw_queues = false
            doorbells = 0
            opaque_packet_ns = 5000000000
        "#;
        let config = parse(text).unwrap();
        let tdr = TdrConfig { level: 0, limit_time_ns: 7, test_mode: true, ..TdrConfig::default() };
        assert_eq!((config.features, config.tdr), (Features::NATIVE_FENCE, tdr));
        assert_eq!(config.grants, [Grant { name: "frame".into(), vms: vec!["one".into(), "host".into()] }]);
        let adapter = &config.adapters[0];
        assert_eq!(adapter.caps, VidSchCaps::PREEMPTION_AWARE | VidSchCaps::NO_64_BIT_ATOMICS);
        assert_eq!((adapter.physical_adapters, adapter.iommu, adapter.io_coherent), (2, true, false));
        assert!(adapter.hazards);
        assert_eq!(adapter.paging_node, Some(0));
        assert_eq!((config.gpu_virtualization_flags, config.test_signing), (4, true));
        let one = VmConfig {
            name: "one".into(),
            secure: true,
            iommu_isolation: false,
            linux: false,
            escapes: false,
            asynchronous: true,
            adapters: Some(vec![0]),
            features: Features::LDA_GPUPV,
        };
        assert_eq!(config.vms, [one, VmConfig { name: "two".into(), ..VmConfig::default() }]);
        assert_eq!(
            (
                adapter.kmd.as_str(),
                adapter.paravirtualization,
                adapter.virtual_functions,
                adapter.wddm_version
            ),
            ("mine", false, 2, 2900)
        );
        assert_eq!(adapter.budget_bytes, [0, 16 << 30]);
        let value = |key, name: &str, data| RegistryValue { key, name: name.into(), data };
        let (service, of_adapter) = (RegistryKey::Service, RegistryKey::Adapter);
        let expected = [
            value(service, "a", RegistryData::Dword(u32::MAX)),
            value(of_adapter, "b", RegistryData::Qword(1 << 32)),
            value(of_adapter, "c", RegistryData::Text("t".into())),
            value(of_adapter, "d", RegistryData::Binary(vec![0, 255])),
        ];
        assert_eq!(adapter.registry, expected);
        assert_eq!(adapter.targets, [TargetConfig { id: 5, vsync_ns: 8_333_333 }]);
        let node = NodeConfig {
            hw_queues: false,
            doorbells: 0,
            opaque_packet_ns: 5_000_000_000,
            ..NodeConfig::default()
        };
        assert_eq!(adapter.nodes, [node]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, named) in [
            ("colour = 1", "colour"),
            ("[[adapter]]\nlocal_budget_bytes = -1", "local_budget_bytes"),
            ("[policy]\nlower_gpu_signal = \"perhaps\"", "ignored, applied"),
            ("[[adapter]]\n[[adapter.node]]\nengine = \"4D\"", "VIDEO_DECODE"),
            ("[[adapter]]\nvendor = -1", "vendor"),
            ("[[adapter]]\nkmd = 7", "name of a driver"),
            ("[[adapter]]\nluid = [1, 0]\n[[adapter]]\nluid = [1, 0]", "LUID"),
            ("[policy", "TOML"),
            ("[policy]\ncolour = \"red\"", "colour"),
            ("features = [\"HWSCH\"]", "HARDWARE_SCHEDULING"),
            ("features = 3", "array"),
            ("[[grant]]\nvms = []", "name of an object"),
            ("[[grant]]\nname = \"n\"\nvms = [1]", "one of vms is 1"),
            ("[[vm]]\nsecure = true", "needs its name"),
            ("[[vm]]\nname = \"host\"", "names no VM"),
            ("[[vm]]\nname = \"a\"\nadapters = [1]", "no adapter 1, there are 1"),
            ("[[vm]]\nname = \"a\"\nfeatures = [\"X\"]", "NATIVE_FENCE"),
            ("[[vm]]\nname = \"a\"\n[[vm]]\nname = \"a\"", "two VMs"),
            ("[[vm]]\nname = \"a\"\nsecured = true", "secured"),
            ("gpu_virtualization_flags = -1", "gpu_virtualization_flags"),
            ("test_signing = 1", "true or false"),
            ("[[adapter]]\nkmd = 1", "name of a driver"),
            ("[[adapter]]\n[[adapter.registry]]\nname = \"a\"", "its key"),
            ("[[adapter]]\n[[adapter.registry]]\nkey = \"a\"\nname = \"a\"", "service or adapter"),
            ("[[adapter]]\n[[adapter.registry]]\nkey = \"service\"\nname = \"a\"", "one of dword"),
            (
                "[[adapter]]\n[[adapter.registry]]\nkey = \"service\"\nname = \"a\"\ndword = 1\nqword = 1",
                "nothing else",
            ),
            ("[[adapter]]\n[[adapter.registry]]\nkey = \"service\"\nname = \"a\"\nbinary = [256]", "bytes"),
            ("[tdr]\nlevel = 4", "TdrLevel"),
            ("[tdr]\ndelay_ns = -1", "nanoseconds"),
            ("[tdr]\ndelay = 1", "delay"),
            ("[tdr]\ntest_mode = 1", "true or false"),
            ("[[adapter]]\ncaps = [\"FAST\"]", "MULTI_ENGINE_AWARE"),
            ("[[adapter]]\nphysical_adapters = 0", "1 to 32"),
            ("[[adapter]]\n[[adapter.target]]\nid = 1", "vsync_ns"),
            ("[[adapter]]\n[[adapter.target]]\nid = 1\nvsync_ns = 0", "vsync"),
            (
                "[[adapter]]\n[[adapter.target]]\nid = 1\nvsync_ns = 1\n[[adapter.target]]\nid = 1\nvsync_ns = 1",
                "two targets",
            ),
        ] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
