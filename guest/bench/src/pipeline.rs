//! pipelined_signals: one-way GPU signals, one write each, followed by one call as a barrier; beside a raw stream of
//! the same bytes in the same writes.

use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::ensure;
use d3dkmt::{Call, GpuSignal, Handle, SignalFlags};
use guest_bench::Service;

use crate::Plan;
use crate::abi::{BenchDevice, Fence, messages_sent};
use crate::peers::Raw;
use crate::record::{self, Samples};
use crate::sync_call::frame_bytes;

pub fn signal_bytes(context: u32, fence: u32, value: u64) -> usize {
    let signal = GpuSignal::Monitored { objects: vec![Handle(fence)].into(), values: vec![value].into() };
    let flags = SignalFlags::empty();
    frame_bytes(0, &Call::SignalFromGpu { contexts: vec![Handle(context)].into(), signal, flags })
}

pub fn measure(plan: &Plan) -> anyhow::Result<()> {
    let guest = BenchDevice::open()?;
    let context = guest.create_context(0)?;
    let fence = guest.create_fence(false)?;
    let mut sink = plan.peers.connect(Service::Sink)?;
    let count = plan.operations(20_000, 20_000) as u64;
    let mut last = 1 << 21;
    // From here on all values are encoded in the same number of bytes.
    guest.signal_from_gpu(context, &fence, last)?;
    let bytes = signal_bytes(context, fence.handle, last + 1);
    let before = messages_sent();
    let mut of_ours = [("user_us", 0), ("system_us", 0), ("switches", 0)];
    let mut of_peer = of_ours;
    for round in 0..plan.rounds {
        let (mut ours, mut peer) = (Samples::default(), Samples::default());
        let begun = record::used();
        ours.add(signals(&guest, context, &fence, last, count, bytes)?);
        last += count;
        let half = record::used();
        peer.add(raw_writes(&mut sink, count, bytes)?);
        let end = record::used();
        for at in 0..of_ours.len() {
            of_ours[at].1 += half[at].1 - begun[at].1;
            of_peer[at].1 += end[at].1 - half[at].1;
        }
        record::round("pipelined_signals", round, &mut [("ours", ours), ("peer", peer)])?;
    }
    record::fact("pipelined_signals", "frame_bytes", bytes as u64);
    record::fact("pipelined_signals", "signals", count * u64::from(plan.rounds));
    record::fact("pipelined_signals", "messages", messages_sent() - before);
    for (series, used) in [("ours", of_ours), ("peer", of_peer)] {
        for (name, sum) in used {
            record::fact("pipelined_signals", &format!("{series}_{name}"), sum);
        }
    }
    Ok(())
}

/// Bytes per second of signals, until the host has applied the last.
pub fn signals(
    guest: &BenchDevice,
    context: u32,
    fence: &Fence,
    last: u64,
    count: u64,
    bytes: usize,
) -> anyhow::Result<f64> {
    let begun = Instant::now();
    for value in last + 1..=last + count {
        guest.signal_from_gpu(context, fence, value)?;
    }
    guest.device_state()?;
    let seconds = begun.elapsed().as_secs_f64();
    let value = fence.value.load(Ordering::Acquire);
    ensure!(value == last + count, "the fence value is {value}, not {}", last + count);
    Ok(count as f64 * bytes as f64 / seconds)
}

/// Bytes per second of raw writes, until the reader has acknowledged all bytes.
fn raw_writes(sink: &mut Raw, count: u64, bytes: usize) -> anyhow::Result<f64> {
    let message = vec![0x5A; bytes];
    let begun = Instant::now();
    sink.send(&(count * bytes as u64).to_le_bytes())?;
    for _ in 0..count {
        sink.send(&message)?;
    }
    sink.receive(&mut [0])?;
    Ok(count as f64 * bytes as f64 / begun.elapsed().as_secs_f64())
}
