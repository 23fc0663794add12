//! The debug layer as a client process uses it: turned on, read, full, and destroyed.

use covers::covers;
use d3dkmt::isa::{self, BarrierAccess as A, BarrierSync as S, Packet};
use d3dkmt::{HwQueueFlags, NtStatus, limits};
use dxgkrnl::Config;
use dxgkrnl::ddi::{
    EngineId, HwContext, HwQueueId, HwQueueSubmission, KmdDevice, KmdProcess, Miniport, NewHwQueue,
};

use crate::gpu::{COPY_ENGINE, DEVICE, ENGINE, Gpu, P, copy, fill, global, words};

/// The fields of a record that tests compare.
#[derive(Debug, PartialEq)]
struct DebugMessage {
    rule: u32,
    severity: u32,
    command: u32,
    resource: u32,
    text: String,
}

fn set(gpu: &mut Gpu, level: u32) -> NtStatus {
    gpu.escape(Some(DEVICE), &mut [7u32.to_le_bytes(), level.to_le_bytes()].concat())
}

/// The messages and the number of lost ones.
fn read(gpu: &mut Gpu, bytes: usize) -> Result<(Vec<DebugMessage>, u64), NtStatus> {
    let mut data = vec![0xEE; bytes];
    data[..4].copy_from_slice(&8u32.to_le_bytes());
    match gpu.escape(Some(DEVICE), &mut data) {
        NtStatus::SUCCESS => {}
        status => return Err(status),
    }
    let word = |at: usize| u32::from_le_bytes(data[at..at + 4].try_into().unwrap());
    let (mut at, mut messages) = (16, Vec::new());
    for _ in 0..word(4) {
        assert!(word(at) % 8 == 0 && word(at) >= 40 + word(at + 32) && word(at + 36) == 0);
        let text = data[at + 40..at + 40 + word(at + 32) as usize].to_vec();
        let text = String::from_utf8(text).unwrap();
        let (rule, severity) = (word(at + 4), word(at + 12));
        messages.push(DebugMessage { rule, severity, command: word(at + 20), resource: word(at + 28), text });
        at += word(at) as usize;
    }
    Ok((messages, u64::from_le_bytes(data[8..16].try_into().unwrap())))
}

fn rules(gpu: &mut Gpu) -> Vec<(u32, u32, u32)> {
    let (messages, _) = read(gpu, 1 << 16).unwrap();
    messages.iter().map(|message| (message.rule, message.severity, message.command)).collect()
}

/// A valid barrier with a warning: AccessBefore is COMMON.
fn warned() -> Packet {
    global(words((S::ALL, S::ALL), (A::COMMON, A::COMMON)))
}

#[test]
fn it_is_off_until_a_process_turns_it_on_and_says_what_is_wrong_with_a_list() {
    let mut gpu = Gpu::new(1);
    let [a, b] = [0, 64].map(|offset| gpu.buffer(offset, 64));
    let race = [fill(a, 5, 10), copy(a, b, 10)];
    gpu.run(&race);
    assert_eq!((read(&mut gpu, 1 << 12), gpu.notes.len()), (Err(NtStatus::INVALID_PARAMETER), 0));
    assert_eq!((set(&mut gpu, 3), set(&mut gpu, 2)), (NtStatus::INVALID_PARAMETER, NtStatus::SUCCESS));
    gpu.run(&race);
    let (messages, lost) = read(&mut gpu, 1 << 12).unwrap();
    assert_eq!((messages.len(), lost), (1, 0));
    let hazard = &messages[0];
    assert_eq!((hazard.severity, hazard.command, hazard.resource), (2, 1, a), "{hazard:?}");
    assert_eq!(gpu.notes.len(), 1);
    assert!(gpu.notes[0].contains(&hazard.text), "{:?}", gpu.notes);
    assert_eq!(read(&mut gpu, 16).unwrap().0, [], "what was read is kept no more");
    // The list has the same effect.
    assert_eq!((gpu.word(0), gpu.word(64)), (5, 5), "the second time the copy finds what the first has left");
}

#[test]
fn levels_say_all_or_what_is_worse_than_a_warning() {
    let mut gpu = Gpu::new(1);
    let a = gpu.buffer(0, 64);
    let list = [fill(a, 5, 10), warned(), fill(9, 5, 10)];
    for (level, expected) in [(2, vec![(1, 1), (3, 2)]), (1, vec![(3, 2)])] {
        set(&mut gpu, level);
        gpu.submit(crate::gpu::ENGINE, 1, &list);
        let reported: Vec<_> =
            rules(&mut gpu).into_iter().map(|(_, severity, command)| (severity, command)).collect();
        assert_eq!(reported, expected);
        gpu.advance(1000);
    }
    set(&mut gpu, 0);
    assert_eq!(read(&mut gpu, 64), Err(NtStatus::INVALID_PARAMETER));
}

#[test]
fn it_judges_by_the_queue_and_when_its_turn_comes() {
    let mut gpu = Gpu::new(1);
    let [a, b] = [0, 64].map(|offset| gpu.buffer(offset, 64));
    set(&mut gpu, 2);
    let draw = words((S::DRAW, S::DRAW), (A::NO_ACCESS, A::NO_ACCESS));
    gpu.submit(COPY_ENGINE, 1, &[copy(a, b, 100)]);
    gpu.submit(COPY_ENGINE, 2, &[copy(a, b, 1), global(draw), copy(b, a, 1)]);
    assert_eq!(rules(&mut gpu), [], "it has not begun");
    gpu.advance(100);
    let reported = rules(&mut gpu);
    assert!(
        reported.iter().any(|(rule, severity, command)| (*rule, *severity, *command) == (40, 3, 1)),
        "{reported:?}"
    );
    gpu.submit(crate::gpu::ENGINE, 3, &[copy(a, b, 1), global(draw), copy(b, a, 1)]);
    let reported = rules(&mut gpu);
    assert!(reported.iter().all(|(rule, ..)| *rule != 40), "{reported:?}");
}

#[test]
fn so_many_messages_are_kept_and_more_are_counted() {
    let mut gpu = Gpu::new(1);
    set(&mut gpu, 2);
    let unknown = words((S::from_bits_retain(1 << 17), S::ALL), (A::NO_ACCESS, A::NO_ACCESS));
    let list = vec![global(unknown); 64];
    let (kept, mut all) = (limits::DEBUG_MESSAGES_PER_PROCESS_MAX, 0);
    gpu.run(&list);
    let once = read(&mut gpu, 1 << 16).unwrap().0.len();
    assert!(once >= 64);
    let times = kept / once + 1;
    for _ in 0..times {
        gpu.notes.clear();
        gpu.run(&list);
        assert_eq!(gpu.notes.len(), 17, "sixteen, and how many more: {:#?}", gpu.notes);
    }
    loop {
        let (messages, lost) = read(&mut gpu, 1000).unwrap();
        assert_eq!(lost as usize, once * times - kept);
        if messages.is_empty() {
            break;
        }
        assert!(messages.len() > 1);
        all += messages.len();
    }
    assert_eq!(all, kept);
    gpu.run(&list);
    assert_eq!(read(&mut gpu, 16), Err(NtStatus::BUFFER_TOO_SMALL));
    assert_eq!(read(&mut gpu, 8), Err(NtStatus::BUFFER_TOO_SMALL));
}

#[test]
fn resources_that_come_and_go_are_followed_and_all_ends_with_the_process() {
    let mut gpu = Gpu::new(1);
    let before = gpu.buffer(0, 64);
    set(&mut gpu, 2);
    let after = gpu.buffer(64, 64);
    gpu.run(&[fill(before, 1, 1), fill(after, 1, 1)]);
    assert_eq!(rules(&mut gpu), []);
    let destroy = [6u32.to_le_bytes(), after.to_le_bytes()].concat();
    assert_eq!(gpu.escape(Some(DEVICE), &mut destroy.clone()), NtStatus::SUCCESS);
    gpu.submit(crate::gpu::ENGINE, 1, &[fill(before, 1, 1), fill(after, 1, 1)]);
    assert_eq!(rules(&mut gpu), [(5, 3, 1)]);
    gpu.miniport.destroy_device(0, DEVICE, &mut Vec::new());
    gpu.miniport.create_device(0, KmdProcess(1), KmdDevice(6)).unwrap();
    gpu.miniport.create_device(0, KmdProcess(1), DEVICE).unwrap();
    gpu.submit(crate::gpu::ENGINE, 1, &[fill(before, 1, 1)]);
    assert_eq!(rules(&mut gpu), [(5, 3, 0)], "it ended with its device");
    gpu.miniport.destroy_process(0, KmdProcess(1), &mut Vec::new());
    assert_eq!(set(&mut gpu, 2), NtStatus::INVALID_PARAMETER, "no process");
}

#[test]
fn a_driver_below_wddm_3_has_no_enhanced_barriers() {
    covers!("BAR-018");
    const R001: u32 = 1;
    for (wddm_version, expected) in [(2900, true), (3000, false)] {
        let mut config = Config::default();
        config.adapters[0].wddm_version = wddm_version;
        let mut gpu = Gpu::with(1, &config);
        assert_eq!(set(&mut gpu, 2), NtStatus::SUCCESS);
        gpu.run(&[warned()]);
        let reported = rules(&mut gpu);
        assert_eq!(reported.iter().any(|(rule, ..)| *rule == R001), expected, "{wddm_version}: {reported:?}");
    }
}

/// A fence that nobody signals.
const FENCE: u64 = 0x5000;

/// Creates a hardware queue with a buffer that waits for [`FENCE`], or hangs.
fn waiting(gpu: &mut Gpu, number: u32, buffer: u32, last: Packet) {
    let (hw_queue, context) = (HwQueueId(number), HwContext(number));
    let new = NewHwQueue {
        hw_queue,
        context,
        engine: ENGINE,
        process: P,
        progress_fence_gpu_address: 0x9000,
        flags: HwQueueFlags::empty(),
    };
    gpu.miniport.create_hw_queue(&new).unwrap();
    let submission = HwQueueSubmission {
        engine: ENGINE,
        hw_queue,
        context,
        submission_fence_id: u64::from(number),
        progress_fence_id: 1,
        commands: isa::encode(&[fill(buffer, 5, 1), last]),
    };
    gpu.with_callbacks(|miniport, now, callbacks| {
        miniport.submit_command_to_hw_queue(now, submission, callbacks);
    });
    gpu.advance(1_000_000);
}

/// Bytes that the layer keeps, without its messages.
fn kept(gpu: &mut Gpu) -> usize {
    while !read(gpu, 1 << 16).unwrap().0.is_empty() {}
    gpu.miniport.kept_bytes(0, P)
}

#[test]
fn a_queue_that_is_destroyed_leaves_nothing_in_the_layer() {
    const QUEUES: u32 = 100;
    let mut gpu = Gpu::new(1);
    crate::fences::add(&mut gpu, FENCE);
    let buffer = gpu.buffer(0, 64);
    set(&mut gpu, 1);
    let before = kept(&mut gpu);
    for number in 1..=QUEUES {
        let held = kept(&mut gpu);
        waiting(&mut gpu, number, buffer, Packet::FenceWait { gpu_address: FENCE, value: 1 });
        assert!(kept(&mut gpu) > held, "queue {number} is not charged");
    }
    for number in 1..=QUEUES {
        gpu.with_callbacks(|miniport, now, callbacks| {
            miniport.destroy_hw_queue(now, HwQueueId(number), callbacks);
        });
    }
    assert_eq!(kept(&mut gpu), before);
    // A context without hardware queues, whose buffer is preempted by nothing.
    let submission_fence_id =
        gpu.submit(ENGINE, 200, &[fill(buffer, 5, 1), Packet::FenceWait { gpu_address: FENCE, value: 1 }]);
    gpu.advance(1_000_000);
    assert!(kept(&mut gpu) > before);
    gpu.with_callbacks(|miniport, now, callbacks| {
        let submitted: Option<(EngineId, u64)> = Some((ENGINE, submission_fence_id));
        miniport.destroy_context(now, HwContext(200), submitted, callbacks);
    });
    assert_eq!(kept(&mut gpu), before);
}

#[test]
fn a_buffer_that_a_reset_drops_leaves_nothing_in_the_layer() {
    let mut gpu = Gpu::new(1);
    crate::fences::add(&mut gpu, FENCE);
    let buffer = gpu.buffer(0, 64);
    set(&mut gpu, 1);
    let before = kept(&mut gpu);
    waiting(&mut gpu, 1, buffer, Packet::Hang);
    assert!(kept(&mut gpu) > before);
    gpu.with_callbacks(|miniport, now, callbacks| miniport.reset_hw_engine(now, ENGINE, callbacks)).unwrap();
    gpu.with_callbacks(|miniport, now, callbacks| miniport.resume_hw_engine(now, ENGINE, callbacks)).unwrap();
    assert_eq!(kept(&mut gpu), before, "the buffer at fault is dropped");
    waiting(&mut gpu, 2, buffer, Packet::FenceWait { gpu_address: FENCE, value: 1 });
    waiting(&mut gpu, 3, 9, Packet::FenceWait { gpu_address: FENCE, value: 1 });
    gpu.with_callbacks(|miniport, _, callbacks| miniport.stop_device(0, callbacks));
    assert_eq!(kept(&mut gpu), before, "a stopped adapter drops all, as a page fault does");
}
