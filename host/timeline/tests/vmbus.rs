//! Traces as messages of the VM bus, and the table behind them.

mod common;

use std::collections::BTreeSet;
use std::path::Path;

use d3dkmt::{Call, NtStatus, WakeTarget};
use dxgkrnl::Input;
use timeline::vmbus::{
    CALLS, Channel, Counterpart, EFFECTS, INPUTS, Mode, There, heading, lines, of_event, of_input, of_store,
};
use trace::{Reader, Record};

fn messages(path: &Path, width: usize) -> String {
    let timeline = common::timeline_of(path);
    let records = Reader::open(path).unwrap().map(Result::unwrap);
    let all = records.flat_map(|record| lines(&timeline, &record, width));
    std::iter::once(heading(width)).chain(all).map(|line| line + "\n").collect()
}

#[test]
fn messages_of_the_small_trace_are_as_they_were() {
    let file = tempfile::NamedTempFile::new().unwrap();
    common::small(file.path());
    common::golden("small.vmbus", messages(file.path(), 160).as_bytes());
}

#[test]
fn no_line_is_wider_than_wanted_and_no_step_is_left_out() {
    let file = tempfile::NamedTempFile::new().unwrap();
    common::random(file.path(), 7, 600);
    for width in [0, 1, 20, 80, 120, 300] {
        let text = messages(file.path(), width);
        assert!(text.lines().all(|line| line.chars().count() <= width), "at {width}");
    }
    let text = messages(file.path(), 200);
    let steps = text.lines().filter(|line| line.trim_start().starts_with('#')).count();
    assert_eq!(steps, 600);
}

/// Each input and effect has the row that the table lists for it.
#[test]
fn every_line_of_a_trace_of_all_kinds_is_a_row_of_the_table() {
    let listed: Vec<&Counterpart> =
        [CALLS, INPUTS, EFFECTS].into_iter().flatten().map(|(_, counterpart)| counterpart).collect();
    let (mut seen, mut statuses) = (BTreeSet::new(), 0);
    for seed in 0..4 {
        let file = tempfile::NamedTempFile::new().unwrap();
        common::random(file.path(), seed, 1500);
        for record in Reader::open(file.path()).unwrap().map(Result::unwrap) {
            let Record::Step { input, effects: Some(effects), .. } = record else { continue };
            if let Input::Call { call, .. } = &input {
                let row = CALLS.iter().find(|(name, _)| *name == call.name()).expect("a row");
                assert_eq!(row.1, of_input(&input));
                seen.insert(call.name());
            }
            let stores = effects.stores.iter().map(|store| of_store(store.slot));
            statuses += effects.stores.iter().filter(|store| store.slot == 0).count();
            let events = effects.events.iter().map(|event| of_event(event.target));
            for row in stores.chain(events).chain([of_input(&input)]) {
                assert!(listed.contains(&&row), "{input}: {row:?}");
            }
        }
    }
    assert!(seen.len() > 35 && statuses > 0, "{} calls, {statuses} changes of the status", seen.len());
}

#[test]
fn each_call_has_one_row() {
    let names: Vec<&str> = Call::FORMS.iter().map(|(name, _)| *name).collect();
    let rows: BTreeSet<&str> = CALLS.iter().map(|(name, _)| *name).collect();
    assert_eq!(rows, names.iter().copied().collect());
    assert_eq!(CALLS.len(), names.len(), "a call has two rows");
}

/// A name has one number, a number one name, within the channel's direction.
#[test]
fn names_and_numbers_of_messages_agree() {
    let rows = [CALLS, INPUTS, EFFECTS].into_iter().flatten();
    let messages: Vec<_> = rows.filter_map(|(_, row)| row.there.message()).collect();
    for one in &messages {
        for other in &messages {
            let same_way = one.channel.direction() == other.channel.direction();
            let agree = (one.name == other.name) == (one.id == other.id);
            assert!(!same_way || agree, "{one:?} {other:?}");
            assert!(one.name != other.name || one == other, "{one:?} {other:?}");
        }
        let numbers = match one.channel {
            Channel::VgpuToHost => 0..=68,
            Channel::VmToHost => 1000..=1022,
            Channel::HostToVm => 0..=4,
        };
        assert!(numbers.contains(&one.id), "{one:?}");
        assert_eq!(one.mode == Mode::NoReply, one.channel == Channel::HostToVm, "{one:?}");
    }
    let is_async = |row: &&Counterpart| row.there.message().is_some_and(|one| one.mode == Mode::AsyncCapable);
    let names: BTreeSet<&str> = CALLS
        .iter()
        .map(|(_, row)| row)
        .filter(is_async)
        .filter_map(|row| row.there.message())
        .map(|one| one.name)
        .collect();
    let known = ["SIGNALSYNCOBJECT", "SUBMITCOMMAND", "SUBMITCOMMANDTOHWQUEUE", "WAITFORSYNCOBJECTFROMGPU"];
    assert_eq!(names, BTreeSet::from(known), "the messages that may be asynchronous");
}

/// A row without a message says why, and one with an unlisted message by its ioctl.
#[test]
fn a_row_without_a_message_says_why() {
    for (name, row) in [CALLS, INPUTS, EFFECTS].into_iter().flatten() {
        match row.there {
            There::Message(_) | There::InHost => {}
            There::Unlisted => assert!(!row.ioctls.is_empty(), "{name}"),
            There::InGuest | There::Nothing => assert!(!row.differs.is_empty(), "{name}"),
        }
        assert!(row.ioctls.iter().all(|ioctl| (0x01..=0x49).contains(ioctl)), "{name}");
    }
}

#[test]
fn a_wake_up_names_its_status_and_many_are_counted() {
    let file = tempfile::NamedTempFile::new().unwrap();
    common::pair(file.path(), |session, client, server, [frames, theirs]| {
        for _ in 0..20 {
            session.wait(server, &[(theirs, 1)]);
        }
        session.signal(client, frames, 1);
    });
    let text = messages(file.path(), 140);
    let wakes = text.lines().filter(|line| line.contains("HOST_TO_VM    SIGNALGUESTEVENT (0)")).count();
    assert_eq!(wakes, 16);
    assert!(text.contains("event 1: SUCCESS") && text.contains("4 more events of p2"), "{text}");
    assert_eq!(NtStatus::SUCCESS.name(), Some("SUCCESS"));
    assert_eq!(of_event(WakeTarget::Event(d3dkmt::EventId(1))).there.name(), "SIGNALGUESTEVENT (0)");
}

fn table(rows: &[(&str, Counterpart)]) -> String {
    let mut out = String::from(
        "| here | ioctl | message | channel | mode | where ours differs |\n|---|---|---|---|---|---|\n",
    );
    for (name, row) in rows {
        let ioctls: Vec<String> = row.ioctls.iter().map(|number| format!("{number:#04x}")).collect();
        let (channel, mode) =
            row.there.message().map_or(("-", "-"), |one| (one.channel.name(), one.mode.name()));
        let message = row.there.name();
        out += &format!(
            "| {name} | {} | {message} | {channel} | {mode} | {} |\n",
            ioctls.join(", "),
            row.differs
        );
    }
    out
}

/// docs/VMBUS.md has the tables; `GPUPV_BLESS=1 cargo test -p timeline --test vmbus` writes them.
#[test]
fn the_page_has_the_tables() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/VMBUS.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let mut wanted = page.clone();
    for (heading, rows) in [("## Calls\n", CALLS), ("## Other inputs\n", INPUTS), ("## Effects\n", EFFECTS)] {
        let (before, rest) = wanted.split_once(heading).expect(heading);
        let after = rest.find("\n## ").map_or("", |at| &rest[at..]);
        wanted = format!("{before}{heading}\n{}{after}", table(rows));
    }
    if std::env::var_os("GPUPV_BLESS").is_some() {
        std::fs::write(path, wanted).unwrap();
    } else {
        assert_eq!(page, wanted, "GPUPV_BLESS=1 writes the tables");
    }
}
