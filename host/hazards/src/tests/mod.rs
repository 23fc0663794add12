use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use d3dkmt::isa::{Barrier, BarrierAccess as A, BarrierSync as S};

use super::*;

mod against_a_graph;
mod discards;

const BYTES: u64 = 0x100;

/// The buffer of this number, in the space of process 1.
fn buffer(number: u64) -> Range {
    Range { space: 1, start: number * 0x1000, end: number * 0x1000 + BYTES }
}

fn write(number: u64, access: A, scopes: S) -> Access {
    Access { range: buffer(number), scopes, others: S::NONE, access, writes: true }
}

fn read(number: u64, access: A, scopes: S) -> Access {
    Access { writes: false, ..write(number, access, scopes) }
}

fn barrier(sync_before: S, sync_after: S, access_before: A, access_after: A) -> Barrier {
    Barrier { sync_before, sync_after, access_before, access_after }
}

/// A command or a barrier of a queue.
#[derive(Clone, Debug)]
enum Step {
    Command(Vec<Access>),
    Barrier(Barrier, Option<Range>),
    Discard(Barrier, Range),
}

/// Runs one submission of queue 1; packets are numbered from 0.
fn submission(checker: &mut Checker, number: u64, steps: &[Step]) {
    checker.begin(1, number);
    for (packet, step) in steps.iter().enumerate() {
        let command = CommandId { submission: number, packet: packet as u32 };
        match step {
            Step::Command(accesses) => checker.command(1, command, accesses.iter().copied()),
            Step::Discard(barrier, range) => {
                checker.barrier(1, barrier, Some(*range), [*range]);
                checker.discard(1, command, (barrier.sync_after, Some(*range)), [*range]);
            }
            Step::Barrier(barrier, range) => checker.barrier(1, barrier, *range, *range),
        }
    }
}

fn reports(checker: &mut Checker) -> Vec<Report> {
    let (reports, dropped) = checker.take_reports();
    assert_eq!(dropped, 0);
    reports
}

/// Upload by a copy, two dispatches, a clear, a draw that reads, a readback: five barriers.
fn five_barriers() -> Vec<Step> {
    let copied = barrier(S::COPY, S::COMPUTE_SHADING, A::COPY_DEST, A::SHADER_RESOURCE);
    let computed = barrier(S::COMPUTE_SHADING, S::COMPUTE_SHADING, A::UNORDERED_ACCESS, A::UNORDERED_ACCESS);
    let shaded = barrier(S::COMPUTE_SHADING, S::VERTEX_SHADING, A::UNORDERED_ACCESS, A::VERTEX_BUFFER);
    let cleared =
        barrier(S::CLEAR_UNORDERED_ACCESS_VIEW, S::PIXEL_SHADING, A::UNORDERED_ACCESS, A::SHADER_RESOURCE);
    let drawn = barrier(S::RENDER_TARGET, S::COPY, A::RENDER_TARGET, A::COPY_SOURCE);
    vec![
        Step::Command(vec![write(1, A::COPY_DEST, S::COPY)]),
        Step::Barrier(copied, Some(buffer(1))),
        Step::Command(vec![
            read(1, A::SHADER_RESOURCE, S::COMPUTE_SHADING),
            write(2, A::UNORDERED_ACCESS, S::COMPUTE_SHADING),
        ]),
        Step::Barrier(computed, Some(buffer(2))),
        Step::Command(vec![write(2, A::UNORDERED_ACCESS, S::COMPUTE_SHADING)]),
        Step::Barrier(shaded, Some(buffer(2))),
        Step::Command(vec![write(3, A::UNORDERED_ACCESS, S::CLEAR_UNORDERED_ACCESS_VIEW)]),
        Step::Barrier(cleared, Some(buffer(3))),
        Step::Command(vec![
            read(2, A::VERTEX_BUFFER, S::VERTEX_SHADING),
            read(3, A::SHADER_RESOURCE, S::PIXEL_SHADING),
            write(4, A::RENDER_TARGET, S::RENDER_TARGET),
        ]),
        Step::Barrier(drawn, Some(buffer(4))),
        Step::Command(vec![read(4, A::COPY_SOURCE, S::COPY), write(5, A::COPY_DEST, S::COPY)]),
    ]
}

#[test]
fn five_barriers_order_all_and_without_any_of_them_the_report_names_it() {
    let steps = five_barriers();
    let mut checker = Checker::default();
    submission(&mut checker, 1, &steps);
    assert_eq!(reports(&mut checker), []);
    let barriers = steps.iter().enumerate().filter_map(|(at, step)| match step {
        Step::Barrier(barrier, _) => Some((at, *barrier)),
        Step::Command(_) | Step::Discard(..) => None,
    });
    for (at, removed) in barriers {
        let mut steps = steps.clone();
        // Packets keep their numbers.
        steps[at] = Step::Command(vec![]);
        submission(&mut checker, 2, &steps);
        let reports = reports(&mut checker);
        assert_eq!(reports.len(), 1, "without packet {at}: {reports:?}");
        let Barrier { sync_before, sync_after, access_before, access_after } = removed;
        let missing = Missing::Barrier { sync_before, sync_after, access_before, access_after };
        assert_eq!((reports[0].missing, reports[0].conflict), (missing, Conflict::Unordered));
        assert!(
            (reports[0].earlier.command.packet as usize) < at
                && at < reports[0].later.command.packet as usize
        );
    }
}

#[test]
fn barrier_that_orders_without_a_flush_is_not_visible() {
    let steps = |access_before, access_after| {
        let mut steps = five_barriers();
        steps.truncate(3);
        let only = barrier(S::COPY, S::COMPUTE_SHADING, access_before, access_after);
        steps[1] = Step::Barrier(only, Some(buffer(1)));
        steps
    };
    let mut checker = Checker::default();
    for (before, after) in [(A::NO_ACCESS, A::SHADER_RESOURCE), (A::COPY_DEST, A::COPY_SOURCE)] {
        submission(&mut checker, 1, &steps(before, after));
        let reports = reports(&mut checker);
        assert_eq!(reports.len(), 1);
        assert_eq!(reports[0].conflict, Conflict::NotVisible);
    }
    for (before, after) in [(A::COMMON, A::COMMON), (A::COPY_DEST | A::COPY_SOURCE, A::COMMON)] {
        submission(&mut checker, 1, &steps(before, after));
        assert_eq!(reports(&mut checker), []);
    }
}

#[test]
fn the_text_names_both_accesses_and_the_barrier() {
    let mut steps = five_barriers();
    steps.truncate(3);
    steps.remove(1);
    let mut checker = Checker::default();
    submission(&mut checker, 7, &steps);
    let text = reports(&mut checker)[0].to_string();
    assert_eq!(
        text,
        "256 bytes at 0x1000 of p1: nothing orders the write by queue 1, submission 7, packet 0 (COPY_DEST in COPY) \
         and the read by queue 1, submission 7, packet 1 (SHADER_RESOURCE in COMPUTE_SHADING); missing: a barrier \
         between them with SyncBefore COPY, SyncAfter COMPUTE_SHADING, AccessBefore COPY_DEST, AccessAfter \
         SHADER_RESOURCE"
    );
}

#[test]
fn a_split_barrier_orders_what_is_before_its_begin_and_behind_its_end() {
    let begin = barrier(S::COPY, S::SPLIT, A::COPY_DEST, A::SHADER_RESOURCE);
    let end = barrier(S::SPLIT, S::COMPUTE_SHADING, A::COPY_DEST, A::SHADER_RESOURCE);
    let copy = |number| Step::Command(vec![write(number, A::COPY_DEST, S::COPY)]);
    let dispatch = |number| Step::Command(vec![read(number, A::SHADER_RESOURCE, S::COMPUTE_SHADING)]);
    let mut checker = Checker::default();
    let range = Some(buffer(1));
    let whole = [copy(1), Step::Barrier(begin, range), copy(2), Step::Barrier(end, range), dispatch(1)];
    submission(&mut checker, 1, &whole);
    assert_eq!(reports(&mut checker), []);
    // A copy between the two halves is not ordered.
    submission(&mut checker, 2, &[whole.as_slice(), &[dispatch(2)]].concat());
    assert_eq!(reports(&mut checker).len(), 1);
    // Either half alone orders nothing.
    submission(&mut checker, 3, &[copy(1), Step::Barrier(begin, range), dispatch(1)]);
    submission(&mut checker, 4, &[copy(1), Step::Barrier(end, range), dispatch(1)]);
    assert_eq!(reports(&mut checker).len(), 2);
}

/// The halves may name subresources in other groups, and there may be more than the limit of them.
#[test]
fn halves_of_a_split_barrier_may_name_different_parts() {
    let begin = barrier(S::COPY, S::SPLIT, A::COPY_DEST, A::SHADER_RESOURCE);
    let end = barrier(S::SPLIT, S::COMPUTE_SHADING, A::COPY_DEST, A::SHADER_RESOURCE);
    let copy = |number| Step::Command(vec![write(number, A::COPY_DEST, S::COPY)]);
    let dispatch = |number| Step::Command(vec![read(number, A::SHADER_RESOURCE, S::COMPUTE_SHADING)]);
    let whole = Some(Range { end: buffer(2).end, ..buffer(1) });
    let parts = [Some(buffer(1)), Some(buffer(2))];
    let races = |begins: &[Option<Range>], between: &[Step], ends: &[Option<Range>]| {
        let half = |barrier: Barrier| move |range: &Option<Range>| Step::Barrier(barrier, *range);
        let steps: Vec<Step> = [copy(1), copy(2)]
            .into_iter()
            .chain(begins.iter().map(half(begin)))
            .chain(between.iter().cloned())
            .chain(ends.iter().map(half(end)))
            .chain([dispatch(1), dispatch(2)])
            .collect();
        let mut checker = Checker::default();
        submission(&mut checker, 1, &steps);
        reports(&mut checker).len()
    };
    assert_eq!(races(&[whole], &[], &parts), 0);
    assert_eq!(races(&parts, &[], &[whole]), 0);
    assert_eq!(races(&[whole, whole], &[], &[whole, whole]), 0);
    assert_eq!(races(&[whole], &[copy(1)], &parts), 1, "a copy between the halves is not ordered");
    assert_eq!(races(&[parts[0]], &[], &[parts[1]]), 2, "the end of another");
    assert_eq!(races(&[parts[0]], &[], &parts), 1, "the end of none");
    let many: Vec<_> = (1..=limits::SPLITS_MAX as u64 + 3).rev().map(|number| Some(buffer(number))).collect();
    assert_eq!(races(&many, &[], &many), 0);
}

#[test]
fn a_stage_keeps_its_accesses_in_order_and_others_need_a_barrier() {
    let depth =
        |access| Access { writes: access == A::DEPTH_STENCIL_WRITE, ..write(1, access, S::DEPTH_STENCIL) };
    let races = |accesses: &[Access]| {
        let mut checker = Checker::default();
        let steps: Vec<Step> = accesses.iter().map(|access| Step::Command(vec![*access])).collect();
        submission(&mut checker, 1, &steps);
        reports(&mut checker).len()
    };
    assert_eq!(races(&[write(1, A::RENDER_TARGET, S::RENDER_TARGET); 2]), 0);
    assert_eq!(races(&[write(1, A::STREAM_OUTPUT, S::VERTEX_SHADING); 2]), 0);
    assert_eq!(races(&[write(1, A::COPY_DEST, S::COPY); 2]), 0);
    assert_eq!(races(&[write(1, A::RESOLVE_DEST, S::RESOLVE); 2]), 0);
    assert_eq!(races(&[write(1, A::COPY_DEST, S::COPY), write(1, A::RESOLVE_DEST, S::RESOLVE)]), 1);
    assert_eq!(races(&[write(1, A::COPY_DEST, S::COPY), read(1, A::COPY_SOURCE, S::COPY)]), 1);
    let (tests, writes) = (depth(A::DEPTH_STENCIL_READ), depth(A::DEPTH_STENCIL_WRITE));
    assert_eq!(races(&[writes, writes, tests, writes]), 0);
    assert_eq!(races(&[write(1, A::UNORDERED_ACCESS, S::COMPUTE_SHADING); 2]), 1);
    assert_eq!(races(&[writes, read(1, A::SHADER_RESOURCE, S::PIXEL_SHADING)]), 1);
    assert_eq!(races(&[write(1, A::RENDER_TARGET, S::RENDER_TARGET), read(1, A::COMMON, S::ALL)]), 1);
}

/// What one barrier has shown, the next passes on, whether either names the memory or is global.
#[test]
fn a_second_barrier_passes_on_what_the_first_has_made_visible() {
    let first = barrier(S::COMPUTE_SHADING, S::COMPUTE_SHADING, A::UNORDERED_ACCESS, A::SHADER_RESOURCE);
    let second = barrier(S::COMPUTE_SHADING, S::COPY, A::SHADER_RESOURCE, A::COPY_SOURCE);
    let written = Step::Command(vec![write(1, A::UNORDERED_ACCESS, S::COMPUTE_SHADING)]);
    let looked = Step::Command(vec![read(1, A::SHADER_RESOURCE, S::COMPUTE_SHADING)]);
    let copied = Step::Command(vec![read(1, A::COPY_SOURCE, S::COPY)]);
    let races = |between: &[Step]| {
        let mut checker = Checker::default();
        let steps = [core::slice::from_ref(&written), between, core::slice::from_ref(&copied)].concat();
        submission(&mut checker, 1, &steps);
        reports(&mut checker)
    };
    let ranges = [Some(buffer(1)), None];
    for (one, other) in ranges.into_iter().flat_map(|one| ranges.map(|other| (one, other))) {
        let [first, second] = [Step::Barrier(first, one), Step::Barrier(second, other)];
        assert_eq!(races(&[first.clone(), looked.clone(), second.clone()]), [], "{one:?} {other:?}");
        // In the other order the second has nothing to pass on.
        let wrong = races(&[second, looked.clone(), first]);
        assert!(!wrong.is_empty(), "{one:?} {other:?}");
    }
}

#[test]
fn what_many_global_barriers_have_shown_counts_as_visible() {
    let first = barrier(S::COMPUTE_SHADING, S::COPY, A::UNORDERED_ACCESS, A::COPY_SOURCE);
    let other = barrier(S::COMPUTE_SHADING, S::COPY, A::UNORDERED_ACCESS, A::RESOLVE_SOURCE);
    let races = |first, others| {
        let others = core::iter::repeat_n(Step::Barrier(other, None), others);
        let written = Step::Command(vec![write(1, A::UNORDERED_ACCESS, S::COMPUTE_SHADING)]);
        let copied = Step::Command(vec![read(1, A::COPY_SOURCE, S::COPY)]);
        let steps: Vec<Step> =
            [written, Step::Barrier(first, None)].into_iter().chain(others).chain([copied]).collect();
        let mut checker = Checker::default();
        submission(&mut checker, 1, &steps);
        reports(&mut checker).len()
    };
    for others in [0, limits::GLOBALS_FOLLOWED_MAX, 3 * limits::GLOBALS_FOLLOWED_MAX] {
        assert_eq!(races(first, others), 0, "{others}");
        assert_eq!(races(other, others), 1, "{others}");
    }
}

#[test]
fn the_end_of_a_submission_orders_and_shows_everything() {
    let mut checker = Checker::default();
    submission(&mut checker, 1, &[Step::Command(vec![write(1, A::UNORDERED_ACCESS, S::COMPUTE_SHADING)])]);
    submission(&mut checker, 2, &[Step::Command(vec![read(1, A::COPY_SOURCE, S::COPY)])]);
    assert_eq!(reports(&mut checker), []);
}

/// A command of another queue, in a submission of process 2.
fn other_queue(checker: &mut Checker, access: Access) {
    checker.begin(2, 1);
    checker.command(2, CommandId { submission: 1, packet: 0 }, [access]);
}

#[test]
fn queues_race_unless_a_fence_orders_them_through_whomever_it_goes() {
    let produce = [Step::Command(vec![write(1, A::COPY_DEST, S::COPY)])];
    let consume = read(1, A::COPY_SOURCE, S::COPY);
    // No fence, no wait, a signal below the waited value, and two sufficient signals.
    for (signaled, waited, races) in [(0, 0, 1), (5, 0, 1), (5, 6, 1), (5, 5, 0), (5, 4, 0)] {
        let mut checker = Checker::default();
        submission(&mut checker, 1, &produce);
        if signaled > 0 {
            checker.signal(Agent::Queue(1), 9, signaled);
        }
        if waited > 0 {
            checker.wait(Agent::Queue(2), 9, waited);
        }
        other_queue(&mut checker, consume);
        let reports = reports(&mut checker);
        assert_eq!(reports.len(), races, "{signaled} {waited}");
        for report in reports {
            let (signals, waits) = (Agent::Queue(1), Agent::Queue(2));
            assert_eq!(report.missing, Missing::Fence { signals, waits });
        }
    }
    // The queue signals process 1, which signals process 2 of another VM, which submits.
    let mut checker = Checker::default();
    submission(&mut checker, 1, &produce);
    checker.signal(Agent::Queue(1), 9, 1);
    checker.wait(Agent::Process(1), 9, 1);
    checker.signal(Agent::Process(1), 10, 1);
    checker.wait(Agent::Process(2), 10, 1);
    checker.submit(2, 2, 1);
    other_queue(&mut checker, consume);
    assert_eq!(reports(&mut checker), []);
}

#[test]
fn exactly_the_memory_that_is_gone_races_no_more() {
    let mut checker = Checker::default();
    let Range { start, end, .. } = buffer(1);
    let whole = Access { range: Range { end: end + 0x3000, ..buffer(1) }, ..write(1, A::COPY_DEST, S::COPY) };
    submission(&mut checker, 1, &[Step::Command(vec![whole])]);
    checker.forget_memory(Range { start: start + 0x1000, end: end + 0x1000, ..buffer(1) });
    checker.forget_memory(Range { space: 2, ..whole.range });
    other_queue(&mut checker, Access { range: whole.range, ..read(1, A::COPY_SOURCE, S::COPY) });
    let [report] = &reports(&mut checker)[..] else { panic!() };
    assert_eq!((report.range.start, report.range.end, report.times), (start, start + 0x1000, 2));
}

#[test]
fn a_wait_relies_on_the_first_signal_that_reached_its_value() {
    let mut checker = Checker::default();
    let produce = |number| [Step::Command(vec![write(number, A::COPY_DEST, S::COPY)])];
    submission(&mut checker, 1, &produce(1));
    checker.signal(Agent::Queue(1), 9, 3);
    submission(&mut checker, 2, &produce(2));
    checker.signal(Agent::Queue(1), 9, 7);
    checker.wait(Agent::Queue(2), 9, 2);
    checker.begin(2, 1);
    let reads = [read(1, A::COPY_SOURCE, S::COPY), read(2, A::COPY_SOURCE, S::COPY)];
    checker.command(2, CommandId::default(), reads);
    let reports = reports(&mut checker);
    assert_eq!(reports.len(), 1, "the value 2 was there before the second write");
    assert_eq!(reports[0].range, buffer(2));
}

/// A broadcast signals one value by each of its queues, and the fence has it when the last one has.
#[test]
fn a_wait_for_the_value_at_creation_relies_on_no_signal() {
    for (rewinds, waits_for, races) in [(false, 5, true), (false, 6, false), (true, 5, false)] {
        let mut checker = Checker::default();
        checker.create_fence(9, 5);
        checker.begin(1, 1);
        checker.command(1, CommandId::default(), [write(1, A::COPY_DEST, S::COPY)]);
        if rewinds {
            checker.signal(Agent::Process(3), 9, 4);
        }
        checker.signal(Agent::Queue(1), 9, 7);
        checker.wait(Agent::Queue(2), 9, waits_for);
        other_queue(&mut checker, read(1, A::COPY_SOURCE, S::COPY));
        let found = !reports(&mut checker).is_empty();
        assert_eq!(found, races, "after a rewind: {rewinds}, a wait for {waits_for}");
    }
}

/// Which of the writes by queues 1 and 3, to buffers 1 and 3, a wait by queue 2 is not ordered behind.
fn unordered(value: u64, signals: impl Fn(&mut Checker)) -> Vec<u64> {
    let mut checker = Checker::default();
    for queue in [1, 3] {
        checker.begin(queue, 1);
        let command = CommandId { submission: 1, packet: 0 };
        checker.command(queue, command, [write(queue, A::COPY_DEST, S::COPY)]);
    }
    signals(&mut checker);
    checker.wait(Agent::Queue(2), 9, value);
    checker.begin(2, 1);
    let reads = [1, 3].map(|number| read(number, A::COPY_SOURCE, S::COPY));
    checker.command(2, CommandId::default(), reads);
    assert_eq!(checker.words_known(), checker.words_counted());
    reports(&mut checker).iter().map(|report| report.range.start / 0x1000).collect()
}

#[test]
fn a_wait_for_a_broadcast_relies_on_each_of_its_queues() {
    let [one, other] = [1, 3].map(Agent::Queue);
    let broadcast = |checker: &mut Checker, between: &[u64]| {
        checker.reach_broadcast(one, 9, 7);
        between.iter().for_each(|value| checker.signal(Agent::Process(5), 9, *value));
        checker.complete_broadcast(other, 9, 7, 5);
    };
    assert_eq!(unordered(5, |checker| broadcast(checker, &[])), []);
    assert_eq!(unordered(5, |checker| broadcast(checker, &[3])), [], "it is not rewound before it happens");
    assert_eq!(unordered(3, |checker| broadcast(checker, &[3])), [1, 3]);
    assert_eq!(unordered(5, |checker| broadcast(checker, &[5])), [1, 3], "the value was there before");
    assert_eq!(unordered(5, |checker| broadcast(checker, &[8, 3])), []);
    // One queue is ahead of the other, further than the limit.
    for ahead in [2, 3 * limits::SIGNALS_PER_FENCE_MAX as u32] {
        let signals = |checker: &mut Checker| {
            (1..=ahead).for_each(|number| checker.reach_broadcast(one, 9, number));
            checker.complete_broadcast(other, 9, 1, 1);
            checker.complete_broadcast(other, 9, 2, 2);
        };
        assert_eq!(unordered(2, signals), [], "{ahead}");
    }
    assert_eq!(unordered(5, |checker| checker.reach_broadcast(one, 9, 7)), [1, 3], "it never happens");
    let reuse = |checker: &mut Checker| {
        checker.reach_broadcast(one, 9, 7);
        checker.forget_broadcast(9, 7);
        checker.complete_broadcast(other, 9, 7, 5);
    };
    assert_eq!(unordered(5, reuse), [1], "another broadcast has its number");
}

#[test]
fn of_two_signals_of_one_value_a_wait_relies_on_the_first_and_an_acquire_on_both() {
    let both = |value| {
        move |checker: &mut Checker| [1, 3].map(|queue| checker.signal(Agent::Queue(queue), 9, value))
    };
    let none = |value| unordered(value, |checker| _ = both(value)(checker));
    assert_eq!((none(5), none(0)), (vec![3], vec![]));
    let rewound = |checker: &mut Checker| {
        checker.signal(Agent::Queue(1), 9, 5);
        checker.signal(Agent::Process(5), 9, 4);
        checker.signal(Agent::Queue(3), 9, 5);
    };
    assert_eq!(unordered(5, rewound), [1]);
}

#[test]
fn a_cpu_that_writes_what_an_engine_reads_races_until_it_submits() {
    let mut checker = Checker::default();
    checker.cpu_access(1, buffer(1), true);
    checker.submit(1, 1, 1);
    // Still locked when the engine reads: unlocked later.
    submission(&mut checker, 1, &[Step::Command(vec![read(1, A::COPY_SOURCE, S::COPY)])]);
    assert_eq!(reports(&mut checker), []);
    checker.cpu_access(1, buffer(1), true);
    let report = reports(&mut checker).remove(0);
    let (signals, waits) = (Agent::Queue(1), Agent::Process(1));
    assert_eq!(report.missing, Missing::Fence { signals, waits });
    assert!(
        report.to_string().contains("a fence that queue 1 signals behind its access and p1's CPU waits for")
    );
}

#[test]
fn one_pair_of_commands_is_one_report_with_the_ranges_counted() {
    let mut checker = Checker::default();
    let many = |access| (0..10).map(|number| write(number, access, S::COMPUTE_SHADING)).collect::<Vec<_>>();
    let steps = [Step::Command(many(A::UNORDERED_ACCESS)), Step::Command(many(A::UNORDERED_ACCESS))];
    submission(&mut checker, 1, &steps);
    let reports = reports(&mut checker);
    assert_eq!((reports.len(), reports[0].times), (1, 10));
}

#[test]
fn records_over_a_limit_are_dropped_and_counted() {
    let mut checker = Checker::default();
    checker.begin(1, 1);
    for number in 0..limits::CELLS_MAX as u64 + 10 {
        checker.command(1, CommandId::default(), [write(number, A::COPY_DEST, S::COPY)]);
    }
    assert!(checker.cells() <= limits::CELLS_MAX && checker.forgotten() > 0);
    for fence in 0..limits::FENCES_MAX as u64 + 1 {
        checker.signal(Agent::Queue(1), fence, 1);
    }
    assert_eq!(checker.fences_known(), limits::FENCES_MAX);
    for value in 0..2 * limits::SIGNALS_PER_FENCE_MAX as u64 {
        checker.signal(Agent::Queue(1), 0, value);
    }
    let before = checker.forgotten();
    for process in 0..limits::AGENTS_MAX as u32 + 5 {
        checker.cpu_access(process, buffer(1_000_000 + u64::from(process)), false);
    }
    assert_eq!(checker.forgotten() - before, 6, "the queue is one of the agents");
    for packet in 0..limits::READS_PER_CELL_MAX as u32 + 1 {
        let access = read(2_000_000, A::from_bits_retain(1 << packet), S::COPY);
        checker.command(1, CommandId { submission: 1, packet }, [access]);
    }
    assert_eq!(checker.forgotten() - before, 7);
}

#[test]
fn forgotten_agent_leaves_nothing_behind() {
    let mut checker = Checker::default();
    submission(&mut checker, 1, &five_barriers());
    checker.cpu_access(1, buffer(9), true);
    checker.signal(Agent::Queue(1), 9, 5);
    checker.submit(1, 1, 2);
    checker.forget(Agent::Process(1));
    checker.forget(Agent::Queue(1));
    checker.forget_fence(9);
    assert_eq!((checker.cells(), checker.fences_known(), checker.agents_known()), (0, 0, 0));
    // Its number is reused by another agent, which has its own accesses.
    other_queue(&mut checker, write(1, A::COPY_DEST, S::COPY));
    submission(&mut checker, 5, &[Step::Command(vec![read(1, A::COPY_SOURCE, S::COPY)])]);
    assert_eq!(reports(&mut checker).len(), 1);
}

/// Cells and clocks keep accesses of a forgotten agent. None counts as one of the agent that gets its number.
#[test]
fn an_agent_that_gets_the_number_of_a_forgotten_one_has_none_of_its_accesses() {
    let mut checker = Checker::default();
    let written = || Step::Command(vec![write(1, A::COPY_DEST, S::COPY)]);
    submission(&mut checker, 1, &[written(), written(), written()]);
    checker.signal(Agent::Queue(1), 9, 5);
    checker.wait(Agent::Queue(2), 9, 5);
    checker.submit(1, 1, 2);
    checker.forget(Agent::Queue(1));
    assert_eq!((checker.submissions_known(), checker.words_known()), (0, checker.words_counted()));
    other_queue(&mut checker, read(1, A::COPY_SOURCE, S::COPY));
    checker.begin(3, 1);
    checker.command(3, CommandId::default(), [write(1, A::COPY_DEST, S::COPY)]);
    let found = reports(&mut checker);
    assert_eq!(found.len(), 1, "it races with the read, and not with the writes of the forgotten queue");
    assert_eq!(found[0].earlier.agent, Agent::Queue(2));
    other_queue(&mut checker, read(1, A::COPY_SOURCE, S::COPY));
    let found = reports(&mut checker);
    assert_eq!(found.len(), 1, "the wait for the forgotten queue orders none of its accesses");
    assert_eq!(found[0].earlier.agent, Agent::Queue(3));
}

/// The packet pairs of reports, sorted.
fn pairs(reports: &[Report]) -> Vec<(u32, u32, Conflict)> {
    let mut pairs: Vec<_> = reports
        .iter()
        .map(|one| (one.earlier.command.packet, one.later.command.packet, one.conflict))
        .collect();
    pairs.sort_unstable_by_key(|pair| format!("{pair:?}"));
    pairs
}

fn lines(steps: &[Step]) -> String {
    steps.iter().enumerate().map(|(at, step)| format!("{at}: {step:?}\n")).collect()
}

/// An access with an alternative scope is ordered by that scope alone or by its own scopes, on either side of a
/// barrier.
#[test]
fn another_scope_of_an_access_stands_for_it() {
    let races = |others, sync_before, sync_after| {
        let written =
            Access { others, ..write(1, A::UNORDERED_ACCESS, S::VERTEX_SHADING | S::PIXEL_SHADING) };
        let looked = Access { others, ..read(1, A::SHADER_RESOURCE, S::VERTEX_SHADING | S::PIXEL_SHADING) };
        let between = barrier(sync_before, sync_after, A::UNORDERED_ACCESS, A::SHADER_RESOURCE);
        let steps = [Step::Command(vec![written]), Step::Barrier(between, None), Step::Command(vec![looked])];
        let mut checker = Checker::default();
        submission(&mut checker, 1, &steps);
        reports(&mut checker).len()
    };
    let own = S::VERTEX_SHADING | S::PIXEL_SHADING;
    assert_eq!(races(S::NONE, own, own), 0);
    assert_eq!(races(S::NONE, S::EXECUTE_INDIRECT, S::EXECUTE_INDIRECT), 1);
    for (before, after) in
        [(own, S::EXECUTE_INDIRECT), (S::EXECUTE_INDIRECT, own), (S::EXECUTE_INDIRECT, S::EXECUTE_INDIRECT)]
    {
        assert_eq!(races(S::EXECUTE_INDIRECT, before, after), 0, "{before:?} -> {after:?}");
    }
    assert_eq!(races(S::EXECUTE_INDIRECT, S::PIXEL_SHADING, own), 1, "half of its own is not enough");
    assert_eq!(races(S::EXECUTE_INDIRECT, S::COPY, S::COPY), 1);
}

/// A draw starts behind a barrier to one of its stages. A root call needs the whole of its umbrella.
#[test]
fn a_barrier_to_one_scope_of_an_access_blocks_it() {
    let races = |later, sync_after| {
        let between = barrier(S::COPY, sync_after, A::COPY_DEST, A::SHADER_RESOURCE);
        let steps = [
            Step::Command(vec![write(1, A::COPY_DEST, S::COPY)]),
            Step::Barrier(between, Some(buffer(1))),
            Step::Command(vec![read(1, A::SHADER_RESOURCE, later)]),
        ];
        let mut checker = Checker::default();
        submission(&mut checker, 1, &steps);
        reports(&mut checker).len()
    };
    let draw = S::VERTEX_SHADING | S::PIXEL_SHADING;
    for (later, sync_after, expected) in [
        (draw, S::PIXEL_SHADING, 0),
        (draw, S::VERTEX_SHADING, 0),
        (draw, S::COMPUTE_SHADING, 1),
        (S::DRAW, S::PIXEL_SHADING, 1),
        (S::DRAW, S::DRAW, 0),
    ] {
        assert_eq!(races(later, sync_after), expected, "{later:?} behind {sync_after:?}");
    }
}

/// Many fences, signals and agents, of which each signals behind a write and is waited for before a read.
#[test]
fn no_limit_on_signals_makes_a_race_of_what_fences_order() {
    let produced = |checker: &mut Checker| {
        submission(checker, 1, &[Step::Command(vec![write(1, A::COPY_DEST, S::COPY)])]);
    };
    let consumed = |checker: &mut Checker| {
        other_queue(checker, read(1, A::COPY_SOURCE, S::COPY));
        reports(checker).len()
    };
    // The signal is dropped, or those that follow drop it.
    for (before, after) in [(limits::FENCES_MAX as u64, 0), (0, limits::FENCES_MAX as u64)] {
        let mut checker = Checker::default();
        (0..before).for_each(|fence| checker.signal(Agent::Process(1), 1000 + fence, 1));
        produced(&mut checker);
        checker.signal(Agent::Queue(1), 9, 1);
        (0..after).for_each(|fence| checker.signal(Agent::Process(1), 1000 + fence, 1));
        checker.wait(Agent::Queue(2), 9, 1);
        assert_eq!(consumed(&mut checker), 0, "{before} fences before, {after} behind");
    }
    // The fence is signaled again by another agent: with more values, after a rewind, after it was forgotten.
    let many = 1..=limits::SIGNALS_PER_FENCE_MAX as u64;
    for (values, fences) in
        [(many.map(|value| value + 5).collect(), 0), (vec![3], 0), (vec![6], limits::FENCES_MAX as u64)]
    {
        let mut checker = Checker::default();
        produced(&mut checker);
        checker.signal(Agent::Queue(1), 9, 5);
        (0..fences).for_each(|fence| checker.signal(Agent::Process(1), 1000 + fence, 1));
        values.iter().for_each(|value| checker.signal(Agent::Process(3), 9, *value));
        checker.wait(Agent::Queue(2), 9, 5);
        assert_eq!(consumed(&mut checker), 0, "{values:?}");
    }
    // An agent over the limit passes on what it has waited for.
    let mut checker = Checker::default();
    produced(&mut checker);
    checker.begin(2, 0);
    (0..limits::AGENTS_MAX as u32).for_each(|process| checker.cpu_access(10 + process, buffer(9), false));
    let over = Agent::Process(10 + limits::AGENTS_MAX as u32);
    checker.signal(Agent::Queue(1), 9, 1);
    checker.wait(over, 9, 1);
    checker.signal(over, 8, 1);
    checker.wait(Agent::Queue(2), 8, 1);
    assert_eq!(consumed(&mut checker), 0, "through an agent over the limit");
}

#[test]
fn the_clocks_of_all_signals_are_bounded() {
    let mut checker = Checker::default();
    let agents = limits::AGENTS_MAX as u32;
    (0..agents).for_each(|process| checker.cpu_access(process, buffer(u64::from(process)), true));
    // The last agent has the longest clock.
    let by = Agent::Process(agents - 1);
    for fence in 0..2 * (limits::CLOCK_WORDS_MAX as u64 / u64::from(agents)) {
        checker.signal(by, fence, 1);
        assert!(checker.words_known() <= limits::CLOCK_WORDS_MAX);
    }
    for submission in 0..2 * (limits::CLOCK_WORDS_MAX as u64 / u64::from(agents)) {
        checker.submit(agents - 1, 7, submission);
        assert!(checker.words_known() <= limits::CLOCK_WORDS_MAX);
    }
    checker.forget(Agent::Queue(7));
    (0..limits::FENCES_MAX as u64).for_each(|fence| checker.forget_fence(fence));
    assert_eq!(checker.words_known(), 0);
}

#[test]
fn a_submission_visits_so_many_ranges_and_what_follows_is_no_race() {
    let mut checker = Checker::default();
    let ranges = 1 << 12;
    let whole = Range { space: 1, start: 0, end: (ranges + 1) * 0x1000 };
    let all: Vec<Access> = (0..ranges).map(|number| write(number, A::COPY_DEST, S::COPY)).collect();
    let other = barrier(S::RESOLVE, S::RESOLVE, A::RESOLVE_DEST, A::RESOLVE_DEST);
    let looked = read(1, A::COPY_SOURCE, S::COPY);
    let races = |checker: &mut Checker, barriers| {
        let barriers = core::iter::repeat_n(Step::Barrier(other, Some(whole)), barriers);
        let steps: Vec<Step> = core::iter::once(Step::Command(all.clone()))
            .chain(barriers)
            .chain([Step::Command(vec![looked]), Step::Command(vec![looked])])
            .collect();
        submission(checker, 1, &steps);
        reports(checker).len()
    };
    assert_eq!(races(&mut checker, 1), 2);
    assert_eq!(checker.forgotten(), 0);
    assert_eq!(races(&mut checker, limits::VISITS_PER_SUBMISSION_MAX / ranges as usize + 5), 0);
    assert!(checker.forgotten() > 0);
    assert_eq!(races(&mut checker, 1), 2, "the next submission is tracked again");
}

/// Lookups of memory cost as much as visits, so they stop where those do.
#[test]
fn memory_is_looked_at_as_far_as_a_submission_may_visit_it() {
    let empty = Range { space: 1, start: 0, end: 0 };
    let piece = |number: u64| if number.is_multiple_of(2) { buffer(number) } else { empty };
    let pieces = 4 * limits::VISITS_PER_SUBMISSION_MAX as u64;
    let mut checker = Checker::default();
    let mut looked = 0;
    checker.begin(1, 1);
    let accesses =
        (0..pieces).map(|number| Access { range: piece(number), ..write(0, A::COPY_DEST, S::COPY) });
    checker.command(1, CommandId::default(), accesses.inspect(|_| looked += 1));
    assert!(looked <= limits::VISITS_PER_SUBMISSION_MAX + 1 && checker.forgotten() > 0, "{looked}");
    checker.command(
        1,
        CommandId::default(),
        [write(0, A::COPY_DEST, S::COPY)].into_iter().inspect(|_| looked = 0),
    );
    assert!(looked > 0, "the next command is not looked at");
    checker.begin(1, 2);
    let other = barrier(S::COPY, S::RESOLVE, A::COPY_DEST, A::RESOLVE_DEST);
    let mut of_barriers = 0;
    for _ in 0..4 {
        let memory = (0..pieces / 4).map(piece).inspect(|_| of_barriers += 1);
        checker.barrier(1, &other, Some(buffer(1)), memory);
    }
    assert!(of_barriers <= limits::VISITS_PER_SUBMISSION_MAX + 1, "{of_barriers}");
    checker.begin(1, 3);
    checker.barrier(1, &other, Some(buffer(1)), core::iter::once(buffer(1)).inspect(|_| of_barriers = 0));
    assert_eq!(of_barriers, 0, "the next submission is tracked again");
}

#[test]
fn a_submission_that_is_not_reported_passes_on_what_its_process_did() {
    let mut checker = Checker::default();
    checker.cpu_access(1, buffer(1), true);
    checker.submit_unseen(1, 1);
    checker.signal(Agent::Queue(1), 9, 1);
    checker.wait(Agent::Queue(2), 9, 1);
    other_queue(&mut checker, read(1, A::COPY_SOURCE, S::COPY));
    assert_eq!(reports(&mut checker), []);
    assert_eq!(checker.submissions_known(), 0);
}

/// Two queues write, and a third reads both buffers behind a wait for a fence of the lost device of the first.
fn behind_a_poisoned_fence(poison: impl Fn(&mut Checker)) -> Vec<u64> {
    let mut checker = Checker::default();
    for queue in [1, 2] {
        checker.begin(queue, 1);
        let command = CommandId { submission: 1, packet: 0 };
        checker.command(queue, command, [write(queue, A::UNORDERED_ACCESS, S::COMPUTE_SHADING)]);
    }
    poison(&mut checker);
    checker.wait(Agent::Queue(3), 7, 1);
    checker.begin(3, 1);
    for queue in [1, 2] {
        let command = CommandId { submission: 1, packet: queue as u32 };
        checker.command(3, command, [read(queue, A::SHADER_RESOURCE, S::COMPUTE_SHADING)]);
    }
    let (reports, _) = checker.take_reports();
    assert_eq!(checker.words_known(), checker.words_counted());
    reports.iter().map(|report| report.range.start / 0x1000).collect()
}

#[test]
fn a_fence_of_a_lost_device_orders_the_work_of_its_queues() {
    let lost = |checker: &mut Checker| {
        checker.work_over(1, 5);
        checker.signal_by_device(5, 7, u64::MAX);
    };
    assert_eq!(behind_a_poisoned_fence(lost), [2], "queue 2 is of another device");
    let early = |checker: &mut Checker| {
        checker.signal_behind_all(7, u64::MAX);
        checker.work_over(1, 5);
    };
    assert_eq!(behind_a_poisoned_fence(early), [], "the work of the device is not known yet");
    let gone = |checker: &mut Checker| {
        checker.work_over(1, 5);
        checker.forget_device(5);
        checker.signal_by_device(5, 7, u64::MAX);
    };
    assert_eq!(behind_a_poisoned_fence(gone), [1, 2], "the number names another device");
}
