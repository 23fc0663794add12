//! Creating, opening and closing NT handles.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use d3dkmt::{CreatedSyncObject, Handle, Reply, ShareToken, SyncObjectFlags};
use windows_sys::Wdk::Foundation::OBJECT_ATTRIBUTES;
use windows_sys::Win32::Foundation::UNICODE_STRING;

use super::{Done, raw};
use crate::ScenarioClient;
use crate::abi::{NO_HANDLE, NtHandle, sdk};
use crate::objects::Object;

/// Attributes that name an object, and what they point to.
struct Named {
    attributes: OBJECT_ATTRIBUTES,
    _name: Box<UNICODE_STRING>,
    _text: Vec<u16>,
}

impl Named {
    /// `None` for a name too long for a UNICODE_STRING.
    fn new(name: &str) -> Option<Named> {
        let mut text: Vec<u16> = format!("\\BaseNamedObjects\\{name}").encode_utf16().collect();
        let bytes = u16::try_from(2 * text.len()).ok()?;
        let mut name =
            Box::new(UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: text.as_mut_ptr() });
        let attributes = OBJECT_ATTRIBUTES {
            Length: size_of::<OBJECT_ATTRIBUTES>() as u32,
            ObjectName: &raw mut *name,
            ..Default::default()
        };
        Some(Named { attributes, _name: name, _text: text })
    }
}

/// Shares objects, and keeps the NT handle under the token.
pub fn share(
    scenario_client: &ScenarioClient,
    objects: &[Handle],
    desired_access: u32,
    name: Option<&str>,
    token: ShareToken,
) -> Done {
    let named = match name.map(Named::new) {
        None => None,
        Some(Some(named)) => Some(named),
        Some(None) => return Done::no_c_form(),
    };
    let attributes = named.as_ref().map_or(std::ptr::null(), |named| &raw const named.attributes);
    let mut handle: NtHandle = std::ptr::null_mut();
    let objects = raw(objects);
    let (count, array) = (objects.len() as u32, objects.as_ptr());
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTShareObjects(count, array, attributes, desired_access, &mut handle) };
    let done = Done::status(status);
    if done.status.is_success() {
        // SAFETY: an NT handle is a file descriptor that this process owns from here on.
        scenario_client.shares.keep(token, unsafe { OwnedFd::from_raw_fd(handle as usize as i32) });
    }
    done
}

/// Opens a sync object. A token without an NT handle in this process gives an invalid HANDLE.
pub fn open(
    scenario_client: &ScenarioClient,
    device: Handle,
    token: ShareToken,
    flags: SyncObjectFlags,
    engine_affinity: u32,
) -> Done {
    let (nt_handle, _kept) = scenario_client.nt_handle(token);
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
        scenario_client.objects.created(object, Object::new(device, None, fence.FenceValueCPUVirtualAddress));
        let gpu_address = fence.FenceValueGPUVirtualAddress;
        // SAFETY: as above; the word is an extension of the library (`gpupv_umd.h`).
        let paging_fence_value = unsafe { open.Anonymous.Reserved[3] };
        Reply::SyncObject(CreatedSyncObject {
            object,
            gpu_address,
            paging_fence_value,
            ..CreatedSyncObject::default()
        })
    })
}

/// Opens a sync object by the first version of the call, without a device.
pub fn open_first(scenario_client: &ScenarioClient, token: ShareToken) -> Done {
    let (nt_handle, _kept) = scenario_client.nt_handle(token);
    let mut open = sdk::D3DKMT_OPENSYNCOBJECTFROMNTHANDLE { hNtHandle: nt_handle, hSyncObject: 0 };
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTOpenSyncObjectFromNtHandle(&mut open) };
    opened(scenario_client, status, open.hSyncObject)
}

/// Opens a legacy object by its global handle.
pub fn open_global(scenario_client: &ScenarioClient, shared_handle: Handle) -> Done {
    let mut open =
        sdk::D3DKMT_OPENSYNCHRONIZATIONOBJECT { hSharedHandle: shared_handle.0, ..Default::default() };
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTOpenSynchronizationObject(&mut open) };
    opened(scenario_client, status, open.hSyncObject)
}

fn opened(scenario_client: &ScenarioClient, status: i32, object: u32) -> Done {
    Done::reply(status, || {
        let object = Handle(object);
        scenario_client.objects.created(object, Object::new(Handle::NULL, None, std::ptr::null_mut()));
        Reply::SyncObject(CreatedSyncObject { object, ..CreatedSyncObject::default() })
    })
}

/// Opens an object by name, and keeps the new NT handle under the token.
pub fn open_name(
    scenario_client: &ScenarioClient,
    name: &str,
    desired_access: u32,
    token: ShareToken,
    sync_object: bool,
) -> Done {
    let Some(mut named) = Named::new(name) else { return Done::no_c_form() };
    let attributes = &raw mut named.attributes;
    let mut open = sdk::D3DKMT_OPENNTHANDLEFROMNAME {
        dwDesiredAccess: desired_access,
        pObjAttrib: attributes,
        ..Default::default()
    };
    let mut open_sync_object = sdk::D3DKMT_OPENSYNCOBJECTNTHANDLEFROMNAME {
        dwDesiredAccess: desired_access,
        pObjAttrib: attributes,
        ..Default::default()
    };
    // SAFETY: see the module above.
    let (status, nt_handle) = unsafe {
        match sync_object {
            true => {
                let status = sdk::D3DKMTOpenSyncObjectNtHandleFromName(&mut open_sync_object);
                (status, open_sync_object.hNtHandle)
            }
            false => (sdk::D3DKMTOpenNtHandleFromName(&mut open), open.hNtHandle),
        }
    };
    let done = Done::status(status);
    if done.status.is_success() {
        // SAFETY: an NT handle is a file descriptor that this process owns from here on.
        scenario_client.shares.keep(token, unsafe { OwnedFd::from_raw_fd(nt_handle as usize as i32) });
    }
    done
}

impl ScenarioClient {
    /// The HANDLE of this token, and the descriptor that keeps it open; an invalid HANDLE if there is none.
    pub(super) fn nt_handle(&self, token: ShareToken) -> (NtHandle, Option<Arc<OwnedFd>>) {
        let descriptor = self.shares.find(token);
        let handle = descriptor.as_ref().map_or(NO_HANDLE, |handle| handle.as_raw_fd() as usize as NtHandle);
        (handle, descriptor)
    }
}
