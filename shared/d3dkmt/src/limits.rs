//! Limits of the D3DKMT interface and of our channel. The duration of a wait is unlimited.

/// Whether one user of a limited resource may have `has` of it and leave `leaves`. It may have at most twice what it
/// leaves, so that the next user always finds some.
pub const fn is_fair_share(has: u64, leaves: u64) -> bool {
    has <= leaves.saturating_mul(2)
}

/// `D3DDDI_MAX_OBJECT_WAITED_ON`.
pub const OBJECTS_WAITED_ON_MAX: usize = 32;
/// `D3DDDI_MAX_OBJECT_SIGNALED`.
pub const OBJECTS_SIGNALED_MAX: usize = 32;
/// `D3DDDI_MAX_BROADCAST_CONTEXT`.
pub const BROADCAST_CONTEXTS_MAX: usize = 64;
/// Contexts of a signal of legacy objects: `D3DKMTSignalSynchronizationObject2` has one beside the broadcast contexts.
pub const SIGNALING_CONTEXTS_MAX: usize = BROADCAST_CONTEXTS_MAX + 1;
/// Adapters that one enumeration returns at most: what `EnumAdapters2` answers for a NULL array (W-288).
pub const ADAPTERS_MAX: usize = 34;
/// How often an adapter can start again after a stop.
pub const ADAPTER_ARRIVALS_MAX: u32 = 1 << 16;
/// Bytes of one message, in either direction (GPV-009). A bigger request fails; it is never split.
pub const MESSAGE_BYTES_MAX: usize = 128 * 1024;
/// Private driver data of one call: what fits a message beside the largest fixed part.
pub const PRIVATE_DATA_BYTES_MAX: usize = MESSAGE_BYTES_MAX - 1024;
/// Handles of one process: the 24-bit indices of a handle, less the first two (W-001).
pub const HANDLES_PER_PROCESS_MAX: usize = (1 << 24) - 2;
/// CPU waits that one process may have pending.
pub const WAITS_PER_PROCESS_MAX: usize = 1 << 20;
/// Acquires of keyed mutexes that one process may have pending; each blocks a thread. The end of a handle ends all of
/// its acquires in one step.
pub const ACQUIRES_PER_PROCESS_MAX: usize = 1024;
/// Wake-ups that are held back for one frozen process.
pub const HELD_WAKES_PER_PROCESS_MAX: usize = 1 << 16;
/// Packets queued in one context.
pub const PACKETS_PER_CONTEXT_MAX: usize = 1 << 16;
/// Bytes that the queues of one process's contexts may hold: command buffers and the packets themselves.
pub const QUEUED_BYTES_PER_PROCESS_MAX: usize = 32 << 20;
/// Devices of one process. Programs have a few.
pub const DEVICES_PER_PROCESS_MAX: usize = 1 << 16;
/// Contexts of one process.
pub const CONTEXTS_PER_PROCESS_MAX: usize = 1 << 14;
/// Hardware queues of one process.
pub const HW_QUEUES_PER_PROCESS_MAX: usize = 4096;
/// Units of work of one step of the kernel: a few hundredths of a millisecond. A unit is an object destroyed, a wait
/// woken, or a packet reached or dropped. Later steps do the rest, on behalf of the process that it is for.
pub const WORK_UNITS_PER_STEP: u32 = 64;
/// Bytes that an engine moves at a time, and after which a step of the kernel runs no further engine: about a tenth of
/// a millisecond as well. An engine moves the rest later, as its bandwidth allows.
pub const MOVED_BYTES_PER_STEP: u64 = 1 << 18;
/// Opens of one synchronization object, in all processes.
pub const OPENS_PER_OBJECT_MAX: usize = 1024;
/// NT handles of shared objects that the processes of one VM have at a time.
pub const SHARES_PER_VM_MAX: usize = 1 << 14;
/// `D3DKMT_MAX_OBJECTS_PER_HANDLE`.
pub const OBJECTS_PER_SHARE_MAX: usize = 3;
/// UTF-16 units of a shared object's name: MAX_PATH, as for every named object of the Win32 API.
pub const SHARE_NAME_UNITS_MAX: usize = 260;
/// Keyed mutexes that one process has open.
pub const KEYED_MUTEXES_PER_PROCESS_MAX: usize = 4096;
/// Private runtime data of one keyed mutex.
pub const KEYED_MUTEX_DATA_BYTES_MAX: usize = 4096;
/// Fence slots of one process: 64 MiB of fence memory.
pub const FENCE_SLOTS_PER_PROCESS_MAX: u32 = 1 << 20;
/// Processes of one VM. Each has a stream; the vsock device has room for 4096, a few of which are not for processes.
pub const PROCESSES_PER_VM_MAX: usize = 4000;
/// Periodic monitored fences of one display target, in all processes.
pub const PERIODIC_FENCES_PER_TARGET_MAX: usize = 64;
/// CPU events of one process that drivers signal.
pub const CPU_EVENTS_PER_PROCESS_MAX: usize = 1 << 14;
/// CPU events of one process that its broker registers and sets itself. Wake-ups of further events arrive on the
/// process's stream.
pub const REGISTERED_EVENTS_PER_PROCESS_MAX: usize = 16;
/// Event channels of all processes of one VM. Each has a stream of its own, and the vsock device must keep room for the
/// streams of processes.
pub const EVENT_CHANNELS_PER_VM_MAX: usize = 64;
/// Events of one process that its driver has signaled for the last time, by guest-event mode.
pub const LAST_USED_EVENTS_PER_PROCESS_MAX: usize = 1 << 14;
/// `D3DKMT_CREATEALLOCATION_MAX`: allocations of one call.
pub const ALLOCATIONS_PER_CALL_MAX: usize = 1024;
/// `D3DKMT_MAKERESIDENT_ALLOC_MAX`: allocations of one `D3DKMTMakeResident` or `D3DKMTEvict`.
pub const MAKE_RESIDENT_ALLOCATIONS_MAX: usize = 10_240;
/// How often one handle makes its allocation resident without evicting it.
pub const RESIDENCY_COUNT_MAX: u32 = 1 << 16;
/// How often one handle locks its allocation without unlocking it.
pub const LOCKS_PER_ALLOCATION_MAX: u32 = 1 << 12;
/// Allocations that one process has open.
pub const ALLOCATIONS_PER_PROCESS_MAX: usize = 1 << 16;
/// Private runtime data of one resource.
pub const RESOURCE_DATA_BYTES_MAX: usize = 4096;
/// Private driver data of one resource and its allocations together, and of one `D3DKMTCreateAllocation`: what the
/// answer to an open has room for beside its handles.
pub const ALLOCATION_DATA_BYTES_MAX: usize = 96 * 1024;
/// Allocations of one resource: an open returns all of them.
pub const ALLOCATIONS_PER_RESOURCE_MAX: usize = ALLOCATIONS_PER_CALL_MAX;
/// Paging queues of one process.
pub const PAGING_QUEUES_PER_PROCESS_MAX: usize = 64;
/// Ranges of one GPU address space, and pieces of them.
pub const GPU_VA_RANGES_MAX: usize = 4096;
/// Operations of one `D3DKMTUpdateGpuVirtualAddress`.
pub const GPU_VA_OPERATIONS_MAX: usize = 256;
/// Bytes of a command list's name.
pub const LIST_NAME_BYTES_MAX: usize = 256;
/// Resources that one process has described to an adapter's driver.
pub const RESOURCES_PER_PROCESS_MAX: usize = 1 << 14;
/// Commands, barriers and markers of one submission that an engine considers at a time.
pub const LIST_WINDOW_MAX: usize = 64;
/// Commands of one submission that run at once.
pub const COMMANDS_AT_ONCE_MAX: usize = 16;
/// Memory ranges of one barrier. A barrier that names more writes back and invalidates everything between the first and
/// the last; it discards only what it names.
pub const RANGES_PER_BARRIER_MAX: usize = 64;
/// Uses of one command that are ordered among draws one by one; further uses of a stage count as one range over all.
pub const ORDERED_USES_PER_COMMAND_MAX: usize = 16;
/// Destinations of one command that are their own sources: the bytes read of each are kept until the command completes.
pub const OWN_SOURCES_PER_COMMAND_MAX: usize = 64;
/// Ranges that one cache of an engine has, and their bytes.
pub const CACHE_RANGES_MAX: usize = 256;
pub const CACHE_BYTES_MAX: u64 = 1 << 19;
/// Bytes of one use of a command that go through a cache: the bytes after them bypass it.
pub const CACHED_BYTES_PER_USE_MAX: u64 = 1 << 16;
/// Messages of the driver's debug layer that one process has not read.
pub const DEBUG_MESSAGES_PER_PROCESS_MAX: usize = 1024;
/// Records of signalers that are gone, for all objects together. The latest are kept.
pub const REMEMBERED_ENDS_MAX: usize = 256;
/// End of the user address space of an x86-64 process.
pub const USER_END: u64 = 1 << 47;
/// Addresses of memory of the device, which no memory of a process can have.
pub const DEVICE_MEMORY_START: u64 = USER_END;
pub const DEVICE_MEMORY_END: u64 = 1 << 62;
/// Bytes of one allocation of memory of the device: what a broker provides for one process.
pub const DEVICE_ALLOCATION_BYTES_MAX: u64 = 1 << 30;
/// Bytes of memory of the device in shared resources of one VM. They may outlive the process that counts them as its own
/// backing pages.
pub const SHARED_DEVICE_BYTES_PER_VM_MAX: u64 = 4 << 30;
