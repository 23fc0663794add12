//! Conversion of `trace.proto` messages into the kernel's types. An invalid or missing field is a [`ConvertError`],
//! never a default. `encode` writes the messages.

use d3dkmt::query::DriverVersion;
use d3dkmt::{Handle, WakeTarget};
use dxgkrnl::{
    Answer, DriverAnswer, Effects, EngineId, Fault, Features, FenceStore, HostEvent, Input, Note, ProcessId,
    SyncFileReady, VmId,
};
use proto::convert::{ConvertError, FromHost, call_from_body, from_host, token};
use proto::trace as wire;
use proto::trace::input::Body;

use crate::header::bad;

pub(crate) fn missing(message: &'static str, field: &'static str) -> ConvertError {
    ConvertError::Missing { message, field }
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
        Body::FenceMemoryMapped(wire) => {
            Input::FenceMemoryMapped { process: ProcessId(wire.process), address: wire.address }
        }
        Body::GuestFeatures(wire) => Input::GuestFeatures {
            vm: VmId(wire.vm),
            features: Features::from_bits(wire.features).ok_or(bad(
                "GuestFeatures",
                "features",
                wire.features,
            ))?,
        },
        Body::Call(wire) => {
            let frame = wire.frame.ok_or(missing("Call", "frame"))?;
            let call = call_from_body(frame.body.ok_or(missing("ToHost", "body"))?)?;
            Input::Call { process: ProcessId(wire.process), request: frame.request, call }
        }
        Body::VmPaused(wire::VmPaused { vm, paused }) => Input::VmPaused { vm: VmId(vm), paused },
        Body::VmAdapter(wire::VmAdapter { vm, adapter, added }) => {
            Input::VmAdapter { vm: VmId(vm), adapter, added }
        }
        Body::ProcessFrozen(wire::ProcessFrozen { process, frozen }) => {
            Input::ProcessFrozen { process: ProcessId(process), frozen }
        }
        Body::ProcessGone(process) => Input::ProcessGone { process: ProcessId(process) },
        Body::Deadline(_) => Input::Deadline,
        Body::Fault(wire) => Input::Fault(fault_from_wire(wire)?),
        Body::SystemTime100ns(utc_100ns) => Input::SystemTime { utc_100ns },
        Body::DoorbellRung(wire) => Input::DoorbellRung {
            process: ProcessId(wire.process),
            queue: Handle(wire.queue),
            last_queued: wire.last_queued,
            buffers: wire.buffers,
        },
        Body::NtHandleClosed(wire) => {
            Input::NtHandleClosed { vm: VmId(wire.vm), token: token(&wire.token, "NtHandleClosed")? }
        }
    })
}

fn fault_from_wire(fault: wire::Fault) -> Result<Fault, ConvertError> {
    use wire::fault::Kind;
    let engine = |wire::Engine { adapter, node }: wire::Engine| EngineId { adapter, node };
    Ok(match fault.kind.ok_or(missing("Fault", "kind"))? {
        Kind::LoseInterrupt(of) => Fault::LoseInterrupt { engine: engine(of) },
        Kind::Hang(of) => Fault::Hang { engine: engine(of) },
        Kind::StopAdapter(adapter) => Fault::StopAdapter { adapter },
        Kind::StartAdapter(adapter) => Fault::StartAdapter { adapter },
        Kind::UpdateDriver(wire::DriverUpdate { adapter, version }) => {
            Fault::UpdateDriver { adapter, version: DriverVersion(version) }
        }
        Kind::PageFault(wire) => Fault::PageFault {
            engine: engine(wire.engine.ok_or(missing("PageFault", "engine"))?),
            gpu_address: wire.gpu_address,
            flags: wire.flags,
        },
        Kind::ResetFails(of) => Fault::ResetFails { engine: engine(of) },
        Kind::Power(wire::Power { adapter, on }) => Fault::Power { adapter, on },
        Kind::EngineToF1(of) => Fault::EngineToF1 { engine: engine(of) },
        Kind::ObjectGoesBad(wire::Usage { adapter, usage }) => Fault::ObjectGoesBad { adapter, usage },
    })
}

pub(crate) fn effects_from_wire(effects: wire::Effects) -> Result<Effects, ConvertError> {
    let store = |store: wire::FenceStore| FenceStore {
        process: ProcessId(store.process),
        slot: store.slot,
        value: store.value,
    };
    let note = |note: wire::Note| Note { process: note.process.map(ProcessId), text: note.text };
    let ready = |ready: wire::SyncFileReady| {
        Ok(SyncFileReady { vm: VmId(ready.vm), token: token(&ready.token, "SyncFileReady")? })
    };
    let driver_answer =
        |wire: wire::DriverAnswer| DriverAnswer { adapter: wire.adapter, answer: wire.answer };
    Ok(Effects {
        moves: effects.moves.into_iter().map(crate::dma::from_wire).collect::<Result<_, _>>()?,
        stores: effects.stores.into_iter().map(store).collect(),
        answers: effects.answers.into_iter().map(answer_from_wire).collect::<Result<_, _>>()?,
        events: effects.events.into_iter().map(event_from_wire).collect::<Result<_, _>>()?,
        sync_files: effects.sync_files.into_iter().map(ready).collect::<Result<_, _>>()?,
        notes: effects.notes.into_iter().map(note).collect(),
        driver_answers: effects.driver_answers.into_iter().map(driver_answer).collect(),
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
        _ => Err(ConvertError::Unexpected("a frame other than an answer in the list of answers")),
    }
}

fn event_from_wire(wire: wire::Sent) -> Result<HostEvent, ConvertError> {
    match sent(wire)? {
        (process, FromHost::Wake { event, status }) => {
            Ok(HostEvent { process, target: event.into(), status })
        }
        (process, FromHost::GuestEvent { event, status }) => {
            Ok(HostEvent { process, target: WakeTarget::GuestEvent(event), status })
        }
        _ => Err(ConvertError::Unexpected("a frame other than a wake in the list of events")),
    }
}
