//! Between the messages of `trace.proto` and the kernel's words. What a message cannot say is a
//! [`ConvertError`], never a default. Steps are written by `encode`; this reads them, and does both ways
//! of the header.

use d3dkmt::Luid;
use dxgkrnl::{
    AdapterConfig, Answer, Config, Effects, EngineId, EngineType, Fault, FenceStore, HostEvent, Input,
    NodeConfig, Note, Policy, ProcessId, VmId,
};
use proto::convert::{ConvertError, FromHost, call_from_body, from_host, luid_to_wire};
use proto::trace as wire;
use proto::trace::input::Body;

fn missing(message: &'static str, field: &'static str) -> ConvertError {
    ConvertError::Missing { message, field }
}

pub(crate) fn config_to_wire(config: &Config) -> wire::KernelConfig {
    let node = |node: &NodeConfig| wire::NodeConfig {
        engine_type: node.engine_type as u32,
        signals_at_write: node.signals_at_write,
        opaque_packet_ns: node.opaque_packet_ns,
    };
    let adapter = |adapter: &AdapterConfig| wire::AdapterConfig {
        luid: Some(luid_to_wire(adapter.luid)),
        description: adapter.description.clone(),
        vendor: adapter.vendor,
        device: adapter.device,
        nodes: adapter.nodes.iter().map(node).collect(),
    };
    wire::KernelConfig {
        adapters: config.adapters.iter().map(adapter).collect(),
        policy: config.policy.to_bits(),
    }
}

pub(crate) fn config_from_wire(config: wire::KernelConfig) -> Result<Config, ConvertError> {
    let bits = config.policy;
    let policy = Policy::from_bits(bits).ok_or(ConvertError::BadValue {
        message: "KernelConfig",
        field: "policy",
        value: bits.into(),
    })?;
    let adapters = config.adapters.into_iter().map(adapter_from_wire).collect::<Result<_, _>>()?;
    Ok(Config { adapters, policy })
}

fn adapter_from_wire(adapter: wire::AdapterConfig) -> Result<AdapterConfig, ConvertError> {
    let luid = adapter.luid.ok_or(missing("AdapterConfig", "luid"))?;
    let node = |node: wire::NodeConfig| {
        let number = node.engine_type;
        let engine_type = EngineType::from_number(number).ok_or(ConvertError::BadValue {
            message: "NodeConfig",
            field: "engine_type",
            value: number.into(),
        })?;
        let (signals_at_write, opaque_packet_ns) = (node.signals_at_write, node.opaque_packet_ns);
        Ok(NodeConfig { engine_type, signals_at_write, opaque_packet_ns })
    };
    Ok(AdapterConfig {
        luid: Luid { low: luid.low, high: luid.high },
        description: adapter.description,
        vendor: adapter.vendor,
        device: adapter.device,
        nodes: adapter.nodes.into_iter().map(node).collect::<Result<_, ConvertError>>()?,
    })
}

pub(crate) fn input_from_wire(input: wire::Input) -> Result<Input, ConvertError> {
    Ok(match input.body.ok_or(missing("Input", "body"))? {
        Body::VmAttached(wire) => Input::VmAttached { vm: VmId(wire.vm), name: wire.name },
        Body::VmDetached(vm) => Input::VmDetached { vm: VmId(vm) },
        Body::MemoryChanged(vm) => Input::MemoryChanged { vm: VmId(vm) },
        Body::ProcessAttached(wire) => Input::ProcessAttached {
            process: ProcessId(wire.process),
            vm: VmId(wire.vm),
            pid: wire.pid,
            name: wire.name,
        },
        Body::FenceMemoryAdded(wire) => {
            Input::FenceMemoryAdded { process: ProcessId(wire.process), slots: wire.slots }
        }
        Body::Call(wire) => {
            let frame = wire.frame.ok_or(missing("Call", "frame"))?;
            let call = call_from_body(frame.body.ok_or(missing("ToHost", "body"))?)?;
            Input::Call { process: ProcessId(wire.process), request: frame.request, call }
        }
        Body::ProcessGone(process) => Input::ProcessGone { process: ProcessId(process) },
        Body::Deadline(_) => Input::Deadline,
        Body::Fault(wire) => Input::Fault(fault_from_wire(wire)?),
    })
}

fn fault_from_wire(fault: wire::Fault) -> Result<Fault, ConvertError> {
    use wire::fault::Kind;
    let engine = |wire::Engine { adapter, node }: wire::Engine| EngineId { adapter, node };
    Ok(match fault.kind.ok_or(missing("Fault", "kind"))? {
        Kind::LoseInterrupt(of) => Fault::LoseInterrupt { engine: engine(of) },
        Kind::Hang(of) => Fault::Hang { engine: engine(of) },
        Kind::StopAdapter(adapter) => Fault::StopAdapter { adapter },
    })
}

pub(crate) fn effects_from_wire(effects: wire::Effects) -> Result<Effects, ConvertError> {
    let store = |store: wire::FenceStore| FenceStore {
        process: ProcessId(store.process),
        slot: store.slot,
        value: store.value,
    };
    let note = |note: wire::Note| Note { process: note.process.map(ProcessId), text: note.text };
    Ok(Effects {
        stores: effects.stores.into_iter().map(store).collect(),
        answers: effects.answers.into_iter().map(answer_from_wire).collect::<Result<_, _>>()?,
        events: effects.events.into_iter().map(event_from_wire).collect::<Result<_, _>>()?,
        notes: effects.notes.into_iter().map(note).collect(),
    })
}

fn sent(sent: wire::Sent) -> Result<(ProcessId, FromHost), ConvertError> {
    let frame = sent.frame.ok_or(missing("Sent", "frame"))?;
    Ok((ProcessId(sent.process), from_host(frame)?))
}

fn answer_from_wire(wire: wire::Sent) -> Result<Answer, ConvertError> {
    match sent(wire)? {
        (process, FromHost::Answer { request, status, reply }) => {
            Ok(Answer { process, request, status, reply })
        }
        _ => Err(ConvertError::Unexpected("a frame that is no answer among the answers")),
    }
}

fn event_from_wire(wire: wire::Sent) -> Result<HostEvent, ConvertError> {
    match sent(wire)? {
        (process, FromHost::Wake { event, status }) => Ok(HostEvent { process, event, status }),
        _ => Err(ConvertError::Unexpected("a frame that is no wake among the events")),
    }
}
