//! Encoding of inputs and effects as `trace.proto` messages, directly into the open block without an intermediate
//! message. The bytes are those that prost would write; `convert` reads them back. Records with a compact form are
//! written by [`crate::compact`] instead.

use d3dkmt::Handle;
use dxgkrnl::{Answer, DriverAnswer, Effects, EngineId, Fault, Input, Nanos, ProcessId, SyncFileReady};
use prost::Message;
use prost::encoding::{WireType, encode_varint, encoded_len_varint};
use proto::channel::{encode_answer_frame, encode_call_frame};
use proto::convert::wake_to_frame;

/// Kind of a record that is a message `Entered`.
pub(crate) const ENTERED: u8 = 0x41;
/// Kind of a record that is a message `Effects`.
pub(crate) const EFFECTS: u8 = 0x42;
/// A replay must know each record kind with this bit.
pub(crate) const SEMANTIC: u8 = 0x40;

/// A length prefix that is set after its content is written. One byte is reserved; [`Length::set`] makes room for more.
#[must_use]
pub(crate) struct Length {
    at: usize,
    bytes: usize,
}

impl Length {
    pub fn reserve(out: &mut Vec<u8>) -> Length {
        out.push(0);
        Length { at: out.len() - 1, bytes: 1 }
    }

    /// Writes the number of bytes from here to the end of `out`.
    pub fn set(self, out: &mut Vec<u8>) {
        let start = self.at + self.bytes;
        let end = out.len();
        let length = (end - start) as u64;
        if length < 0x80 && self.bytes == 1 {
            out[self.at] = length as u8;
            return;
        }
        let bytes = encoded_len_varint(length).max(self.bytes);
        let growth = bytes - self.bytes;
        if growth > 0 {
            out.resize(end + growth, 0);
            out.copy_within(start..end, start + growth);
        }
        let mut target = &mut out[self.at..self.at + bytes];
        encode_varint(length, &mut target);
    }
}

/// Appends a varint, with a fast path for one byte.
fn varint(value: u64, out: &mut Vec<u8>) {
    if value < 0x80 { out.push(value as u8) } else { encode_varint(value, out) }
}

/// Appends the key of a field: one byte for tags below 16.
fn key(tag: u32, wire_type: WireType, out: &mut Vec<u8>) {
    varint(u64::from(tag << 3 | wire_type as u32), out);
}

/// Opens a message field. Its content is all that is appended until [`Length::set`].
pub(crate) fn open(tag: u32, out: &mut Vec<u8>) -> Length {
    key(tag, WireType::LengthDelimited, out);
    Length::reserve(out)
}

pub(crate) fn nested(tag: u32, out: &mut Vec<u8>, content: impl FnOnce(&mut Vec<u8>)) {
    let length = open(tag, out);
    content(out);
    length.set(out);
}

/// Appends a number; 0 is omitted, as in proto3.
pub(crate) fn number(tag: u32, value: u64, out: &mut Vec<u8>) {
    if value != 0 {
        chosen(tag, value, out);
    }
}

/// A number in a oneof or an optional field: 0 is written as well.
pub(crate) fn chosen(tag: u32, value: u64, out: &mut Vec<u8>) {
    key(tag, WireType::Varint, out);
    varint(value, out);
}

fn fixed(tag: u32, value: u64, out: &mut Vec<u8>) {
    if value != 0 {
        key(tag, WireType::SixtyFourBit, out);
        out.extend_from_slice(&value.to_le_bytes());
    }
}

fn handle(tag: u32, handle: Handle, out: &mut Vec<u8>) {
    if handle != Handle::NULL {
        key(tag, WireType::ThirtyTwoBit, out);
        out.extend_from_slice(&handle.0.to_le_bytes());
    }
}

fn text(tag: u32, value: &str, out: &mut Vec<u8>) {
    data(tag, value.as_bytes(), out);
}

fn data(tag: u32, value: &[u8], out: &mut Vec<u8>) {
    if !value.is_empty() {
        key(tag, WireType::LengthDelimited, out);
        varint(value.len() as u64, out);
        out.extend_from_slice(value);
    }
}

fn frame(tag: u32, process: ProcessId, out: &mut Vec<u8>, message: impl FnOnce(&mut Vec<u8>)) {
    nested(tag, out, |out| {
        number(1, process.0.into(), out);
        nested(2, out, message);
    });
}

/// A record of `Entered`: the first half of a step.
pub(crate) fn entered(now: Nanos, input: &Input, out: &mut Vec<u8>) {
    out.push(ENTERED);
    let length = Length::reserve(out);
    number(1, now, out);
    self::input(input, out);
    length.set(out);
}

/// `Entered.input`.
fn input(input: &Input, out: &mut Vec<u8>) {
    nested(2, out, |out| match input {
        Input::VmAttached { vm, name } => nested(1, out, |out| {
            number(1, vm.0.into(), out);
            text(2, name, out);
        }),
        Input::VmDetached { vm } => chosen(2, vm.0.into(), out),
        Input::VmPaused { vm, paused } => nested(16, out, |out| {
            number(1, vm.0.into(), out);
            number(2, (*paused).into(), out);
        }),
        Input::VmAdapter { vm, adapter, added } => nested(17, out, |out| {
            number(1, vm.0.into(), out);
            number(2, (*adapter).into(), out);
            number(3, (*added).into(), out);
        }),
        Input::MemoryChanged { vm } => chosen(3, vm.0.into(), out),
        Input::ProcessAttached { process, vm, pid, name } => nested(4, out, |out| {
            number(1, process.0.into(), out);
            number(2, vm.0.into(), out);
            number(3, (*pid).into(), out);
            text(4, name, out);
        }),
        Input::FenceMemoryAdded { process, slots } => nested(5, out, |out| {
            number(1, process.0.into(), out);
            number(2, (*slots).into(), out);
        }),
        Input::FenceMemoryMapped { process, address } => nested(14, out, |out| {
            number(1, process.0.into(), out);
            fixed(2, *address, out);
        }),
        Input::GuestFeatures { vm, features } => nested(15, out, |out| {
            number(1, vm.0.into(), out);
            number(2, features.bits().into(), out);
        }),
        Input::Call { process, request, call } => nested(6, out, |out| {
            number(1, process.0.into(), out);
            nested(2, out, |out| encode_call_frame(*request, call, out));
        }),
        Input::ProcessGone { process } => chosen(7, process.0.into(), out),
        Input::ProcessFrozen { process, frozen } => nested(13, out, |out| {
            number(1, process.0.into(), out);
            number(2, (*frozen).into(), out);
        }),
        Input::Deadline => chosen(8, 1, out),
        Input::Fault(fault) => nested(9, out, |out| self::fault(*fault, out)),
        // sint64: zigzag.
        Input::SystemTime { utc_100ns } => {
            chosen(10, ((utc_100ns << 1) ^ (utc_100ns >> 63)) as u64, out);
        }
        Input::DoorbellRung { process, queue, last_queued, buffers } => nested(11, out, |out| {
            number(1, process.0.into(), out);
            handle(2, *queue, out);
            number(3, *last_queued, out);
            buffers.iter().for_each(|buffer| nested(4, out, |out| out.extend_from_slice(buffer)));
        }),
        Input::NtHandleClosed { vm, token } => nested(12, out, |out| {
            number(1, vm.0.into(), out);
            nested(2, out, |out| out.extend_from_slice(&token.0));
        }),
    });
}

fn fault(fault: Fault, out: &mut Vec<u8>) {
    let engine = |EngineId { adapter, node }: EngineId, out: &mut Vec<u8>| {
        number(1, adapter.into(), out);
        number(2, node.into(), out);
    };
    match fault {
        Fault::LoseInterrupt { engine: of } => nested(1, out, |out| engine(of, out)),
        Fault::Hang { engine: of } => nested(2, out, |out| engine(of, out)),
        Fault::StopAdapter { adapter } => chosen(3, adapter.into(), out),
        Fault::StartAdapter { adapter } => chosen(9, adapter.into(), out),
        Fault::UpdateDriver { adapter, version } => nested(10, out, |out| {
            number(1, adapter.into(), out);
            number(2, version.0, out);
        }),
        Fault::PageFault { engine: of, gpu_address, flags } => nested(4, out, |out| {
            nested(1, out, |out| engine(of, out));
            number(2, gpu_address, out);
            number(3, flags.into(), out);
        }),
        Fault::ResetFails { engine: of } => nested(5, out, |out| engine(of, out)),
        Fault::Power { adapter, on } => nested(6, out, |out| {
            number(1, adapter.into(), out);
            number(2, on.into(), out);
        }),
        Fault::EngineToF1 { engine: of } => nested(7, out, |out| engine(of, out)),
        Fault::ObjectGoesBad { adapter, usage } => nested(8, out, |out| {
            number(1, adapter.into(), out);
            number(2, usage.into(), out);
        }),
    }
}

/// A record of `Effects`: the second half of a step. It is written even if empty, because a step without one is
/// unfinished.
pub(crate) fn effects(effects: &Effects, out: &mut Vec<u8>) {
    let Effects { moves, stores, answers, events, sync_files, notes, driver_answers } = effects;
    out.push(EFFECTS);
    let length = Length::reserve(out);
    for store in stores {
        nested(1, out, |out| {
            number(1, store.process.0.into(), out);
            number(2, store.slot.into(), out);
            fixed(3, store.value, out);
        });
    }
    for answer in answers {
        let Answer { process, request, status, reply } = answer;
        frame(2, *process, out, |out| encode_answer_frame(*request, status.0, reply, out));
    }
    for event in events {
        let wake = wake_to_frame(event.target, event.status);
        frame(3, event.process, out, |out| wake.encode_raw(out));
    }
    for note in notes {
        nested(4, out, |out| {
            if let Some(process) = note.process {
                chosen(1, process.0.into(), out);
            }
            text(2, &note.text, out);
        });
    }
    for op in moves {
        nested(5, out, |out| crate::dma::write(op, out));
    }
    for SyncFileReady { vm, token } in sync_files {
        nested(6, out, |out| {
            number(1, vm.0.into(), out);
            data(2, &token.0, out);
        });
    }
    for DriverAnswer { adapter, answer } in driver_answers {
        nested(7, out, |out| {
            number(1, (*adapter).into(), out);
            if !answer.is_empty() {
                nested(2, out, |out| out.extend_from_slice(answer));
            }
        });
    }
    length.set(out);
}
