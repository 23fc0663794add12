//! Traces to test with: recorded from busy sessions of the real kernel.
#![allow(dead_code)]

#[path = "../../../dxgkrnl/tests/common/session.rs"]
pub mod session;
pub mod traffic;

use std::io::Cursor;
use std::path::Path;

use drivers::Registry;
use dxgkrnl::{
    Config, EngineType, Features, Grant, NodeConfig, Policy, RegistryData, RegistryKey, RegistryValue,
    TargetConfig, TdrConfig, VidSchCaps, VmConfig,
};
use kmd::SimulatedMiniport;
use trace::{Durable, Next, Player, PlayerStep, Reader, Record, Recorder, Recording, Report, TraceError};

pub use session::Step;

/// The drivers that these tests' configurations name.
pub fn drivers() -> Registry {
    Registry::default().with(ANOTHER, || Box::new(SimulatedMiniport::default()))
}

const ANOTHER: &str = "another driver";

/// A configuration that differs from the default in every field.
pub fn config() -> Config {
    let mut config = Config {
        policy: Policy::from_bits(0b101).unwrap(),
        features: Features::KMD_SIGNAL_CPU_EVENT,
        tdr: TdrConfig {
            level: 1,
            delay_ns: 2,
            ddi_delay_ns: 3,
            limit_count: 4,
            limit_time_ns: 5,
            debug_mode: 3,
            test_mode: true,
        },
        vms: vec![
            VmConfig { name: "one".into(), secure: true, adapters: Some(vec![0]), ..VmConfig::default() },
            VmConfig {
                escapes: false,
                asynchronous: true,
                name: "two".into(),
                iommu_isolation: false,
                linux: false,
                memory_bytes: 1 << 30,
                raised_priorities: false,
                disable_gpu_timeout: false,
                ..VmConfig::default()
            },
        ],
        // This flag lets an adapter without ParavirtualizationSupported serve VMs, which sessions have.
        gpu_virtualization_flags: 5,
        test_signing: true,
        grants: vec![Grant { name: "a name".into(), vms: vec!["one".into(), "host".into()] }],
        ..Config::default()
    };
    let adapter = &mut config.adapters[0];
    adapter.description = "another adapter".into();
    adapter.vendor = 7;
    // The fields that an adapter needs to start stay unchanged, because sessions run on it.
    adapter.caps |= VidSchCaps::NO_64_BIT_ATOMICS;
    adapter.physical_adapters = 2;
    adapter.paging_node = Some(1);
    adapter.iommu = true;
    adapter.io_coherent = false;
    adapter.hazards = true;
    adapter.targets = vec![TargetConfig { id: 1, vsync_ns: 2 }, TargetConfig { id: 3, vsync_ns: 4 }];
    adapter.kmd = ANOTHER.into();
    adapter.paravirtualization = false;
    adapter.virtual_functions = 3;
    (adapter.local_budget_bytes, adapter.non_local_budget_bytes) = (1 << 40, 0);
    adapter.wddm_version = 2900;
    let value = |key, name: &str, data| RegistryValue { key, name: name.into(), data };
    adapter.registry = vec![
        value(RegistryKey::Service, "a", RegistryData::Dword(1)),
        value(RegistryKey::Adapter, "b", RegistryData::Qword(u64::MAX)),
        value(RegistryKey::Adapter, "c", RegistryData::Text(String::new())),
        value(RegistryKey::Service, "d", RegistryData::Binary(vec![0, 255])),
    ];
    adapter.nodes[2] = NodeConfig {
        engine_type: EngineType::VideoEncode,
        signals_at_write: true,
        opaque_packet_ns: 5,
        overlap_seed: 7,
        writes_fences: false,
        hw_queues: false,
        max_in_flight_hw_queue_buffers: 6,
        ring_buffer_fence_release: true,
        user_mode_submission: false,
        doorbells: 7,
    };
    config
}

/// A fixed trace number, so that the bytes of two traces can be compared.
pub const RECORDING: Recording = Recording {
    durable: Durable::No,
    trace: Some(0x0123_4567_89AB_CDEF),
    first_step: None,
    bytes_max: None,
    one_block_bytes_max: None,
};

/// A recorder into a private file.
pub fn recorder(path: &Path, config: &Config) -> Recorder {
    Recorder::create_as(path, config, "test 1.0", RECORDING).unwrap()
}

/// Bytes of a trace of these steps; with an end if there is a digest.
pub fn record(config: &Config, steps: &[Step], digest: Option<u64>) -> Vec<u8> {
    record_in_blocks(config, steps, &[], digest)
}

/// As [`record`], with a new block before the steps at these positions.
pub fn record_in_blocks(config: &Config, steps: &[Step], before: &[usize], digest: Option<u64>) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut recorder = recorder(file.path(), config);
    for (at, step) in steps.iter().enumerate() {
        if before.contains(&at) {
            recorder.flush().unwrap();
        }
        recorder.begin(step.now, &step.input).unwrap();
        recorder.end(&step.effects).unwrap();
    }
    match digest {
        Some(digest) => assert_eq!(recorder.finish(digest).unwrap(), steps.len() as u64),
        None => drop(recorder),
    }
    std::fs::read(file.path()).unwrap()
}

pub fn reader(bytes: &[u8]) -> Result<Reader, TraceError> {
    Reader::new(Cursor::new(bytes.to_vec()), Path::new("test.gvt"))
}

/// Every step of an intact trace.
pub fn steps(bytes: &[u8]) -> Vec<Step> {
    let step = |record| match record {
        Ok(Record::Step { now, input, effects, .. }) => Some(Step { now, input, effects: effects.unwrap() }),
        Ok(Record::Snapshot { .. } | Record::End { .. }) => None,
        other => panic!("{other:?}"),
    };
    reader(bytes).unwrap().filter_map(step).collect()
}

/// Offsets of the blocks of an intact trace, and the end of the last one.
pub fn bounds(bytes: &[u8]) -> Vec<usize> {
    let mut bounds = vec![0];
    while let Some(last) = bounds.last().copied().filter(|last| *last < bytes.len()) {
        assert!(bytes[last..].starts_with(b"GPVTRACE"));
        let length = u32::from_le_bytes(bytes[last + 20..last + 24].try_into().unwrap());
        bounds.push(last + 68 + length as usize);
    }
    bounds
}

pub fn replay(bytes: &[u8]) -> Result<Report, TraceError> {
    trace::replay_from(reader(bytes)?, &drivers(), &mut |done, all| assert!(done <= all))
}

/// Records the replay of an intact trace: the recorded inputs, the replayed effects, and snapshots of the replayed
/// kernel where the trace has some.
pub fn record_again(bytes: &[u8]) -> Vec<u8> {
    let mut recorded = reader(bytes).unwrap();
    let mut player = Player::new(reader(bytes).unwrap(), &drivers()).unwrap();
    let header = player.reader().header().clone();
    let trace = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
    let file = tempfile::NamedTempFile::new().unwrap();
    let recording = Recording { trace: Some(trace), ..RECORDING };
    let mut recorder = Recorder::create_as(file.path(), &header.config, &header.program, recording).unwrap();
    let mut step = trace::Step::default();
    loop {
        let next = recorded.next_into(&mut step).unwrap();
        match player.play().unwrap() {
            PlayerStep::Step { sequence, now, .. } => {
                assert!(matches!(next, Next::Step) && step.sequence == sequence);
                recorder.begin(now, &step.input).unwrap();
                recorder.end(player.effects()).unwrap();
            }
            PlayerStep::Snapshot { .. } => {
                recorder.snapshot(&player.kernel().save().unwrap(), player.digest()).unwrap();
            }
            PlayerStep::End { .. } => break,
            other => panic!("{other:?}"),
        }
    }
    recorder.finish(player.digest()).unwrap();
    std::fs::read(file.path()).unwrap()
}
