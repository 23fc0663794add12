//! Synchronization objects: created and destroyed.

use d3dkmt::{
    CreatedSyncObject, Handle, NtStatus, Reply, SyncObjectFlags as F, SyncObjectInfo, SyncObjectType,
};

use super::{IP, Naive, Owner, Verdict};

/// A fence. Its handles are [`Open`]s.
pub struct Object {
    pub value: u64,
    /// Of the device that created it.
    pub adapter: usize,
    pub flags: F,
}

/// A handle of an object: of the process and the device that created or opened it (F-1, F-9).
pub struct Open {
    pub process: u32,
    pub handle: Handle,
    pub object: usize,
    /// `None` for objects that are the process's.
    pub device: Option<usize>,
    pub adapter: usize,
    pub flags: F,
    pub slot: Option<u32>,
    pub gpu_address: u64,
    pub gone: bool,
}

impl Naive {
    pub fn open_of(&self, process: u32, handle: Handle) -> Option<usize> {
        let mine = |open: &Open| !open.gone && open.process == process && open.handle == handle;
        self.opens.iter().position(mine)
    }

    /// The mistakes that every call on a device can have.
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

    pub(super) fn create_object(&mut self, process: u32, device: Handle, info: &SyncObjectInfo, given: &Reply) -> Verdict {
        let (device, mut mistakes) = self.device_mistakes(process, device);
        if info.object_type != SyncObjectType::MONITORED_FENCE || flags_clash(info.flags) {
            mistakes.push(IP);
        }
        // F-6, FEN-044, FEN-045
        let sharing = info.flags & (F::SHARED | F::NT_SECURITY_SHARING);
        if !sharing.is_empty() && sharing != F::SHARED | F::NT_SECURITY_SHARING {
            mistakes.push(IP);
        }
        if info.flags.contains(F::CROSS_ADAPTER) && !info.flags.contains(F::SHARED) {
            mistakes.push(IP);
        }
        let (Some(device), []) = (device, &mistakes[..]) else { return Err(mistakes) };
        let adapter = self.devices[device].adapter;
        self.objects.push(Object { value: info.initial_value, adapter, flags: info.flags });
        Ok(self.add_open(process, device, self.objects.len() - 1, info.flags, given))
    }

    /// Takes the names of a new handle from the kernel's reply, after a look at them.
    pub(super) fn add_open(&mut self, process: u32, device: usize, object: usize, flags: F, given: &Reply) -> Reply {
        let adapter = self.devices[device].adapter;
        let created = match given {
            Reply::SyncObject(created) => *created,
            _ => CreatedSyncObject::default(),
        };
        let CreatedSyncObject { object: handle, slot, gpu_address, .. } = created;
        let (device, gone) = (Some(device), false);
        let mine = |open: &&Open| !open.gone && open.process == process;
        // FEN-054: no GPU address. Otherwise one that is aligned (FEN-003) and nobody else's.
        let address_fits = match gpu_address {
            0 => flags.contains(F::NO_GPU_ACCESS),
            _ => {
                !flags.contains(F::NO_GPU_ACCESS)
                    && gpu_address.is_multiple_of(8)
                    && self.opens.iter().filter(mine).all(|open| open.gpu_address != gpu_address)
            }
        };
        let slot_fits = slot != Some(0) && self.opens.iter().filter(mine).all(|open| open.slot != slot);
        self.opens.push(Open { process, handle, object, device, adapter, flags, slot, gpu_address, gone });
        Reply::SyncObject(CreatedSyncObject {
            object: handle,
            shared_handle: Handle::NULL,
            slot: if slot_fits { slot } else { None },
            gpu_address: if address_fits { gpu_address } else { !gpu_address },
            ..created
        })
    }

    pub(super) fn destroy_object(&mut self, process: u32, handle: Handle) -> Verdict {
        let open = self.open_of(process, handle).ok_or(vec![IP])?;
        self.end_open(open);
        Ok(Reply::None)
    }

    /// The handle goes. CPU waits that were made through it and still need it end, unless the flag of the object puts that
    /// off to the end of the last handle (FEN-058). What is queued goes on without it.
    pub(super) fn end_open(&mut self, open: usize) {
        self.opens[open].gone = true;
        let object = self.opens[open].object;
        let was_last = !self.opens.iter().any(|open| !open.gone && open.object == object);
        let at_once = !self.objects[object].flags.contains(F::UNWAIT_CPU_WAITERS_ONLY_ON_DESTROY);
        let mut released = vec![];
        for (number, wait) in self.waits.iter().enumerate() {
            let concerned = wait.items.iter().filter(|item| !item.reached && item.object == object);
            let least = concerned.filter(|item| was_last || at_once && item.open == open).map(|item| item.value).min();
            if let (Owner::Cpu { .. }, false, Some(value)) = (wait.owner, wait.over, least) {
                released.push((value, number));
            }
        }
        released.sort();
        for (_, wait) in released {
            self.end_wait(wait, self.rules.destroyed_wait);
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
