//! A driver that panics stops its adapter and nothing else, in whichever DDI it panics.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};

use covers::covers;
use d3dkmt::NtStatus;
use drivers::{FilterDriver, Filtered, Registry};
use dxgkrnl::ddi::{
    Callback, DisconnectReason, EngineId, FaultedWork, HwContext, HwQueueId, Interrupt, Invalidation,
    Miniport, NativeFenceId, NativeFenceLogEntry, NativeFenceLogHeader, NativeFenceLogType,
    NativeFenceLogWrite, PageFaultFlags, SignaledNativeFences, Submission,
};
use dxgkrnl::{DmaOp, MemoryRef, Nanos, ProcessId, StagingBuffer};
use kmd::SimulatedMiniport;
use scenario::choose::{First, Random};
use scenario::explore::{chooser, random};
use scenario::model::ModelWorld;
use scenario::run::run;
use scenario::script::{parse, print};
use scenario::world::World as _;
use scenario::{Program, Verdict};

/// The simulated driver, which panics at its call of this number.
struct Fragile {
    inner: SimulatedMiniport,
    calls: Arc<AtomicU64>,
    dies_at: u64,
}

impl Fragile {
    /// Counts a call; every DDI calls this.
    fn count(&self) {
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        assert!(call != self.dies_at, "call {call} was one too many");
    }
}

impl FilterDriver for Fragile {
    fn inner(&self) -> &dyn Miniport {
        self.count();
        &self.inner
    }

    fn inner_mut(&mut self) -> &mut dyn Miniport {
        self.count();
        &mut self.inner
    }
}

/// Returns a registry with such drivers as `fragile`, and their common count of calls.
fn fragile(dies_at: u64) -> (Registry, Arc<AtomicU64>) {
    let calls = Arc::new(AtomicU64::new(0));
    let counted = calls.clone();
    let registry = Registry::default().with("fragile", move || {
        let inner = SimulatedMiniport::default();
        Box::new(Filtered(Fragile { inner, calls: counted.clone(), dies_at }))
    });
    (registry, calls)
}

/// Suppresses the output of the drivers' intended panics.
fn quietly() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let words = drivers::panic_words(info.payload());
            if !["one too many", "never to hang", "already"].iter().any(|text| words.contains(text)) {
                others(info);
            }
        }));
    });
}

/// Runs a program of this seed whose first adapter's driver panics at that call. Returns the number of calls.
fn run_of(seed: u64, dies_at: u64) -> u64 {
    let mut program: Program = random(seed);
    program.setting.kernel.adapters[0].kmd = "fragile".into();
    let (registry, calls) = fragile(dies_at);
    let mut world = ModelWorld::with_drivers(&program, &registry, None);
    // The invariants are checked after each step: a violation would fail the run.
    let ended = run(&program, &mut world, &mut chooser(seed));
    assert_eq!(ended.verdict, Verdict::Passed, "seed {seed}, dies at call {dies_at}");
    let counted = calls.load(Ordering::Relaxed);
    // More calls are those of another daemon's driver, after a restart. The last call may have been a query of the
    // checker: then the next step stops the adapter.
    if counted == dies_at {
        world.advance(0).expect("time passes");
        let stopped = &world.snapshot().stopped_adapters;
        assert!(stopped.contains(&0), "seed {seed}: the driver died at call {dies_at}, its adapter goes on");
    }
    counted
}

#[test]
fn a_driver_may_panic_at_any_of_its_calls() {
    quietly();
    for seed in 0..60 {
        let calls = run_of(seed, u64::MAX);
        for dies_at in 1..=calls {
            run_of(seed, dies_at);
        }
    }
}

/// A driver that panics when its engine is to hang, on a scenario's command.
struct AtWord(SimulatedMiniport);

impl FilterDriver for AtWord {
    fn inner(&self) -> &dyn Miniport {
        &self.0
    }

    fn inner_mut(&mut self) -> &mut dyn Miniport {
        &mut self.0
    }

    fn hang_engine(&mut self, engine: EngineId) {
        panic!("node {} was never to hang", engine.node);
    }
}

fn passes(registry: &Registry, text: &str) {
    for program in parse(text).expect("it reads") {
        let ended = run(&program, &mut ModelWorld::with_drivers(&program, registry, None), &mut First);
        assert_eq!(ended.verdict, Verdict::Passed);
    }
}

#[test]
fn one_adapter_stops_with_its_drivers_words_and_the_other_goes_on() {
    covers!("TDR-031");
    quietly();
    let registry =
        Registry::default().with("at_word", || Box::new(Filtered(AtWord(SimulatedMiniport::default()))));
    passes(&registry, include_str!("driver_panics/one_of_two.scn"));
}

#[test]
fn an_adapter_whose_driver_nobody_knows_does_not_start() {
    let text = "scenario \"x\"\nconfig adapter 0 kmd=mine\nprocess p\np A = adapters -> ok\n";
    let program = parse(text).expect("it reads").remove(0);
    let world = ModelWorld::with_drivers(&program, &Registry::default(), None);
    let config = &program.setting.kernel;
    let why = Registry::default().check(config).expect_err("nobody registered it").to_string();
    assert_eq!(why, "there is no driver named \"mine\"; there are simulated");
    assert!({ world }.snapshot().stopped_adapters.contains(&0));
}

#[test]
fn a_driver_is_written_back_as_it_was_read() {
    let text = "scenario \"x\"\nconfig adapters = 2\nconfig adapter 1 kmd=mine\nprocess p\n";
    let program = parse(text).expect("it reads").remove(0);
    assert_eq!(program.setting.kernel.adapters[1].kmd, "mine");
    assert!(print(&program).contains("config adapter 1 kmd=mine\n"), "{}", print(&program));
}

#[test]
fn a_name_is_registered_once() {
    quietly();
    let twice = || Registry::default().with("simulated", || Box::new(SimulatedMiniport::default()));
    assert!(std::panic::catch_unwind(twice).is_err());
}

/// A driver with random callbacks: numbers by seed, most of them invalid.
struct Wild {
    inner: SimulatedMiniport,
    numbers: RefCell<Random>,
}

impl Wild {
    fn number(&self, end: u64) -> u64 {
        match self.numbers.borrow_mut().number() % 5 {
            0 => u64::MAX,
            one => one.wrapping_add(self.numbers.borrow_mut().number()) % end,
        }
    }

    fn engine(&self) -> EngineId {
        EngineId { adapter: self.number(3) as u32, node: self.number(9) as u32 }
    }

    fn interrupt(&self) -> Interrupt {
        let (engine, id, context) = (self.engine(), self.number(9), HwContext(self.number(9) as u32));
        let (hw_queue, flags) =
            (HwQueueId(self.number(5) as u32), PageFaultFlags::from_bits_retain(self.number(256) as u32));
        match self.number(12) {
            0 => Interrupt::DmaCompleted { engine, submission_fence_id: id },
            1 => Interrupt::DmaPreempted { engine, preemption_fence_id: id, last_completed_fence_id: id },
            2 => Interrupt::CrtcVsync { adapter: engine.adapter, target: 7 },
            3 => Interrupt::DmaFaulted { engine, faulted_fence_id: id },
            4 => Interrupt::DmaPageFaulted { engine, faulted_fence_id: id, gpu_address: id, flags },
            5 => {
                let work = FaultedWork::Queue { hw_queue, progress_fence_id: id };
                Interrupt::HwQueuePageFaulted { engine, work, gpu_address: 0, flags }
            }
            6 => Interrupt::HwQueuePageFaulted {
                engine,
                work: FaultedWork::Context(context),
                gpu_address: 0,
                flags,
            },
            7 => Interrupt::GpuEngineTimeout { engine },
            8 => Interrupt::SuspendContextCompleted { engine, context, suspend_fence: id },
            9 => Interrupt::EngineToF1 { engine },
            10 => {
                let signaled = SignaledNativeFences::Logged { hw_queue: Some(hw_queue) };
                Interrupt::NativeFenceSignaled { engine, signaled }
            }
            _ => Interrupt::PeriodicMonitoredFenceSignaled {
                adapter: engine.adapter,
                vidpn_target: 0,
                notification_id: id,
            },
        }
    }

    fn call_back(&self, callbacks: &mut Vec<Callback>) {
        let (engine, hw_queue, gpu_address) =
            (self.engine(), HwQueueId(self.number(5) as u32), self.number(8) << 6);
        let (process, value) = (ProcessId(self.number(4) as u32), self.number(1000));
        callbacks.push(match self.number(10) {
            0 => Callback::GpuStore { engine, process, gpu_address, value },
            1 => Callback::HwQueueStore { engine, hw_queue, gpu_address, value },
            2 => Callback::NotifyDpc { adapter: engine.adapter },
            3 => Callback::InvalidateHwContext {
                context: HwContext(hw_queue.0),
                reason: Invalidation::Culprit,
            },
            4 => Callback::DisconnectDoorbell { hw_queue, reason: DisconnectReason::Retry },
            5 => {
                let log = NativeFenceLogType::Signals;
                let (index, fence) = (self.number(200) as u32, NativeFenceId(value));
                let (observed_gpu_timestamp, end_gpu_timestamp) = (value, value);
                let entry = NativeFenceLogEntry {
                    fence_value: value,
                    fence,
                    observed_gpu_timestamp,
                    end_gpu_timestamp,
                };
                let header = NativeFenceLogHeader(self.number(u64::MAX));
                Callback::NativeFenceLogWrite(NativeFenceLogWrite { hw_queue, log, index, entry, header })
            }
            6 => {
                let staging_buffer = StagingBuffer { adapter: engine.adapter, number: value };
                let (from, to) = (
                    MemoryRef::StagingBuffer { staging_buffer, offset: 0 },
                    MemoryRef::Memory { process, address: gpu_address },
                );
                Callback::Dma { engine, moved: DmaOp::Copy { from, to, bytes: value } }
            }
            _ => Callback::NotifyInterrupt(self.interrupt()),
        });
    }
}

impl FilterDriver for Wild {
    fn inner(&self) -> &dyn Miniport {
        &self.inner
    }

    fn inner_mut(&mut self) -> &mut dyn Miniport {
        &mut self.inner
    }

    fn deadline(&mut self, now: Nanos, callbacks: &mut Vec<Callback>) {
        self.call_back(callbacks);
        self.inner.deadline(now, callbacks);
        self.call_back(callbacks);
    }

    fn submit_command(
        &mut self,
        now: Nanos,
        submission: Submission,
        callbacks: &mut Vec<Callback>,
    ) -> Result<(), NtStatus> {
        let submitted = self.inner.submit_command(now, submission, callbacks);
        self.call_back(callbacks);
        submitted
    }

    fn stop_device(&mut self, adapter: u32, callbacks: &mut Vec<Callback>) {
        self.call_back(callbacks);
        self.inner.stop_device(adapter, callbacks);
    }

    fn destroy_hw_queue(&mut self, now: Nanos, hw_queue: HwQueueId, callbacks: &mut Vec<Callback>) {
        self.inner.destroy_hw_queue(now, hw_queue, callbacks);
        self.call_back(callbacks);
    }
}

#[test]
fn no_callback_panics_the_kernel() {
    quietly();
    for seed in 0..3000 {
        let mut program: Program = random(seed);
        program.setting.kernel.adapters[0].kmd = "wild".into();
        let registry = Registry::default().with("wild", move || {
            let numbers = RefCell::new(Random::new(seed));
            Box::new(Filtered(Wild { inner: SimulatedMiniport::default(), numbers }))
        });
        // The values that such a driver writes do not matter; the kernel must survive.
        let mut world = ModelWorld::with_drivers(&program, &registry, None);
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            run(&program, &mut world, &mut chooser(seed));
        }));
        let words = ran.map_err(|panic| drivers::panic_words(&*panic).to_owned());
        assert_eq!(words, Ok(()), "seed {seed}");
    }
}
