//! Reports of accesses that race, with the names of the resources.

use d3dkmt::isa::{
    Barrier, BarrierAccess as A, BarrierSync as S, Kernel, Packet, ResourceDesc, Use, WorkKind,
};
use dxgkrnl::ProcessId;
use dxgkrnl::ddi::{Agent, HappensBefore, HwContext, Miniport, PageTableEntry, SignalEffect};

use crate::barriers::{RIGHT, chain};
use crate::gpu::{COPY_ENGINE, CPU, ENGINE, GPU, Gpu, P, PAGE, copy, fill, on_buffer, words, work};

fn between(commands: Vec<Packet>, barriers: &[(u32, Barrier)], missing: Option<usize>) -> Vec<Packet> {
    let mut packets = Vec::new();
    for (number, command) in commands.into_iter().enumerate() {
        packets.push(command);
        if let Some((resource, barrier)) = barriers.get(number).filter(|_| Some(number) != missing) {
            packets.push(on_buffer(*resource, *barrier));
        }
    }
    packets
}

#[test]
fn without_any_one_of_five_barriers_the_bytes_are_wrong_and_the_report_names_that_barrier() {
    for missing in [None, Some(0), Some(1), Some(2), Some(3), Some(4)] {
        let mut gpu = Gpu::with_hazards(1);
        let (commands, barriers) = chain(&mut gpu);
        gpu.run(&between(commands, &barriers, missing));
        assert_eq!(gpu.word(5 * 64) == RIGHT, missing.is_none(), "{missing:?}");
        let Some(missing) = missing else {
            assert_eq!(gpu.notes, [] as [String; 0]);
            continue;
        };
        let Barrier { sync_before, sync_after, access_before, access_after } = barriers[missing].1;
        let name = |bits: &dyn Fn(&mut String)| {
            let mut text = String::new();
            bits(&mut text);
            text
        };
        let sync = |bits: S| name(&|text| bitflags::parser::to_writer(&bits, text).unwrap());
        let access = |bits: A| name(&|text| bitflags::parser::to_writer(&bits, text).unwrap());
        let named = format!(
            "missing: a barrier between them with SyncBefore {}, SyncAfter {}, AccessBefore {}, AccessAfter {}",
            sync(sync_before),
            sync(sync_after),
            access(access_before),
            access(access_after)
        );
        assert_eq!(gpu.notes.len(), 1, "without barrier {missing}: {:?}", gpu.notes);
        assert!(gpu.notes[0].starts_with("race on buffer: 64 bytes at 0x7f00"), "{}", gpu.notes[0]);
        assert!(gpu.notes[0].ends_with(&named), "{}\n{named}", gpu.notes[0]);
    }
}

#[test]
fn races_are_reported_only_if_configured() {
    let mut gpu = Gpu::new(1);
    let (commands, barriers) = chain(&mut gpu);
    gpu.run(&between(commands, &barriers, Some(0)));
    assert_eq!(gpu.notes, [] as [String; 0]);
}

#[test]
fn two_resources_of_one_memory_meet() {
    let mut gpu = Gpu::with_hazards(2);
    // The second GPU page is mapped to the first page of the memory too.
    gpu.entry(1, 1, PageTableEntry::Memory { owner: P, address: CPU, writable: true });
    let [one, alias] = [("one", GPU), ("alias", GPU + PAGE)]
        .map(|(name, address)| gpu.resource(&ResourceDesc::buffer(name, address, 64)));
    let other = gpu.buffer(128, 64);
    gpu.run(&[fill(one, 5, 10), copy(alias, other, 10)]);
    assert_eq!(gpu.notes.len(), 1);
    assert!(gpu.notes[0].starts_with("race on alias: "), "{}", gpu.notes[0]);
}

#[test]
fn a_race_names_no_resource_of_memory_that_is_gone_and_the_last_one_also_at_the_limit() {
    let on = |gpu: &mut Gpu, name: &str, offset| gpu.resource(&ResourceDesc::buffer(name, GPU + offset, 64));
    let mut gpu = Gpu::with_hazards(2);
    let old = on(&mut gpu, "old", 0);
    gpu.run(&[fill(old, 5, 10)]);
    edge(&mut gpu, HappensBefore::MemoryGone { owner: P, address: CPU, bytes: 8 });
    let part = gpu.resource(&ResourceDesc::buffer("part", GPU + 32, 32));
    gpu.run(&[fill(part, 5, 10)]);
    edge(&mut gpu, HappensBefore::MemoryGone { owner: P, address: CPU + 8, bytes: 32 });
    let touched = HappensBefore::Locked { process: P, owner: P, address: CPU, bytes: 64 };
    let notes = edge(&mut gpu, touched);
    assert!(notes[0].starts_with("race: 24 bytes at "), "{notes:?}");
    // As many names as are kept, and another one for memory that has one.
    let mut gpu = Gpu::with_hazards(64);
    let [one, other] = ["one", "other"].map(|name| on(&mut gpu, name, 0));
    let parts = |resource| (0..16).map(move |at| Use::range(resource, A::UNORDERED_ACCESS, at * 4, 4));
    let commands =
        |resource| work(WorkKind::Dispatch, Kernel::Fill, 5, 1, &parts(resource).collect::<Vec<_>>());
    gpu.run(&[commands(one)]);
    for number in 1..256 {
        let next = on(&mut gpu, "next", number * 64);
        gpu.run(&[commands(next)]);
    }
    gpu.run(&[commands(other)]);
    let notes = edge(&mut gpu, touched);
    assert!(notes[0].starts_with("race on other: "), "{notes:?}");
}

fn edge(gpu: &mut Gpu, edge: HappensBefore) -> Vec<String> {
    gpu.miniport.happens_before(&edge)
}

/// Queue 1 of the 3D engine writes a buffer, queue 2 of the copy engine reads it.
fn across_queues(fence: bool) -> Vec<String> {
    let mut gpu = Gpu::with_hazards(1);
    let (from, to) = (gpu.buffer(0, 64), gpu.buffer(64, 64));
    let [first, second] = [1, 2].map(|context| Agent::Context(HwContext(context)));
    edge(&mut gpu, HappensBefore::Submitted { process: P, adapter: 0, queue: first });
    edge(&mut gpu, HappensBefore::Submitted { process: P, adapter: 0, queue: second });
    gpu.submit(ENGINE, 1, &[fill(from, 5, 10)]);
    gpu.advance(100);
    if fence {
        edge(
            &mut gpu,
            HappensBefore::Signaled {
                by: first,
                fence: 7,
                value: 1,
                effect: SignalEffect::Applied,
                stored: None,
            },
        );
        edge(&mut gpu, HappensBefore::Waited { by: second, fence: 7, value: 1 });
    }
    gpu.submit(COPY_ENGINE, 2, &[copy(from, to, 10)]);
    gpu.advance(100);
    std::mem::take(&mut gpu.notes)
}

#[test]
fn queues_need_a_fence_between_them() {
    assert_eq!(across_queues(true), [] as [String; 0]);
    let reports = across_queues(false);
    assert_eq!(reports.len(), 1);
    let fence =
        "missing: a fence that queue 1 signals behind its access and queue 2 waits for before its own";
    assert!(reports[0].ends_with(fence), "{}", reports[0]);
}

#[test]
fn unlock_that_races_with_an_engine_read_is_reported() {
    let mut gpu = Gpu::with_hazards(1);
    let (from, to) = (gpu.buffer(0, 64), gpu.buffer(64, 64));
    let touched = HappensBefore::Locked { process: P, owner: P, address: CPU, bytes: PAGE };
    let queue = Agent::Context(HwContext(1));
    assert!(edge(&mut gpu, touched).is_empty());
    edge(&mut gpu, HappensBefore::Submitted { process: P, adapter: 0, queue });
    gpu.run(&[copy(from, to, 10)]);
    assert_eq!(gpu.notes, [] as [String; 0], "what was written before the submission comes before it");
    let reports = edge(&mut gpu, touched);
    assert!(
        reports[0].contains("a fence that queue 1 signals behind its access and p1's CPU waits for"),
        "{reports:?}"
    );
}

#[test]
fn destroyed_objects_leave_nothing_behind() {
    let mut gpu = Gpu::with_hazards(1);
    let buffer = gpu.buffer(0, 64);
    let queue = Agent::Context(HwContext(1));
    edge(&mut gpu, HappensBefore::Submitted { process: P, adapter: 0, queue });
    gpu.run(&[fill(buffer, 5, 10)]);
    edge(&mut gpu, HappensBefore::Gone(queue));
    edge(&mut gpu, HappensBefore::Gone(Agent::Process(P)));
    let other = HappensBefore::Locked { process: ProcessId(2), owner: P, address: CPU, bytes: PAGE };
    assert_eq!(edge(&mut gpu, other), [] as [String; 0]);
}

#[test]
fn a_clear_is_not_in_the_scope_of_shaders() {
    let mut gpu = Gpu::with_hazards(1);
    let (view, to) = (gpu.buffer(0, 64), gpu.buffer(64, 64));
    let clear = work(
        WorkKind::ClearUnorderedAccess,
        d3dkmt::isa::Kernel::Fill,
        1,
        10,
        &[Use::whole(view, A::UNORDERED_ACCESS)],
    );
    let read = [Use::whole(view, A::SHADER_RESOURCE), Use::whole(to, A::UNORDERED_ACCESS)];
    let read = work(WorkKind::Dispatch, d3dkmt::isa::Kernel::Copy, 0, 10, &read);
    let too_narrow =
        words((S::COMPUTE_SHADING, S::COMPUTE_SHADING), (A::UNORDERED_ACCESS, A::SHADER_RESOURCE));
    gpu.run(&[clear, on_buffer(view, too_narrow), read]);
    assert_eq!(gpu.notes.len(), 1);
    assert!(gpu.notes[0].contains("SyncBefore CLEAR_UNORDERED_ACCESS_VIEW"), "{}", gpu.notes[0]);
}
