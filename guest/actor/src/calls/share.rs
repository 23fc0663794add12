//! NT handles: made, opened, closed.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use d3dkmt::{CreatedSyncObject, Handle, NtStatus, Reply, ShareToken, SyncObjectFlags};
use proto::actor::Outcome;
use windows_sys::Wdk::Foundation::OBJECT_ATTRIBUTES;
use windows_sys::Win32::Foundation::UNICODE_STRING;

use super::{Done, raw};
use crate::Actor;
use crate::abi::{NO_HANDLE, NtHandle, sdk};
use crate::objects::Object;

/// The NT handle is kept under the token.
pub fn share(
    actor: &Actor,
    objects: &[Handle],
    desired_access: u32,
    name: Option<&str>,
    token: ShareToken,
) -> Done {
    let mut handle: NtHandle = std::ptr::null_mut();
    let name = name.map(Name::new);
    let attributes = name.as_ref().map(Name::attributes);
    let attributes = attributes.as_ref().map_or(std::ptr::null(), |attributes| attributes.as_ptr());
    let objects = raw(objects);
    let (count, array) = (objects.len() as u32, objects.as_ptr());
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTShareObjects(count, array, attributes, desired_access, &mut handle) };
    let done = Done::status(status);
    if done.status.is_success() {
        // SAFETY: an NT handle is a file descriptor that is ours from here on.
        actor.shares.keep(token, unsafe { OwnedFd::from_raw_fd(handle as usize as i32) });
    }
    done
}

/// The name of an object, as `OBJECT_ATTRIBUTES` point to it.
struct Name {
    text: Vec<u16>,
    string: Box<UNICODE_STRING>,
}

/// `OBJECT_ATTRIBUTES` that are passed on as they are.
struct Attributes(OBJECT_ATTRIBUTES);

impl Attributes {
    fn as_ptr(&self) -> *const OBJECT_ATTRIBUTES {
        &raw const self.0
    }
}

impl Name {
    fn new(name: &str) -> Name {
        let mut text: Vec<u16> = format!("\\BaseNamedObjects\\{name}").encode_utf16().collect();
        let bytes = (2 * text.len()) as u16;
        let string = UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: text.as_mut_ptr() };
        Name { text, string: Box::new(string) }
    }

    /// They hold as long as the name is kept.
    fn attributes(&self) -> Attributes {
        debug_assert_eq!(usize::from(self.string.Length), 2 * self.text.len());
        Attributes(OBJECT_ATTRIBUTES {
            Length: size_of::<OBJECT_ATTRIBUTES>() as u32,
            ObjectName: &raw const *self.string,
            ..Default::default()
        })
    }
}

/// The new NT handle is kept under the token.
pub fn open_name(actor: &Actor, name: &str, desired_access: u32, token: ShareToken) -> Done {
    let name = Name::new(name);
    let mut attributes = name.attributes();
    let mut open = sdk::D3DKMT_OPENSYNCOBJECTNTHANDLEFROMNAME {
        dwDesiredAccess: desired_access,
        pObjAttrib: &raw mut attributes.0,
        ..Default::default()
    };
    // SAFETY: see the module above.
    let done = Done::status(unsafe { sdk::D3DKMTOpenSyncObjectNtHandleFromName(&mut open) });
    if done.status.is_success() {
        // SAFETY: an NT handle is a file descriptor that is ours from here on.
        actor.shares.keep(token, unsafe { OwnedFd::from_raw_fd(open.hNtHandle as usize as i32) });
    }
    done
}

/// The first form, which has no device.
pub fn open_legacy(actor: &Actor, token: ShareToken) -> Done {
    let handle = actor.shares.find(token);
    let mut open = sdk::D3DKMT_OPENSYNCOBJECTFROMNTHANDLE {
        hNtHandle: handle.as_ref().map_or(NO_HANDLE, |handle| handle.as_raw_fd() as usize as NtHandle),
        ..Default::default()
    };
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTOpenSyncObjectFromNtHandle(&mut open) };
    Done::reply(status, || object(open.hSyncObject))
}

pub fn open_global(shared_handle: Handle) -> Done {
    let mut open =
        sdk::D3DKMT_OPENSYNCHRONIZATIONOBJECT { hSharedHandle: shared_handle.0, ..Default::default() };
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTOpenSynchronizationObject(&mut open) };
    Done::reply(status, || object(open.hSyncObject))
}

fn object(handle: u32) -> Reply {
    Reply::SyncObject(CreatedSyncObject { object: Handle(handle), ..CreatedSyncObject::default() })
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
