//! The simulated miniport under preemption, resets and faults.

use covers::covers;
use d3dkmt::isa::{self, Packet};
use dxgkrnl::ddi::{
    Callback, EngineId, EngineState, HwContext, Interrupt, Invalidation, Miniport, PageFaultFlags,
    ResetFailed, RunningContext, Submission,
};
use dxgkrnl::{Config, ProcessId};
use kmd::SimulatedMiniport;

const ENGINE: EngineId = EngineId { adapter: 0, node: 0 };
const WRITE: Packet = Packet::FenceWrite { gpu_address: 0x1000, value: 7 };

struct World {
    miniport: SimulatedMiniport,
    callbacks: Vec<Callback>,
}

impl World {
    fn new() -> Self {
        let mut miniport = SimulatedMiniport::default();
        miniport.start(&Config::default());
        World { miniport, callbacks: Vec::new() }
    }

    fn submit(&mut self, now: u64, (context, id): (u32, u64), resubmits: Option<u64>, packets: &[Packet]) {
        let commands = if resubmits.is_some() { Vec::new() } else { isa::encode(packets) };
        let submission = Submission {
            engine: ENGINE,
            context: HwContext(context),
            process: ProcessId(1),
            submission_fence_id: id,
            resubmits,
            paging: false,
            commands,
        };
        self.miniport.submit_command(now, submission, &mut self.callbacks).unwrap();
    }

    /// Interrupts since the last call.
    fn interrupts(&mut self) -> Vec<Interrupt> {
        let interrupt = |callback| match callback {
            Callback::NotifyInterrupt(Interrupt::MonitoredFenceSignaled { .. }) => None,
            Callback::NotifyInterrupt(interrupt) => Some(interrupt),
            _ => None,
        };
        std::mem::take(&mut self.callbacks).into_iter().filter_map(interrupt).collect()
    }

    fn state(&self) -> EngineState {
        self.miniport.engine_state(ENGINE)
    }
}

fn busy(duration_ns: u64) -> Packet {
    Packet::Busy { duration_ns }
}

fn preempted(preemption_fence_id: u64, last_completed_fence_id: u64) -> Interrupt {
    Interrupt::DmaPreempted { engine: ENGINE, preemption_fence_id, last_completed_fence_id }
}

fn completed(submission_fence_id: u64) -> Interrupt {
    Interrupt::DmaCompleted { engine: ENGINE, submission_fence_id }
}

#[test]
fn a_buffer_stops_between_two_packets_and_goes_on_there() {
    covers!("SCH-011");
    let mut world = World::new();
    world.submit(0, (1, 1), None, &[busy(10), busy(10), busy(10)]);
    world.submit(0, (2, 2), None, &[WRITE]);
    world.miniport.preempt_command(5, ENGINE, 77, &mut world.callbacks).unwrap();
    assert_eq!(world.interrupts(), [], "a packet is not split");
    world.miniport.deadline(10, &mut world.callbacks);
    assert_eq!(world.interrupts(), [preempted(77, 0)]);
    assert_eq!((world.state(), world.miniport.next_deadline()), (EngineState::Idle, None));
    world.submit(50, (2, 3), Some(2), &[]);
    assert_eq!(world.interrupts(), [completed(3)], "not begun: from its start");
    world.submit(50, (1, 4), Some(1), &[]);
    assert_eq!(world.miniport.next_deadline(), Some(60));
    world.miniport.deadline(70, &mut world.callbacks);
    assert_eq!(
        (world.interrupts(), world.state()),
        (vec![completed(4)], EngineState::Idle),
        "two packets were left"
    );
}

#[test]
fn the_last_packet_completes_its_buffer_before_the_request_is_answered() {
    let mut world = World::new();
    world.submit(0, (1, 1), None, &[busy(10)]);
    world.miniport.preempt_command(5, ENGINE, 77, &mut world.callbacks).unwrap();
    world.miniport.deadline(10, &mut world.callbacks);
    assert_eq!(world.interrupts(), [completed(1), preempted(77, 1)]);
}

#[test]
fn an_idle_engine_answers_at_once() {
    covers!("TDR-034");
    let mut world = World::new();
    world.submit(0, (1, 1), None, &[]);
    world.interrupts();
    world.miniport.preempt_command(5, ENGINE, 9, &mut world.callbacks).unwrap();
    assert_eq!(world.interrupts(), [preempted(9, 1)]);
}

#[test]
fn a_reset_aborts_what_runs_and_keeps_what_is_queued() {
    let mut world = World::new();
    world.submit(0, (1, 1), None, &[Packet::Hang]);
    world.submit(0, (2, 2), None, &[busy(10)]);
    world.miniport.preempt_command(5, ENGINE, 9, &mut world.callbacks).unwrap();
    let delay = Config::default().tdr.delay_ns;
    for (now, responsive) in [(delay - 1, true), (delay, false)] {
        let status = world.miniport.query_engine_status(now, ENGINE, &mut world.callbacks);
        assert_eq!(status.responsive, responsive, "it runs since 0: {now}");
    }
    assert_eq!(world.miniport.running_context(ENGINE), RunningContext::Context(HwContext(1)));
    assert_eq!(world.miniport.reset_engine(5, ENGINE, &mut world.callbacks), Ok(1));
    assert_eq!(
        (world.state(), world.interrupts()),
        (EngineState::Idle, vec![]),
        "no answer to the old request"
    );
    world.submit(5, (2, 3), Some(2), &[]);
    assert_eq!(world.miniport.next_deadline(), Some(15));
    world.miniport.fail_reset(ENGINE);
    assert_eq!(world.miniport.reset_engine(5, ENGINE, &mut world.callbacks), Err(ResetFailed));
    assert_eq!(world.miniport.reset_engine(5, ENGINE, &mut world.callbacks), Ok(3));
}

#[test]
fn a_fault_to_come_ends_with_a_reset() {
    for page_fault in [false, true] {
        let mut world = World::new();
        match page_fault {
            true => world.miniport.page_fault(0, ENGINE, 64, PageFaultFlags::WRITE, &mut world.callbacks),
            false => world.miniport.hang_engine(ENGINE),
        }
        assert_eq!(world.miniport.reset_engine(5, ENGINE, &mut world.callbacks), Ok(0));
        world.submit(5, (1, 1), None, &[busy(10)]);
        world.miniport.deadline(15, &mut world.callbacks);
        assert_eq!(world.interrupts(), [completed(1)]);
    }
}

#[test]
fn saved_buffers_end_with_their_context() {
    let mut world = World::new();
    world.submit(0, (1, 1), None, &[busy(10), busy(10)]);
    world.miniport.preempt_command(0, ENGINE, 9, &mut world.callbacks).unwrap();
    world.miniport.deadline(10, &mut world.callbacks);
    world.miniport.destroy_context(10, HwContext(1), Some((ENGINE, 1)), &mut world.callbacks);
    world.interrupts();
    // Nothing is saved to continue with: an opaque buffer, which takes the usual time.
    world.submit(10, (1, 2), Some(1), &[]);
    assert_eq!(world.miniport.next_deadline(), Some(100_010));
}

#[test]
fn after_reset_hw_engine_nothing_runs_until_it_is_resumed() {
    covers!("TDR-020", "TDR-021");
    let mut world = World::new();
    world.submit(0, (4, 1), None, &[Packet::Hang]);
    assert_eq!(world.miniport.reset_hw_engine(5, ENGINE, &mut world.callbacks), Ok(()));
    let culprit = Callback::InvalidateHwContext { context: HwContext(4), reason: Invalidation::Culprit };
    assert_eq!(std::mem::take(&mut world.callbacks), [culprit]);
    world.submit(5, (5, 2), None, &[]);
    assert_eq!(world.interrupts(), []);
    assert_eq!(world.miniport.resume_hw_engine(6, ENGINE, &mut world.callbacks), Ok(()));
    world.submit(6, (5, 3), None, &[]);
    assert_eq!(world.interrupts(), [completed(2), completed(3)]);
}

#[test]
fn a_page_fault_ends_the_buffer_and_stops_the_engine_if_a_reset_is_to_follow() {
    let mut world = World::new();
    let fault = |id, flags| Interrupt::DmaPageFaulted {
        engine: ENGINE,
        faulted_fence_id: id,
        gpu_address: 64,
        flags,
    };
    world.submit(0, (1, 1), None, &[busy(10)]);
    world.submit(0, (2, 2), None, &[busy(10)]);
    world.miniport.page_fault(5, ENGINE, 64, PageFaultFlags::WRITE, &mut world.callbacks);
    assert_eq!(world.interrupts(), [fault(1, PageFaultFlags::WRITE)]);
    assert_eq!(world.miniport.next_deadline(), Some(15), "the next one runs");
    let flags = PageFaultFlags::FENCE_INVALID | PageFaultFlags::ENGINE_RESET_REQUIRED;
    world.miniport.page_fault(6, ENGINE, 64, flags, &mut world.callbacks);
    assert_eq!(world.interrupts(), [fault(0, flags)]);
    assert_eq!(world.state(), EngineState::Hung { submission_fence_id: 2, queued: 0 });
}
