//! Keyed mutexes: answers observed on Windows, then the rules one by one.

use std::collections::BTreeMap;

use covers::covers;

use crate::common::{P, World};
use d3dkmt::{
    AcquireOutcome, Call, EventId, Handle, HandleKind, KeyedMutexFlags, NtStatus, Reply, RuntimeBuffer,
    SyncObjectFlags, SyncObjectInfo, SyncObjectType, limits,
};
use dxgkrnl::{Input, ProcessId, VmId};

const IP: NtStatus = NtStatus::INVALID_PARAMETER;
const OK: NtStatus = NtStatus::SUCCESS;
const TO: NtStatus = NtStatus::TIMEOUT;
const AB: NtStatus = NtStatus::ABANDONED;
/// 10 ms, in units of 100 ns, relative.
const SOON: Option<i64> = Some(-100_000);
const SOON_NS: u64 = 10_000_000;
const POLL: Option<i64> = Some(0);

fn create_with(
    world: &mut World,
    initial_value: u64,
    data: &[u8],
    flags: KeyedMutexFlags,
) -> (Handle, Handle) {
    let call = Call::CreateKeyedMutex { initial_value, private_data: data.to_vec(), flags };
    let Reply::KeyedMutex { mutex, shared_handle, .. } = world.ok(call) else { panic!() };
    (mutex, shared_handle)
}

fn create(world: &mut World, initial_value: u64) -> (Handle, Handle) {
    create_with(world, initial_value, &[], KeyedMutexFlags::empty())
}

fn open_call(shared_handle: Handle, size: u32, present: bool) -> Call {
    Call::OpenKeyedMutex { shared_handle, buffer: RuntimeBuffer { size, present, data: vec![] } }
}

fn open(world: &mut World, shared_handle: Handle) -> Handle {
    let Reply::KeyedMutex { mutex, .. } = world.ok(open_call(shared_handle, 0, false)) else { panic!() };
    mutex
}

fn destroy(world: &mut World, mutex: Handle) -> NtStatus {
    world.status(Call::DestroyKeyedMutex { mutex })
}

/// The status, the returned fence value (`None`: none, or not yet), and the data.
fn acquire_as(
    world: &mut World,
    mutex: Handle,
    key: u64,
    timeout: Option<i64>,
    event: u64,
) -> (NtStatus, Option<u64>, Vec<u8>) {
    let call = Call::AcquireKeyedMutex { mutex, key, timeout, event: EventId(event) };
    match world.call(call) {
        (status, Reply::KeyedMutexAcquire { outcome, private_data }) => match outcome {
            AcquireOutcome::Acquired { fence_value }
            | AcquireOutcome::TimedOut { fence_value }
            | AcquireOutcome::Abandoned { fence_value } => (status, Some(fence_value), private_data),
            AcquireOutcome::Registered => (NtStatus::PENDING, None, private_data),
        },
        (status, _) => (status, None, vec![]),
    }
}

fn poll(world: &mut World, mutex: Handle, key: u64) -> (NtStatus, u64) {
    let (status, fence_value, _) = acquire_as(world, mutex, key, POLL, 1);
    (status, fence_value.unwrap_or(u64::MAX))
}

/// Begins an acquire that must wait.
fn pending(world: &mut World, mutex: Handle, key: u64, timeout: Option<i64>, event: u64) {
    assert_eq!(acquire_as(world, mutex, key, timeout, event), (NtStatus::PENDING, None, vec![]));
}

/// Acquires as the library does: waits for the end of the acquire, then reads the handle's fence value.
fn acquire(world: &mut World, mutex: Handle, key: u64, timeout: Option<i64>) -> (NtStatus, u64) {
    let (status, fence_value, _) = acquire_as(world, mutex, key, timeout, 99);
    let Some(fence_value) = fence_value else {
        if status != NtStatus::PENDING {
            return (status, u64::MAX);
        }
        world.advance(SOON_NS);
        let ended: Vec<_> = world.effects.events.drain(..).collect();
        assert_eq!(ended.len(), 1);
        return (ended[0].status, read(world, mutex).0);
    };
    (status, fence_value)
}

fn read(world: &mut World, mutex: Handle) -> (u64, Vec<u8>) {
    let Reply::KeyedMutexData { fence_value, private_data } = world.ok(Call::ReadKeyedMutex { mutex }) else {
        panic!()
    };
    (fence_value, private_data)
}

fn release(world: &mut World, mutex: Handle, key: u64, fence_value: u64) -> NtStatus {
    world.status(Call::ReleaseKeyedMutex { mutex, key, fence_value, private_data: None })
}

fn ended(world: &mut World) -> Vec<(u64, NtStatus)> {
    world.effects.events.drain(..).map(|event| (event.target.event().unwrap().0, event.status)).collect()
}

#[test]
fn the_observed_rows_of_create_open_and_destroy() {
    covers!("W-161", "W-162", "W-163", "W-164", "W-165", "W-167", "W-168");
    let mut world = World::new();
    let (mutex, shared) = create(&mut world, 0);
    assert_eq!((mutex.kind(), shared.kind()), (HandleKind::Local, HandleKind::Global));
    assert_eq!(world.status(open_call(Handle::NULL, 0, false)), IP);
    assert_eq!(world.status(open_call(mutex, 0, false)), IP, "a local handle opens nothing");
    let opened = open(&mut world, shared);
    assert_eq!(opened.0, mutex.0 + 0x40);
    assert_eq!(destroy(&mut world, Handle::NULL), IP);
    assert_eq!((destroy(&mut world, opened), destroy(&mut world, opened)), (OK, IP));
    assert_eq!(destroy(&mut world, mutex), OK);
    assert_eq!(world.status(open_call(shared, 0, false)), IP);
    world.finish();
}

#[test]
fn a_global_handle_lives_as_long_as_any_local_one() {
    covers!("W-170", "W-171", "W-172", "W-173");
    let mut world = World::new();
    let (first, shared) = create(&mut world, 0);
    let (second, other) = create(&mut world, 0);
    assert!(second.kind() == HandleKind::Local && other.kind() == HandleKind::Global && other != shared);
    assert_eq!(world.status(open_call(Handle::NULL, 0, false)), IP);
    assert_eq!(world.status(open_call(second, 0, false)), IP);
    let opened = open(&mut world, other);
    assert_eq!((destroy(&mut world, first), destroy(&mut world, second)), (OK, OK));
    let again = open(&mut world, other);
    assert_eq!((destroy(&mut world, again), destroy(&mut world, opened)), (OK, OK));
    assert_eq!(world.status(open_call(other, 0, false)), IP);
    world.finish();
}

#[test]
fn a_buffer_of_an_open_is_large_enough_or_of_size_zero_and_is_never_filled() {
    covers!("W-174", "W-175", "W-176", "W-177", "W-178", "W-179");
    let mut world = World::new();
    let (_, empty) = create(&mut world, 0);
    let (_, six) = create_with(&mut world, 0, b"stored", KeyedMutexFlags::empty());
    let rows = [
        (empty, 64, false, IP),
        (empty, 64, true, OK),
        (six, 0, false, OK),
        (six, 64, false, IP),
        (six, 5, true, IP),
        (six, 6, true, OK),
        (six, 64, true, OK),
    ];
    for (shared, size, present, expected) in rows {
        let (status, reply) = world.call(open_call(shared, size, present));
        assert_eq!(status, expected, "size {size}, buffer {present}");
        if let Reply::KeyedMutex { shared_handle, private_data, .. } = reply {
            assert_eq!((shared_handle, private_data), (Handle::NULL, vec![]));
        }
    }
    world.finish();
}

#[test]
fn a_mutex_for_nt_handles_has_no_global_one() {
    covers!("W-180");
    let mut world = World::new();
    let (mutex, shared) = create_with(&mut world, 0, &[], KeyedMutexFlags::NT_SECURITY_SHARING);
    assert_eq!((mutex.kind(), shared), (HandleKind::Local, Handle::NULL));
    let flags = KeyedMutexFlags::from_bits_retain(2);
    assert_eq!(world.status(Call::CreateKeyedMutex { initial_value: 0, private_data: vec![], flags }), IP);
    world.finish();
}

#[test]
fn the_observed_rows_of_acquire_and_release() {
    covers!("W-191", "W-192", "W-193", "W-195", "W-196", "W-197", "W-198", "W-199", "FEN-076", "FEN-079");
    let mut world = World::new();
    let (mutex, _) = create(&mut world, 0);
    let bogus = Handle(0x4000_8000);
    assert_eq!(acquire(&mut world, bogus, 0xDEAD_BEEF, SOON).0, IP);
    assert_eq!(acquire(&mut world, mutex, 0xDEAD_BEEF, SOON), (TO, 0));
    assert_eq!(acquire(&mut world, mutex, 0, SOON), (OK, 0));
    assert_eq!(release(&mut world, bogus, 1, 1234), IP);
    assert_eq!(release(&mut world, mutex, 1, 1234), OK);
    assert_eq!(release(&mut world, mutex, 1, 1234), IP);
    assert_eq!(acquire(&mut world, mutex, 0, SOON), (TO, 0));
    assert_eq!(poll(&mut world, mutex, 0), (TO, 0), "a timeout returns fence value 0, not 1234");
    assert_eq!(acquire(&mut world, mutex, 1, SOON), (OK, 1234));
    world.finish();
}

#[test]
fn the_first_key_is_the_initial_value() {
    covers!("FEN-076");
    let mut world = World::new();
    let (mutex, _) = create(&mut world, 77);
    assert_eq!(poll(&mut world, mutex, 0), (TO, 0));
    assert_eq!(poll(&mut world, mutex, 77), (OK, 0));
    assert_eq!(release(&mut world, mutex, u64::MAX, 5), OK);
    assert_eq!(poll(&mut world, mutex, 77), (TO, 0));
    assert_eq!(poll(&mut world, mutex, u64::MAX), (OK, 5));
    world.finish();
}

#[test]
fn a_keyed_mutex_needs_no_device_and_no_adapter() {
    let mut world = World::new();
    let (mutex, _) = create(&mut world, 0);
    assert_eq!(world.kernel.belongings(P).handles, 1);
    assert_eq!(poll(&mut world, mutex, 0), (OK, 0));
    world.input(Input::Fault(dxgkrnl::Fault::StopAdapter { adapter: 0 }));
    assert_eq!(release(&mut world, mutex, 0, 0), OK);
    world.finish();
}

#[test]
fn a_release_gives_the_mutex_to_a_waiter_of_its_key() {
    covers!("FEN-076", "FEN-079");
    let mut world = World::new();
    let (mutex, shared) = create(&mut world, 0);
    assert_eq!(poll(&mut world, mutex, 0), (OK, 0));
    world.other(2);
    let theirs = open(&mut world, shared);
    pending(&mut world, theirs, 5, None, 1);
    world.process = P;
    pending(&mut world, mutex, 6, None, 2);
    assert_eq!(release(&mut world, mutex, 5, 50), OK);
    let woken: Vec<_> = world
        .effects
        .events
        .drain(..)
        .map(|event| (event.process.0, event.target.event().unwrap().0))
        .collect();
    assert_eq!(woken, [(2, 1)]);
    assert_eq!(release(&mut world, mutex, 6, 60), IP, "the other process owns the mutex now");
    assert_eq!(read(&mut world, mutex), (0, vec![]));
    world.process = ProcessId(2);
    assert_eq!(read(&mut world, theirs), (50, vec![]));
    assert_eq!(release(&mut world, theirs, 6, 60), OK);
    assert_eq!(ended(&mut world), [(2, OK)]);
    world.process = P;
    assert_eq!(read(&mut world, mutex), (60, vec![]));
    world.finish();
}

#[test]
fn each_of_several_waiters_of_one_key_acquires_in_any_order() {
    covers!("FEN-081");
    let mut world = World::new();
    let (mutex, shared) = create(&mut world, 0);
    poll(&mut world, mutex, 0);
    let mut waiting: BTreeMap<u64, Handle> = (1..=4).map(|event| (event, open(&mut world, shared))).collect();
    for (event, handle) in &waiting {
        pending(&mut world, *handle, 1, None, *event);
    }
    let mut owner = mutex;
    while !waiting.is_empty() {
        assert_eq!(release(&mut world, owner, 1, 0), OK);
        let [(event, OK)] = ended(&mut world)[..] else { panic!("a release wakes exactly one waiter") };
        owner = waiting.remove(&event).expect("the woken handle was waiting");
    }
    assert_eq!(release(&mut world, owner, 1, 0), OK);
    assert_eq!(ended(&mut world), []);
    world.finish();
}

#[test]
fn the_longest_waiter_of_a_key_acquires_next() {
    let mut world = World::new();
    let (mutex, shared) = create(&mut world, 0);
    poll(&mut world, mutex, 0);
    let waiting: Vec<Handle> = (0..3).map(|_| open(&mut world, shared)).collect();
    for (event, handle) in (1..).zip(waiting.iter().rev()) {
        pending(&mut world, *handle, 1, None, event);
    }
    let mut owner = mutex;
    for (event, handle) in (1..).zip(waiting.iter().rev()) {
        assert_eq!(release(&mut world, owner, 1, 0), OK);
        assert_eq!(ended(&mut world), [(event, OK)]);
        owner = *handle;
    }
    world.finish();
}

#[test]
fn a_keyed_mutex_is_not_recursive() {
    covers!("FEN-080");
    let mut world = World::new();
    let (mutex, shared) = create(&mut world, 0);
    assert_eq!(poll(&mut world, mutex, 0), (OK, 0));
    assert_eq!(poll(&mut world, mutex, 0), (TO, 0));
    assert_eq!(acquire(&mut world, mutex, 0, SOON), (TO, 0));
    let sibling = open(&mut world, shared);
    assert_eq!(poll(&mut world, sibling, 0), (TO, 0));
    assert_eq!(release(&mut world, sibling, 0, 0), IP, "another handle of the same process owns nothing");
    assert_eq!(release(&mut world, mutex, 0, 0), OK);
    world.finish();
}

#[test]
fn a_timeout_of_zero_polls_a_negative_one_counts_from_now_and_none_never_ends() {
    covers!("FEN-077", "FEN-080");
    let mut world = World::new();
    let (mutex, _) = create(&mut world, 0);
    world.advance(12_345);
    assert_eq!(acquire_as(&mut world, mutex, 1, POLL, 1), (TO, Some(0), vec![]));
    assert_eq!(world.kernel.next_deadline(), None);
    pending(&mut world, mutex, 1, None, 1);
    pending(&mut world, mutex, 1, Some(i64::MIN), 2);
    assert_eq!(world.kernel.next_deadline(), None, "a timeout beyond the clock's range never ends");
    pending(&mut world, mutex, 1, Some(-3), 3);
    pending(&mut world, mutex, 1, Some(-1), 4);
    assert_eq!(world.kernel.next_deadline(), Some(12_345 + 100));
    world.advance(99);
    assert_eq!(ended(&mut world), []);
    world.advance(1);
    assert_eq!(ended(&mut world), [(4, TO)]);
    world.advance(199);
    assert_eq!(ended(&mut world), []);
    world.advance(1);
    assert_eq!(ended(&mut world), [(3, TO)]);
    world.advance(u64::MAX / 4);
    assert_eq!((ended(&mut world), world.kernel.snapshot().acquires.len()), (vec![], 2));
    world.finish();
}

#[test]
fn any_late_input_first_ends_expired_acquires() {
    let mut world = World::new();
    let (mutex, _) = create(&mut world, 0);
    poll(&mut world, mutex, 0);
    pending(&mut world, mutex, 1, SOON, 7);
    world.now += SOON_NS;
    // The release comes after the timeout: too late for the waiter.
    assert_eq!(release(&mut world, mutex, 1, 0), OK);
    assert_eq!(ended(&mut world), [(7, TO)]);
    assert_eq!(poll(&mut world, mutex, 1), (OK, 0));
    world.finish();
}

#[test]
fn a_positive_timeout_is_a_time_of_the_systems_clock() {
    covers!("FEN-077");
    let mut world = World::new();
    world.advance(50);
    let utc_100ns = 132_000_000_000_000_000;
    world.input(Input::SystemTime { utc_100ns });
    let (mutex, _) = create(&mut world, 0);
    for past in [1, utc_100ns] {
        assert_eq!(acquire_as(&mut world, mutex, 1, Some(past), 1), (TO, Some(0), vec![]));
    }
    pending(&mut world, mutex, 1, Some(utc_100ns + 5), 1);
    pending(&mut world, mutex, 1, Some(i64::MAX), 2);
    assert_eq!(world.kernel.next_deadline(), Some(50 + 500));
    world.advance(499);
    assert_eq!(ended(&mut world), []);
    world.advance(1);
    assert_eq!(ended(&mut world), [(1, TO)]);
    world.finish();
}

#[test]
fn setting_the_clock_moves_absolute_timeouts_only() {
    covers!("FEN-078");
    let mut world = World::new();
    let second: i64 = 10_000_000;
    let noon = 1_000_000 * second;
    world.input(Input::SystemTime { utc_100ns: noon });
    let (mutex, _) = create(&mut world, 0);
    pending(&mut world, mutex, 1, Some(noon + 60 * second), 1);
    pending(&mut world, mutex, 1, Some(-60 * second), 2);
    pending(&mut world, mutex, 1, Some(noon + 7200 * second), 3);
    world.advance(10_000_000_000);
    // An hour forward: the first absolute timeout has passed.
    world.input(Input::SystemTime { utc_100ns: noon + 3610 * second });
    assert_eq!(ended(&mut world), [(1, TO)]);
    // An hour back: the other absolute timeout is an hour later.
    world.input(Input::SystemTime { utc_100ns: noon + 10 * second });
    world.advance(49_999_999_999);
    assert_eq!(ended(&mut world), []);
    world.advance(1);
    assert_eq!(ended(&mut world), [(2, TO)]);
    assert_eq!(world.kernel.next_deadline(), Some(7_200_000_000_000));
    world.advance(7_139_999_999_999);
    assert_eq!(ended(&mut world), []);
    world.advance(1);
    assert_eq!(ended(&mut world), [(3, TO)]);
    world.finish();
}

#[test]
fn a_mutex_whose_owner_dies_is_abandoned_for_all_and_has_to_be_made_again() {
    covers!("FEN-080");
    let mut world = World::new();
    let (mutex, shared) = create(&mut world, 0);
    world.other(2);
    let theirs = open(&mut world, shared);
    assert_eq!(poll(&mut world, theirs, 0), (OK, 0));
    world.process = P;
    pending(&mut world, mutex, 0, None, 1);
    pending(&mut world, mutex, 9, SOON, 2);
    world.gone(ProcessId(2));
    assert_eq!(ended(&mut world), [(1, AB), (2, AB)]);
    for timeout in [POLL, SOON, None] {
        assert_eq!(acquire_as(&mut world, mutex, 0, timeout, 3), (AB, Some(0), vec![]));
    }
    assert_eq!(release(&mut world, mutex, 0, 0), IP);
    let again = open(&mut world, shared);
    assert_eq!(poll(&mut world, again, 0), (AB, 0));
    assert_eq!(world.kernel.next_deadline(), None);
    let (anew, _) = create(&mut world, 0);
    assert_eq!(poll(&mut world, anew, 0), (OK, 0));
    world.finish();
}

#[test]
fn destroying_the_handle_that_owns_abandons_it_too() {
    let mut world = World::new();
    let (mutex, shared) = create(&mut world, 0);
    let other = open(&mut world, shared);
    assert_eq!(poll(&mut world, other, 0), (OK, 0));
    pending(&mut world, mutex, 0, None, 1);
    assert_eq!(destroy(&mut world, other), OK);
    assert_eq!(ended(&mut world), [(1, AB)]);
    assert_eq!(poll(&mut world, mutex, 0), (AB, 0));
    world.finish();
}

#[test]
fn an_acquire_whose_own_handle_is_destroyed_is_abandoned_and_no_other() {
    let mut world = World::new();
    let (mutex, shared) = create(&mut world, 0);
    let (one, two) = (open(&mut world, shared), open(&mut world, shared));
    poll(&mut world, mutex, 0);
    pending(&mut world, one, 1, None, 1);
    pending(&mut world, two, 1, SOON, 2);
    assert_eq!(destroy(&mut world, one), OK);
    assert_eq!((ended(&mut world), world.kernel.miscounted()), (vec![(1, AB)], None));
    assert_eq!(release(&mut world, mutex, 1, 0), OK);
    assert_eq!(ended(&mut world), [(2, OK)]);
    world.finish();
}

#[test]
fn a_process_killed_while_acquiring_leaks_and_acquires_nothing() {
    let mut world = World::new();
    let (mutex, shared) = create(&mut world, 0);
    poll(&mut world, mutex, 0);
    world.other(2);
    let theirs = open(&mut world, shared);
    pending(&mut world, theirs, 1, SOON, 1);
    world.gone(ProcessId(2));
    assert_eq!((world.woken(), world.kernel.next_deadline()), (vec![], None));
    world.process = P;
    assert_eq!(release(&mut world, mutex, 1, 8), OK);
    assert_eq!(poll(&mut world, mutex, 1), (OK, 8));
    world.finish();
}

#[test]
fn an_acquire_that_is_cancelled_is_forgotten() {
    let mut world = World::new();
    let (mutex, _) = create(&mut world, 0);
    poll(&mut world, mutex, 0);
    pending(&mut world, mutex, 1, SOON, 5);
    world.ok(Call::CancelWait { event: EventId(5) });
    assert_eq!((world.kernel.next_deadline(), world.kernel.miscounted()), (None, None));
    assert_eq!(release(&mut world, mutex, 1, 0), OK);
    world.advance(SOON_NS);
    assert_eq!(ended(&mut world), []);
    assert_eq!(poll(&mut world, mutex, 1), (OK, 0));
    world.finish();
}

#[test]
fn an_event_names_one_wait_of_any_kind() {
    let mut world = World::new();
    let device = world.device();
    let fence = world.fence(device, 0).object;
    let (mutex, _) = create(&mut world, 0);
    pending(&mut world, mutex, 1, None, 1);
    assert_eq!(world.wait(device, &[(fence, 1)], false), Err(IP), "event 1 is in use");
    let event = world.pending(device, &[(fence, 1)], false);
    assert_eq!(acquire_as(&mut world, mutex, 1, None, event.0).0, IP);
    assert_eq!(acquire_as(&mut world, mutex, 1, None, 1).0, IP);
    assert_eq!(world.kernel.belongings(P).waits, 2);
    world.finish();
}

#[test]
fn an_opener_sets_data_only_on_a_mutex_without_any() {
    covers!("FEN-082");
    let mut world = World::new();
    let bring = |shared_handle, data: &[u8]| {
        let buffer = RuntimeBuffer { size: 8, present: true, data: data.to_vec() };
        Call::OpenKeyedMutex { shared_handle, buffer }
    };
    let (mutex, shared) = create(&mut world, 0);
    world.ok(bring(shared, b"opener"));
    world.ok(bring(shared, b"second"));
    assert_eq!(acquire_as(&mut world, mutex, 0, POLL, 1), (OK, Some(0), b"opener".to_vec()));
    let (mutex, shared) = create_with(&mut world, 0, b"own", KeyedMutexFlags::empty());
    world.ok(bring(shared, b"opener"));
    assert_eq!(acquire_as(&mut world, mutex, 0, POLL, 1), (OK, Some(0), b"own".to_vec()));
    // A refused open does not set its data.
    let (mutex, shared) = create(&mut world, 0);
    assert_eq!(world.status(bring(shared, b"nine byte")), IP);
    let too_much = vec![0; limits::KEYED_MUTEX_DATA_BYTES_MAX + 1];
    let buffer = RuntimeBuffer { size: u32::MAX, present: true, data: too_much };
    assert_eq!(world.status(Call::OpenKeyedMutex { shared_handle: shared, buffer }), IP);
    assert_eq!(acquire_as(&mut world, mutex, 0, POLL, 1), (OK, Some(0), vec![]));
    world.finish();
}

#[test]
fn private_runtime_data_travels_with_the_mutex() {
    covers!("FEN-082");
    let mut world = World::new();
    let (mutex, _) = create_with(&mut world, 0, b"made", KeyedMutexFlags::empty());
    assert_eq!(acquire_as(&mut world, mutex, 0, POLL, 1), (OK, Some(0), b"made".to_vec()));
    let release = |key, private_data: Option<&[u8]>| Call::ReleaseKeyedMutex {
        mutex,
        key,
        fence_value: 7,
        private_data: private_data.map(<[u8]>::to_vec),
    };
    world.ok(release(1, Some(b"second")));
    assert_eq!(acquire_as(&mut world, mutex, 0, POLL, 1), (TO, Some(0), vec![]));
    assert_eq!(acquire_as(&mut world, mutex, 1, POLL, 1), (OK, Some(7), b"second".to_vec()));
    // The first form of the call leaves the data unchanged.
    world.ok(release(2, None));
    pending(&mut world, mutex, 3, None, 1);
    assert_eq!(acquire_as(&mut world, mutex, 2, POLL, 2).2, b"second");
    world.ok(release(3, Some(b"")));
    assert_eq!(read(&mut world, mutex), (7, vec![]));
    let too_much = vec![0; limits::KEYED_MUTEX_DATA_BYTES_MAX + 1];
    assert_eq!(world.status(release(4, Some(&too_much))), IP);
    let create = |private_data| Call::CreateKeyedMutex {
        initial_value: 0,
        private_data,
        flags: KeyedMutexFlags::empty(),
    };
    assert_eq!(world.status(create(too_much.clone())), IP);
    world.ok(release(4, Some(&too_much[1..])));
    assert_eq!(world.status(create(too_much[1..].to_vec())), OK);
    world.finish();
}

#[test]
fn global_handles_are_valid_in_one_vm_and_for_one_type() {
    let mut world = World::new();
    let device = world.device();
    let (mutex, shared) = create(&mut world, 0);
    let info = SyncObjectInfo {
        object_type: SyncObjectType::MUTEX,
        flags: SyncObjectFlags::SHARED,
        ..SyncObjectInfo::default()
    };
    let sync = world.object(device, info);
    assert_eq!(world.status(open_call(sync.shared_handle, 0, false)), IP);
    assert_eq!(world.status(Call::OpenSynchronizationObject { shared_handle: shared }), IP);
    assert_eq!(world.status(Call::DestroySynchronizationObject { object: mutex }), IP);
    assert_eq!(destroy(&mut world, sync.object), IP);
    assert_eq!(destroy(&mut world, shared), IP);
    world.input(Input::VmAttached { vm: VmId(1), name: "one".into() });
    world.process = ProcessId(2);
    world.input(Input::ProcessAttached { process: world.process, vm: VmId(1), pid: 1, name: "g".into() });
    assert_eq!(world.status(open_call(shared, 0, false)), IP);
    world.finish();
}

#[test]
fn a_process_has_a_limited_number_of_keyed_mutexes() {
    let mut world = World::new();
    let (_, shared) = create(&mut world, 0);
    let more = limits::KEYED_MUTEXES_PER_PROCESS_MAX - 1;
    let last = world.filling(|world| (0..more).map(|_| open(world, shared)).last()).unwrap();
    let create =
        Call::CreateKeyedMutex { initial_value: 0, private_data: vec![], flags: KeyedMutexFlags::empty() };
    for refused in [open_call(shared, 0, false), create.clone()] {
        assert_eq!(world.status(refused), NtStatus::NO_MEMORY);
    }
    destroy(&mut world, last);
    world.ok(create);
    world.finish();
}
