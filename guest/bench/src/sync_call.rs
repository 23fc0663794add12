//! sync_call: a call and its answer beside a raw echo of as many bytes.

use d3dkmt::{Call, Handle, SignalFlags};
use proto::convert::call_to_frame;

use crate::Plan;
use crate::abi::{Guest, messages_sent};
use crate::peers::Service;
use crate::record::{self, Samples};

/// Calls of one arm before the other gets its turn.
const BLOCK: usize = 25;
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
    let call = Call::SignalFromCpu { device, objects, values: vec![value], flags: SignalFlags::empty() };
    frame_bytes(REQUEST, &call)
}

pub fn measure(plan: &Plan) -> anyhow::Result<()> {
    let guest = Guest::open()?;
    let fence = guest.create_fence(false)?;
    let mut value = 0;
    let mut signal = || {
        value += 1;
        guest.signal_from_cpu(&fence, value)
    };
    let bytes = signal_bytes(guest.device, fence.handle, REQUEST);
    beside_echo(plan, "sync_call_signal", bytes, &mut signal)?;
    let state = Call::GetDeviceState { device: Handle(guest.device), state_type: 1 };
    beside_echo(plan, "sync_call_state", frame_bytes(REQUEST, &state), &mut || guest.device_state())
}

fn beside_echo(
    plan: &Plan,
    figure: &str,
    bytes: usize,
    call: &mut dyn FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    if !plan.wants(figure) {
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
