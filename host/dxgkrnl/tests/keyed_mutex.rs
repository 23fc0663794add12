//! Keyed mutexes: answers observed on Windows, then the rules one by one.

use std::collections::BTreeMap;

use covers::covers;

use crate::common::{IP, OK, P, World};
use d3dkmt::{
    AcquireOutcome, Call, EventId, Handle, HandleKind, KeyedMutexFlags, NtStatus, Reply, RuntimeBuffer,
    SyncObjectFlags, SyncObjectInfo, SyncObjectType, limits,
};
use dxgkrnl::{Effects, Input, ProcessId, VmId};

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
fn only_the_owner_reads_the_value_and_the_data_of_the_last_release() {
    covers!("FEN-082");
    let mut world = World::new();
    let (mutex, shared) = create_with(&mut world, 0, b"data", KeyedMutexFlags::empty());
    let other = open(&mut world, shared);
    poll(&mut world, mutex, 0);
    pending(&mut world, other, 5, None, 1);
    assert_eq!(release(&mut world, mutex, 5, 50), OK);
    assert_eq!(read(&mut world, mutex), (0, vec![]));
    assert_eq!(read(&mut world, other), (50, b"data".to_vec()));
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

/// More of them than fit a step: time stays there, so that nothing that is due later comes first.
#[test]
fn acquires_that_time_out_at_one_time_end_before_anything_later() {
    const ACQUIRES: u64 = 100;
    const DUE: u64 = 1_000_000;
    let mut world = World::new();
    let (mutex, _) = create(&mut world, 1);
    (1..=ACQUIRES).for_each(|event| pending(&mut world, mutex, 0, Some(-(DUE as i64) / 100), event));
    world.now += 2 * DUE;
    let mut woken = 0;
    while woken < ACQUIRES {
        let mut effects = Effects::default();
        world.kernel.handle(world.now, Input::Deadline, &mut effects);
        woken += effects.events.len() as u64;
        assert_eq!(world.kernel.now(), if woken < ACQUIRES { DUE } else { world.now });
    }
}

#[test]
fn a_timeout_beyond_the_range_of_the_clock_never_ends() {
    covers!("FEN-077");
    let mut world = World::new();
    world.input(Input::SystemTime { utc_100ns: 132_000_000_000_000_000 });
    let (mutex, _) = create(&mut world, 0);
    assert_eq!(poll(&mut world, mutex, 1), (TO, 0));
    pending(&mut world, mutex, 1, None, 1);
    pending(&mut world, mutex, 1, Some(i64::MIN), 2);
    assert_eq!(world.kernel.next_deadline(), None);
    pending(&mut world, mutex, 1, Some(i64::MAX), 3);
    world.advance(u64::MAX / 4);
    assert_eq!((ended(&mut world), world.kernel.snapshot().acquires.len()), (vec![], 3));
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
    world.end_process(ProcessId(2));
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
fn private_runtime_data_are_limited_and_a_refused_open_sets_none() {
    covers!("FEN-082");
    let mut world = World::new();
    let too_much = vec![0; limits::KEYED_MUTEX_DATA_BYTES_MAX + 1];
    let create_call = |private_data| Call::CreateKeyedMutex {
        initial_value: 0,
        private_data,
        flags: KeyedMutexFlags::empty(),
    };
    assert_eq!(world.status(create_call(too_much.clone())), IP);
    assert_eq!(world.status(create_call(too_much[1..].to_vec())), OK);
    let (mutex, shared_handle) = create(&mut world, 0);
    for (size, data) in [(8, b"nine byte".to_vec()), (u32::MAX, too_much.clone())] {
        let buffer = RuntimeBuffer { size, present: true, data };
        assert_eq!(world.status(Call::OpenKeyedMutex { shared_handle, buffer }), IP);
    }
    assert_eq!(acquire_as(&mut world, mutex, 0, POLL, 1), (OK, Some(0), vec![]));
    let release_call = |data: &[u8]| Call::ReleaseKeyedMutex {
        mutex,
        key: 4,
        fence_value: 7,
        private_data: Some(data.to_vec()),
    };
    assert_eq!(world.status(release_call(&too_much)), IP);
    world.ok(release_call(&too_much[1..]));
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
