//! Sharing: creating NT handles of sync objects, finding them by name, and opening them.

use std::os::fd::IntoRawFd;

use d3dkmt::{Call, Handle, NtStatus, SyncObjectFlags};

use super::memory::{Array, read, read_array, read_handles, write};
use super::thunk::ThunkResult;
use crate::client::{Session, block_on};
use crate::nt_handle;
use abi::types::{
    D3DKMT_HANDLE, D3DKMT_MAX_OBJECTS_PER_HANDLE, D3DKMT_OPENNTHANDLEFROMNAME,
    D3DKMT_OPENSYNCOBJECTFROMNTHANDLE, D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2,
    D3DKMT_OPENSYNCOBJECTNTHANDLEFROMNAME, DWORD, HANDLE, OBJECT_ATTRIBUTES, UINT,
};

/// `sizeof(OBJECT_ATTRIBUTES)`, the required value of its first member.
const ATTRIBUTES_BYTES: u32 = size_of::<OBJECT_ATTRIBUTES>() as u32;

/// The last part of the name in the attributes. Any directory but `\BaseNamedObjects`, a session's included, is
/// OBJECT_NAME_INVALID: no other directory exists, and no directory handle that a name could be relative to.
fn name_of(attributes: *const OBJECT_ATTRIBUTES) -> Result<Option<String>, NtStatus> {
    let attributes = read(attributes)?;
    if attributes.Length != ATTRIBUTES_BYTES {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    if attributes.ObjectName.is_null() {
        return Ok(None);
    }
    let text = read(attributes.ObjectName)?;
    if text.Length == 0 {
        return Ok(None);
    }
    if text.Length % 2 != 0 {
        return Err(NtStatus::OBJECT_NAME_INVALID);
    }
    let units = read_array(text.Buffer, usize::from(text.Length) / 2)?;
    let path = String::from_utf16(&units).map_err(|_| NtStatus::OBJECT_NAME_INVALID)?;
    match path.rsplit_once('\\') {
        Some((directory, name)) if is_base(directory) && !name.is_empty() => Ok(Some(name.to_owned())),
        _ => Err(NtStatus::OBJECT_NAME_INVALID),
    }
}

/// `\BaseNamedObjects` or `\Sessions\1\BaseNamedObjects`, in any letter case.
fn is_base(directory: &str) -> bool {
    directory.to_ascii_lowercase().ends_with("\\basenamedobjects")
}

/// `D3DKMTShareObjects`. Without attributes the NT handle has no name.
pub(super) fn share_objects(
    session: &Session,
    count: UINT,
    objects: *const D3DKMT_HANDLE,
    attributes: *mut OBJECT_ATTRIBUTES,
    desired_access: DWORD,
    nt_handle: *mut HANDLE,
) -> ThunkResult {
    if !(1..=D3DKMT_MAX_OBJECTS_PER_HANDLE).contains(&count) || nt_handle.is_null() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let objects = read_handles(&mut Array::default(), objects, count)?.to_vec();
    let name = if attributes.is_null() { None } else { name_of(attributes)? };
    let (token, descriptor) = session.port().make_nt_handle()?;
    let status = block_on(session.call(&Call::ShareObjects { objects, desired_access, name, token })).status;
    // The descriptor is closed here, and names nothing, because the caller does not get it.
    if !status.is_success() {
        return Err(status);
    }
    write(nt_handle, descriptor.into_raw_fd() as u64);
    Ok(status)
}

/// Opens a new NT handle of the object with this name.
fn open_by_name(
    session: &Session,
    arguments: &mut D3DKMT_OPENNTHANDLEFROMNAME,
    sync_object: bool,
) -> ThunkResult {
    let name = name_of(arguments.pObjAttrib)?.ok_or(NtStatus::INVALID_PARAMETER)?;
    let desired_access = arguments.dwDesiredAccess;
    let (token, descriptor) = session.port().make_nt_handle()?;
    let call = Call::OpenNtHandleFromName { name, desired_access, token, sync_object };
    let status = block_on(session.call(&call)).status;
    if !status.is_success() {
        return Err(status);
    }
    arguments.hNtHandle = descriptor.into_raw_fd() as u64;
    Ok(status)
}

/// `D3DKMTOpenSyncObjectNtHandleFromName`.
pub(super) fn open_sync_object_nt_handle_from_name(
    session: &Session,
    arguments: &mut D3DKMT_OPENSYNCOBJECTNTHANDLEFROMNAME,
) -> ThunkResult {
    open_by_name(session, arguments, true)
}

/// `D3DKMTOpenNtHandleFromName`: the same for any shared object.
pub(super) fn open_nt_handle_from_name(
    session: &Session,
    arguments: &mut D3DKMT_OPENNTHANDLEFROMNAME,
) -> ThunkResult {
    open_by_name(session, arguments, false)
}

/// `D3DKMTOpenSyncObjectFromNtHandle`: without a device, and without an address to read the value at (W-140, W-141).
pub(super) fn open_sync_object_from_nt_handle(
    session: &Session,
    arguments: &mut D3DKMT_OPENSYNCOBJECTFROMNTHANDLE,
) -> ThunkResult {
    let token = nt_handle::token_of(arguments.hNtHandle).ok_or(NtStatus::INVALID_HANDLE)?;
    let flags = SyncObjectFlags::empty();
    arguments.hSyncObject = block_on(session.open_sync_object(Handle::NULL, token, flags, 0, true))?.object.0;
    Ok(NtStatus::SUCCESS)
}

/// `D3DKMTOpenSyncObjectFromNtHandle2`. Checks the device before the NT handle (W-143, W-144).
pub(super) fn open_sync_object_from_nt_handle2(
    session: &Session,
    arguments: &mut D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2,
) -> ThunkResult {
    let device = Handle(arguments.hDevice);
    let token = nt_handle::token_for(session, device, arguments.hNtHandle)?;
    let flags = SyncObjectFlags::from_bits_retain(arguments.Flags);
    let opened = block_on(session.open_sync_object(device, token, flags, arguments.engine_affinity, false))?;
    arguments.hSyncObject = opened.object.0;
    if let Some(location) = &opened.location {
        arguments.cpu_address = location.address();
        arguments.gpu_address = opened.gpu_address;
        // No published field holds it (FEN-062); `gpupv_umd.h` reads it from here.
        arguments.paging_fence_value = opened.paging_fence_value;
    }
    Ok(NtStatus::SUCCESS)
}
