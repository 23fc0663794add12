//! What recording and replaying cost on this machine: `cargo run --release -p trace --example recording`.

use std::hint::black_box;
use std::time::Instant;

use d3dkmt::{Call, Handle, NtStatus, Reply, SignalFlags};
use dxgkrnl::{Answer, Config, Effects, FenceStore, Input, Kernel, ProcessId, VmId};
use kmd::SimulatedMiniport;
use trace::Recorder;

const STEPS: u64 = 2_000_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let process = ProcessId(1);
    let input = |value| Input::Call {
        process,
        request: value,
        call: Call::SignalFromCpu {
            device: Handle(0x4000_00C0),
            objects: vec![Handle(0x4000_0100)].into(),
            values: vec![value].into(),
            flags: SignalFlags::empty(),
        },
    };
    let effects = |value| Effects {
        stores: vec![FenceStore { process, slot: 0, value }],
        answers: vec![Answer { process, request: value, status: NtStatus::SUCCESS, reply: Reply::None }],
        ..Effects::default()
    };
    let path = std::env::temp_dir().join(format!("figures-{}.gvt", std::process::id()));
    for _ in 0..3 {
        let mut recorder = Recorder::create(&path, &Config::default(), "figures")?;
        let (one_input, one_effects) = (input(1_000_000), effects(1_000_000));
        let begun = Instant::now();
        for step in 0..STEPS {
            recorder.begin(step * 1000, black_box(&one_input))?;
            recorder.end(black_box(&one_effects))?;
        }
        recorder.flush()?;
        let seconds = begun.elapsed().as_secs_f64();
        let bytes = std::fs::metadata(&path)?.len() as f64;
        println!(
            "record: {:.0} ns/step, {:.1} bytes/step, {:.0} MB/s",
            seconds * 1e9 / STEPS as f64,
            bytes / STEPS as f64,
            bytes / seconds / 1e6
        );
    }
    replay(&path)?;
    std::fs::remove_file(&path)?;
    Ok(())
}

/// Records real signals, then replays them.
fn replay(path: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
    let process = ProcessId(1);
    let mut kernel = Kernel::new(Config::default(), SimulatedMiniport::default());
    let mut recorder = Recorder::create(path, &Config::default(), "figures")?;
    let mut tell = |now, input: Input| -> Result<Effects, trace::TraceError> {
        let mut effects = Effects::default();
        recorder.begin(now, &input)?;
        kernel.handle(now, input, &mut effects);
        recorder.end(&effects)?;
        Ok(effects)
    };
    tell(0, Input::ProcessAttached { process, vm: VmId::HOST, pid: 1, name: "figures".into() })?;
    tell(0, Input::FenceMemoryAdded { process, slots: 64 })?;
    let mut request = 0;
    let mut call = |call| {
        request += 1;
        tell(request, Input::Call { process, request, call })
            .map(|mut effects| effects.answers.remove(0).reply)
    };
    let Reply::Adapters(adapters) = call(Call::EnumAdapters { capacity: 1 })? else { panic!() };
    let Reply::Device(device) = call(Call::CreateDevice { adapter: adapters[0].handle, flags: 0 })? else {
        panic!()
    };
    let info =
        d3dkmt::SyncObjectInfo { object_type: d3dkmt::SyncObjectType::MONITORED_FENCE, ..Default::default() };
    let Reply::SyncObject(fence) = call(Call::CreateSynchronizationObject { device, info, legacy: false })?
    else {
        panic!()
    };
    for value in 1..STEPS {
        let flags = SignalFlags::empty();
        call(Call::SignalFromCpu {
            device,
            objects: vec![fence.object].into(),
            values: vec![value].into(),
            flags,
        })?;
    }
    recorder.finish(kernel.snapshot().digest())?;
    let begun = Instant::now();
    let report = trace::replay(path, &drivers::Registry::default(), &mut |_, _| {})?;
    let seconds = begun.elapsed().as_secs_f64();
    println!("{report}");
    println!("replay: {:.2} million steps/s", report.steps as f64 / seconds / 1e6);
    Ok(())
}
