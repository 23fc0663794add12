//! Sync files, which the Linux driver adds to D3DKMT (F01 to F08).
//!
//! A sync file is a descriptor from the broker (`shared/nt_handle`) that can be polled, and that names the fence and its
//! value to every process of the VM that has it. The host knows both by the token that the descriptor carries.

use std::os::fd::IntoRawFd;

use d3dkmt::{Call, Handle, NtStatus, ShareToken};

use super::thunk::ThunkResult;
use crate::client::{Session, block_on};
use crate::nt_handle;
use abi::types::{D3DKMT_CREATESYNCFILE, D3DKMT_OPENSYNCOBJECTFROMSYNCFILE, D3DKMT_WAITSYNCFILE};

/// The token of a caller's sync file. An NT handle has one too; the host knows which is which.
fn token_of(sync_file: u64) -> Result<ShareToken, NtStatus> {
    nt_handle::token_of(sync_file).ok_or(NtStatus::INVALID_PARAMETER)
}

/// `D3DKMTCreateSyncFile`.
pub(super) fn create_sync_file(session: &Session, arguments: &mut D3DKMT_CREATESYNCFILE) -> ThunkResult {
    let (device, fence) = (Handle(arguments.hDevice), Handle(arguments.hMonitoredFence));
    let (token, descriptor) = session.port().make_sync_file()?;
    let call = Call::CreateSyncFile { device, fence, fence_value: arguments.FenceValue, token };
    let status = block_on(session.call(&call)).status;
    // The descriptor is closed here, and is of no fence, because the caller does not get it.
    if !status.is_success() {
        return Err(status);
    }
    arguments.hSyncFile = descriptor.into_raw_fd() as u64;
    Ok(status)
}

/// `D3DKMTWaitSyncFile`.
pub(super) fn wait_sync_file(session: &Session, arguments: &D3DKMT_WAITSYNCFILE) -> ThunkResult {
    let token = token_of(arguments.hSyncFile)?;
    let call = Call::WaitSyncFile { context: Handle(arguments.hContext), token };
    Ok(block_on(session.call(&call)).status)
}

/// `D3DKMTOpenSyncObjectFromSyncFile`.
pub(super) fn open_sync_object_from_sync_file(
    session: &Session,
    arguments: &mut D3DKMT_OPENSYNCOBJECTFROMSYNCFILE,
) -> ThunkResult {
    let token = token_of(arguments.hSyncFile)?;
    let (opened, fence_value) = block_on(session.open_sync_file(Handle(arguments.hDevice), token))?;
    arguments.hSyncObject = opened.object.0;
    arguments.FenceValue = fence_value;
    if let Some(location) = &opened.location {
        arguments.FenceValueCPUVirtualAddress =
            std::ptr::with_exposed_provenance_mut(location.address() as usize);
        arguments.FenceValueGPUVirtualAddress = opened.gpu_address;
    }
    Ok(NtStatus::SUCCESS)
}
