//! The file format matches the documentation, and all inputs and effects survive a round trip.

use crate::common;

use common::{RECORDING, bounds, config, reader, record, replay, session, steps};
use d3dkmt::{
    Adapter, Call, CreatedSyncObject, EventId, GpuSignal, GuestEvent, Handle, Luid, NtStatus, Reply,
    ShareToken, SignalFlags, WaitFromCpuFlags, WaitOutcome, WakeTarget, calls,
};
use dxgkrnl::{
    Answer, ComputeOp, Config, DmaOp, DriverAnswer, Effects, EngineId, Fault, Features, FenceStore,
    HostEvent, Input, MemoryRef, Note, ProcessId, SEMANTIC_VERSION, StagingBuffer, SyncFileReady, VmId,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use prost::Message;
use proto::trace as wire;
use session::Step;
use trace::{FORMAT_VERSION, TraceError, Verdict, verify};

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// A FIFO would wait for a writer for ever.
#[test]
fn a_fifo_is_refused_at_once_as_a_trace_and_beside_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.gvt");
    let fifo = |path: &std::path::Path| {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).unwrap();
    };
    fifo(&path);
    let error = trace::Reader::open(&path).err().unwrap().to_string();
    assert!(error.contains("it is not a regular file"), "{error}");
    assert!(!trace::has_end(&path));
    std::fs::remove_file(&path).unwrap();
    let (recorded, digest) = session::run(7, Config::default(), 3);
    std::fs::write(&path, record(&Config::default(), &recorded, Some(digest))).unwrap();
    fifo(&trace::beside(&path, ".open"));
    assert!(verify(trace::Reader::open(&path).unwrap()).unwrap().is_whole());
}

/// A block with this content, encoded as documented.
fn block(
    number: u32,
    kind: u8,
    first_step: u64,
    steps: u32,
    times: [u64; 2],
    link: u32,
    content: &[u8],
) -> Vec<u8> {
    let mut bytes = b"GPVTRACE".to_vec();
    bytes.extend(RECORDING.trace.unwrap().to_le_bytes());
    bytes.extend(3u16.to_le_bytes());
    bytes.extend([kind, 0]);
    bytes.extend((content.len() as u32).to_le_bytes());
    bytes.extend(crc32c::crc32c(content).to_le_bytes());
    bytes.extend(steps.to_le_bytes());
    bytes.extend(first_step.to_le_bytes());
    times.iter().for_each(|time| bytes.extend(time.to_le_bytes()));
    bytes.extend(number.to_le_bytes());
    bytes.extend(link.to_le_bytes());
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    [&bytes, content].concat()
}

/// Kind and content of a trace's blocks, decoded as documented.
fn raw_blocks(bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let long = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let mut blocks = Vec::new();
    let (mut link, mut next_step) = (0, 1);
    for (number, two) in bounds(bytes).windows(2).enumerate() {
        let block_bytes = &bytes[two[0]..two[1]];
        let (kind, steps, first_step) = (block_bytes[18], word(block_bytes, 28), long(block_bytes, 32));
        let times = [long(block_bytes, 40), long(block_bytes, 48)];
        assert_eq!(
            block_bytes,
            block(number as u32, kind, first_step, steps, times, link, &block_bytes[68..])
        );
        assert_eq!(first_step, next_step);
        next_step += u64::from(steps);
        link = word(block_bytes, 64);
        blocks.push((kind, block_bytes[68..].to_vec()));
    }
    blocks
}

/// The message records in a trace's data blocks; compact records are skipped.
fn messages(bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut messages = Vec::new();
    let mut count = |content: &[u8]| {
        let mut rest = content;
        while let [kind, after @ ..] = rest
            && *kind < 0x80
        {
            rest = after;
            let length = prost::decode_length_delimiter(&mut rest).unwrap();
            messages.push((*kind, rest[..length].to_vec()));
            rest = &rest[length..];
        }
    };
    raw_blocks(bytes).iter().filter(|(kind, _)| *kind == 2).for_each(|(_, content)| count(content));
    messages
}

#[test]
fn the_file_is_what_the_documentation_says() {
    let (steps, digest) = session::run(13, config(), 2000);
    let bytes = record(&config(), &steps, Some(digest));
    let blocks = raw_blocks(&bytes);
    let kinds: Vec<u8> = blocks.iter().map(|(kind, _)| *kind).collect();
    assert!(kinds.starts_with(&[1, 2]) && kinds.ends_with(&[2, 4, 5]), "{kinds:?}");
    let header = wire::Header::decode(&blocks[0].1[..]).unwrap();
    assert_eq!((header.semantic_version, header.first_step), (SEMANTIC_VERSION, 1));
    let end = wire::End::decode(&blocks.last().unwrap().1[..]).unwrap();
    assert_eq!((end.steps, end.state_digest, end.dropped), (2000, digest, 0));
    let index_at = bounds(&bytes)[blocks.len() - 2] as u64;
    assert_eq!(end.last_index, index_at);
    let index = wire::Index::decode(&blocks[blocks.len() - 2].1[..]).unwrap();
    assert_eq!((index.entries.len(), index.previous_index, index.last_snapshot), (blocks.len() - 2, 0, 0));
    for (entry, begin) in index.entries.iter().zip(bounds(&bytes)) {
        assert_eq!(entry.offset, begin as u64);
        assert_eq!(entry.header, bytes[begin + 16..begin + 68]);
    }
    assert_eq!(index.entries[1].vms, [1, 2]);
    assert_eq!(index.entries[1].processes[..3], [1, 2, 3]);
}

/// The bytes of the example in docs/TRACE.md; `None` where it says `..`.
fn documented() -> Vec<Option<u8>> {
    let text = include_str!("../../../../docs/TRACE.md");
    let example = text.split("```hex\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let byte = |word: &str| match word {
        ".." => Some(None),
        _ if word.len() == 2 => u8::from_str_radix(word, 16).ok().map(Some),
        _ => None,
    };
    example.lines().flat_map(|line| line.split(' ').map_while(byte)).collect()
}

#[test]
fn the_example_of_the_documentation_is_what_is_recorded() {
    let process = ProcessId(5);
    let step = |now, request: u64| {
        let call = calls::signal(Handle(0x4000_00C0), Handle(0x4000_0100), request);
        let mut effects = Effects::default();
        effects.stores.push(FenceStore { process, slot: 1, value: request });
        effects.answers.push(Answer { process, request, status: NtStatus::SUCCESS, reply: Reply::None });
        Step { now, input: Input::Call { process, request, call }, effects }
    };
    let steps = [step(1_000_000, 1), step(1_001_700, 2)];
    let bytes = record(&Config::default(), &steps, Some(0));
    let bounds = bounds(&bytes);
    let recorded = &bytes[bounds[1]..bounds[2]];
    let documented = documented();
    let same = documented.iter().zip(recorded).all(|(said, is)| said.is_none_or(|said| said == *is));
    assert!(same && documented.len() == recorded.len(), "it is {recorded:02X?}");
    assert_eq!(common::steps(&bytes), steps);
}

/// A trace with this header and these records, each in its own block with a step count of 1.
fn forged(header: &wire::Header, records: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = block(0, 1, 1, 0, [0; 2], 0, &header.encode_to_vec());
    for (number, record) in (1..).zip(records) {
        let link = word(&bytes, bytes.len() - 4 - last_content(&bytes));
        bytes.extend(block(number, 2, number.into(), 1, [0; 2], link, record));
    }
    bytes
}

/// Length of the last block's content.
fn last_content(bytes: &[u8]) -> usize {
    let bounds = bounds(bytes);
    bytes.len() - bounds[bounds.len() - 2] - 68
}

/// A record of this kind.
fn delimited(kind: u8, message: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    prost::encode_length_delimiter(message.len(), &mut bytes).unwrap();
    [&bytes, message].concat()
}

fn header() -> wire::Header {
    wire::Header::decode(&raw_blocks(&record(&Config::default(), &[], Some(0)))[0].1[..]).unwrap()
}

#[test]
fn other_versions_are_refused_with_both_numbers() {
    let mut format = forged(&header(), &[]);
    format[16..18].copy_from_slice(&77u16.to_le_bytes());
    let crc = crc32c::crc32c(&format[..64]);
    format[64..68].copy_from_slice(&crc.to_le_bytes());
    let semantic = forged(&wire::Header { semantic_version: 88, ..header() }, &[]);
    // The first block of a trace of format 2.
    let mut old = b"GPVTRACE".to_vec();
    [5, 6, 0u32].iter().for_each(|word| old.extend(word.to_le_bytes()));
    old.extend(crc32c::crc32c(&old).to_le_bytes());
    old.extend([0; 100]);
    for (bytes, what, theirs, ours) in [
        (format, "format", 77, FORMAT_VERSION),
        (old, "format", 2, FORMAT_VERSION),
        (semantic, "semantic", 88, SEMANTIC_VERSION),
    ] {
        let error = replay(&bytes).unwrap_err();
        assert!(matches!(error, TraceError::Version { .. }));
        let text = error.to_string();
        assert!(text.contains(&format!("{what} version {theirs}, this program has {ours}")), "{text}");
        assert!(what == "format" || text.contains("test 1.0"), "{text}");
    }
}

#[test]
fn the_end_of_a_trace_is_found_whatever_its_semantic_version() {
    let mut bytes = forged(&wire::Header { semantic_version: 88, ..header() }, &[]);
    let folder = tempfile::tempdir().unwrap();
    let has_end = |bytes: &[u8]| {
        let path = folder.path().join("t.gvt");
        std::fs::write(&path, bytes).unwrap();
        trace::has_end(&path)
    };
    assert!(!has_end(&bytes) && !has_end(b"") && !trace::has_end(folder.path()));
    let link = word(&bytes, bytes.len() - 4 - last_content(&bytes));
    let end = wire::End { steps: 7, ..wire::End::default() };
    bytes.extend(block(1, 5, 1, 0, [0; 2], link, &end.encode_to_vec()));
    assert!(has_end(&bytes) && !has_end(&bytes[..bytes.len() - 1]));
    assert!(matches!(replay(&bytes), Err(TraceError::Version { .. })));
}

#[test]
fn configurations_that_cannot_be_built_are_refused() {
    let change = |change: fn(&mut wire::KernelConfig)| {
        let mut header = header();
        change(header.kernel.as_mut().unwrap());
        replay(&forged(&header, &[])).unwrap_err().to_string()
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
    // It would be built, with that many engines.
    let linked = change(|config| config.adapters[0].physical_adapters = 1 << 31);
    assert!(linked.contains("adapter.0.physical_adapters: physical_adapters is 2147483648"), "{linked}");
}

#[test]
fn records_that_make_no_sense_are_lost_whatever_their_checksum() {
    let entered = |input| delimited(0x41, &wire::Entered { now_ns: 0, input }.encode_to_vec());
    let process_gone = entered(Some(wire::Input { body: Some(wire::input::Body::ProcessGone(1)) }));
    let with = |body| entered(Some(wire::Input { body: Some(body) }));
    let answer = wire::Sent { process: 1, frame: Some(proto::channel::ToGuest::default()) };
    let effects = wire::Effects { answers: vec![answer], ..wire::Effects::default() };
    let answer_effects = delimited(0x42, &effects.encode_to_vec());
    let cases: [(Vec<u8>, &str); 14] = [
        (entered(None), "a step has no input"),
        (entered(Some(wire::Input { body: None })), "Input has no body"),
        (with(wire::input::Body::Call(wire::Call { process: 1, frame: None })), "Call has no frame"),
        (with(wire::input::Body::Fault(wire::Fault { kind: None })), "Fault has no kind"),
        ([&process_gone[..], &process_gone].concat(), "step #1 has no effects and is not the last"),
        ([&process_gone[..], &answer_effects].concat(), "request 0"),
        (vec![0xC0], "effects of no step"),
        ([&process_gone[..], &[0xC4]].concat(), "an answer without a caller"),
        (vec![0x80, 0xFF], "it ends inside a record"),
        (vec![0x82, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x02], "too big for its field"),
        (vec![0x85], "0x85, which format 4 does not have"),
        (delimited(0x41, &[0xFF]), "a step"),
        (vec![0x41, 5, 0], "it ends inside a record"),
        ([&process_gone[..], &delimited(0x77, b"?")].concat(), "kind 119, which this program does not know"),
    ];
    for (record, why) in cases {
        let report = replay(&forged(&header(), std::slice::from_ref(&record))).unwrap();
        let Verdict::Damaged { lost } = &report.verdict else { panic!("{report}") };
        assert!(lost.why.contains(why) || why == "a step", "{lost}");
        assert_eq!((lost.from, lost.to), (1, Some(2)), "{lost}");
    }
    let more =
        replay(&forged(&header(), &[[&process_gone[..], &[0xC0], &process_gone, &[0xC0]].concat()])).unwrap();
    assert!(more.to_string().contains("step #2 is one more than it is said to have"), "{more}");
    let none = replay(&forged(&header(), &[vec![]])).unwrap().to_string();
    assert!(none.contains("it is said to have 1 steps more"), "{none}");
    let unfinished =
        replay(&forged(&header(), &[process_gone.clone(), [&process_gone[..], &[0xC0]].concat()])).unwrap();
    assert!(unfinished.to_string().contains("step #1 has no effects and is not the last"), "{unfinished}");
}

#[test]
fn records_of_unknown_kinds_are_skipped_and_counted_unless_replay_needs_them() {
    let process_gone = wire::Input { body: Some(wire::input::Body::ProcessGone(1)) };
    let process_gone =
        delimited(0x41, &wire::Entered { now_ns: 5, input: Some(process_gone) }.encode_to_vec());
    let comment = delimited(0x07, b"somebody's remark");
    let bytes = forged(&header(), &[[&comment, &process_gone[..], &comment, &[0xC0], &comment].concat()]);
    let found = verify(reader(&bytes).unwrap()).unwrap();
    assert_eq!((found.steps, found.skipped, found.unknown), (1, 3, 0));
    assert!(found.is_whole(), "{found}");
    assert!(replay(&bytes).unwrap().agrees());
    let semantic_record = delimited(0x7F, b"the kernel was told something else");
    let bytes = forged(&header(), &[[&semantic_record, &process_gone[..], &[0xC0]].concat()]);
    let found = verify(reader(&bytes).unwrap()).unwrap();
    assert_eq!((found.steps, found.skipped, found.unknown), (1, 0, 1));
    let report = replay(&bytes).unwrap();
    assert_eq!(report.verdict, Verdict::Unknown { sequence: 1, kind: 0x7F });
    assert!(report.to_string().contains("record of kind 127"), "{report}");
    // The same for blocks.
    for (kind, unknown, skipped) in [(0x30, 1, 0), (0xB0, 0, 1)] {
        let mut bytes = forged(&header(), &[]);
        let link = word(&bytes, 64);
        bytes.extend(block(1, kind, 1, 0, [0; 2], link, b"?"));
        let found = verify(reader(&bytes).unwrap()).unwrap();
        assert_eq!((found.unknown, found.skipped), (unknown, skipped));
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
        number().prop_map(|adapter| Fault::StartAdapter { adapter }),
        (number(), any::<u64>()).prop_map(|(adapter, version)| Fault::UpdateDriver {
            adapter,
            version: d3dkmt::query::DriverVersion(version)
        }),
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

/// Inputs other than calls. Calls have their own property test in `proto`; here they come from sessions.
fn input() -> impl Strategy<Value = Input> {
    prop_oneof![
        (vm(), ".{0,200}").prop_map(|(vm, name)| Input::VmAttached { vm, name }),
        vm().prop_map(|vm| Input::VmDetached { vm }),
        vm().prop_map(|vm| Input::MemoryChanged { vm }),
        (vm(), any::<bool>()).prop_map(|(vm, paused)| Input::VmPaused { vm, paused }),
        (vm(), any::<u32>(), any::<bool>()).prop_map(|(vm, adapter, added)| Input::VmAdapter {
            vm,
            adapter,
            added
        }),
        (process(), vm(), any::<u32>(), ".{0,200}")
            .prop_map(|(process, vm, pid, name)| Input::ProcessAttached { process, vm, pid, name }),
        (process(), any::<u32>()).prop_map(|(process, slots)| Input::FenceMemoryAdded { process, slots }),
        (process(), any::<u64>())
            .prop_map(|(process, address)| Input::FenceMemoryMapped { process, address }),
        (vm(), any::<u32>()).prop_map(|(vm, bits)| {
            Input::GuestFeatures { vm, features: Features::from_bits_truncate(bits) }
        }),
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
        Adapter { handle: Handle(handle), luid: Luid { low, high }, sources, arrival: low }
    });
    let created = (any::<[u32; 2]>(), option::of(0..u32::MAX - 1), any::<[u64; 2]>(), any::<bool>());
    prop_oneof![
        Just(Reply::None),
        vec(adapter, 0..4).prop_map(Reply::Adapters),
        vec(any::<u8>(), 0..20_000).prop_map(Reply::AdapterInfo),
        any::<u32>().prop_map(|handle| Reply::Device(Handle(handle))),
        any::<u32>().prop_map(Reply::DeviceState),
        created.prop_map(|(handles, slot, [gpu_address, paging_fence_value], no_wait)| Reply::SyncObject(
            CreatedSyncObject {
                object: Handle(handles[0]),
                shared_handle: Handle(handles[1]),
                slot,
                gpu_address,
                paging_fence_value,
                no_wait
            }
        )),
        Just(Reply::Wait(WaitOutcome::Registered)),
        Just(Reply::Wait(WaitOutcome::Satisfied)),
        Just(Reply::FenceMemoryExhausted),
    ]
}

fn place() -> impl Strategy<Value = MemoryRef> {
    let staging_buffer =
        (any::<u32>(), any::<u64>()).prop_map(|(adapter, number)| StagingBuffer { adapter, number });
    prop_oneof![
        (process(), any::<u64>()).prop_map(|(process, address)| MemoryRef::Memory { process, address }),
        (staging_buffer, any::<u64>())
            .prop_map(|(staging_buffer, offset)| MemoryRef::StagingBuffer { staging_buffer, offset }),
    ]
}

fn dma_op() -> impl Strategy<Value = DmaOp> {
    let (number, word) = (any::<u64>, any::<u32>);
    prop_oneof![
        (place(), place(), number()).prop_map(|(from, to, bytes)| DmaOp::Copy { from, to, bytes }),
        (place(), number(), word()).prop_map(|(to, bytes, pattern)| DmaOp::Fill { to, bytes, pattern }),
        (0..ComputeOp::ALL.len(), place(), place(), number(), word()).prop_map(
            |(kernel, from, to, bytes, operand)| {
                let kernel = ComputeOp::ALL[kernel];
                DmaOp::Compute { kernel, from, to, bytes, operand }
            }
        ),
        (word(), number()).prop_map(|(adapter, number)| DmaOp::Release {
            staging_buffer: StagingBuffer { adapter, number }
        }),
        word().prop_map(|adapter| DmaOp::ReleaseAll { adapter }),
    ]
}

fn effects() -> impl Strategy<Value = Effects> {
    let store = (process(), any::<u32>(), prop_oneof![Just(0), any::<u64>()])
        .prop_map(|(process, slot, value)| FenceStore { process, slot, value });
    let answer =
        (process(), 1..=u64::MAX, any::<u32>(), reply()).prop_map(|(process, request, status, reply)| {
            Answer { process, request, status: NtStatus(status), reply }
        });
    let target = (1..=u64::MAX, any::<bool>()).prop_map(|(number, of_driver)| match of_driver {
        true => WakeTarget::GuestEvent(GuestEvent(number)),
        false => WakeTarget::Event(EventId(number)),
    });
    let event = (process(), target, any::<u32>()).prop_map(|(process, target, status)| HostEvent {
        process,
        target,
        status: NtStatus(status),
    });
    let note = (option::of(process()), ".{0,300}").prop_map(|(process, text)| Note { process, text });
    let ready = (any::<u32>(), any::<[u8; 16]>())
        .prop_map(|(vm, token)| SyncFileReady { vm: VmId(vm), token: ShareToken(token) });
    let driver_answer = (any::<u32>(), vec(any::<u8>(), 0..40))
        .prop_map(|(adapter, answer)| DriverAnswer { adapter, answer });
    let first = (vec(dma_op(), 0..4), vec(store, 0..5), vec(answer, 0..3), vec(event, 0..5));
    (first, vec(ready, 0..2), vec(note, 0..3), vec(driver_answer, 0..3)).prop_map(
        |((moves, stores, answers, events), sync_files, notes, driver_answers)| Effects {
            moves,
            stores,
            answers,
            events,
            sync_files,
            notes,
            driver_answers,
        },
    )
}

/// Adjacent numbers, distant numbers, and extremes.
fn near_or_far() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..4u64, 1 => any::<u64>(), 1 => (0..3u64).prop_map(|less| u64::MAX - less)]
}

/// A step that mostly has a compact form.
fn hot_step() -> impl Strategy<Value = (u64, Input, Effects)> {
    let number = || near_or_far().prop_map(|number| number as u32);
    let of = (number(), prop_oneof![Just(0), near_or_far()], number(), number(), near_or_far(), number());
    let stores = vec((number(), number(), near_or_far()), 0..5);
    let wakes = vec((number(), near_or_far(), number()), 0..5);
    (of, any::<u8>(), near_or_far(), stores, wakes, 0..5u32, near_or_far()).prop_map(
        |((process, request, device, object, value, flags), kind, event, stores, wakes, answer, dt)| {
            let process = ProcessId(process);
            let (device, object) = (Handle(device), Handle(object));
            let (objects, values) = ([object].as_slice().into(), [value].as_slice().into());
            let call = match kind % 4 {
                0 => Call::SignalFromCpu {
                    device,
                    objects,
                    values,
                    flags: SignalFlags::from_bits_retain(flags),
                },
                1 => Call::SignalFromGpu {
                    contexts: [device].as_slice().into(),
                    signal: GpuSignal::Monitored { objects, values },
                    flags: SignalFlags::from_bits_retain(flags),
                },
                2 => Call::WaitFromGpu { context: device, objects, values },
                _ => {
                    let (flags, event) = (WaitFromCpuFlags::from_bits_retain(flags), EventId(event.max(1)));
                    Call::WaitFromCpu { device, objects, values, flags, event }
                }
            };
            let input = if kind % 8 == 7 { Input::Deadline } else { Input::Call { process, request, call } };
            let store = |(process, slot, value)| FenceStore { process: ProcessId(process), slot, value };
            // Event 0 is no event, and messages cannot encode a wake without one.
            let wake = |(process, event, status): (u32, u64, u32)| HostEvent {
                process: ProcessId(process),
                target: EventId(event.max(1)).into(),
                status: NtStatus(status),
            };
            let reply = match answer {
                0 => None,
                1 => Some(Reply::Wait(WaitOutcome::Registered)),
                2 => Some(Reply::Wait(WaitOutcome::Satisfied)),
                _ => Some(Reply::None),
            };
            let request = request.max(1);
            let answer = |reply| Answer { process, request, status: NtStatus::SUCCESS, reply };
            let effects = Effects {
                stores: stores.into_iter().map(store).collect(),
                answers: reply.into_iter().map(answer).collect(),
                events: wakes.into_iter().map(wake).collect(),
                ..Effects::default()
            };
            (dt, input, effects)
        },
    )
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
        for (kind, bytes) in messages(&bytes) {
            let again = match kind {
                0x41 => wire::Entered::decode(&bytes[..]).unwrap().encode_to_vec(),
                _ => wire::Effects::decode(&bytes[..]).unwrap().encode_to_vec(),
            };
            prop_assert_eq!(again, bytes, "as prost writes it");
        }
    }

    #[test]
    fn compact_steps_survive_the_file_with_any_numbers(raw in vec(hot_step(), 1..40)) {
        let mut now = 0u64;
        let mut steps = Vec::new();
        for (dt, input, effects) in raw {
            // Time may go backwards.
            now = now.wrapping_add(dt);
            steps.push(Step { now, input, effects });
        }
        let bytes = record(&Config::default(), &steps, Some(1));
        prop_assert_eq!(common::steps(&bytes), steps);
    }
}
