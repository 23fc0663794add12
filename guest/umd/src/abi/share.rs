//! Sharing: NT handles of sync objects, made, found by name and opened.

use std::os::fd::IntoRawFd;

use d3dkmt::{Call, Handle, NtStatus, SyncObjectFlags};

use super::memory::{Array, read, read_array, read_handles, write};
use super::thunk::{CStatus, enter};
use super::types::{
    ObjectAttributes, OpenNtHandleFromName, OpenSyncObjectFromNtHandle, OpenSyncObjectFromNtHandle2,
};
use crate::client::Session;
use crate::nt_handle;
use crate::process::Starts;

/// `D3DKMT_MAX_OBJECTS_PER_HANDLE`.
const OBJECTS_PER_HANDLE_MAX: u32 = 3;
/// `sizeof(OBJECT_ATTRIBUTES)`, which every one of them has in its first word.
const ATTRIBUTES_BYTES: u32 = size_of::<ObjectAttributes>() as u32;

/// The last part of the name that the attributes give. Any directory but `\BaseNamedObjects`, a session's included, is
/// OBJECT_NAME_INVALID: there is no other, and no directory handle that a name could be relative to.
fn name_of(attributes: *const ObjectAttributes) -> Result<Option<String>, NtStatus> {
    let attributes = read(attributes)?;
    if attributes.length != ATTRIBUTES_BYTES {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    if attributes.object_name.is_null() {
        return Ok(None);
    }
    let text = read(attributes.object_name)?;
    if text.length == 0 {
        return Ok(None);
    }
    if text.length % 2 != 0 {
        return Err(NtStatus::OBJECT_NAME_INVALID);
    }
    let units = read_array(text.buffer, usize::from(text.length) / 2)?;
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

/// `D3DKMTShareObjects`. No attributes: no name.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTShareObjects(
    count: u32,
    objects: *const u32,
    attributes: *const ObjectAttributes,
    desired_access: u32,
    nt_handle: *mut u64,
) -> CStatus {
    enter(Starts::Nothing, |session| {
        if !(1..=OBJECTS_PER_HANDLE_MAX).contains(&count) || nt_handle.is_null() {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let objects = read_handles(&mut Array::default(), objects, count)?.to_vec();
        let name = if attributes.is_null() { None } else { name_of(attributes)? };
        let (token, descriptor) = session.make_nt_handle()?;
        let status = session.call(&Call::ShareObjects { objects, desired_access, name, token }).status;
        // A descriptor that is not handed out is closed, and names nothing.
        if !status.is_success() {
            return Err(status);
        }
        write(nt_handle, descriptor.into_raw_fd() as u64);
        Ok(status)
    })
}

/// A new NT handle of what has this name.
fn open_by_name(session: &Session, argument: *mut OpenNtHandleFromName) -> Result<NtStatus, NtStatus> {
    let mut arguments = read(argument)?;
    let name = name_of(arguments.attributes)?.ok_or(NtStatus::INVALID_PARAMETER)?;
    let desired_access = arguments.desired_access;
    let (token, descriptor) = session.make_nt_handle()?;
    let status = session.call(&Call::OpenNtHandleFromName { name, desired_access, token }).status;
    if !status.is_success() {
        return Err(status);
    }
    arguments.nt_handle = descriptor.into_raw_fd() as u64;
    write(argument, arguments);
    Ok(status)
}

/// `D3DKMTOpenSyncObjectNtHandleFromName`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTOpenSyncObjectNtHandleFromName(argument: *mut OpenNtHandleFromName) -> CStatus {
    enter(Starts::Session, |session| open_by_name(session, argument))
}

/// `D3DKMTOpenNtHandleFromName`: the same, for whatever is shared.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTOpenNtHandleFromName(argument: *mut OpenNtHandleFromName) -> CStatus {
    enter(Starts::Session, |session| open_by_name(session, argument))
}

/// `D3DKMTOpenSyncObjectFromNtHandle`: without a device, and without a place to read a value (W-140, W-141).
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTOpenSyncObjectFromNtHandle(argument: *mut OpenSyncObjectFromNtHandle) -> CStatus {
    enter(Starts::Session, |session| {
        let mut arguments = read(argument)?;
        let token = nt_handle::token_of(arguments.nt_handle).ok_or(NtStatus::INVALID_HANDLE)?;
        let flags = SyncObjectFlags::empty();
        arguments.object = session.open_sync_object(Handle::NULL, token, flags, 0, true)?.object.0;
        write(argument, arguments);
        Ok(NtStatus::SUCCESS)
    })
}

/// `D3DKMTOpenSyncObjectFromNtHandle2`. The device is looked at before the NT handle (W-143, W-144).
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTOpenSyncObjectFromNtHandle2(argument: *mut OpenSyncObjectFromNtHandle2) -> CStatus {
    enter(Starts::Nothing, |session| {
        let mut arguments = read(argument)?;
        let device = Handle(arguments.device);
        let token = nt_handle::token_for(session, device, arguments.nt_handle)?;
        let flags = SyncObjectFlags::from_bits_retain(arguments.flags);
        let opened = session.open_sync_object(device, token, flags, arguments.engine_affinity, false)?;
        arguments.object = opened.object.0;
        if let Some(location) = &opened.location {
            arguments.cpu_address = location.address();
            arguments.gpu_address = opened.gpu_address;
        }
        write(argument, arguments);
        Ok(NtStatus::SUCCESS)
    })
}
