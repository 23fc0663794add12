//! The rows. A call, input or effect without a row does not compile.

use d3dkmt::{Call, WakeTarget};
use dxgkrnl::{Fault, Input};

use super::{Channel, Counterpart, Message, Mode, There};

const fn vgpu(name: &'static str, id: u32) -> There {
    There::Message(Message { name, id, channel: Channel::VgpuToHost, mode: Mode::Sync })
}

const fn vgpu_async(name: &'static str, id: u32) -> There {
    There::Message(Message { name, id, channel: Channel::VgpuToHost, mode: Mode::AsyncCapable })
}

const fn global(name: &'static str, id: u32) -> There {
    There::Message(Message { name, id, channel: Channel::VmToHost, mode: Mode::Sync })
}

const fn to_guest(name: &'static str, id: u32) -> There {
    There::Message(Message { name, id, channel: Channel::HostToVm, mode: Mode::NoReply })
}

const UNLISTED: There = There::Unlisted;
const IN_GUEST: There = There::InGuest;
const NOTHING: There = There::Nothing;
const IN_HOST: There = There::InHost;

/// Declares `of_call`, and the same rows as a list.
macro_rules! calls {
    ($($name:ident: $ioctls:expr, $there:expr, $differs:literal;)+) => {
        /// The counterpart of a call.
        pub fn of_call(call: &Call) -> Counterpart {
            match call {
                $(Call::$name { .. } => Counterpart { ioctls: &$ioctls, there: $there, differs: $differs },)+
            }
        }

        /// The counterpart of each call, by its name.
        pub const CALLS: &[(&str, Counterpart)] = &[
            $((stringify!($name), Counterpart { ioctls: &$ioctls, there: $there, differs: $differs })),+
        ];
    };
}

calls! {
    EnumAdapters: [0x14, 0x3e], IN_GUEST,
        "there a vGPU is a channel that the guest driver lists by itself; here the host lists its adapters";
    OpenAdapterFromLuid: [0x01], IN_GUEST, "handles of adapters are the guest's there, the host's here";
    CloseAdapter: [0x15], IN_GUEST, "as OpenAdapterFromLuid; the devices that end with it are DESTROYDEVICE (1) there";
    QueryAdapterInfo: [0x09], UNLISTED, "";
    CreateDevice: [0x02], vgpu("CREATEDEVICE", 0),
        "its reply has no status there, and it names the counter that SETGUESTDATA raises; here that is a fence slot";
    DestroyDevice: [0x19], vgpu("DESTROYDEVICE", 1), "";
    GetDeviceState: [0x0e], vgpu("GETDEVICESTATE", 28),
        "the guest driver answers from its cache until SETGUESTDATA; here the guest answers EXECUTION itself while slot 0 is 0";
    CreateContextVirtual: [0x04], vgpu("CREATECONTEXTVIRTUAL", 6), "its reply has no status there";
    DestroyContext: [0x05], vgpu("DESTROYCONTEXT", 7), "";
    CreateSynchronizationObject: [0x10], vgpu("CREATESYNCOBJECT", 8),
        "its reply has no status there, and gives a page for each fence; here a fence is a slot of 64 bytes";
    DestroySynchronizationObject: [0x1d], global("DESTROYSYNCOBJECT", 1003), "";
    SignalFromCpu: [0x31], vgpu_async("SIGNALSYNCOBJECT", 26),
        "a device in place of contexts makes it a CPU signal there; here it is a call of its own, and its status is never lost";
    WaitFromCpu: [0x3a], vgpu("WAITFORSYNCOBJECTFROMCPU", 22),
        "a satisfied wait gets an event as well there; here its answer says so, and no wake-up follows";
    WatchAdapters: [], NOTHING,
        "the guest driver itself notices that a vGPU's channel comes or goes";
    CancelWait: [], NOTHING,
        "an interrupted wait stays at the host there, and its late event is ignored; here the host forgets it";
    SignalFromGpu: [0x11, 0x32, 0x33], vgpu_async("SIGNALSYNCOBJECT", 26), "";
    WaitFromGpu: [0x3b], vgpu_async("WAITFORSYNCOBJECTFROMGPU", 25), "";
    SubmitCommand: [0x0f], vgpu_async("SUBMITCOMMAND", 20),
        "asynchronous only on request here, because an error is lost otherwise (decision 38)";
    WaitFromGpuLegacy: [0x12, 0x3b], vgpu_async("WAITFORSYNCOBJECTFROMGPU", 25),
        "its flag legacy_fence_object there; here a call of its own";
    OpenSynchronizationObject: [0x29], NOTHING, "the ioctl has no handler there: global handles do not work (ENOTTY)";
    ShareObjects: [0x3f], global("CREATENTSHAREDOBJECT", 1004),
        "sent for the first NT handle of an object there; here each NT handle is a call, with its name and access";
    OpenSyncObject: [0x40], global("OPENSYNCOBJECT", 1002),
        "by the global handle that the guest driver keeps there; here by the token in the NT handle";
    OpenNtHandleFromName: [], NOTHING, "libdxg answers NOT_SUPPORTED";
    CreateSyncFile: [0x45], vgpu("WAITFORSYNCOBJECTFROMCPU", 22),
        "there the guest driver waits, and its sync_file is the kernel's; here the host keeps fence and value by the token in the descriptor";
    WaitSyncFile: [0x46], vgpu_async("WAITFORSYNCOBJECTFROMGPU", 25),
        "there OPENSYNCOBJECT (1002) comes before and DESTROYSYNCOBJECT (1003) after it; here it is one call";
    OpenSyncFile: [0x47], global("OPENSYNCOBJECT", 1002),
        "by the global handle that the guest driver keeps there; here by the token in the sync file";
    CreateKeyedMutex: [], NOTHING, "libdxg answers NOT_SUPPORTED";
    OpenKeyedMutex: [], NOTHING, "libdxg answers NOT_SUPPORTED";
    OpenKeyedMutexFromNtHandle: [], NOTHING, "libdxg answers NOT_SUPPORTED";
    DestroyKeyedMutex: [], NOTHING, "libdxg answers NOT_SUPPORTED";
    AcquireKeyedMutex: [], NOTHING, "libdxg answers NOT_SUPPORTED";
    ReadKeyedMutex: [], NOTHING, "part of an acquire here";
    ReleaseKeyedMutex: [], NOTHING, "libdxg answers NOT_SUPPORTED";
    CreateAllocation: [0x06], UNLISTED, "";
    DestroyAllocation: [0x13], UNLISTED, "";
    QueryResourceInfo: [0x2b], NOTHING, "the ioctl has no handler there: global handles do not work (ENOTTY)";
    OpenResource: [0x28], NOTHING, "the ioctl has no handler there: global handles do not work (ENOTTY)";
    QueryResourceInfoFromNtHandle: [0x41], UNLISTED, "";
    SharedResourceAdapter: [0x23], NOTHING, "the ioctl has no handler there (ENOTTY)";
    SharedResourceAdapterFromNtHandle: [0x23], NOTHING, "the ioctl has no handler there (ENOTTY)";
    OpenResourceFromNtHandle: [0x42], UNLISTED, "the guest driver gives no keyed mutex and no fence with it";
    Lock: [0x25], UNLISTED, "";
    Unlock: [0x37], UNLISTED, "";
    SetAllocationPriority: [0x2e], UNLISTED, "";
    AllocationPriority: [0x3c], UNLISTED, "";
    MakeResident: [0x0b], UNLISTED, "";
    Evict: [0x1e], UNLISTED, "";
    OfferAllocations: [0x27], UNLISTED, "";
    ReclaimAllocations: [], NOTHING, "libdxg has the second form only";
    ReclaimAllocations2: [0x2c], UNLISTED, "";
    QueryAllocationResidency: [0x2a], UNLISTED, "";
    ChangeVideoMemoryReservation: [0x16], UNLISTED, "";
    InvalidateCache: [0x24], UNLISTED, "";
    FlushHeapTransitions: [0x1f], UNLISTED, "";
    SetStablePowerState: [], NOTHING, "libdxg answers success without a call";
    QueryVideoMemoryInfo: [0x0a], UNLISTED, "";
    CreatePagingQueue: [0x07], vgpu("CREATEPAGINGQUEUE", 9), "its reply has no status there";
    DestroyPagingQueue: [0x1c], vgpu("DESTROYPAGINGQUEUE", 10), "its reply is empty there";
    ReserveGpuVirtualAddress: [0x08], UNLISTED, "";
    MapGpuVirtualAddress: [0x0c], UNLISTED, "";
    FreeGpuVirtualAddress: [0x20], UNLISTED, "";
    UpdateGpuVirtualAddress: [0x39], UNLISTED, "";
    CreateHwQueue: [0x18], vgpu("CREATEHWQUEUE", 50), "";
    DestroyHwQueue: [0x1b], vgpu("DESTROYHWQUEUE", 51), "";
    SubmitCommandToHwQueue: [0x34], vgpu_async("SUBMITCOMMANDTOHWQUEUE", 52), "as SubmitCommand";
    SubmitSignalToHwQueue: [0x35], vgpu_async("SIGNALSYNCOBJECT", 26),
        "queues stand where a signal has contexts there; a CPU event of a queue is not translated there";
    SubmitWaitToHwQueue: [0x36], vgpu_async("WAITFORSYNCOBJECTFROMGPU", 25),
        "the queue stands where a wait has its context there";
    CreateNativeFence: [], NOTHING, "the guest driver does not know native fences";
    OpenNativeFence: [], NOTHING, "the guest driver does not know native fences";
    CreateDoorbell: [], NOTHING, "the guest driver does not know user-mode submission";
    ConnectDoorbell: [], NOTHING, "the guest driver does not know user-mode submission";
    DestroyDoorbell: [], NOTHING, "the guest driver does not know user-mode submission";
    NotifyWorkSubmission: [], NOTHING, "the guest driver does not know user-mode submission";
    SetContextPriority: [0x2f, 0x30], UNLISTED, "";
    ContextPriority: [0x21, 0x22], UNLISTED, "";
    SetProcessPriorityClass: [], NOTHING, "no ioctl is about a process's class";
    ProcessPriorityClass: [], NOTHING, "no ioctl is about a process's class";
    MarkDeviceAsError: [0x26], vgpu("MARKDEVICEASERROR", 29), "";
    Escape: [0x0d], vgpu("ESCAPE", 13),
        "its reply is the private data alone there, so the status is lost; here the caller gets it";
    IsFeatureEnabled: [0x49], vgpu("ISFEATUREENABLED", 68), "";
    QueryStatistics: [0x43], UNLISTED, "";
    QueryClockCalibration: [0x3d], UNLISTED, "";
}

const fn row(there: There, differs: &'static str) -> Counterpart {
    Counterpart { ioctls: &[], there, differs }
}

const VM_ATTACHED: Counterpart =
    row(NOTHING, "there the host offers the global channel and one for each vGPU, and the VM opens them");
const VM_DETACHED: Counterpart = row(NOTHING, "there the channels close");
const VM_PAUSED: Counterpart = row(
    NOTHING,
    "the guest does not run, so it notices nothing; there the host's worker process of the VM stops, here `gpupv inject`",
);
const MEMORY_CHANGED: Counterpart =
    row(NOTHING, "vhost-user sends the memory table of a VM; there the host itself maps guest memory");
const PROCESS_ATTACHED: Counterpart = row(
    global("CREATEPROCESS", 1000),
    "sent at open(\"/dev/dxg\") there; here libdxcore.so connects at its first call",
);
const PROCESS_GONE: Counterpart = row(
    global("DESTROYPROCESS", 1001),
    "FLUSHDEVICE (42) and DESTROYDEVICE (1) come first there; here the stream ends",
);
const FENCE_MEMORY: Counterpart = row(
    NOTHING,
    "there SETIOSPACEREGION (1010) gives the host one window a VM, once; here each process has its own fence memory",
);
const GUEST_FEATURES: Counterpart =
    row(global("ISFEATUREENABLED_GLOBAL", 1022), "the guest asks there; here it says what it knows, once");
const PROCESS_FROZEN: Counterpart =
    row(global("NOTIFYPROCESSFREEZE", 1007), "defined there, but never sent; here `gpupv inject freeze`");
const PROCESS_THAWED: Counterpart =
    row(global("NOTIFYPROCESSTHAW", 1008), "defined there, but never sent; here `gpupv inject thaw`");
const DEADLINE: Counterpart = row(IN_HOST, "");
const SYSTEM_TIME: Counterpart = row(IN_HOST, "");
const FAULT: Counterpart = row(IN_HOST, "");
const ADAPTER_STOPPED: Counterpart = row(
    NOTHING,
    "there the host closes the vGPU's channel, and later calls are DEVICE_REMOVED; ADAPTERSTOP (30) is the guest's own",
);
const ADAPTER_STARTED: Counterpart = row(
    NOTHING,
    "there the host offers a channel for the vGPU again, and the guest driver makes an adapter of it",
);
const ADAPTER_REMOVED: Counterpart = row(
    NOTHING,
    "there the host revokes the offer of one VM's vGPU channel, and later calls of this VM are DEVICE_REMOVED",
);
const ADAPTER_ADDED: Counterpart =
    row(NOTHING, "there the host offers the VM a vGPU channel, and the guest driver makes an adapter of it");
const DRIVER_UPDATED: Counterpart = row(
    NOTHING,
    "there the channels of every VM's vGPU of the adapter close, and come again with the new driver",
);
const DOORBELL_RUNG: Counterpart = row(NOTHING, "the guest driver does not know user-mode submission");
const NT_HANDLE_CLOSED: Counterpart = row(
    global("DESTROYNTSHAREDOBJECT", 1005),
    "sent for the last NT handle of an object there; here for each",
);

/// The counterpart of an input.
pub fn of_input(input: &Input) -> Counterpart {
    match input {
        Input::VmAttached { .. } => VM_ATTACHED,
        Input::VmDetached { .. } => VM_DETACHED,
        Input::VmPaused { .. } => VM_PAUSED,
        Input::VmAdapter { added: true, .. } => ADAPTER_ADDED,
        Input::VmAdapter { added: false, .. } => ADAPTER_REMOVED,
        Input::MemoryChanged { .. } => MEMORY_CHANGED,
        Input::ProcessAttached { .. } => PROCESS_ATTACHED,
        Input::FenceMemoryAdded { .. } | Input::FenceMemoryMapped { .. } => FENCE_MEMORY,
        Input::GuestFeatures { .. } => GUEST_FEATURES,
        Input::Call { call, .. } => of_call(call),
        Input::ProcessGone { .. } => PROCESS_GONE,
        Input::ProcessFrozen { frozen: true, .. } => PROCESS_FROZEN,
        Input::ProcessFrozen { frozen: false, .. } => PROCESS_THAWED,
        Input::Deadline => DEADLINE,
        Input::Fault(fault) => of_fault(fault),
        Input::SystemTime { .. } => SYSTEM_TIME,
        Input::DoorbellRung { .. } => DOORBELL_RUNG,
        Input::NtHandleClosed { .. } => NT_HANDLE_CLOSED,
    }
}

fn of_fault(fault: &Fault) -> Counterpart {
    match fault {
        Fault::StopAdapter { .. } => ADAPTER_STOPPED,
        Fault::StartAdapter { .. } => ADAPTER_STARTED,
        Fault::UpdateDriver { .. } => DRIVER_UPDATED,
        Fault::LoseInterrupt { .. }
        | Fault::Hang { .. }
        | Fault::PageFault { .. }
        | Fault::ResetFails { .. }
        | Fault::Power { .. }
        | Fault::EngineToF1 { .. }
        | Fault::ObjectGoesBad { .. } => FAULT,
    }
}

/// The counterpart of each input that is no call.
pub const INPUTS: &[(&str, Counterpart)] = &[
    ("VM attached", VM_ATTACHED),
    ("VM detached", VM_DETACHED),
    ("VM paused, VM resumed", VM_PAUSED),
    ("memory changed", MEMORY_CHANGED),
    ("process attached", PROCESS_ATTACHED),
    ("process gone", PROCESS_GONE),
    ("fence memory added, fence memory mapped", FENCE_MEMORY),
    ("guest features", GUEST_FEATURES),
    ("process frozen", PROCESS_FROZEN),
    ("process thawed", PROCESS_THAWED),
    ("adapter stopped", ADAPTER_STOPPED),
    ("adapter started again", ADAPTER_STARTED),
    ("adapter removed from a VM", ADAPTER_REMOVED),
    ("adapter added to a VM", ADAPTER_ADDED),
    ("driver updated", DRIVER_UPDATED),
    ("doorbell rung", DOORBELL_RUNG),
    ("NT handle closed", NT_HANDLE_CLOSED),
    ("deadline", DEADLINE),
    ("system time", SYSTEM_TIME),
    ("other fault", FAULT),
];

const WAKE: Counterpart = row(
    to_guest("SIGNALGUESTEVENT", 0),
    "there an event id and nothing else; here the status too, because keyed mutexes and lost devices end waits",
);
const DRIVER_EVENT: Counterpart = row(
    to_guest("SIGNALGUESTEVENT", 0),
    "the same list of events there; here an event of the driver has a number space of its own",
);
/// The counterpart of a sync file that becomes readable.
pub const SYNC_FILE_READY: Counterpart = row(
    to_guest("SIGNALGUESTEVENT", 0),
    "the event of the dma_fence there; here a message to the VM's broker",
);
const FENCE_VALUE: Counterpart = row(
    IN_GUEST,
    "both store the value in memory that the process has mapped; there writable, here read-only",
);
const DEVICE_STATUS: Counterpart =
    row(to_guest("SETGUESTDATA", 2), "there a message raises device_state_counter; here slot 0 is stored");
const MOVE: Counterpart = row(IN_HOST, "");
const NOTE: Counterpart = row(IN_HOST, "notes are for people, and reach no guest");

/// The counterpart of a wake-up.
pub fn of_event(target: WakeTarget) -> Counterpart {
    match target {
        WakeTarget::Event(_) => WAKE,
        WakeTarget::GuestEvent(_) => DRIVER_EVENT,
    }
}

/// The counterpart of a store into fence memory.
pub fn of_store(slot: u32) -> Counterpart {
    if slot == dxgkrnl::STATUS_SLOT { DEVICE_STATUS } else { FENCE_VALUE }
}

/// The counterpart of each effect but the answer, which is the reply packet of its call.
pub const EFFECTS: &[(&str, Counterpart)] = &[
    ("wake-up of a wait, or of an event", WAKE),
    ("event of a driver", DRIVER_EVENT),
    ("sync file that is ready", SYNC_FILE_READY),
    ("fence value", FENCE_VALUE),
    ("devices that are not ACTIVE", DEVICE_STATUS),
    ("bytes moved", MOVE),
    ("note", NOTE),
];
