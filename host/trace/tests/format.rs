//! The file is what the documentation says, and everything the kernel can say survives it.

mod common;

use common::{config, reader, record, replay, session, steps};
use d3dkmt::{Adapter, CreatedSyncObject, EventId, Handle, Luid, NtStatus, Reply, ShareToken, WaitOutcome};
use dxgkrnl::{
    Answer, Config, DataMove, Effects, EngineId, Fault, FenceStore, HostEvent, Input, MoveKernel, Note,
    Place, ProcessId, SEMANTIC_VERSION, Shadow, VmId,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use prost::Message;
use proto::trace as wire;
use session::Step;
use trace::{FORMAT_VERSION, TraceError, Verdict};

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// A block around a payload, written from the documentation.
fn block(number: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = b"GPVTRACE".to_vec();
    bytes.extend((payload.len() as u32).to_le_bytes());
    bytes.extend(crc32c::crc32c(payload).to_le_bytes());
    bytes.extend(number.to_le_bytes());
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    [&bytes, payload].concat()
}

/// The records of a trace, read from the documentation, with their bytes.
fn raw_records(mut bytes: &[u8]) -> Vec<(wire::Record, Vec<u8>)> {
    let mut records = Vec::new();
    let mut number = 0;
    while !bytes.is_empty() {
        let length = word(bytes, 8) as usize;
        let (whole, rest) = bytes.split_at(24 + length);
        assert_eq!(whole, block(number, &whole[24..]));
        let mut payload = &whole[24..];
        while !payload.is_empty() {
            let length = prost::decode_length_delimiter(&mut payload).unwrap();
            let (record, others) = payload.split_at(length);
            records.push((wire::Record::decode(record).unwrap(), record.to_vec()));
            payload = others;
        }
        bytes = rest;
        number += 1;
    }
    records
}

#[test]
fn the_file_is_what_the_documentation_says() {
    let (steps, digest) = session::run(13, config(), 2000);
    let records = raw_records(&record(&config(), &steps, Some(digest)));
    assert_eq!(records.len(), steps.len() + 2);
    for (at, (record, bytes)) in records.iter().enumerate() {
        assert_eq!(record.sequence, at as u64);
        assert_eq!(&record.encode_to_vec(), bytes, "record {at} is not as prost writes it");
    }
    let Some(wire::record::Body::Header(header)) = &records[0].0.body else { panic!() };
    assert_eq!((header.format_version, header.semantic_version), (FORMAT_VERSION, SEMANTIC_VERSION));
    let end = wire::End { steps: 2000, state_digest: digest };
    assert_eq!(records.last().unwrap().0.body, Some(wire::record::Body::End(end)));
}

/// A trace with this header and these bodies after it, all checksums right.
fn forged(header: wire::Header, bodies: Vec<Option<wire::record::Body>>) -> Vec<u8> {
    let payload =
        |sequence, body| wire::Record { sequence, now_ns: 0, body }.encode_length_delimited_to_vec();
    let mut bytes = block(0, &payload(0, Some(wire::record::Body::Header(header))));
    for (sequence, body) in (1..).zip(bodies) {
        bytes.extend(block(sequence as u32, &payload(sequence, body)));
    }
    bytes
}

fn header() -> wire::Header {
    let records = raw_records(&record(&Config::default(), &[], Some(0)));
    let Some(wire::record::Body::Header(header)) = records[0].0.body.clone() else { panic!() };
    header
}

#[test]
fn other_versions_are_refused_with_both_numbers() {
    let format = forged(wire::Header { format_version: 77, ..header() }, vec![]);
    let semantic = forged(wire::Header { semantic_version: 88, ..header() }, vec![]);
    for (bytes, what, theirs, ours) in
        [(format, "format", 77, FORMAT_VERSION), (semantic, "semantic", 88, SEMANTIC_VERSION)]
    {
        let error = replay(&bytes).unwrap_err();
        assert!(matches!(error, TraceError::Version { .. }));
        let text = error.to_string();
        assert!(text.contains(&format!("{what} version {theirs}, this program has {ours}")), "{text}");
        assert!(text.contains("test 1.0"), "{text}");
    }
}

#[test]
fn configurations_that_cannot_be_built_are_refused() {
    let change = |change: fn(&mut wire::KernelConfig)| {
        let mut header = header();
        change(header.kernel.as_mut().unwrap());
        replay(&forged(header, vec![])).unwrap_err().to_string()
    };
    let policy = change(|config| config.policy = 1 << 31);
    assert!(policy.contains("policy is 2147483648"), "{policy}");
    let engine = change(|config| config.adapters[0].nodes[0].engine_type = 5);
    assert!(engine.contains("engine_type is 5"), "{engine}");
    let caps = change(|config| config.adapters[0].caps = 1 << 30);
    assert!(caps.contains("caps is 1073741824"), "{caps}");
    let features = change(|config| config.features = 64);
    assert!(features.contains("features is 64"), "{features}");
    let tdr = change(|config| config.tdr = None);
    assert!(tdr.contains("no tdr"), "{tdr}");
    let luid = change(|config| config.adapters[0].luid = None);
    assert!(luid.contains("no luid"), "{luid}");
}

#[test]
fn records_that_make_no_sense_are_damage_whatever_their_checksum() {
    use wire::record::Body;
    let step = |input| Some(Body::Step(wire::Step { input, effects: Some(wire::Effects::default()) }));
    let gone = |process| Some(wire::Input { body: Some(wire::input::Body::ProcessGone(process)) });
    let bare_fault = wire::input::Body::Fault(wire::Fault { kind: None });
    let bare_call = wire::input::Body::Call(wire::Call { process: 1, frame: None });
    let unfinished = Some(Body::Step(wire::Step { input: gone(1), effects: None }));
    let answer = wire::Sent { process: 1, frame: Some(proto::channel::ToGuest::default()) };
    let answered = wire::Effects { answers: vec![answer], ..wire::Effects::default() };
    let cases = [
        (vec![None], "kind that this program does not know"),
        (vec![step(None)], "a step has no input"),
        (vec![step(Some(wire::Input { body: None }))], "Input has no body"),
        (vec![step(Some(wire::Input { body: Some(bare_call) }))], "Call has no frame"),
        (vec![step(Some(wire::Input { body: Some(bare_fault) }))], "Fault has no kind"),
        (vec![Some(Body::Header(header()))], "a second header"),
        (vec![Some(Body::End(wire::End { steps: 3, state_digest: 0 }))], "counts 3 steps, the file has 0"),
        (vec![unfinished, step(gone(2))], "step #1 has no effects and is not the last"),
        (vec![Some(Body::Step(wire::Step { input: gone(1), effects: Some(answered) }))], "request 0"),
    ];
    for (bodies, why) in cases {
        let good = bodies.len() as u64 - 1;
        let report = replay(&forged(header(), bodies)).unwrap();
        let Verdict::Damaged { damage } = &report.verdict else { panic!("{report}") };
        assert!(damage.why.contains(why), "{damage}");
        assert_eq!(damage.last_good, Some(good), "{damage}");
    }
}

#[test]
fn records_are_shown_line_by_line() {
    let (steps, digest) = session::run(14, Config::default(), 30);
    let bytes = record(&Config::default(), &steps, Some(digest));
    let lines: Vec<String> = reader(&bytes).unwrap().map(|record| record.unwrap().to_string()).collect();
    assert!(lines[0].starts_with("#1 ") && lines[0].ends_with(" ns vm 1 attached (vm-1)"), "{}", lines[0]);
    assert!(lines.iter().any(|line| line.contains("CreateDevice") && line.contains("\n    answer p")));
    assert!(lines[30].starts_with("#31 end: 30 steps, state digest 0x"));
}

fn process() -> impl Strategy<Value = ProcessId> {
    prop_oneof![0..3u32, any::<u32>()].prop_map(ProcessId)
}

fn vm() -> impl Strategy<Value = VmId> {
    prop_oneof![0..3u32, any::<u32>()].prop_map(VmId)
}

fn fault() -> impl Strategy<Value = Fault> {
    let number = || prop_oneof![0..3u32, any::<u32>()];
    let engine = move || (number(), number()).prop_map(|(adapter, node)| EngineId { adapter, node });
    prop_oneof![
        engine().prop_map(|engine| Fault::LoseInterrupt { engine }),
        engine().prop_map(|engine| Fault::Hang { engine }),
        number().prop_map(|adapter| Fault::StopAdapter { adapter }),
        (engine(), any::<u64>(), any::<u32>()).prop_map(|(engine, gpu_address, flags)| Fault::PageFault {
            engine,
            gpu_address,
            flags
        }),
        engine().prop_map(|engine| Fault::ResetFails { engine }),
        (number(), any::<bool>()).prop_map(|(adapter, on)| Fault::Power { adapter, on }),
        engine().prop_map(|engine| Fault::EngineToF1 { engine }),
        (any::<u32>(), any::<u32>()).prop_map(|(adapter, usage)| Fault::ObjectGoesBad { adapter, usage }),
    ]
}

/// Inputs other than calls; calls have their own property in `proto`, and come from sessions here.
fn input() -> impl Strategy<Value = Input> {
    prop_oneof![
        (vm(), ".{0,200}").prop_map(|(vm, name)| Input::VmAttached { vm, name }),
        vm().prop_map(|vm| Input::VmDetached { vm }),
        vm().prop_map(|vm| Input::MemoryChanged { vm }),
        (process(), vm(), any::<u32>(), ".{0,200}")
            .prop_map(|(process, vm, pid, name)| Input::ProcessAttached { process, vm, pid, name }),
        (process(), any::<u32>()).prop_map(|(process, slots)| Input::FenceMemoryAdded { process, slots }),
        process().prop_map(|process| Input::ProcessGone { process }),
        (process(), any::<bool>()).prop_map(|(process, frozen)| Input::ProcessFrozen { process, frozen }),
        (vm(), any::<[u8; 16]>())
            .prop_map(|(vm, token)| Input::NtHandleClosed { vm, token: ShareToken(token) }),
        Just(Input::Deadline),
        fault().prop_map(Input::Fault),
        prop_oneof![Just(0), any::<i64>()].prop_map(|utc_100ns| Input::SystemTime { utc_100ns }),
        (process(), any::<(u32, u64)>(), vec(vec(any::<u8>(), 0..200), 0..4)).prop_map(
            |(process, (queue, last_queued), buffers)| {
                Input::DoorbellRung { process, queue: Handle(queue), last_queued, buffers }
            }
        ),
        (any::<u64>(), 1..40u64, process(), any::<u64>()).prop_map(|(seed, skip, process, request)| {
            let mut session = session::Session::new(seed, Config::default());
            let calls = (0..60 + skip).filter_map(|_| match session.step().input {
                Input::Call { call, .. } => Some(call),
                _ => None,
            });
            Input::Call { process, request, call: calls.last().unwrap() }
        }),
    ]
}

fn reply() -> impl Strategy<Value = Reply> {
    let adapter = (any::<u32>(), any::<(u32, i32, u32)>()).prop_map(|(handle, (low, high, sources))| {
        Adapter { handle: Handle(handle), luid: Luid { low, high }, sources }
    });
    let created = (any::<[u32; 2]>(), option::of(0..u32::MAX - 1), any::<[u64; 2]>());
    prop_oneof![
        Just(Reply::None),
        vec(adapter, 0..4).prop_map(Reply::Adapters),
        vec(any::<u8>(), 0..20_000).prop_map(Reply::AdapterInfo),
        any::<u32>().prop_map(|handle| Reply::Device(Handle(handle))),
        any::<u32>().prop_map(Reply::DeviceState),
        created.prop_map(|(handles, slot, [gpu_address, paging_fence_value])| Reply::SyncObject(
            CreatedSyncObject {
                object: Handle(handles[0]),
                shared_handle: Handle(handles[1]),
                slot,
                gpu_address,
                paging_fence_value
            }
        )),
        Just(Reply::Wait(WaitOutcome::Registered)),
        Just(Reply::Wait(WaitOutcome::Satisfied)),
        Just(Reply::FenceMemoryExhausted),
    ]
}

fn place() -> impl Strategy<Value = Place> {
    let shadow = (any::<u32>(), any::<u64>()).prop_map(|(adapter, number)| Shadow { adapter, number });
    prop_oneof![
        (process(), any::<u64>()).prop_map(|(process, address)| Place::Memory { process, address }),
        (shadow, any::<u64>()).prop_map(|(shadow, offset)| Place::Shadow { shadow, offset }),
    ]
}

fn data_move() -> impl Strategy<Value = DataMove> {
    let (number, word) = (any::<u64>, any::<u32>);
    prop_oneof![
        (place(), place(), number()).prop_map(|(from, to, bytes)| DataMove::Copy { from, to, bytes }),
        (place(), number(), word()).prop_map(|(to, bytes, pattern)| DataMove::Fill { to, bytes, pattern }),
        (0..MoveKernel::ALL.len(), place(), place(), number(), word()).prop_map(
            |(kernel, from, to, bytes, operand)| {
                let kernel = MoveKernel::ALL[kernel];
                DataMove::Compute { kernel, from, to, bytes, operand }
            }
        ),
        (word(), number())
            .prop_map(|(adapter, number)| DataMove::Release { shadow: Shadow { adapter, number } }),
        word().prop_map(|adapter| DataMove::ReleaseAll { adapter }),
    ]
}

fn effects() -> impl Strategy<Value = Effects> {
    let store = (process(), any::<u32>(), prop_oneof![Just(0), any::<u64>()])
        .prop_map(|(process, slot, value)| FenceStore { process, slot, value });
    let answer =
        (process(), 1..=u64::MAX, any::<u32>(), reply()).prop_map(|(process, request, status, reply)| {
            Answer { process, request, status: NtStatus(status), reply }
        });
    let event = (process(), 1..=u64::MAX, any::<u32>()).prop_map(|(process, event, status)| HostEvent {
        process,
        event: EventId(event),
        status: NtStatus(status),
    });
    let note = (option::of(process()), ".{0,300}").prop_map(|(process, text)| Note { process, text });
    (vec(data_move(), 0..4), vec(store, 0..5), vec(answer, 0..3), vec(event, 0..5), vec(note, 0..3))
        .prop_map(|(moves, stores, answers, events, notes)| Effects { moves, stores, answers, events, notes })
}

proptest! {
    #[test]
    fn every_input_and_effect_survives_the_file(
        raw in vec((any::<u64>(), input(), effects()), 1..20),
        digest in any::<u64>(),
    ) {
        let written: Vec<Step> =
            raw.into_iter().map(|(now, input, effects)| Step { now, input, effects }).collect();
        let bytes = record(&config(), &written, Some(digest));
        prop_assert_eq!(steps(&bytes), written);
        for (record, bytes) in raw_records(&bytes) {
            prop_assert_eq!(record.encode_to_vec(), bytes);
        }
    }
}
