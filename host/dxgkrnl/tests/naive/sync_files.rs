//! Sync files: waits of a VM's descriptors, without a process (FEN-133 to FEN-141).

use d3dkmt::{Handle, Reply, ShareToken, SyncObjectFlags as F};

use super::sharing::Share;
use super::waits::Item;
use super::{IP, Naive, Owner, Verdict};

/// A wait that was made through no handle.
const NO_OPEN: usize = usize::MAX;

/// What a descriptor stands for beside its object.
#[derive(Clone, Copy)]
pub struct SyncFile {
    pub value: u64,
    /// Of a shared fence: it keeps the fence alive, and processes open it or wait for it.
    pub is_shared: bool,
}

impl Naive {
    /// FEN-133, FEN-136.
    pub(super) fn create_sync_file(
        &mut self,
        process: u32,
        device: Handle,
        fence: Handle,
        value: u64,
        token: ShareToken,
    ) -> Verdict {
        let (device, mut mistakes) = self.device_mistakes(process, device);
        let adapter = device.map(|device| self.devices[device].adapter);
        let (items, wrong) = self.items(process, adapter, (&[fence], &[value]), F::NO_WAIT);
        mistakes.extend(wrong);
        mistakes.extend(self.not_monitored(&items));
        mistakes.extend(self.token_mistakes(token));
        let ([item], []) = (&items[..], &mistakes[..]) else { return Err(mistakes) };
        let (vm, Item { object, .. }) = (self.vm_of(process), *item);
        let is_shared = self.objects[object].flags.contains(F::SHARED | F::NT_SECURITY_SHARING);
        let sync_file = Some(SyncFile { value, is_shared });
        self.shares.push(Share { token, vm, object, access: 0, name: None, sync_file, closed: false });
        let of_object = Item { open: NO_OPEN, adapter: self.objects[object].adapter, ..*item };
        let item = if is_shared { of_object } else { *item };
        if self.begin_wait(Owner::SyncFile { vm, token }, false, vec![item]).is_none() {
            self.ready.push((vm, token));
        }
        Ok(Reply::None)
    }

    /// The shared fence of a sync file of the process's VM, and its value.
    fn fence_of_sync_file(&self, process: u32, token: ShareToken) -> Option<(usize, u64)> {
        let vm = self.vm_of(process);
        let mut shares = self.shares.iter().filter(|share| !share.closed && share.vm == vm);
        let share = shares.find(|share| share.token == token)?;
        let sync_file = share.sync_file.filter(|sync_file| sync_file.is_shared)?;
        Some((share.object, sync_file.value))
    }

    /// FEN-047
    fn is_on(&self, object: usize, adapter: usize) -> bool {
        let object = &self.objects[object];
        object.adapter == adapter || object.flags.contains(F::CROSS_ADAPTER)
    }

    /// FEN-139: a handle that cannot signal.
    pub(super) fn open_sync_file(
        &mut self,
        process: u32,
        device: Handle,
        token: ShareToken,
        kernel_reply: &Reply,
    ) -> Verdict {
        let (device, mut mistakes) = self.device_mistakes(process, device);
        let adapter = device.map(|device| self.devices[device].adapter);
        let found = self.fence_of_sync_file(process, token);
        if found.is_none_or(|(object, _)| adapter.is_some_and(|adapter| !self.is_on(object, adapter))) {
            mistakes.push(IP);
        }
        let (Some(device), Some(adapter), Some((object, fence_value)), []) =
            (device, adapter, found, &mistakes[..])
        else {
            return Err(mistakes);
        };
        let names = match kernel_reply {
            Reply::OpenedSyncFile { object, .. } => Reply::SyncObject(*object),
            _ => Reply::None,
        };
        let opened = match self.objects[object].made_native && self.native.contains(&adapter) {
            true => self.add_native_open(process, device, object, F::NO_SIGNAL, &names),
            // FEN-116: elsewhere it is a monitored fence.
            false => self.add_open(process, Some(device), adapter, object, F::NO_SIGNAL, &names),
        };
        self.opened_without(F::NO_SIGNAL);
        let Reply::SyncObject(object) = opened else { return Ok(opened) };
        Ok(Reply::OpenedSyncFile { object, fence_value })
    }

    /// FEN-137
    pub(super) fn wait_sync_file(&mut self, process: u32, handle: Handle, token: ShareToken) -> Verdict {
        let (contexts, mut mistakes) = self.contexts_of(process, &[handle]);
        let adapter = self.adapter_of(&contexts);
        let found = self.fence_of_sync_file(process, token);
        if found.is_none_or(|(object, _)| adapter.is_some_and(|adapter| !self.is_on(object, adapter))) {
            mistakes.push(IP);
        }
        let (Some((object, value)), []) = (found, &mistakes[..]) else { return Err(mistakes) };
        let (adapter, reached) = (self.objects[object].adapter, self.objects[object].value >= value);
        self.queue_wait(contexts[0], vec![Item { open: NO_OPEN, object, adapter, value, reached }]);
        Ok(Reply::None)
    }

    /// The sync files that became ready since the last call.
    pub fn take_ready(&mut self) -> Vec<(u32, ShareToken)> {
        std::mem::take(&mut self.ready)
    }

    /// The wait of a closed sync file is over without a signal.
    pub(super) fn forget_sync_file(&mut self, vm: u32, token: ShareToken) {
        for wait in &mut self.waits {
            wait.over |= wait.owner == Owner::SyncFile { vm, token };
        }
    }
}
