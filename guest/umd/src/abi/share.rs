//! Sharing: NT handles of sync objects, made and opened.

use std::ffi::c_void;
use std::os::fd::IntoRawFd;

use d3dkmt::{Call, Handle, NtStatus, SyncObjectFlags};

use super::memory::{Array, read, read_handles, write};
use super::thunk::{CStatus, enter};
use super::types::OpenSyncObjectFromNtHandle2;
use crate::nt_handle;
use crate::process::Starts;

/// `D3DKMTShareObjects`, for one object. The attributes carry names, which are not shared yet.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTShareObjects(
    count: u32,
    objects: *const u32,
    _attributes: *const c_void,
    desired_access: u32,
    nt_handle: *mut u64,
) -> CStatus {
    enter(Starts::Nothing, |session| {
        if count != 1 || nt_handle.is_null() {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let object = read_handles(&mut Array::default(), objects, count)?[0];
        let (token, descriptor) = nt_handle::create().map_err(|_| NtStatus::NO_MEMORY)?;
        let status = session
            .call(&Call::ShareObjects { objects: vec![object], desired_access, name: None, token })
            .status;
        if !status.is_success() {
            return Err(status);
        }
        write(nt_handle, descriptor.into_raw_fd() as u64);
        Ok(status)
    })
}

/// `D3DKMTOpenSyncObjectFromNtHandle2`. The device is looked at before the NT handle (W-143, W-144).
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTOpenSyncObjectFromNtHandle2(argument: *mut OpenSyncObjectFromNtHandle2) -> CStatus {
    enter(Starts::Nothing, |session| {
        let mut arguments = read(argument)?;
        let device = Handle(arguments.device);
        let Some(token) = nt_handle::token_of(arguments.nt_handle) else {
            let known = session.knows_device(device);
            return Err(if known { NtStatus::INVALID_HANDLE } else { NtStatus::INVALID_PARAMETER });
        };
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
