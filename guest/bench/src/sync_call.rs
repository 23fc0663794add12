//! sync_call: a call and its answer beside a raw echo of as many bytes; escape_64k: the same in bytes per second.

use d3dkmt::{Call, EscapeFlags, Handle, SignalFlags, device_state_type};
use guest_bench::{FLOOD_DATA_BYTES as ESCAPE_BYTES, Service};
use proto::convert::call_to_frame;

use anyhow::ensure;

use crate::Plan;
use crate::abi::{BenchDevice, messages_sent};
use crate::record::{self, Samples};

/// Calls of one series before the other runs.
const BLOCK: usize = 25;
const BLOCKS_OF_ESCAPES: usize = 5;
/// A request number of the usual length.
const REQUEST: u64 = 1000;

/// Bytes of the frame that makes a call.
pub fn frame_bytes(request: u64, call: &Call) -> usize {
    let mut bytes = Vec::new();
    proto::frame::append(&call_to_frame(request, call), &mut bytes);
    bytes.len()
}

/// Bytes of a CPU signal on the wire.
pub fn signal_bytes(device: u32, fence: u32, value: u64) -> usize {
    let (device, objects) = (Handle(device), vec![Handle(fence)]);
    let call = Call::SignalFromCpu {
        device,
        objects: objects.into(),
        values: vec![value].into(),
        flags: SignalFlags::empty(),
    };
    frame_bytes(REQUEST, &call)
}

pub fn measure(plan: &Plan) -> anyhow::Result<()> {
    let guest = BenchDevice::open()?;
    let fence = guest.create_fence(false)?;
    let mut value = 0;
    let mut signal = || {
        value += 1;
        guest.signal_from_cpu(&fence, value)
    };
    let bytes = signal_bytes(guest.device, fence.handle, REQUEST);
    beside_echo(plan, "sync_call_signal", bytes, &mut signal)?;
    let state = Call::GetDeviceState { device: Handle(guest.device), state_type: device_state_type::PRESENT };
    beside_echo(plan, "sync_call_state", frame_bytes(REQUEST, &state), &mut || guest.device_state())?;
    if plan.is_selected("escape_64k") { escapes(plan, &guest) } else { Ok(()) }
}

/// Escapes with 64 KiB of private data, there and back, one after the other.
fn escapes(plan: &Plan, guest: &BenchDevice) -> anyhow::Result<()> {
    // The simulated driver's ECHO: it fills the first 32 bytes, the others come back as they were.
    let mut data = vec![0x5A; ESCAPE_BYTES];
    data[..4].copy_from_slice(&0u32.to_le_bytes());
    let handle = Handle::NULL;
    let (adapter, flags) = (Handle(guest.adapter), EscapeFlags::empty());
    let call = Call::Escape { adapter, device: handle, context: handle, kind: 0, flags, data: data.clone() };
    let mut message = vec![0x5A; frame_bytes(REQUEST, &call)];
    let mut echo = plan.peers.connect(Service::Echo)?;
    let count = plan.operations(200, 40);
    let messages_before = messages_sent();
    for round in 0..=plan.rounds {
        let (mut ours, mut peer) = (Samples::default(), Samples::default());
        for _ in 0..BLOCKS_OF_ESCAPES {
            ours.rate(count, ESCAPE_BYTES, || guest.escape(flags, &mut data))?;
            peer.rate(count, message.len(), || echo.echo(&mut message))?;
        }
        // The first round warms up.
        if let Some(round) = round.checked_sub(1) {
            record::round("escape_64k", round, &mut [("ours", ours), ("peer", peer)])?;
        }
    }
    ensure!(data[32..].iter().all(|byte| *byte == 0x5A), "the data did not come back");
    record::fact("escape_64k", "messages", messages_sent() - messages_before);
    let calls = (plan.rounds as usize + 1) * BLOCKS_OF_ESCAPES * count;
    record::fact("escape_64k", "calls", calls as u64);
    Ok(())
}

fn beside_echo(
    plan: &Plan,
    figure: &str,
    bytes: usize,
    call: &mut dyn FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    if !plan.is_selected(figure) {
        return Ok(());
    }
    let mut echo = plan.peers.connect(Service::Echo)?;
    let mut buffer = vec![0x5A; bytes];
    let blocks = plan.operations(40, 8);
    let mut warm_up = Samples::default();
    warm_up.time(plan.operations(2000, 200), &mut *call)?;
    warm_up.time(plan.operations(2000, 200), || echo.echo(&mut buffer))?;
    let messages_before = messages_sent();
    let mut calls = 0;
    for round in 0..plan.rounds {
        let (mut ours, mut peer) = (Samples::default(), Samples::default());
        for _ in 0..blocks {
            ours.time(BLOCK, &mut *call)?;
            peer.time(BLOCK, || echo.echo(&mut buffer))?;
            calls += BLOCK as u64;
        }
        record::round(figure, round, &mut [("ours", ours), ("peer", peer)])?;
    }
    record::fact(figure, "frame_bytes", bytes as u64);
    record::fact(figure, "calls", calls);
    record::fact(figure, "messages", messages_sent() - messages_before);
    Ok(())
}
