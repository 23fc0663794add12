//! Sync files, which the Linux driver adds to D3DKMT (F01 to F08).
//!
//! A sync file stands for a fence and a value. It is an NT handle in all that concerns its descriptor, and a wait
//! without a process: it becomes *ready* when the fence reaches the value, whoever is left of the processes that knew
//! it. The broker then makes its descriptor readable.
//!
//! ```text
//!   CreateSyncFile ─▶ waits ──value reached, fence destroyed, device or adapter lost──▶ ready
//!                       │                                                                │
//!                       └────────── last descriptor closed, or the VM ends ──────────────┴──▶ gone
//! ```
//! The sync file of a shared fence keeps it alive, and processes of its VM open it or wait for it by the sync file.
//! That of a fence that is not shared ends its wait with the creator's handle (policy of CPU waits), and can only be
//! polled.

use d3dkmt::{Handle, Reply, ShareToken, SyncObjectFlags};

use super::{Share, Shared, SyncFile};
use crate::ProcessId;
use crate::effects::{Effects, SyncFileReady};
use crate::error::{CallResult, Refusal, invalid};
use crate::kernel::Kernel;
use crate::sync::NewOpen;
use crate::sync::waits::{WaitItem, WaitOwner};

/// An open by sync file may wait, but not signal (F07).
const DENIED: SyncObjectFlags = SyncObjectFlags::NO_SIGNAL;

impl Kernel {
    /// `D3DKMTCreateSyncFile`.
    pub(crate) fn create_sync_file(
        &mut self,
        process: ProcessId,
        device: Handle,
        fence: Handle,
        value: u64,
        token: ShareToken,
        effects: &mut Effects,
    ) -> CallResult {
        let device = self.active_device(process, device)?;
        let (open, object) = self.sync_object(process, fence)?;
        self.check_monitored(open, object, device, fence)?;
        self.check_right(open, object, SyncObjectFlags::NO_WAIT)?;
        self.check_wait_window((object, self.sync.opens()[open].adapter), value, fence)?;
        let nt_shared = SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING;
        let is_shared = self.sync.objects()[object].flags.contains(nt_shared);
        let (vm, shared_object) = (self.process(process).vm, is_shared.then_some(object));
        let sync_file = SyncFile { token, vm, object: shared_object, value, wait: None };
        let id = self.sharing.sync_files.insert(sync_file);
        if let Err(refusal) = self.add_share(vm, token, Shared::SyncFile(id), 0, None) {
            self.sharing.sync_files.remove(id);
            return Err(refusal);
        }
        let open = (!is_shared).then_some(open);
        let mut item = [WaitItem { object, open, handle: fence, value, satisfied: false }];
        self.note_zero_wait(process, &item, effects);
        match self.begin_wait(WaitOwner::SyncFile { sync_file: id }, false, &mut item) {
            None => {
                self.publish_engine_write(object, effects);
                self.sync_file_ready(id, effects);
            }
            wait => self.sharing.sync_files[id].wait = wait,
        }
        Ok(Reply::None)
    }

    /// The wait of a sync file is over.
    pub(crate) fn sync_file_ready(&mut self, id: u32, effects: &mut Effects) {
        let SyncFile { vm, token, ref mut wait, .. } = self.sharing.sync_files[id];
        *wait = None;
        effects.sync_files.push(SyncFileReady { vm, token });
    }

    /// Removes a sync file whose descriptors are closed. Returns the fence that it kept alive.
    pub(super) fn end_sync_file(&mut self, id: u32) -> Option<u32> {
        let sync_file = self.sharing.sync_files.remove(id)?;
        if let Some(wait) = sync_file.wait {
            self.end_wait(wait);
        }
        sync_file.object
    }

    /// The fence of a sync file of the process's VM, and its value.
    fn fence_of_sync_file(&self, process: ProcessId, token: ShareToken) -> Result<(u32, u64), Refusal> {
        let share = self.sharing.shares.get(&token).filter(|share| share.vm == self.process(process).vm);
        let Some(Share { shared: Shared::SyncFile(id), .. }) = share else {
            return invalid("the descriptor is no sync file of this VM");
        };
        let SyncFile { object, value, .. } = self.sharing.sync_files[*id];
        let Some(object) = object else {
            return invalid("the fence of the sync file was not created with Shared and NtSecuritySharing");
        };
        self.require_present(object)?;
        Ok((object, value))
    }

    /// `D3DKMTWaitSyncFile`: the context waits, and the process gets no handle of the fence.
    pub(crate) fn wait_sync_file(
        &mut self,
        process: ProcessId,
        context: Handle,
        token: ShareToken,
        effects: &mut Effects,
    ) -> CallResult {
        let queue = self.open_context(process, context)?;
        let (object, value) = self.fence_of_sync_file(process, token)?;
        let device = self.vidsch.queues()[queue].device;
        self.check_same_adapter(object, device)?;
        let adapter = self.vidsch.queues()[queue].engine.adapter;
        self.check_wait_window((object, adapter), value, Handle::NULL)?;
        let item = WaitItem { object, open: None, handle: Handle::NULL, value, satisfied: false };
        self.note_zero_wait(process, &[item], effects);
        self.enqueue_wait(queue, alloc::vec![item]);
        Ok(Reply::None)
    }

    /// `D3DKMTOpenSyncObjectFromSyncFile`: opens the fence as what it is on the device's adapter.
    pub(crate) fn open_sync_file(
        &mut self,
        process: ProcessId,
        device: Handle,
        token: ShareToken,
        effects: &mut Effects,
    ) -> CallResult {
        let device = self.active_device(process, device)?;
        let (object, fence_value) = self.fence_of_sync_file(process, token)?;
        self.check_same_adapter(object, device)?;
        let is_native = self.opens_as_native(process, object, device);
        let needs_slot = !is_native || self.native_slot(process, object).is_none();
        if needs_slot && let Some(reply) = self.fence_memory_missing(process)? {
            return Ok(reply);
        }
        let new = NewOpen { denied: DENIED, ..NewOpen::default() };
        let opened = match is_native {
            true => self.open_as_native(process, device, object, new, effects)?,
            false => self.open_object(process, Some(device), object, new, effects)?,
        };
        Ok(Reply::OpenedSyncFile { object: opened, fence_value })
    }

    /// The first sync file whose share or wait disagrees with it.
    pub(super) fn sync_files_miscounted(&self) -> Option<&'static str> {
        let shares = self.sharing.shares.values().filter(|share| matches!(share.shared, Shared::SyncFile(_)));
        if shares.count() != self.sharing.sync_files.len() {
            return Some("the shares of sync files");
        }
        let is_wrong = |(id, sync_file): (u32, &SyncFile)| {
            let share = self.sharing.shares.get(&sync_file.token);
            let wait = sync_file.wait.map(|wait| self.sync.waits().get(wait).map(|wait| wait.owner()));
            share.is_none_or(|share| share.shared != Shared::SyncFile(id) || share.vm != sync_file.vm)
                || wait.is_some_and(|owner| owner != Some(WaitOwner::SyncFile { sync_file: id }))
        };
        self.sharing.sync_files.iter().any(is_wrong).then_some("the waits of sync files")
    }
}
