//! The kernel alone: a CPU signal without waiters, and what recording it costs.

use std::collections::HashMap;
use std::hint::black_box;
use std::time::Instant;

use anyhow::bail;
use d3dkmt::{Call, Handle, Reply, SignalFlags, SyncObjectInfo, SyncObjectType};
use dxgkrnl::{Config, Effects, Input, Kernel, ProcessId, VmId};
use kmd::SimulatedMiniport;
use trace::Recorder;

use super::Plan;
use super::guest::Collected;
use crate::output::Steps;

const PROCESS: ProcessId = ProcessId(1);
const OPERATIONS: usize = 200_000;
const BLOCKS: usize = 10;

/// A kernel with one process and many fences.
struct Model {
    kernel: Kernel<SimulatedMiniport>,
    device: Handle,
    fences: Vec<Handle>,
    value: u64,
    effects: Effects,
}

impl Model {
    fn new(fences: u32) -> anyhow::Result<Model> {
        let mut model = Model {
            kernel: Kernel::new(Config::default(), SimulatedMiniport::default()),
            device: Handle(0),
            fences: Vec::new(),
            value: 0,
            effects: Effects::default(),
        };
        let attached =
            Input::ProcessAttached { process: PROCESS, vm: VmId::HOST, pid: 1, name: "bench".into() };
        model.kernel.handle(0, attached, &mut model.effects);
        // And one for the status.
        let memory = Input::FenceMemoryAdded { process: PROCESS, slots: fences + 1 };
        model.kernel.handle(0, memory, &mut model.effects);
        let Reply::Adapters(adapters) = model.call(Call::EnumAdapters { capacity: 1 })? else {
            bail!("the kernel has no adapter")
        };
        let adapter = adapters[0].handle;
        let Reply::Device(device) = model.call(Call::CreateDevice { adapter, flags: 0 })? else {
            bail!("the kernel makes no device")
        };
        model.device = device;
        let info = SyncObjectInfo { object_type: SyncObjectType::MONITORED_FENCE, ..Default::default() };
        for _ in 0..fences {
            let call = Call::CreateSynchronizationObject { device, info, legacy: false };
            let Reply::SyncObject(fence) = model.call(call)? else { bail!("the kernel makes no fence") };
            model.fences.push(fence.object);
        }
        Ok(model)
    }

    fn call(&mut self, call: Call) -> anyhow::Result<Reply> {
        self.effects.clear();
        self.kernel.handle(0, Input::Call { process: PROCESS, request: 1, call }, &mut self.effects);
        let Some(answer) = self.effects.answers.pop() else { bail!("the kernel did not answer") };
        anyhow::ensure!(answer.status.is_success(), "the kernel refused: {}", answer.status);
        Ok(answer.reply)
    }

    /// A signal of the next fence; fences are visited far apart from each other.
    fn signal(&mut self) -> Input {
        self.value += 1;
        let fence = self.fences[stride(self.value, self.fences.len())];
        let (objects, values) = (vec![fence], vec![self.value]);
        let call = Call::SignalFromCpu { device: self.device, objects, values, flags: SignalFlags::empty() };
        Input::Call { process: PROCESS, request: self.value, call }
    }

    /// Nanoseconds of a signal, the input's making included.
    fn time(&mut self, count: usize) -> f64 {
        let begun = Instant::now();
        for _ in 0..count {
            let input = self.signal();
            self.effects.clear();
            self.kernel.handle(self.value, input, &mut self.effects);
            black_box(&self.effects);
        }
        begun.elapsed().as_nanos() as f64 / count as f64
    }

    /// The same with a recorder.
    fn time_recorded(&mut self, recorder: &mut Recorder, count: usize) -> anyhow::Result<f64> {
        let begun = Instant::now();
        for _ in 0..count {
            let input = self.signal();
            self.effects.clear();
            recorder.begin(self.value, &input)?;
            self.kernel.handle(self.value, input, &mut self.effects);
            recorder.end(&self.effects)?;
        }
        Ok(begun.elapsed().as_nanos() as f64 / count as f64)
    }
}

/// Which of `count` things comes `step`th, never next to the one before.
fn stride(step: u64, count: usize) -> usize {
    (step.wrapping_mul(7919) % count as u64) as usize
}

/// Nanoseconds of a look-up and store in a table of the standard library.
fn time_table(table: &mut HashMap<u32, u64>, keys: &[Handle], count: usize) -> f64 {
    let begun = Instant::now();
    for step in 0..count as u64 {
        let key = keys[stride(step, keys.len())].0;
        if let Some(value) = table.get_mut(black_box(&key)) {
            *value = step;
        }
    }
    begun.elapsed().as_nanos() as f64 / count as f64
}

pub fn measure(plan: &Plan, steps: &Steps, collected: &mut Collected) -> anyhow::Result<()> {
    let figures = [("kernel_signal_100", 100), ("kernel_signal_100k", 100_000)];
    if plan.wants(&["kernel_signal_100", "kernel_signal_100k", "recording"]) {
        steps.step("measuring the kernel alone");
    }
    let count = OPERATIONS / BLOCKS / if plan.quick { 10 } else { 1 };
    for (figure, fences) in figures.into_iter().filter(|(figure, _)| plan.wants(&[figure])) {
        let mut model = Model::new(fences)?;
        let mut table: HashMap<u32, u64> = model.fences.iter().map(|fence| (fence.0, 0)).collect();
        // Every fence once: memory is touched for the first time before anything is timed.
        model.time(fences as usize);
        for _ in 0..plan.rounds {
            let (mut ours, mut peer) = (0.0, 0.0);
            for _ in 0..BLOCKS {
                ours += model.time(count);
                peer += time_table(&mut table, &model.fences, count);
            }
            let arms = [("ours", ours / BLOCKS as f64), ("peer", peer / BLOCKS as f64)];
            collected.add_round(figure, &arms);
        }
    }
    if plan.wants(&["recording"]) { measure_recording(plan, count, collected) } else { Ok(()) }
}

fn measure_recording(plan: &Plan, count: usize, collected: &mut Collected) -> anyhow::Result<()> {
    let folder = tempfile::Builder::new().prefix("gpupv-").tempdir()?;
    let path = folder.path().join("bench.gvt");
    let mut recorder = Recorder::create(&path, &Config::default(), "gpupv bench")?;
    let mut model = Model::new(100)?;
    let mut recorded = 0;
    for _ in 0..plan.rounds {
        let ours = model.time_recorded(&mut recorder, count)?;
        collected.add_round("recording", &[("ours", ours), ("peer", model.time(count))]);
        recorded += count;
    }
    recorder.flush()?;
    let bytes = std::fs::metadata(&path)?.len() as f64;
    collected.add_fact("recording", "bytes_per_step", bytes / recorded as f64);
    Ok(())
}
