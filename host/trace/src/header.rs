//! Conversion of the kernel's configuration to and from a trace's header.

use d3dkmt::Luid;
use dxgkrnl::{
    AdapterConfig, Config, EngineType, Features, Grant, NodeConfig, Policy, RegistryData, RegistryKey,
    RegistryValue, TargetConfig, TdrConfig, VidSchCaps, VmConfig,
};
use proto::convert::{ConvertError, luid_to_wire};
use proto::trace as wire;

use crate::convert::missing;

pub(crate) fn bad(message: &'static str, field: &'static str, value: u32) -> ConvertError {
    ConvertError::BadValue { message, field, value: value.into() }
}

pub(crate) fn config_to_wire(config: &Config) -> wire::KernelConfig {
    let TdrConfig { level, delay_ns, ddi_delay_ns, limit_count, limit_time_ns, debug_mode, test_mode } =
        config.tdr;
    let tdr =
        wire::TdrConfig { level, delay_ns, ddi_delay_ns, limit_count, limit_time_ns, debug_mode, test_mode };
    let grant = |grant: &Grant| wire::Grant { name: grant.name.clone(), vms: grant.vms.clone() };
    wire::KernelConfig {
        adapters: config.adapters.iter().map(adapter_to_wire).collect(),
        policy: config.policy.to_bits(),
        features: config.features.bits(),
        tdr: Some(tdr),
        grants: config.grants.iter().map(grant).collect(),
        vms: config.vms.iter().map(vm_to_wire).collect(),
        gpu_virtualization_flags: config.gpu_virtualization_flags,
        test_signing: config.test_signing,
    }
}

fn adapter_to_wire(adapter: &AdapterConfig) -> wire::AdapterConfig {
    let target = |target: &TargetConfig| wire::TargetConfig { id: target.id, vsync_ns: target.vsync_ns };
    wire::AdapterConfig {
        luid: Some(luid_to_wire(adapter.luid)),
        description: adapter.description.clone(),
        vendor: adapter.vendor,
        device: adapter.device,
        nodes: adapter.nodes.iter().map(node_to_wire).collect(),
        caps: adapter.caps.bits(),
        physical_adapters: adapter.physical_adapters,
        paging_node: adapter.paging_node,
        iommu: adapter.iommu,
        io_coherent: adapter.io_coherent,
        hazards: adapter.hazards,
        kmd: adapter.kmd.clone(),
        paravirtualization: adapter.paravirtualization,
        virtual_functions: adapter.virtual_functions,
        wddm_version: adapter.wddm_version,
        registry: adapter.registry.iter().map(registry_to_wire).collect(),
        targets: adapter.targets.iter().map(target).collect(),
        budget_bytes: adapter.budget_bytes().to_vec(),
    }
}

fn registry_to_wire(value: &RegistryValue) -> wire::RegistryValue {
    use wire::registry_value::Data;
    let data = match &value.data {
        RegistryData::Dword(number) => Data::Dword(*number),
        RegistryData::Qword(number) => Data::Qword(*number),
        RegistryData::Text(text) => Data::Text(text.clone()),
        RegistryData::Binary(bytes) => Data::Binary(bytes.clone()),
    };
    let of_adapter = value.key == RegistryKey::Adapter;
    wire::RegistryValue { of_adapter, name: value.name.clone(), data: Some(data) }
}

fn registry_from_wire(value: wire::RegistryValue) -> Result<RegistryValue, ConvertError> {
    use wire::registry_value::Data;
    let data = match value.data.ok_or(missing("RegistryValue", "data"))? {
        Data::Dword(number) => RegistryData::Dword(number),
        Data::Qword(number) => RegistryData::Qword(number),
        Data::Text(text) => RegistryData::Text(text),
        Data::Binary(bytes) => RegistryData::Binary(bytes),
    };
    let key = if value.of_adapter { RegistryKey::Adapter } else { RegistryKey::Service };
    Ok(RegistryValue { key, name: value.name, data })
}

fn vm_to_wire(vm: &VmConfig) -> wire::VmConfig {
    wire::VmConfig {
        name: vm.name.clone(),
        secure: vm.secure,
        iommu_isolation: vm.iommu_isolation,
        linux: vm.linux,
        escapes: vm.escapes,
        asynchronous: vm.asynchronous,
        memory_bytes: vm.memory_bytes,
        raised_priorities: vm.raised_priorities,
        disable_gpu_timeout: vm.disable_gpu_timeout,
        adapters: vm.adapters.clone().map(|ordinals| wire::Ordinals { ordinals }),
        features: vm.features.bits(),
    }
}

fn vm_from_wire(vm: wire::VmConfig) -> Result<VmConfig, ConvertError> {
    Ok(VmConfig {
        name: vm.name,
        secure: vm.secure,
        iommu_isolation: vm.iommu_isolation,
        linux: vm.linux,
        escapes: vm.escapes,
        asynchronous: vm.asynchronous,
        memory_bytes: vm.memory_bytes,
        raised_priorities: vm.raised_priorities,
        disable_gpu_timeout: vm.disable_gpu_timeout,
        adapters: vm.adapters.map(|adapters| adapters.ordinals),
        features: Features::from_bits(vm.features).ok_or(bad("VmConfig", "features", vm.features))?,
    })
}

fn node_to_wire(node: &NodeConfig) -> wire::NodeConfig {
    wire::NodeConfig {
        engine_type: node.engine_type as u32,
        signals_at_write: node.signals_at_write,
        opaque_packet_ns: node.opaque_packet_ns,
        hw_queues: node.hw_queues,
        max_in_flight_hw_queue_buffers: node.max_in_flight_hw_queue_buffers,
        ring_buffer_fence_release: node.ring_buffer_fence_release,
        user_mode_submission: node.user_mode_submission,
        doorbells: node.doorbells,
        overlap_seed: node.overlap_seed,
        writes_fences: node.writes_fences,
    }
}

pub(crate) fn config_from_wire(config: wire::KernelConfig) -> Result<Config, ConvertError> {
    let tdr = config.tdr.ok_or(missing("KernelConfig", "tdr"))?;
    Ok(Config {
        adapters: config.adapters.into_iter().map(adapter_from_wire).collect::<Result<_, _>>()?,
        policy: Policy::from_bits(config.policy).ok_or(bad("KernelConfig", "policy", config.policy))?,
        features: Features::from_bits(config.features).ok_or(bad(
            "KernelConfig",
            "features",
            config.features,
        ))?,
        tdr: TdrConfig {
            level: tdr.level,
            delay_ns: tdr.delay_ns,
            ddi_delay_ns: tdr.ddi_delay_ns,
            limit_count: tdr.limit_count,
            limit_time_ns: tdr.limit_time_ns,
            debug_mode: tdr.debug_mode,
            test_mode: tdr.test_mode,
        },
        grants: config.grants.into_iter().map(|wire::Grant { name, vms }| Grant { name, vms }).collect(),
        vms: config.vms.into_iter().map(vm_from_wire).collect::<Result<_, _>>()?,
        gpu_virtualization_flags: config.gpu_virtualization_flags,
        test_signing: config.test_signing,
    })
}

fn adapter_from_wire(adapter: wire::AdapterConfig) -> Result<AdapterConfig, ConvertError> {
    let luid = adapter.luid.ok_or(missing("AdapterConfig", "luid"))?;
    let [local_budget_bytes, non_local_budget_bytes] =
        adapter.budget_bytes[..].try_into().map_err(|_| missing("AdapterConfig", "budget_bytes"))?;
    let target = |target: wire::TargetConfig| TargetConfig { id: target.id, vsync_ns: target.vsync_ns };
    Ok(AdapterConfig {
        luid: Luid { low: luid.low, high: luid.high },
        description: adapter.description,
        vendor: adapter.vendor,
        device: adapter.device,
        nodes: adapter.nodes.iter().map(node_from_wire).collect::<Result<_, ConvertError>>()?,
        caps: VidSchCaps::from_bits(adapter.caps).ok_or(bad("AdapterConfig", "caps", adapter.caps))?,
        physical_adapters: adapter.physical_adapters,
        paging_node: adapter.paging_node,
        iommu: adapter.iommu,
        io_coherent: adapter.io_coherent,
        hazards: adapter.hazards,
        kmd: adapter.kmd,
        paravirtualization: adapter.paravirtualization,
        virtual_functions: adapter.virtual_functions,
        wddm_version: adapter.wddm_version,
        registry: adapter.registry.into_iter().map(registry_from_wire).collect::<Result<_, _>>()?,
        targets: adapter.targets.into_iter().map(target).collect(),
        local_budget_bytes,
        non_local_budget_bytes,
    })
}

fn node_from_wire(node: &wire::NodeConfig) -> Result<NodeConfig, ConvertError> {
    let number = node.engine_type;
    Ok(NodeConfig {
        engine_type: EngineType::from_number(number).ok_or(bad("NodeConfig", "engine_type", number))?,
        signals_at_write: node.signals_at_write,
        opaque_packet_ns: node.opaque_packet_ns,
        hw_queues: node.hw_queues,
        max_in_flight_hw_queue_buffers: node.max_in_flight_hw_queue_buffers,
        ring_buffer_fence_release: node.ring_buffer_fence_release,
        user_mode_submission: node.user_mode_submission,
        doorbells: node.doorbells,
        overlap_seed: node.overlap_seed,
        writes_fences: node.writes_fences,
    })
}
