//! NT handles: made, opened, closed.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use d3dkmt::{CreatedSyncObject, Handle, NtStatus, Reply, ShareToken, SyncObjectFlags};
use proto::actor::Outcome;

use super::{Done, raw};
use crate::Actor;
use crate::abi::{NO_HANDLE, NtHandle, sdk};
use crate::objects::Object;

/// The NT handle is kept under the token.
pub fn share(actor: &Actor, objects: &[Handle], desired_access: u32, token: ShareToken) -> Done {
    let mut handle: NtHandle = std::ptr::null_mut();
    let objects = raw(objects);
    let (count, array) = (objects.len() as u32, objects.as_ptr());
    // SAFETY: see the module above.
    let status =
        unsafe { sdk::D3DKMTShareObjects(count, array, std::ptr::null(), desired_access, &mut handle) };
    let done = Done::status(status);
    if done.status.is_success() {
        // SAFETY: an NT handle is a file descriptor that is ours from here on.
        actor.shares.keep(token, unsafe { OwnedFd::from_raw_fd(handle as usize as i32) });
    }
    done
}

/// A token that this process has no NT handle for is a HANDLE that is none.
pub fn open(
    actor: &Actor,
    device: Handle,
    token: ShareToken,
    flags: SyncObjectFlags,
    engine_affinity: u32,
) -> Done {
    let handle = actor.shares.find(token);
    let nt_handle = handle.as_ref().map_or(NO_HANDLE, |handle| handle.as_raw_fd() as usize as NtHandle);
    let mut open = sdk::D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2 {
        hNtHandle: nt_handle,
        hDevice: device.0,
        ..Default::default()
    };
    open.Flags.Anonymous.Value = flags.bits();
    open.Anonymous.MonitoredFence.EngineAffinity = engine_affinity;
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTOpenSyncObjectFromNtHandle2(&mut open) };
    Done::reply(status, || {
        let object = Handle(open.hSyncObject);
        // SAFETY: zeroed before the call; filled in by it for a fence, and left for other objects.
        let fence = unsafe { open.Anonymous.MonitoredFence };
        actor.objects.created(object, Object::new(device, None, fence.FenceValueCPUVirtualAddress));
        let gpu_address = fence.FenceValueGPUVirtualAddress;
        Reply::SyncObject(CreatedSyncObject { object, gpu_address, ..CreatedSyncObject::default() })
    })
}

/// Closing an NT handle is closing its descriptor.
pub fn close(actor: &Actor, token: ShareToken) -> Done {
    let status = if actor.shares.close(token) { NtStatus::SUCCESS } else { NtStatus::INVALID_HANDLE };
    Done { status, outcome: Outcome::Reply(Reply::None) }
}
