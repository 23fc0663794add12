//! Allocations of frequent calls on their way through the wire format. Counted, not timed.

#[path = "../../host/dxgkrnl/tests/common/counting.rs"]
mod counting;

use counting::allocations;
use d3dkmt::{Call, EventId, GpuSignal, Handle, Handles, SignalFlags, Values, WaitFromCpuFlags};
use proto::channel::ToHost;
use proto::convert::{call_from_body, call_to_frame};
use proto::frame::{FrameBuffer, append, decode};

/// Calls of frequent kinds with `count` objects.
fn calls(count: usize) -> Vec<Call> {
    let objects = || Handles::from_elem(Handle(0x4000_0080), count);
    let values = || Values::from_elem(u64::MAX, count);
    let (device, context, queue) = (Handle(0x4000_0040), Handle(0x4000_00C0), Handle(0x4000_0100));
    let flags = SignalFlags::empty();
    let contexts = || Handles::from_slice(&[context]);
    let monitored = GpuSignal::Monitored { objects: objects(), values: values() };
    let legacy = GpuSignal::Legacy { objects: objects(), fence_value: 5 };
    let (wait, event, queues) = (WaitFromCpuFlags::empty(), EventId(7), Handles::from_slice(&[queue]));
    vec![
        Call::SignalFromCpu { device, objects: objects(), values: values(), flags },
        Call::WaitFromCpu { device, objects: objects(), values: values(), flags: wait, event },
        Call::SignalFromGpu { contexts: contexts(), signal: monitored, flags },
        Call::SignalFromGpu { contexts: contexts(), signal: legacy, flags },
        Call::WaitFromGpu { context, objects: objects(), values: values() },
        Call::WaitFromGpuLegacy { context, objects: objects(), fence_value: 5 },
        Call::SubmitCommand {
            contexts: contexts(),
            commands: 1,
            length: 2,
            flags: 3,
            private_data: Vec::new(),
        },
        Call::SubmitSignalToHwQueue { queues, objects: objects(), values: values(), flags },
        Call::SubmitWaitToHwQueue { queue, objects: objects(), values: values() },
    ]
}

/// Sends a call and reads it on the other side. Returns the number of allocations of each.
fn sent_and_read(call: &Call, bytes: &mut Vec<u8>, stream: &mut FrameBuffer) -> (u64, u64, Call) {
    let begun = allocations();
    bytes.clear();
    append(&call_to_frame(0, call), bytes);
    let sent = allocations();
    stream.extend(bytes);
    let frame: ToHost = decode(stream.next_frame().unwrap().unwrap()).unwrap();
    let read = call_from_body(frame.body.unwrap()).unwrap();
    (sent - begun, allocations() - sent, read)
}

#[test]
fn a_call_that_names_one_object_takes_no_memory_on_its_way() {
    let (mut bytes, mut stream) = (Vec::with_capacity(4096), FrameBuffer::default());
    stream.tail(4096);
    for call in calls(1) {
        let before = allocations();
        let again = call.clone();
        assert_eq!(allocations(), before, "{call:?}");
        assert_eq!(sent_and_read(&call, &mut bytes, &mut stream), (0, 0, again));
    }
    // Many objects need lists: the counter must see those allocations.
    for call in calls(40) {
        let (sent, read, again) = sent_and_read(&call, &mut bytes, &mut stream);
        let has_lists = !matches!(call, Call::SubmitCommand { .. });
        assert_eq!((again, sent > 0, read > 0), (call, has_lists, has_lists));
    }
}
