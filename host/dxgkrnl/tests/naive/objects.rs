//! Creation and destruction of synchronization objects.

use d3dkmt::{
    CreatedSyncObject, Handle, NtStatus, Reply, SyncObjectFlags as F, SyncObjectInfo, SyncObjectType,
};

use super::queued::MutexOwner;
use super::{IP, Naive, Owner, Verdict};

/// The type of an object, with the state of that type only.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Kind {
    Monitored,
    /// `D3DDDI_FENCE`.
    Fence,
    Mutex {
        owner: Option<MutexOwner>,
    },
    Semaphore {
        max: u64,
    },
    /// A CPU notification of this process's event.
    Notification {
        process: u32,
        event: u64,
    },
}

/// A synchronization object. Its handles are [`Open`]s.
pub struct Object {
    pub kind: Kind,
    /// A fence's value; a semaphore's count; 1 for an owned mutex.
    pub value: u64,
    /// Poisoned by a device reset: a state beside the largest value (TDR-026).
    pub poisoned: bool,
    /// Created as a native fence.
    pub made_native: bool,
    /// The adapters on which it is a native fence (FEN-096): engines wait for it in hardware, and interrupt at once for a
    /// value that is waited for.
    pub native_on: Vec<usize>,
    /// Legacy sharing: its global handle, and the VM in which the handle is valid.
    pub global: (Handle, u32),
    /// Belongs to the device that created it.
    pub adapter: usize,
    pub flags: F,
}

/// A handle of an object: of the process and the device that created or opened it (F-1, F-9).
pub struct Open {
    pub process: u32,
    pub handle: Handle,
    pub object: usize,
    /// `None` for objects that belong to the process.
    pub device: Option<usize>,
    pub adapter: usize,
    pub flags: F,
    /// Rights that its NT handle or sync file lacked.
    pub denied: F,
    pub slot: Option<u32>,
    pub gpu_address: u64,
    /// Engines see it once this operation of this paging queue is complete (FEN-062).
    pub mapped_at: Option<(usize, u64)>,
    pub native: bool,
    pub ended: bool,
}

impl Object {
    pub(super) fn new(kind: Kind, value: u64, adapter: usize, flags: F) -> Self {
        let (poisoned, made_native, native_on, global) = (false, false, vec![], (Handle::NULL, 0));
        Object { kind, value, poisoned, made_native, native_on, global, adapter, flags }
    }
}

impl Naive {
    pub fn open_of(&self, process: u32, handle: Handle) -> Option<usize> {
        let mine = |open: &Open| !open.ended && open.process == process && open.handle == handle;
        self.opens.iter().position(mine)
    }

    /// Errors that every call on a device can have.
    pub(super) fn device_mistakes(&self, process: u32, device: Handle) -> (Option<usize>, Vec<NtStatus>) {
        let device = self.device(process, device);
        let mistakes = match device {
            None => vec![IP],
            Some(device) if self.works(device) => vec![],
            // FEN-095
            Some(_) => vec![NtStatus::DEVICE_REMOVED],
        };
        (device, mistakes)
    }

    pub(super) fn works(&self, device: usize) -> bool {
        self.devices[device].state == d3dkmt::DeviceExecutionState::ACTIVE
    }

    pub(super) fn create_object(
        &mut self,
        process: u32,
        device: Handle,
        info: &SyncObjectInfo,
        legacy: bool,
        kernel_reply: &Reply,
    ) -> Verdict {
        let (device, mut mistakes) = self.device_mistakes(process, device);
        let (flags, is_monitored) = (info.flags, info.object_type == SyncObjectType::MONITORED_FENCE);
        let owner = device.filter(|_| info.initial_state).map(MutexOwner::Device);
        let (kind, value) = match info.object_type {
            SyncObjectType::MONITORED_FENCE => (Kind::Monitored, info.initial_value),
            SyncObjectType::FENCE => (Kind::Fence, info.initial_value),
            SyncObjectType::MUTEX => (Kind::Mutex { owner }, u64::from(info.initial_state)),
            SyncObjectType::SEMAPHORE => {
                (Kind::Semaphore { max: info.max_count.into() }, info.initial_count.into())
            }
            _ => {
                let event = info.event.map_or(0, |event| event.0);
                (Kind::Notification { process, event }, 0)
            }
        };
        // W-029; the first form has no flags.
        if legacy && (!matches!(kind, Kind::Mutex { .. } | Kind::Semaphore { .. }) || !flags.is_empty()) {
            mistakes.push(IP);
        }
        // EVT-001: for CPU notifications only.
        let by_kmd = flags.contains(F::SIGNAL_BY_KMD) && matches!(kind, Kind::Notification { .. });
        let others = if by_kmd { flags - F::SIGNAL_BY_KMD } else { flags };
        if flags_clash(others) || (!is_monitored && flags.intersects(OF_MONITORED_FENCES)) {
            mistakes.push(IP);
        }
        if matches!(kind, Kind::Semaphore { max } if value > max) {
            mistakes.push(IP);
        }
        // FEN-044, FEN-045, F-6
        let (shared, nt) = (flags.contains(F::SHARED), flags.contains(F::NT_SECURITY_SHARING));
        if (nt && !shared) || (is_monitored && shared && !nt) || (flags.contains(F::CROSS_ADAPTER) && !shared)
        {
            mistakes.push(IP);
        }
        let (Some(device), []) = (device, &mistakes[..]) else { return Err(mistakes) };
        let adapter = self.devices[device].adapter;
        let global = match kernel_reply {
            Reply::SyncObject(created) if shared && !nt => created.shared_handle,
            _ => Handle::NULL,
        };
        let global = (global, self.vm_of(process));
        self.objects.push(Object { global, ..Object::new(kind, value, adapter, flags) });
        let reply =
            self.add_open(process, Some(device), adapter, self.objects.len() - 1, flags, kernel_reply);
        let Reply::SyncObject(created) = reply else { return Ok(reply) };
        if let (true, Kind::Notification { event, .. }) = (by_kmd, kind) {
            self.add_cpu_event(device, event);
        }
        Ok(Reply::SyncObject(CreatedSyncObject { shared_handle: global.0, ..created }))
    }

    /// FEN-046: any process of the VM may open a global handle while the object has a local handle.
    pub(super) fn open_global(&mut self, process: u32, global: Handle, kernel_reply: &Reply) -> Verdict {
        let vm = self.vm_of(process);
        let has_handle = |object: usize| self.opens.iter().any(|open| !open.ended && open.object == object);
        let mut objects = 0..self.objects.len();
        let found = |object: &usize| {
            global != Handle::NULL && self.objects[*object].global == (global, vm) && has_handle(*object)
        };
        let object = objects.find(found).ok_or(vec![IP])?;
        // FEN-095
        if self.stopped_adapters.contains(&self.objects[object].adapter) {
            return Err(vec![NtStatus::DEVICE_REMOVED]);
        }
        Ok(self.add_open(process, None, self.objects[object].adapter, object, F::empty(), kernel_reply))
    }

    /// Uses the names of a new handle from the kernel's reply, after checks.
    pub(super) fn add_open(
        &mut self,
        process: u32,
        device: Option<usize>,
        adapter: usize,
        object: usize,
        flags: F,
        kernel_reply: &Reply,
    ) -> Reply {
        let created = match kernel_reply {
            Reply::SyncObject(created) => *created,
            _ => CreatedSyncObject::default(),
        };
        let CreatedSyncObject { object: handle, slot, gpu_address, .. } = created;
        // FEN-054: without GPU access by the creation, whoever opens it.
        let flags = flags | self.objects[object].flags & F::NO_GPU_ACCESS;
        let is_monitored = self.objects[object].kind == Kind::Monitored;
        let mine = || self.opens.iter().filter(|open| !open.ended && open.process == process);
        // FEN-054: no GPU address. Otherwise an aligned one (FEN-003) that is not in use.
        let address_fits = if is_monitored && !flags.contains(F::NO_GPU_ACCESS) {
            let is_taken = mine().any(|open| open.gpu_address == gpu_address);
            gpu_address != 0 && gpu_address.is_multiple_of(8) && !is_taken
        } else {
            gpu_address == 0
        };
        let slot_fits = match slot {
            Some(slot) => is_monitored && slot != 0 && mine().all(|open| open.slot != Some(slot)),
            None => !is_monitored,
        };
        // Legacy objects belong to the process.
        let device = device.filter(|_| is_monitored);
        self.push_open(process, device, adapter, object, flags, &created);
        Reply::SyncObject(CreatedSyncObject {
            object: handle,
            shared_handle: Handle::NULL,
            slot: if slot_fits { slot } else { Some(u32::MAX) },
            gpu_address: if address_fits { gpu_address } else { !gpu_address },
            paging_fence_value: 0,
            no_wait: flags.contains(F::NO_WAIT),
        })
    }

    pub(super) fn push_open(
        &mut self,
        process: u32,
        device: Option<usize>,
        adapter: usize,
        object: usize,
        flags: F,
        created: &CreatedSyncObject,
    ) {
        let CreatedSyncObject { object: handle, slot, gpu_address, .. } = *created;
        let (denied, mapped_at, native, ended) = (F::empty(), None, false, false);
        self.opens.push(Open {
            process,
            handle,
            object,
            device,
            adapter,
            flags,
            denied,
            slot,
            gpu_address,
            mapped_at,
            native,
            ended,
        });
    }

    /// The last open was made by an NT handle or sync file without these rights.
    pub(super) fn opened_without(&mut self, denied: F) {
        self.opens.last_mut().expect("there is one").denied = denied;
    }

    pub(super) fn destroy_object(&mut self, process: u32, handle: Handle) -> Verdict {
        let goes_alone = |open: &usize| !self.is_progress_fence(*open) && !self.is_paging_fence(*open);
        let open = self.open_of(process, handle).filter(goes_alone).ok_or(vec![IP])?;
        self.end_open(open);
        Ok(Reply::None)
    }

    /// Destroys the handle. CPU waits made through it that still need it end. The object's flag defers that until no name
    /// of the object is left (FEN-058, F-52). Queued packets continue without the handle.
    pub(super) fn end_open(&mut self, open: usize) {
        self.opens[open].ended = true;
        self.end_cpu_event_of_open(open);
        let object = self.opens[open].object;
        let at_once = !self.objects[object].flags.contains(F::UNWAIT_CPU_WAITERS_ONLY_ON_DESTROY);
        let dead = !self.is_alive(object);
        let mut released = vec![];
        for (number, wait) in self.waits.iter().enumerate() {
            let concerned = wait.items.iter().filter(|item| !item.reached && item.object == object);
            let least =
                concerned.filter(|item| dead || at_once && item.open == open).map(|item| item.value).min();
            if let (false, false, Some(value)) = (wait.owner.is_packet(), wait.over, least) {
                released.push((value, number));
            }
        }
        released.sort();
        for (_, wait) in released {
            self.end_wait(wait, self.rules.destroyed_wait);
        }
        self.name_is_gone(object);
    }

    /// Whether a handle or an NT handle still names it.
    fn has_name(&self, object: usize) -> bool {
        self.opens.iter().any(|open| !open.ended && open.object == object)
            || self.shares.iter().any(|share| share.keeps(object))
    }

    /// A fence without a name satisfies its waits.
    pub(super) fn holds_nobody_up(&self, object: usize) -> bool {
        self.rules.destroyed_releases_queued
            && self.objects[object].kind == Kind::Monitored
            && !self.has_name(object)
    }

    /// After the end of a name: if it was the last, all waits for the fence are released in order.
    pub(super) fn name_is_gone(&mut self, object: usize) {
        if !self.holds_nobody_up(object) {
            return;
        }
        let mut waiting = vec![];
        for (number, wait) in self.waits.iter().enumerate() {
            for (at, item) in wait.items.iter().enumerate() {
                if !wait.over && !item.reached && item.object == object {
                    waiting.push((item.value, number, at));
                }
            }
        }
        waiting.sort();
        for (_, number, at) in waiting {
            if self.waits[number].over {
                continue;
            }
            match self.waits[number].owner {
                Owner::Cpu { .. } | Owner::SyncFile { .. } => {
                    self.end_wait(number, self.rules.destroyed_wait);
                }
                Owner::Gpu { .. } => {
                    self.waits[number].items[at].reached = true;
                    if self.waits[number].is_satisfied() {
                        self.end_wait(number, NtStatus::SUCCESS);
                    }
                }
            }
        }
    }

    pub(super) fn vm_of(&self, process: u32) -> u32 {
        self.processes.iter().find(|one| one.id == process).expect("only processes that live make calls").vm
    }
}

/// Flags that no handle of a monitored fence may have: reserved ones, FEN-052, FEN-055.
pub(super) fn flags_clash(flags: F) -> bool {
    flags.unknown() != 0 || flags.contains(F::NO_SIGNAL | F::NO_WAIT) || flags.contains(F::SIGNAL_BY_KMD)
}

/// FEN-049, F-3
const OF_MONITORED_FENCES: F =
    F::TOP_OF_PIPELINE.union(F::NO_SIGNAL).union(F::NO_WAIT).union(F::NO_SIGNAL_MAX_VALUE_ON_TDR);
