//! Traces to test with: recorded from busy sessions of the real kernel.
#![allow(dead_code)]

#[path = "../../../dxgkrnl/tests/common/session.rs"]
pub mod session;

use std::io::Cursor;
use std::path::Path;

use drivers::Registry;
use dxgkrnl::{
    Config, EngineType, Features, Grant, NodeConfig, Policy, RegistryData, RegistryKey, RegistryValue,
    TargetConfig, TdrConfig, VidSchCaps, VmConfig,
};
use kmd::SimulatedMiniport;
use trace::{Reader, Record, Recorder, Report, TraceError};

pub use session::Step;

/// The drivers that configurations of these tests name.
pub fn drivers() -> Registry {
    Registry::default().with(ANOTHER, || Box::new(SimulatedMiniport::default()))
}

const ANOTHER: &str = "another driver";

/// A configuration that is not the default in any field.
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
            debug_mode: 6,
            dod_present_delay_ns: 7,
            dod_vsync_delay_ns: 8,
            test_mode: true,
        },
        vms: vec![
            VmConfig { name: "one".into(), secure: true, adapters: Some(vec![0, 7]), ..VmConfig::default() },
            VmConfig {
                escapes: false,
                asynchronous: true,
                iommu_isolation: false,
                linux: false,
                ..VmConfig::default()
            },
        ],
        // Who has no ParavirtualizationSupported serves VMs by this flag: sessions have VMs.
        gpu_virtualization_flags: 5,
        test_signing: true,
        grants: vec![Grant { name: "a name".into(), vms: vec!["one".into(), "host".into()] }],
        ..Config::default()
    };
    let adapter = &mut config.adapters[0];
    adapter.description = "another adapter".into();
    adapter.vendor = 7;
    // What an adapter needs to start is left as it is: sessions run on this one.
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
    adapter.budget_bytes = [1 << 40, 0];
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
        hw_queues: false,
        max_in_flight_hw_queue_buffers: 6,
        ring_buffer_fence_release: true,
        user_mode_submission: false,
        doorbells: 7,
    };
    config
}

/// The bytes of a trace of these steps; with an end if there is a digest.
pub fn record(config: &Config, steps: &[Step], digest: Option<u64>) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut recorder = Recorder::create(file.path(), config, "test 1.0").unwrap();
    for step in steps {
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
    Reader::new(Cursor::new(bytes.to_vec()), bytes.len() as u64, Path::new("test.gvt"))
}

/// Every step of a trace that is whole.
pub fn steps(bytes: &[u8]) -> Vec<Step> {
    let step = |record| match record {
        Ok(Record::Step { now, input, effects, .. }) => Some(Step { now, input, effects: effects.unwrap() }),
        Ok(Record::End { .. }) => None,
        Err(error) => panic!("{error}"),
    };
    reader(bytes).unwrap().filter_map(step).collect()
}

pub fn replay(bytes: &[u8]) -> Result<Report, TraceError> {
    trace::replay_from(reader(bytes)?, &drivers(), &mut |done, all| assert!(done <= all))
}
