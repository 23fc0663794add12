//! Operations, their random generation, and the text form of a sequence.

use std::fmt;

use d3dkmt::access;
use proptest::collection::vec;
use proptest::prelude::*;

/// An item of a call: the number of a fence among all that its process has or had, and a value.
pub type Targets = Vec<(usize, u64)>;
/// Pages: the numbers of a range and of a page in it.
pub type Pages = Vec<(usize, u64)>;

/// One operation. Numbers name processes and their objects, modulo their count. They may name ended objects, and objects
/// of another kind in a process without any of the kind. `step` is the distance of an id from the last one; `with` is
/// a monitored fence beside legacy objects, counted from 1, or 0 for none.
#[derive(Clone)]
pub enum Op {
    Attach { vm: u32 },
    End { process: usize },
    EndVm { vm: u32 },
    CreateDevice { process: usize, adapter: usize },
    DestroyDevice { process: usize, device: usize },
    CreateFence { process: usize, device: usize, value: u64, flags: u32 },
    DestroyFence { process: usize, fence: usize },
    Share { process: usize, fence: usize, share: usize, access: u32, name: usize },
    OpenName { process: usize, share: usize, access: u32, name: usize },
    Open { process: usize, device: usize, share: usize, flags: u32 },
    CloseNtHandle { vm: u32, share: usize },
    CreateSyncFile { process: usize, device: usize, target: (usize, u64), share: usize },
    OpenSyncFile { process: usize, device: usize, share: usize },
    WaitSyncFile { process: usize, context: usize, share: usize },
    CreateLegacy { process: usize, device: usize, kind: Legacy, flags: u32, first: bool },
    DestroyLegacy { process: usize, object: usize },
    OpenGlobal { process: usize, global: usize },
    DriverSignals { process: usize, object: usize, times: u32 },
    LegacySignal { process: usize, contexts: Vec<usize>, objects: Vec<usize>, value: u64, array: bool },
    LegacyWait { process: usize, context: usize, objects: Vec<usize>, with: usize, value: u64, array: bool },
    CreateKeyed { process: usize, key: u64, nt: bool },
    OpenKeyed { process: usize, global: usize },
    DestroyKeyed { process: usize, mutex: usize },
    Acquire { process: usize, mutex: usize, key: u64, timeout: Option<i64> },
    Release { process: usize, mutex: usize, key: u64, value: u64 },
    ReadKeyed { process: usize, mutex: usize },
    SystemTime { utc_100ns: i64 },
    MarkDevice { process: usize, device: usize, reason: u32 },
    Signal { process: usize, device: usize, targets: Targets, flags: u32 },
    Wait { process: usize, device: usize, targets: Targets, any: bool, again: bool },
    Cancel { process: usize, event: u64 },
    CreateContext { process: usize, device: usize, node: u32 },
    DestroyContext { process: usize, context: usize },
    GpuSignal { process: usize, contexts: Vec<usize>, targets: Targets, flags: u32, one_way: bool },
    CpuEvent { process: usize, contexts: Vec<usize>, at_submission: bool },
    GpuWait { process: usize, context: usize, targets: Targets, one_way: bool },
    Submit { process: usize, context: usize, commands: Vec<Command> },
    CreateNative { process: usize, device: usize, value: u64, flags: u32 },
    OpenNative { process: usize, device: usize, share: usize, flags: u32 },
    CreatePagingQueue { process: usize, device: usize, priority: i32 },
    DestroyPagingQueue { process: usize, queue: usize },
    Map { process: usize, queue: usize, again: Option<(usize, u64)>, pages: u64, zero: bool },
    Update { process: usize, device: usize, context: usize, target: (usize, u64), pages: Pages, waits: bool },
    CreateMemory { process: usize, device: usize, bytes: u64, resource: bool, shared: bool, visible: bool },
    OpenMemory { process: usize, device: usize, global: usize, short: bool },
    LockMemory { process: usize, device: usize, allocation: usize },
    UnlockMemory { process: usize, device: usize, allocation: usize },
    DestroyMemory { process: usize, device: usize, allocation: usize, whole: bool },
    CreateHwQueue { process: usize, context: usize, flags: u32 },
    DestroyHwQueue { process: usize, queue: usize },
    SubmitHw { process: usize, queue: usize, step: u64, commands: Vec<Command> },
    SignalHw { process: usize, queues: Vec<usize>, targets: Targets, flags: u32 },
    WaitHw { process: usize, queue: usize, targets: Targets },
    Advance { nanos: u64 },
    StopAdapter { adapter: usize },
    StartAdapter { adapter: usize },
    PauseVm { vm: u32, paused: bool },
    UpdateDriver { adapter: usize },
    VmAdapter { vm: u32, adapter: usize, added: bool },
}

#[derive(Clone, Copy, Debug)]
pub enum Legacy {
    Mutex { owned: bool },
    Semaphore { count: u32, max: u32 },
    Fence { value: u64 },
    Notification,
}

/// A command of a buffer. Waits are in hardware, and in buffers of hardware queues only.
#[derive(Clone, Debug)]
pub enum Command {
    Busy { nanos: u64 },
    Write { fence: usize, value: u64 },
    Wait { fence: usize, value: u64 },
    Hang,
}

/// Operations in order; a failing sequence is printed one operation a line.
#[derive(Clone)]
pub struct Sequence(pub Vec<Op>);

impl Sequence {
    /// The same sequence with at least 1 ns in each command buffer. Work that completes at the same time has no fixed
    /// order between engines: one step runs each engine until it is idle, several steps alternate between clients.
    pub fn with_time(mut self) -> Self {
        for op in &mut self.0 {
            if let Op::Submit { commands, .. } | Op::SubmitHw { commands, .. } = op {
                if !commands.iter().any(|command| matches!(command, Command::Busy { .. })) {
                    commands.insert(0, Command::Busy { nanos: 1 });
                }
                for command in commands {
                    if let Command::Busy { nanos } = command {
                        *nanos = (*nanos).max(1);
                    }
                }
            }
        }
        self
    }
}

fn number() -> impl Strategy<Value = usize> {
    // The first objects of each kind interact the most.
    prop_oneof![6 => 0..3usize, 2 => 3..8usize]
}

/// A share that the setup of a sequence has not made.
fn free_share() -> std::ops::Range<usize> {
    4..8
}

fn value() -> std::ops::Range<u64> {
    0..10
}

fn targets() -> impl Strategy<Value = Targets> {
    prop_oneof![
        12 => vec((number(), value()), 1..4),
        1 => Just(vec![]),
        // Up to more than the limit of a call.
        1 => vec((number(), value()), 1..36),
    ]
}

/// Mostly SHARED and NT_SECURITY_SHARING together; also each other flag, and invalid combinations.
fn create_flags() -> impl Strategy<Value = u32> {
    prop_oneof![
        6 => Just(0x0),
        6 => Just(0x3),
        1 => Just(0x403),
        1 => Just(0x7),
        1 => Just(0x10),
        1 => Just(0x23),
        1 => Just(0x43),
        1 => Just(0x83),
        1 => Just(0x80),
        3 => Just(0x8),
        2 => Just(0xB),
        1 => (0..12u32).prop_map(|bit| 1 << bit),
        1 => 0..0x1000u32,
    ]
}

/// Mostly CROSS_ADAPTER.
fn native_flags() -> impl Strategy<Value = u32> {
    prop_oneof![3 => Just(0x0), 4 => Just(0x7), 1 => Just(0x3), 1 => create_flags()]
}

fn open_flags() -> impl Strategy<Value = u32> {
    prop_oneof![6 => Just(0x0), 1 => Just(0x10), 1 => Just(0x20), 1 => Just(0x30), 1 => Just(0x80), 1 => Just(0x400)]
}

/// Mostly every right; else all but one.
fn access() -> impl Strategy<Value = u32> {
    prop_oneof![
        8 => Just(access::SYNC_OBJECT_ALL_ACCESS),
        1 => Just(access::GENERIC_ALL),
        1 => Just(access::GENERIC_READ),
        1 => Just(access::GENERIC_WRITE),
        1 => Just(access::STANDARD_RIGHTS_READ | access::SYNC_OBJECT_WAIT),
        1 => Just(access::STANDARD_RIGHTS_READ | access::SYNC_OBJECT_SIGNAL),
        1 => Just(access::SYNC_OBJECT_WAIT | access::SYNC_OBJECT_SIGNAL),
        1 => Just(0),
    ]
}

/// 0: none.
fn name() -> std::ops::Range<usize> {
    0..4
}

fn lives() -> BoxedStrategy<Op> {
    prop_oneof![
        3 => (0..3u32).prop_map(|vm| Op::Attach { vm }),
        2 => number().prop_map(|process| Op::End { process }),
        1 => (1..3u32).prop_map(|vm| Op::EndVm { vm }),
        3 => (number(), 0..3usize).prop_map(|(process, adapter)| Op::CreateDevice { process, adapter }),
        2 => (number(), number()).prop_map(|(process, device)| Op::DestroyDevice { process, device }),
        6 => (number(), number(), 0..5u32)
            .prop_map(|(process, device, node)| Op::CreateContext { process, device, node }),
        6 => (number(), number()).prop_map(|(process, context)| Op::DestroyContext { process, context }),
        1 => (0..8usize).prop_map(|adapter| Op::StopAdapter { adapter }),
        1 => (0..3usize).prop_map(|adapter| Op::StartAdapter { adapter }),
        2 => (1..3u32, any::<bool>()).prop_map(|(vm, paused)| Op::PauseVm { vm, paused }),
        1 => (0..6usize).prop_map(|adapter| Op::UpdateDriver { adapter }),
        3 => (0..4u32, 0..3usize, any::<bool>())
            .prop_map(|(vm, adapter, added)| Op::VmAdapter { vm, adapter, added }),
        1 => (number(), number(), 0..3u32)
            .prop_map(|(process, device, reason)| Op::MarkDevice { process, device, reason }),
    ]
    .boxed()
}

fn objects() -> BoxedStrategy<Op> {
    prop_oneof![
        5 => (number(), number(), value(), create_flags()).prop_map(|(process, device, value, flags)| {
            Op::CreateFence { process, device, value, flags }
        }),
        4 => (number(), number()).prop_map(|(process, fence)| Op::DestroyFence { process, fence }),
        4 => (number(), number(), number(), access(), name()).prop_map(
            |(process, fence, share, access, name)| Op::Share { process, fence, share, access, name },
        ),
        2 => (number(), number(), access(), name())
            .prop_map(|(process, share, access, name)| Op::OpenName { process, share, access, name }),
        6 => (number(), number(), number(), open_flags())
            .prop_map(|(process, device, share, flags)| Op::Open { process, device, share, flags }),
        1 => (0..3u32, number()).prop_map(|(vm, share)| Op::CloseNtHandle { vm, share }),
        3 => (number(), number(), (number(), value()), free_share()).prop_map(|(process, device, target, share)| {
            Op::CreateSyncFile { process, device, target, share }
        }),
        2 => (number(), number(), free_share())
            .prop_map(|(process, device, share)| Op::OpenSyncFile { process, device, share }),
        2 => (number(), number(), free_share())
            .prop_map(|(process, context, share)| Op::WaitSyncFile { process, context, share }),
    ]
    .boxed()
}

fn waits() -> BoxedStrategy<Op> {
    // Mostly none or AllowFenceRewind.
    let flags = prop_oneof![6 => Just(0u32), 6 => Just(4), 1 => 0..9u32];
    prop_oneof![
        8 => (number(), number(), targets(), flags)
            .prop_map(|(process, device, targets, flags)| Op::Signal { process, device, targets, flags }),
        10 => (number(), number(), targets(), any::<bool>(), 0..16u32).prop_map(
            |(process, device, targets, any, again)| {
                Op::Wait { process, device, targets, any, again: again == 0 }
            },
        ),
        1 => (number(), 1..12u64).prop_map(|(process, event)| Op::Cancel { process, event }),
    ]
    .boxed()
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        5 => (0..4u64).prop_map(|nanos| Command::Busy { nanos: nanos * 10 }),
        6 => (number(), value()).prop_map(|(fence, value)| Command::Write { fence, value }),
        2 => (number(), value()).prop_map(|(fence, value)| Command::Wait { fence, value }),
        1 => Just(Command::Hang),
    ]
}

fn packets() -> BoxedStrategy<Op> {
    let contexts = || prop_oneof![3 => vec(number(), 1..2), 2 => vec(number(), 0..4)];
    let flags = prop_oneof![5 => Just(0u32), 3 => Just(4), 2 => Just(1), 1 => 0..9u32];
    let one_way = || prop::bool::weighted(0.05);
    prop_oneof![
        8 => (number(), contexts(), targets(), flags, one_way()).prop_map(
            |(process, contexts, targets, flags, one_way)| {
                Op::GpuSignal { process, contexts, targets, flags, one_way }
            },
        ),
        1 => (number(), contexts(), any::<bool>())
            .prop_map(|(process, contexts, at_submission)| Op::CpuEvent { process, contexts, at_submission }),
        6 => (number(), number(), targets(), one_way())
            .prop_map(|(process, context, targets, one_way)| Op::GpuWait { process, context, targets, one_way }),
        10 => (number(), number(), vec(command(), 0..4))
            .prop_map(|(process, context, commands)| Op::Submit { process, context, commands }),
        8 => (0..50u64).prop_map(|nanos| Op::Advance { nanos }),
        1 => (0..300u64).prop_map(|nanos| Op::Advance { nanos }),
        // Beyond a quantum, and beyond every timeout.
        1 => Just(Op::Advance { nanos: 150_000_000 }),
        1 => Just(Op::Advance { nanos: 2_500_000_000 }),
    ]
    .boxed()
}

fn hardware() -> BoxedStrategy<Op> {
    // DisableGpuTimeout (1), NoBroadcastSignal (2) and NativeProgressFence (0x20) among them, and reserved ones.
    let flags = prop_oneof![8 => Just(0u32), 1 => Just(1), 3 => Just(2), 2 => Just(0x20), 1 => Just(1 << 20)];
    let queues = || prop_oneof![3 => vec(number(), 1..2), 2 => vec(number(), 0..4)];
    let signal_flags = prop_oneof![5 => Just(0u32), 3 => Just(4), 2 => Just(1), 1 => 0..9u32];
    prop_oneof![
        2 => (number(), number(), flags)
            .prop_map(|(process, context, flags)| Op::CreateHwQueue { process, context, flags }),
        1 => (number(), number()).prop_map(|(process, queue)| Op::DestroyHwQueue { process, queue }),
        2 => (number(), number(), value(), native_flags()).prop_map(|(process, device, value, flags)| {
            Op::CreateNative { process, device, value, flags }
        }),
        3 => (number(), number(), number(), open_flags())
            .prop_map(|(process, device, share, flags)| Op::OpenNative { process, device, share, flags }),
        8 => (number(), number(), prop_oneof![12 => 1..4u64, 1 => Just(0)], vec(command(), 0..4)).prop_map(
            |(process, queue, step, commands)| Op::SubmitHw { process, queue, step, commands },
        ),
        4 => (number(), queues(), targets(), signal_flags).prop_map(
            |(process, queues, targets, flags)| Op::SignalHw { process, queues, targets, flags },
        ),
        4 => (number(), number(), targets())
            .prop_map(|(process, queue, targets)| Op::WaitHw { process, queue, targets }),
    ]
    .boxed()
}

fn paging() -> BoxedStrategy<Op> {
    let page = || (number(), 0..4u64);
    prop_oneof![
        2 => (number(), number(), -2..3i32)
            .prop_map(|(process, device, priority)| Op::CreatePagingQueue { process, device, priority }),
        1 => (number(), number()).prop_map(|(process, queue)| Op::DestroyPagingQueue { process, queue }),
        6 => (number(), number(), prop::option::of(page()), 1..4u64, any::<bool>()).prop_map(
            |(process, queue, again, pages, zero)| Op::Map { process, queue, again, pages, zero },
        ),
        6 => (number(), number(), (number(), number()), value(), vec(page(), 0..3), any::<bool>()).prop_map(
            |(process, device, (context, fence), value, pages, waits)| {
                let target = (fence, value);
                Op::Update { process, device, context, target, pages, waits }
            },
        ),
    ]
    .boxed()
}

/// Mostly on the first device, so that a handle is of the device that a call names.
fn memory() -> BoxedStrategy<Op> {
    let device = || prop_oneof![5 => Just(0usize), 1 => number()];
    prop_oneof![
        5 => (number(), device(), 1..0x4000u64, any::<bool>(), any::<bool>(), prop::bool::weighted(0.85)).prop_map(
            |(process, device, bytes, resource, shared, visible)| {
                Op::CreateMemory { process, device, bytes, resource: resource || shared, shared, visible }
            },
        ),
        6 => (number(), device(), number(), prop::bool::weighted(0.1))
            .prop_map(|(process, device, global, short)| Op::OpenMemory { process, device, global, short }),
        8 => (number(), device(), number())
            .prop_map(|(process, device, allocation)| Op::LockMemory { process, device, allocation }),
        6 => (number(), device(), number())
            .prop_map(|(process, device, allocation)| Op::UnlockMemory { process, device, allocation }),
        4 => (number(), device(), number(), any::<bool>()).prop_map(
            |(process, device, allocation, whole)| Op::DestroyMemory { process, device, allocation, whole },
        ),
    ]
    .boxed()
}

fn legacy() -> BoxedStrategy<Op> {
    let kind = prop_oneof![
        4 => any::<bool>().prop_map(|owned| Legacy::Mutex { owned }),
        4 => (0..3u32, 0..4u32).prop_map(|(count, max)| Legacy::Semaphore { count, max }),
        1 => value().prop_map(|value| Legacy::Fence { value }),
        3 => Just(Legacy::Notification),
    ];
    let flags = prop_oneof![6 => Just(0u32), 4 => Just(1), 2 => Just(3), 3 => Just(0x100), 1 => (0..12u32).prop_map(|bit| 1 << bit)];
    let with = prop_oneof![4 => Just(0), 1 => 1..4usize];
    let contexts = || prop_oneof![3 => vec(number(), 1..2), 1 => vec(number(), 0..4)];
    let objects = || prop_oneof![4 => vec(number(), 1..2), 2 => vec(number(), 0..4)];
    prop_oneof![
        4 => (number(), number(), kind, flags, prop::bool::weighted(0.15)).prop_map(
            |(process, device, kind, flags, first)| Op::CreateLegacy { process, device, kind, flags, first },
        ),
        2 => (number(), number()).prop_map(|(process, object)| Op::DestroyLegacy { process, object }),
        3 => (number(), number(), 0..3u32)
            .prop_map(|(process, object, times)| Op::DriverSignals { process, object, times }),
        2 => (number(), number()).prop_map(|(process, global)| Op::OpenGlobal { process, global }),
        8 => (number(), contexts(), objects(), value(), any::<bool>()).prop_map(
            |(process, contexts, objects, value, array)| {
                Op::LegacySignal { process, contexts, objects, value, array }
            },
        ),
        10 => (number(), number(), objects(), with, value(), any::<bool>())
            .prop_map(|(process, context, objects, with, value, array)| {
                Op::LegacyWait { process, context, objects, with, value, array }
            }),
    ]
    .boxed()
}

fn keyed() -> BoxedStrategy<Op> {
    let timeout = prop_oneof![
        4 => Just(None),
        3 => (-3..1i64).prop_map(Some),
        1 => (990..1010i64).prop_map(Some),
    ];
    prop_oneof![
        2 => (number(), 0..3u64, prop::bool::weighted(0.15))
            .prop_map(|(process, key, nt)| Op::CreateKeyed { process, key, nt }),
        3 => (number(), number()).prop_map(|(process, global)| Op::OpenKeyed { process, global }),
        1 => (number(), number()).prop_map(|(process, mutex)| Op::DestroyKeyed { process, mutex }),
        8 => (number(), number(), 0..2u64, timeout)
            .prop_map(|(process, mutex, key, timeout)| Op::Acquire { process, mutex, key, timeout }),
        6 => (number(), number(), 0..2u64, value())
            .prop_map(|(process, mutex, key, value)| Op::Release { process, mutex, key, value }),
        1 => (number(), number()).prop_map(|(process, mutex)| Op::ReadKeyed { process, mutex }),
        1 => (985..1010i64).prop_map(|utc_100ns| Op::SystemTime { utc_100ns }),
    ]
    .boxed()
}

/// Sequences of up to this many operations.
pub fn sequences(most: usize) -> impl Strategy<Value = Sequence> {
    let op = prop_oneof![
        3 => lives(),
        4 => objects(),
        8 => waits(),
        10 => packets(),
        6 => hardware(),
        3 => paging(),
        4 => memory(),
        5 => legacy(),
        4 => keyed(),
    ];
    vec(op, 0..most).prop_map(Sequence)
}

impl fmt::Debug for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for op in &self.0 {
            write!(f, "\n    {op}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

struct Items<'a>(&'a Targets);

impl fmt::Display for Items<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(fence, value)| write!(f, " f{fence}={value}"))
    }
}

/// The commands of a buffer.
struct Buffer<'a>(&'a [Command]);

impl fmt::Display for Buffer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|command| match command {
            Command::Busy { nanos } => write!(f, " busy {nanos};"),
            Command::Write { fence, value } => write!(f, " f{fence} := {value};"),
            Command::Wait { fence, value } => write!(f, " until f{fence} >= {value};"),
            Command::Hang => write!(f, " hang;"),
        })
    }
}

impl fmt::Display for Op {
    #[expect(clippy::too_many_lines, reason = "a line for each operation")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Attach { vm } => write!(f, "a process attaches to vm {vm}"),
            Op::End { process } => write!(f, "p{process} ends"),
            Op::EndVm { vm } => write!(f, "vm {vm} ends"),
            Op::CreateDevice { process, adapter } => {
                write!(f, "p{process} creates a device on adapter {adapter}")
            }
            Op::DestroyDevice { process, device } => write!(f, "p{process} destroys device {device}"),
            Op::CreateFence { process, device, value, flags } => {
                write!(f, "p{process} creates a fence on device {device} at {value}, flags {flags:#x}")
            }
            Op::DestroyFence { process, fence } => write!(f, "p{process} destroys f{fence}"),
            Op::Share { process, fence, share, access, name } => {
                write!(f, "p{process} shares f{fence} as token {share}, access {access:#x}, name {name}")
            }
            Op::OpenName { process, share, access, name } => {
                write!(f, "p{process} opens name {name} as token {share}, access {access:#x}")
            }
            Op::Open { process, device, share, flags } => {
                write!(f, "p{process} opens token {share} on device {device}, flags {flags:#x}")
            }
            Op::CloseNtHandle { vm, share } => write!(f, "vm {vm} closes token {share}"),
            Op::CreateSyncFile { process, device, target: (fence, value), share } => {
                write!(f, "p{process} makes token {share} a sync file of f{fence}={value} on device {device}")
            }
            Op::OpenSyncFile { process, device, share } => {
                write!(f, "p{process} opens sync file {share} on device {device}")
            }
            Op::WaitSyncFile { process, context, share } => {
                write!(f, "p{process} queues a wait for sync file {share} in c{context}")
            }
            Op::CreateLegacy { process, device, kind, flags, first } => {
                let form = if *first { ", first form" } else { "" };
                write!(f, "p{process} creates {kind:?} on device {device}, flags {flags:#x}{form}")
            }
            Op::DestroyLegacy { process, object } => write!(f, "p{process} destroys legacy object {object}"),
            Op::DriverSignals { process, object, times } => {
                write!(f, "p{process}'s driver signals legacy object {object} {times} times")
            }
            Op::OpenGlobal { process, global } => write!(f, "p{process} opens global handle {global}"),
            Op::LegacySignal { process, contexts, objects, value, array } => {
                let form = if *array { "each" } else { "one" };
                write!(
                    f,
                    "p{process} queues a signal of legacy {objects:?} in {contexts:?}, {form} value {value}"
                )
            }
            Op::LegacyWait { process, context, objects, with, value, array } => {
                let form = if *array { "each" } else { "one" };
                let with = if *array && *with > 0 { format!(" and f{}", with - 1) } else { String::new() };
                write!(
                    f,
                    "p{process} queues a wait for legacy {objects:?}{with} in c{context}, {form} value {value}"
                )
            }
            Op::CreateKeyed { process, key, nt } => {
                let form = if *nt { " for NT handles" } else { "" };
                write!(f, "p{process} creates a keyed mutex{form} with key {key}")
            }
            Op::OpenKeyed { process, global } => write!(f, "p{process} opens keyed global handle {global}"),
            Op::DestroyKeyed { process, mutex } => write!(f, "p{process} destroys k{mutex}"),
            Op::Acquire { process, mutex, key, timeout } => {
                write!(f, "p{process} acquires k{mutex} by key {key}, timeout {timeout:?}")
            }
            Op::Release { process, mutex, key, value } => {
                write!(f, "p{process} releases k{mutex} with key {key}, fence value {value}")
            }
            Op::ReadKeyed { process, mutex } => write!(f, "p{process} reads k{mutex}"),
            Op::MarkDevice { process, device, reason } => {
                write!(f, "p{process} marks device {device} as in error, reason {reason}")
            }
            Op::SystemTime { utc_100ns } => write!(f, "the system's clock says {utc_100ns}"),
            Op::Signal { process, device, targets, flags } => {
                write!(f, "p{process} signals on device {device}:{}, flags {flags:#x}", Items(targets))
            }
            Op::Wait { process, device, targets, any, again } => {
                let which = if *any { "any" } else { "all" };
                let event = if *again { ", under the last name" } else { "" };
                write!(f, "p{process} waits on device {device} for {which}:{}{event}", Items(targets))
            }
            Op::Cancel { process, event } => write!(f, "p{process} cancels its wait {event}"),
            Op::CreateContext { process, device, node } => {
                write!(f, "p{process} creates a context on device {device}, node {node}")
            }
            Op::DestroyContext { process, context } => write!(f, "p{process} destroys c{context}"),
            Op::GpuSignal { process, contexts, targets, flags, one_way } => {
                let suffix = if *one_way { ", one-way" } else { "" };
                write!(
                    f,
                    "p{process} queues a signal in {contexts:?}:{}, flags {flags:#x}{suffix}",
                    Items(targets)
                )
            }
            Op::CpuEvent { process, contexts, at_submission } => {
                let when = if *at_submission { ", at submission" } else { "" };
                write!(f, "p{process} enqueues a CPU event in {contexts:?}{when}")
            }
            Op::GpuWait { process, context, targets, one_way } => {
                let suffix = if *one_way { ", one-way" } else { "" };
                write!(f, "p{process} queues a wait in c{context}:{}{suffix}", Items(targets))
            }
            Op::Submit { process, context, commands } => {
                write!(f, "p{process} submits to c{context}:{}", Buffer(commands))
            }
            Op::CreateNative { process, device, value, flags } => {
                write!(f, "p{process} creates a native fence on device {device} at {value}, flags {flags:#x}")
            }
            Op::OpenNative { process, device, share, flags } => {
                write!(f, "p{process} opens token {share} natively on device {device}, flags {flags:#x}")
            }
            Op::CreatePagingQueue { process, device, priority } => {
                write!(f, "p{process} creates a paging queue on device {device}, priority {priority}")
            }
            Op::DestroyPagingQueue { process, queue } => {
                write!(f, "p{process} destroys paging queue {queue}")
            }
            Op::Map { process, queue, again: None, zero: false, .. } => {
                write!(f, "p{process} reserves a range through paging queue {queue}")
            }
            Op::Map { process, queue, again, pages, zero } => {
                let to = if *zero { "Zero" } else { "NoAccess" };
                write!(f, "p{process} maps {pages} pages as {to} through paging queue {queue}, at {again:?}")
            }
            Op::Update { process, device, context, target: (fence, value), pages, waits } => {
                let when = if *waits { "waits" } else { "does not wait" };
                write!(
                    f,
                    "p{process} unmaps {pages:?} on device {device} beside c{context}, {when} for f{fence}={value}"
                )
            }
            Op::CreateMemory { process, device, bytes, resource, shared, visible } => {
                let what = match (shared, resource) {
                    (true, _) => "a shared resource of",
                    (false, true) => "a resource of",
                    (false, false) => "",
                };
                let how = if *visible { "" } else { ", invisible" };
                write!(f, "p{process} creates {what} {bytes} bytes of device {device}{how}")
            }
            Op::OpenMemory { process, device, global, short } => {
                let how = if *short { ", without room for its data" } else { "" };
                write!(f, "p{process} opens shared memory {global} on device {device}{how}")
            }
            Op::LockMemory { process, device, allocation } => {
                write!(f, "p{process} locks allocation {allocation} of device {device}")
            }
            Op::UnlockMemory { process, device, allocation } => {
                write!(f, "p{process} unlocks allocation {allocation} of device {device}")
            }
            Op::DestroyMemory { process, device, allocation, whole } => {
                let what = if *whole { "the resource of " } else { "" };
                write!(f, "p{process} destroys {what}allocation {allocation} of device {device}")
            }
            Op::CreateHwQueue { process, context, flags } => {
                write!(f, "p{process} creates a hardware queue in c{context}, flags {flags:#x}")
            }
            Op::DestroyHwQueue { process, queue } => write!(f, "p{process} destroys q{queue}"),
            Op::SubmitHw { process, queue, step, commands } => {
                write!(f, "p{process} submits to q{queue}, its id {step} on:{}", Buffer(commands))
            }
            Op::SignalHw { process, queues, targets, flags } => {
                write!(f, "p{process} signals in queues {queues:?}:{}, flags {flags:#x}", Items(targets))
            }
            Op::WaitHw { process, queue, targets } => {
                write!(f, "p{process} waits in q{queue}:{}", Items(targets))
            }
            Op::Advance { nanos } => write!(f, "{nanos} ns pass"),
            Op::StopAdapter { adapter } => write!(f, "adapter {adapter} stops"),
            Op::StartAdapter { adapter } => write!(f, "adapter {adapter} starts again"),
            Op::UpdateDriver { adapter } => write!(f, "the driver of adapter {adapter} is updated"),
            Op::VmAdapter { vm, adapter, added: true } => write!(f, "vm {vm} gets adapter {adapter}"),
            Op::VmAdapter { vm, adapter, added: false } => write!(f, "vm {vm} loses adapter {adapter}"),
            Op::PauseVm { vm, paused: true } => write!(f, "vm {vm} is paused"),
            Op::PauseVm { vm, paused: false } => write!(f, "vm {vm} is resumed"),
        }
    }
}
