//! NT handles of objects: creation, names, and opens.

use d3dkmt::{CreatedSyncObject, Handle, NtStatus, Reply, ShareToken, SyncObjectFlags as F, access};

use super::objects::{Object, flags_clash};
use super::sync_files::SyncFile;
use super::{IP, Naive, Verdict};

/// An NT handle, by its token. It is valid in the VM that created it, for any of its processes, until it is closed or the
/// VM ends.
pub struct Share {
    pub token: ShareToken,
    pub vm: u32,
    pub object: usize,
    pub(super) access: u32,
    /// In upper case, because names are case-insensitive (W-148).
    pub(super) name: Option<String>,
    /// It is a sync file, not an NT handle.
    pub(super) sync_file: Option<SyncFile>,
    pub closed: bool,
}

impl Share {
    /// FEN-141: a sync file keeps a shared fence alive, as an NT handle does.
    pub(super) fn keeps(&self, object: usize) -> bool {
        let keeps = self.sync_file.is_none_or(|sync_file| sync_file.is_shared);
        keeps && !self.closed && self.object == object
    }
}

impl Naive {
    pub(super) fn share(
        &mut self,
        process: u32,
        objects: &[Handle],
        access: u32,
        name: Option<String>,
        token: ShareToken,
    ) -> Verdict {
        let vm = self.vm_of(process);
        let mut mistakes = self.token_mistakes(token);
        // FEN-066: of the combinations, the one without allocations.
        let open = if let [only] = objects { self.open_of(process, *only) } else { None };
        let object = open.map(|open| self.opens[open].object);
        // FEN-067, W-120 to W-123
        let shareable = F::SHARED | F::NT_SECURITY_SHARING;
        if !object.is_some_and(|object| self.objects[object].flags.contains(shareable)) {
            mistakes.push(IP);
        }
        // FEN-069: sharing again gives no right that the open lacks.
        let denied = open.map_or(F::empty(), |open| self.opens[open].denied);
        if !(denied - missing_from(access)).is_empty() {
            mistakes.push(NtStatus::ACCESS_DENIED);
        }
        let name = name.map(|name| name.to_uppercase());
        if name.as_deref().is_some_and(|name| self.share_of_name(vm, name).is_some()) {
            mistakes.push(NtStatus::OBJECT_NAME_COLLISION);
        }
        let (Some(object), []) = (object, &mistakes[..]) else { return Err(mistakes) };
        self.shares.push(Share { token, vm, object, access, name, sync_file: None, closed: false });
        Ok(Reply::None)
    }

    /// FEN-070, W-147 to W-149: another NT handle of the same object.
    pub(super) fn open_name(&mut self, process: u32, name: &str, access: u32, token: ShareToken) -> Verdict {
        let vm = self.vm_of(process);
        let mut mistakes = self.token_mistakes(token);
        let share = self.share_of_name(vm, &name.to_uppercase());
        if share.is_none() {
            mistakes.push(NtStatus::OBJECT_NAME_NOT_FOUND);
        }
        // W-148, FEN-068
        if !has_right(access, access::STANDARD_RIGHTS_READ) {
            mistakes.push(NtStatus::ACCESS_DENIED);
        }
        let (Some(share), []) = (share, &mistakes[..]) else { return Err(mistakes) };
        let Share { object, ref name, .. } = self.shares[share];
        self.shares.push(Share {
            token,
            vm,
            object,
            access,
            name: name.clone(),
            sync_file: None,
            closed: false,
        });
        Ok(Reply::None)
    }

    /// FEN-064, W-143 to W-145.
    pub(super) fn open(
        &mut self,
        process: u32,
        device: Handle,
        token: ShareToken,
        flags: F,
        kernel_reply: &Reply,
    ) -> Verdict {
        let (device, object, rights, mut mistakes) = self.open_mistakes(process, device, token, flags);
        // A native fence has its own open call on adapters with native fences (FEN-116).
        let adapter = device.map(|device| self.devices[device].adapter);
        let is_native = object.is_some_and(|object| self.objects[object].made_native);
        if is_native && adapter.is_some_and(|adapter| self.native.contains(&adapter)) {
            mistakes.push(IP);
        }
        let (Some(device), Some(object), []) = (device, object, &mistakes[..]) else { return Err(mistakes) };
        let (adapter, allowed) = (self.devices[device].adapter, flags | rights);
        let reply = self.add_open(process, Some(device), adapter, object, allowed, kernel_reply);
        self.opened_without(rights);
        let Reply::SyncObject(created) = reply else { return Ok(reply) };
        // FEN-054: without GPU access there is no mapping.
        let is_mapped = !(flags | self.objects[object].flags).contains(F::NO_GPU_ACCESS);
        let paging_fence_value = if is_mapped { self.map_opened(device, self.opens.len() - 1) } else { 0 };
        Ok(Reply::SyncObject(CreatedSyncObject { paging_fence_value, ..created }))
    }

    /// Opens an object with these rights missing, and collects the errors.
    pub(super) fn open_mistakes(
        &self,
        process: u32,
        device: Handle,
        token: ShareToken,
        flags: F,
    ) -> (Option<usize>, Option<usize>, F, Vec<NtStatus>) {
        let (device, mut mistakes) = self.device_mistakes(process, device);
        let vm = self.vm_of(process);
        let share = self.shares.iter().find(|share| !share.closed && share.token == token && share.vm == vm);
        if share.is_none() {
            mistakes.push(NtStatus::INVALID_HANDLE);
        }
        if flags_clash(flags) {
            mistakes.push(IP);
        }
        // FEN-068
        let has = |right: u32| share.is_some_and(|share| has_right(share.access, right));
        if share.is_some_and(|share| share.sync_file.is_some()) {
            mistakes.push(NtStatus::OBJECT_TYPE_MISMATCH);
        }
        if share.is_some() && !has(access::STANDARD_RIGHTS_READ) {
            mistakes.push(NtStatus::ACCESS_DENIED);
        }
        let object = share.map(|share| share.object);
        if let (Some(device), Some(object)) = (device, object) {
            let Object { adapter, flags, .. } = self.objects[object];
            // FEN-047
            if self.devices[device].adapter != adapter && !flags.contains(F::CROSS_ADAPTER) {
                mistakes.push(IP);
            }
        }
        (device, object, missing_from(share.map_or(0, |share| share.access)), mistakes)
    }

    pub fn nt_handle_closed(&mut self, vm: u32, token: ShareToken) {
        self.close_shares(|share| share.token == token && share.vm == vm);
        self.run_contexts();
    }

    pub(super) fn end_shares_of(&mut self, vm: u32) {
        self.close_shares(|share| share.vm == vm);
    }

    fn close_shares(&mut self, which: impl Fn(&Share) -> bool) {
        for share in 0..self.shares.len() {
            if !self.shares[share].closed && which(&self.shares[share]) {
                self.shares[share].closed = true;
                if self.shares[share].sync_file.is_some() {
                    self.forget_sync_file(self.shares[share].vm, self.shares[share].token);
                }
                self.name_is_gone(self.shares[share].object);
            }
        }
    }

    /// A token names one NT handle.
    pub(super) fn token_mistakes(&self, token: ShareToken) -> Vec<NtStatus> {
        let is_taken = self.shares.iter().any(|share| !share.closed && share.token == token);
        if is_taken { vec![IP] } else { vec![] }
    }

    fn share_of_name(&self, vm: u32, name: &str) -> Option<usize> {
        let has_name = |share: &Share| !share.closed && share.vm == vm && share.name.as_deref() == Some(name);
        self.shares.iter().position(has_name)
    }
}

/// Generic rights are those of winnt.h: all, READ and WRITE.
fn has_right(access: u32, right: u32) -> bool {
    let generic = match right {
        access::SYNC_OBJECT_WAIT => access::GENERIC_READ,
        access::SYNC_OBJECT_SIGNAL => access::GENERIC_WRITE,
        _ => access::GENERIC_READ | access::GENERIC_WRITE,
    };
    access & (access::GENERIC_ALL | generic | right) != 0
}

/// FEN-069
fn missing_from(access: u32) -> F {
    let mut missing = F::empty();
    missing.set(F::NO_WAIT, !has_right(access, access::SYNC_OBJECT_WAIT));
    missing.set(F::NO_SIGNAL, !has_right(access, access::SYNC_OBJECT_SIGNAL));
    missing
}
