//! Native fences (FEN-096 to FEN-117): engines wait for them in hardware.
//!
//! A fence with CrossAdapter may be open on several adapters: natively on those with native fences, elsewhere as a
//! monitored fence (FEN-116). There is one value. An adapter's hardware sees its own stores at once; the system notifies
//! it of all other changes (FEN-112, FEN-115).

use d3dkmt::{CreatedSyncObject, Handle, NtStatus, Reply, ShareToken, SyncObjectFlags as F};

use super::objects::flags_clash;
use super::{IP, Kind, Naive, Object, Open, Verdict};

impl Naive {
    pub(super) fn create_native(
        &mut self,
        process: u32,
        device: Handle,
        value: u64,
        flags: F,
        kernel_reply: &Reply,
    ) -> Verdict {
        let (device, mut mistakes) = self.device_mistakes(process, device);
        let adapter = device.map(|device| self.devices[device].adapter);
        if adapter.is_some_and(|adapter| !self.native.contains(&adapter)) {
            mistakes.push(NtStatus::NOT_SUPPORTED);
        }
        let shared = flags.contains(F::SHARED);
        let is_wrong = flags_clash(flags)
            || shared != flags.contains(F::NT_SECURITY_SHARING)
            || (flags.contains(F::CROSS_ADAPTER) && !shared)
            || flags.contains(F::NO_GPU_ACCESS);
        if is_wrong {
            mistakes.push(IP);
        }
        let (Some(device), Some(adapter), []) = (device, adapter, &mistakes[..]) else {
            return Err(mistakes);
        };
        self.objects.push(Object::new(Kind::Monitored, value, adapter, flags));
        let object = self.objects.len() - 1;
        self.objects[object].made_native = true;
        Ok(self.add_native_open(process, device, object, flags, kernel_reply))
    }

    /// D3DKMTOpenNativeFenceFromNtHandle.
    pub(super) fn open_native(
        &mut self,
        process: u32,
        device: Handle,
        token: ShareToken,
        flags: F,
        kernel_reply: &Reply,
    ) -> Verdict {
        let (device, object, rights, mut mistakes) = self.open_mistakes(process, device, token, flags);
        let adapter = device.map(|device| self.devices[device].adapter);
        if adapter.is_some_and(|adapter| !self.native.contains(&adapter)) {
            mistakes.push(NtStatus::NOT_SUPPORTED);
        }
        let of_object = object.map_or(F::empty(), |object| self.objects[object].flags);
        if (flags | of_object).contains(F::NO_GPU_ACCESS) {
            mistakes.push(IP);
        }
        // FEN-116: another kind of fence opens as native on another adapter only.
        let fits = |object: &Object| object.made_native || Some(object.adapter) != adapter;
        if object.is_some_and(|object| !fits(&self.objects[object])) {
            mistakes.push(IP);
        }
        let (Some(device), Some(object), []) = (device, object, &mistakes[..]) else { return Err(mistakes) };
        let reply = self.add_native_open(process, device, object, flags | rights, kernel_reply);
        self.opened_without(rights);
        Ok(reply)
    }

    pub(super) fn add_native_open(
        &mut self,
        process: u32,
        device: usize,
        object: usize,
        flags: F,
        kernel_reply: &Reply,
    ) -> Reply {
        let adapter = self.devices[device].adapter;
        // FEN-108: a process has it at one address.
        let same =
            |open: &&Open| !open.ended && open.native && (open.process, open.object) == (process, object);
        let existing = self.opens.iter().find(same).map(|open| (open.slot, open.gpu_address));
        let reply = match (existing, kernel_reply) {
            (Some((slot, gpu_address)), Reply::SyncObject(created)) => {
                let created = CreatedSyncObject {
                    object: created.object,
                    shared_handle: Handle::NULL,
                    slot,
                    gpu_address,
                    paging_fence_value: 0,
                    no_wait: flags.contains(F::NO_WAIT),
                };
                self.push_open(process, Some(device), adapter, object, flags, &created);
                Reply::SyncObject(created)
            }
            _ => self.add_open(process, Some(device), adapter, object, flags, kernel_reply),
        };
        let open = self.opens.len() - 1;
        self.opens[open].native = true;
        let on = &mut self.objects[object].native_on;
        if !on.contains(&adapter) {
            on.push(adapter);
            on.sort_unstable();
        }
        reply
    }

    /// The native fence that a hardware wait at this address names, if any (SCH-016).
    pub(super) fn native_fence_at(&self, engine: usize, process: u32, gpu_address: u64) -> Option<usize> {
        let location = (process, gpu_address, self.engines[engine].adapter);
        let mut opens = self.opens.iter().filter(|open| open.native && !open.ended);
        let open = opens.find(|open| (open.process, open.gpu_address, open.adapter) == location);
        open.map(|open| open.object)
    }

    /// FEN-111: native fences of a device in error are signaled for ever. On a stopped adapter values stay (R03).
    pub(super) fn signal_native_fences_for_ever(&mut self, device: usize) {
        if self.stopped_adapters.contains(&self.devices[device].adapter) {
            return;
        }
        let may_signal = |open: &&Open| {
            !open.ended && open.native && open.device == Some(device) && !open.flags.contains(F::NO_SIGNAL)
        };
        let mut opens: Vec<(Handle, usize)> =
            self.opens.iter().filter(may_signal).map(|open| (open.handle, open.object)).collect();
        opens.sort();
        for (_, object) in opens {
            self.poison(object);
        }
    }

    /// Notifies this adapter of a native fence's value that its hardware did not write.
    pub(super) fn notify_hardware(&mut self, object: usize, except: Option<usize>) {
        for adapter in self.objects[object].native_on.clone() {
            self.expect_of_hardware(adapter);
            if Some(adapter) != except && !self.stopped_adapters.contains(&adapter) {
                self.touched.push((object, adapter));
            }
        }
    }

    /// FEN-114, FEN-115: each store to a cross-adapter fence interrupts, and the system notifies the other adapters.
    pub(super) fn pass_on(&mut self, object: usize, from: Option<usize>) {
        if !self.objects[object].native_on.is_empty() && self.objects[object].flags.contains(F::CROSS_ADAPTER)
        {
            self.to_notify.push((object, from));
        }
    }

    /// Notifies one adapter after the other, once the hardware has nothing left to do by itself.
    pub(super) fn notify_others(&mut self) {
        while !self.to_notify.is_empty() {
            let (object, from) = self.to_notify.remove(0);
            self.notify_hardware(object, from);
            self.check_hardware_waits(self.now);
        }
    }
}
