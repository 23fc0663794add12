//! Words of the field that the language uses: statuses, types, flags, engines, states, rule ids.

use bitflags::Flags;
use d3dkmt::isa::{Kernel, ListFlags, QueueType, ResourceKind, WorkKind};
use d3dkmt::{FeatureId, NtStatus, SyncObjectFlags, SyncObjectType, access};
use dxgkrnl::{Config, Nanos, duration};

use crate::program::Engine;

pub(crate) const OBJECT_TYPES: [(&str, SyncObjectType); 7] = [
    ("MUTEX", SyncObjectType::MUTEX),
    ("SEMAPHORE", SyncObjectType::SEMAPHORE),
    ("FENCE", SyncObjectType::FENCE),
    ("CPU_NOTIFICATION", SyncObjectType::CPU_NOTIFICATION),
    ("MONITORED_FENCE", SyncObjectType::MONITORED_FENCE),
    ("PERIODIC_MONITORED_FENCE", SyncObjectType::PERIODIC_MONITORED_FENCE),
    ("NATIVE_FENCE", SyncObjectType::NATIVE_FENCE),
];

/// `D3DKMT_DEVICEEXECUTION_STATE`.
pub(crate) const DEVICE_STATES: [(&str, u32); 7] = [
    ("ACTIVE", 1),
    ("RESET", 2),
    ("HUNG", 3),
    ("STOPPED", 4),
    ("ERROR_OUT_OF_MEMORY", 5),
    ("ERROR_DMA_FAULT", 6),
    ("ERROR_DMA_PAGE_FAULT", 7),
];

/// Access rights of an NT handle. The default is GENERIC_ALL.
const ACCESS: [(&str, i64); 7] = [
    ("GENERIC_ALL", GENERIC_ALL as i64),
    ("GENERIC_READ", access::GENERIC_READ as i64),
    ("GENERIC_WRITE", access::GENERIC_WRITE as i64),
    ("SYNC_OBJECT_WAIT", (access::STANDARD_RIGHTS_READ | access::SYNC_OBJECT_WAIT) as i64),
    ("SYNC_OBJECT_SIGNAL", (access::STANDARD_RIGHTS_READ | access::SYNC_OBJECT_SIGNAL) as i64),
    ("SYNC_OBJECT_ALL_ACCESS", access::SYNC_OBJECT_ALL_ACCESS as i64),
    ("STANDARD_RIGHTS_READ", access::STANDARD_RIGHTS_READ as i64),
];

pub(crate) const GENERIC_ALL: u32 = access::GENERIC_ALL;

/// `DXGK_PAGE_FAULT_FLAGS` (TDR-028).
pub(crate) const PAGE_FAULT_FLAGS: [(&str, u32); 8] = [
    ("WRITE", 0x1),
    ("FENCE_INVALID", 0x2),
    ("ADAPTER_RESET_REQUIRED", 0x4),
    ("ENGINE_RESET_REQUIRED", 0x8),
    ("FATAL_HARDWARE_ERROR", 0x10),
    ("IOMMU", 0x20),
    ("HW_CONTEXT_VALID", 0x40),
    ("PROCESS_HANDLE_VALID", 0x80),
];

/// Values of a doorbell's status memory (SCH-027).
pub(crate) const DOORBELL_STATUSES: [(&str, u32); 4] =
    [("CONNECTED", 0), ("CONNECTED_NOTIFY", 1), ("DISCONNECTED_RETRY", 2), ("DISCONNECTED_ABORT", 3)];

/// `D3DDDI_PAGINGQUEUE_PRIORITY`.
const PAGING_PRIORITIES: [(&str, i64); 3] = [("BELOW_NORMAL", -1), ("NORMAL", 0), ("ABOVE_NORMAL", 1)];

/// `D3DKMT_SCHEDULINGPRIORITYCLASS`.
pub(crate) const PRIORITY_CLASSES: [(&str, u32); 6] =
    [("IDLE", 0), ("BELOW_NORMAL", 1), ("NORMAL", 2), ("ABOVE_NORMAL", 3), ("HIGH", 4), ("REALTIME", 5)];

/// `D3DDDI_DEVICEERROR_REASON`.
const ERROR_REASONS: [(&str, i64); 2] = [("GENERIC", 0), ("DRIVER_ERROR", 1)];

/// `D3DDDIGPUVIRTUALADDRESS_PROTECTION_TYPE`, for a range without an allocation.
const PROTECTIONS: [(&str, i64); 4] = [("WRITE", 0x1), ("EXECUTE", 0x2), ("ZERO", 0x4), ("NO_ACCESS", 0x8)];

/// `D3DDDI_MAKERESIDENT_FLAGS`.
const RESIDENT_FLAGS: [(&str, i64); 2] = [("CANT_TRIM_FURTHER", 0x1), ("MUST_SUCCEED", 0x2)];

/// `D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION_TYPE`.
pub(crate) const VA_OPERATIONS: [(&str, u32); 4] =
    [("map", 0), ("unmap", 1), ("copy", 2), ("map_protect", 3)];

/// `D3DKMT_ESCAPETYPE`, the named ones.
pub(crate) const ESCAPE_KINDS: [(&str, u32); 2] = [
    ("DRIVERPRIVATE", d3dkmt::escape::kind::DRIVER_PRIVATE),
    ("TDRDBGCTRL", d3dkmt::escape::kind::TDR_DEBUG_CONTROL),
];

/// `D3D12_COMMAND_LIST_TYPE`.
pub(crate) const QUEUE_TYPES: [(&str, (QueueType, ListFlags)); 7] = [
    ("DIRECT", (QueueType::Direct, ListFlags::empty())),
    ("BUNDLE", (QueueType::Direct, ListFlags::BUNDLE)),
    ("COMPUTE", (QueueType::Compute, ListFlags::empty())),
    ("COPY", (QueueType::Copy, ListFlags::empty())),
    ("VIDEO_DECODE", (QueueType::VideoDecode, ListFlags::empty())),
    ("VIDEO_PROCESS", (QueueType::VideoProcess, ListFlags::empty())),
    ("VIDEO_ENCODE", (QueueType::VideoEncode, ListFlags::empty())),
];

pub(crate) const RESOURCE_KINDS: [(&str, ResourceKind); 4] = [
    ("buffer", ResourceKind::Buffer),
    ("texture1d", ResourceKind::Texture1D),
    ("texture2d", ResourceKind::Texture2D),
    ("texture3d", ResourceKind::Texture3D),
];

/// Commands that do work.
pub(crate) const WORK_KINDS: [(&str, WorkKind); 21] = [
    ("draw", WorkKind::Draw),
    ("draw_indexed", WorkKind::DrawIndexed),
    ("dispatch", WorkKind::Dispatch),
    ("dispatch_rays", WorkKind::DispatchRays),
    ("copy", WorkKind::Copy),
    ("resolve", WorkKind::Resolve),
    ("clear_render_target", WorkKind::ClearRenderTarget),
    ("clear_depth_stencil", WorkKind::ClearDepthStencil),
    ("clear_unordered_access", WorkKind::ClearUnorderedAccess),
    ("execute_indirect", WorkKind::ExecuteIndirect),
    ("build_rtas", WorkKind::BuildRtas),
    ("copy_rtas", WorkKind::CopyRtas),
    ("emit_rtas_postbuild_info", WorkKind::EmitRtasPostbuildInfo),
    ("video_decode", WorkKind::VideoDecode),
    ("video_process", WorkKind::VideoProcess),
    ("video_encode", WorkKind::VideoEncode),
    ("present", WorkKind::Present),
    ("set_graphics_root", WorkKind::SetGraphicsRoot),
    ("set_compute_root", WorkKind::SetComputeRoot),
    ("discard", WorkKind::Discard),
    ("dispatch_mesh", WorkKind::DispatchMesh),
];

/// Kernels: what a command does with bytes.
pub(crate) const KERNELS: [(&str, Kernel); 6] = [
    ("nothing", Kernel::None),
    ("move", Kernel::Copy),
    ("fill", Kernel::Fill),
    ("add", Kernel::Add),
    ("xor", Kernel::Xor),
    ("sum", Kernel::Sum),
];

/// Returns the default kernel of a command.
pub(crate) fn default_kernel(kind: WorkKind) -> Kernel {
    match kind {
        WorkKind::Copy | WorkKind::Resolve | WorkKind::CopyRtas => Kernel::Copy,
        _ => Kernel::None,
    }
}

pub(crate) const DEBUG_LEVELS: [(&str, u32); 3] = [("off", 0), ("errors", 1), ("all", 2)];

/// `DXGK_FEATURE_ID`.
const FEATURES: [(&str, i64); 12] = [
    ("HWSCH", FeatureId::HWSCH.0 as i64),
    ("HWFLIPQUEUE", FeatureId::HWFLIPQUEUE.0 as i64),
    ("LDA_GPUPV", FeatureId::LDA_GPUPV.0 as i64),
    ("KMD_SIGNAL_CPU_EVENT", FeatureId::KMD_SIGNAL_CPU_EVENT.0 as i64),
    ("USER_MODE_SUBMISSION", FeatureId::USER_MODE_SUBMISSION.0 as i64),
    ("SHARE_BACKING_STORE", FeatureId::SHARE_BACKING_STORE.0 as i64),
    ("PAGE_BASED_MEMORY_MANAGER", FeatureId::PAGE_BASED_MEMORY_MANAGER.0 as i64),
    ("KERNEL_MODE_TESTING", FeatureId::KERNEL_MODE_TESTING.0 as i64),
    ("PAGE_TABLES_64K", FeatureId::PAGE_TABLES_64K.0 as i64),
    ("GPUPV_PRESENT_HWQUEUE", FeatureId::GPUPV_PRESENT_HWQUEUE.0 as i64),
    ("GPUVAIOMMU", FeatureId::GPUVAIOMMU.0 as i64),
    ("NATIVE_FENCE", FeatureId::NATIVE_FENCE.0 as i64),
];

/// `D3DDDI_NATIVEFENCE_TYPE` (FEN-105), except DEFAULT.
const NATIVE_TYPES: [(&str, i64); 1] = [("INTRA_GPU", 1)];

/// Returns a list of names for numbers in forms, by the name of the list.
pub(crate) fn number_names(list: &str) -> &'static [(&'static str, i64)] {
    match list {
        "ACCESS" => &ACCESS,
        "ERROR_REASONS" => &ERROR_REASONS,
        "FEATURES" => &FEATURES,
        "NATIVE_TYPES" => &NATIVE_TYPES,
        "PAGING_PRIORITIES" => &PAGING_PRIORITIES,
        "PROTECTIONS" => &PROTECTIONS,
        "RESIDENT_FLAGS" => &RESIDENT_FLAGS,
        other => panic!("a form has its names from the list {other}, which is none"),
    }
}

/// Returns the name of a number, or the number.
pub(crate) fn named_or_number<T: Copy + PartialEq + std::fmt::Display>(
    known: &[(&'static str, T)],
    number: T,
) -> String {
    let named = known.iter().find(|(_, other)| *other == number);
    named.map_or_else(|| number.to_string(), |(name, _)| (*name).into())
}

/// Parses a status: its name without `STATUS_`, `ok`, or a number.
pub(crate) fn status(word: &str) -> Option<NtStatus> {
    if word == "ok" {
        return Some(NtStatus::SUCCESS);
    }
    let named = NtStatus::NAMED.iter().find(|status| status.name() == Some(word));
    named.copied().or_else(|| {
        word.starts_with("0x")
            .then(|| number(word))
            .flatten()
            .and_then(|raw| u32::try_from(raw).ok())
            .map(NtStatus)
    })
}

pub(crate) fn status_names() -> impl Iterator<Item = &'static str> + Clone {
    NtStatus::NAMED.iter().filter_map(|status| status.name()).chain(["ok"])
}

pub(crate) fn write_status(status: NtStatus) -> String {
    match status {
        NtStatus::SUCCESS => "ok".into(),
        other => other.name().map_or_else(|| format!("{:#x}", other.0), Into::into),
    }
}

/// Parses a number: decimal, hexadecimal, `2^63`, or `max` for 2^64-1.
pub(crate) fn number(word: &str) -> Option<u64> {
    if word == "max" {
        return Some(u64::MAX);
    }
    if let Some(digits) = word.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).ok();
    }
    if let Some((base, power)) = word.split_once('^') {
        return base.parse::<u64>().ok()?.checked_pow(power.parse().ok()?);
    }
    if !word.starts_with(|letter: char| letter.is_ascii_digit()) {
        return None;
    }
    word.parse().ok()
}

pub(crate) fn write_number(number: u64) -> String {
    match number {
        u64::MAX => "max".into(),
        _ if number >= 1 << 32 && number.is_power_of_two() => format!("2^{}", number.trailing_zeros()),
        _ => number.to_string(),
    }
}

pub(crate) fn write_duration(nanos: Nanos) -> String {
    // Seconds are the longest unit, so that all scenarios read alike.
    let units = duration::UNITS.into_iter().filter(|(name, _)| *name != "m");
    let (unit, length) = units.rev().find(|(_, length)| nanos.is_multiple_of(*length)).expect("1 ns divides");
    format!("{}{unit}", nanos / length)
}

/// Parses a word for one flag or several.
pub(crate) fn object_flag(word: &str) -> Option<SyncObjectFlags> {
    match word {
        "shared" => Some(SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING),
        _ => SyncObjectFlags::from_name(word),
    }
}

pub(crate) fn object_flag_names() -> Vec<&'static str> {
    [flag_names::<SyncObjectFlags>(), vec!["shared"]].concat()
}

/// Writes flags as words, and unknown bits as a number.
pub(crate) fn write_object_flags(flags: SyncObjectFlags) -> String {
    let shared = SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING;
    let (first, rest) = if flags.contains(shared) { (" shared", flags - shared) } else { ("", flags) };
    if rest.unknown() != 0 {
        return format!(" flags={:#x}", flags.bits());
    }
    format!("{first}{}", write_flag_names(rest))
}

pub(crate) fn flag_names<F: Flags>() -> Vec<&'static str> {
    F::all().iter_names().map(|(name, _)| name).collect()
}

pub(crate) fn write_flag_names<F: Flags>(flags: F) -> String {
    flags.iter_names().map(|(name, _)| format!(" {name}")).collect()
}

/// Writes the flags that are not implied as words; all as a number if words cannot say them.
pub(crate) fn write_flags<F: Flags<Bits = u32> + Copy>(flags: F, implied: F) -> String {
    if flags.contains_unknown_bits() || !flags.contains(implied) {
        return format!(" flags={:#x}", flags.bits());
    }
    write_flag_names(flags.difference(implied))
}

/// Parses an engine: its name, `COPY`, or a node number; on an adapter other than 0, `COPY.1`.
pub(crate) fn engine(word: &str, config: &Config) -> Option<Engine> {
    let (node, adapter) = match word.rsplit_once('.') {
        Some((node, adapter)) => (node, u32::try_from(number(adapter)?).ok()?),
        None => (word, 0),
    };
    let nodes = &config.adapters.get(adapter as usize)?.nodes;
    let named = nodes.iter().position(|known| known.engine_type.name() == node);
    let node = named.map(|at| at as u32).or_else(|| u32::try_from(number(node)?).ok())?;
    ((node as usize) < nodes.len()).then_some(Engine { adapter, node })
}

pub(crate) fn write_engine(engine: Engine, config: &Config) -> String {
    let nodes = config
        .adapters
        .get(engine.adapter as usize)
        .map(|adapter| adapter.nodes.as_slice())
        .unwrap_or_default();
    let first =
        |at: usize| nodes.iter().position(|node| node.engine_type == nodes[at].engine_type) == Some(at);
    let node = match nodes.get(engine.node as usize) {
        Some(node) if first(engine.node as usize) => node.engine_type.name().to_owned(),
        Some(_) | None => engine.node.to_string(),
    };
    if engine.adapter == 0 { node } else { format!("{node}.{}", engine.adapter) }
}

/// Groups of rules with their number of rows; for `GPV` and `W`, the highest number.
const RULES: [(&str, u32); 9] = [
    ("FEN", 147),
    ("EVT", 30),
    ("ESC", 24),
    ("GPV", 65),
    ("SCH", 45),
    ("TDR", 42),
    ("BAR", 123),
    ("MEM", 39),
    ("W", 293),
];

/// Returns the reason why a word is no rule id; `None` if it is one.
pub(crate) fn rule_error(word: &str) -> Option<String> {
    let groups = || RULES.map(|(group, _)| group).join(", ");
    let Some((group, number)) = word.split_once('-') else {
        return Some(format!("a rule id is a group and three digits, as FEN-030; groups are {}", groups()));
    };
    let Some((_, rows)) = RULES.into_iter().find(|(known, _)| *known == group) else {
        return Some(format!("there is no group {group}; groups are {}", groups()));
    };
    let digits = number.len() == 3 && number.chars().all(|digit| digit.is_ascii_digit());
    match number.parse::<u32>() {
        Ok(row) if digits && (1..=rows).contains(&row) => None,
        _ => Some(format!("group {group} has rows {group}-001 to {group}-{rows:03}")),
    }
}
