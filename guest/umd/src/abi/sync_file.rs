//! Sync files, which the Linux driver adds to D3DKMT.
//!
//! A `sync_file` is a kernel object, and the guest has no gpupv kernel driver. A program polls a sync file, and an
//! eventfd that an asynchronous wait sets serves as well: it becomes readable when the fence reaches the value, at once
//! if it has reached it, and may be closed before (F01 to F03). It carries no fence, so the two calls that get a fence
//! out of a sync file answer NOT_SUPPORTED.
//!
//! They would need (F04 to F08) a descriptor that is pollable, keeps the shared fence alive until its last close in any
//! process, and yields its (fence, value) to any process that has it. An NT handle does the last two, but is a memfd
//! and cannot be polled. An eventfd can be polled, but carries no data, and no other process sees its last close. A
//! socket pair could do all three. The broker would keep the far end, shut it down when the fence reaches the value
//! (which no reader can take away, as it could a byte), see the last close as a hang-up, and identify fence and value
//! by the inode of a descriptor that is sent back. That is a second kind of handle in both
//! brokers, with a host wait that outlives the process. A table in the process alone would answer wrongly in every
//! other process that gets the sync file, and would not see its last close.

use std::os::fd::{AsFd, AsRawFd, IntoRawFd};

use d3dkmt::{Handle, NtStatus, WaitFromCpuFlags};
use rustix::event::EventfdFlags;

use super::thunk::ThunkResult;
use crate::client::{CallerEvent, Session, block_on};
use crate::fork::ABOVE_STANDARD_STREAMS;
use abi::types::{D3DKMT_CREATESYNCFILE, D3DKMT_OPENSYNCOBJECTFROMSYNCFILE, D3DKMT_WAITSYNCFILE};

/// `D3DKMTCreateSyncFile`.
pub(super) fn create_sync_file(session: &Session, arguments: &mut D3DKMT_CREATESYNCFILE) -> ThunkResult {
    let created = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)
        .and_then(|event| rustix::io::fcntl_dupfd_cloexec(event.as_fd(), ABOVE_STANDARD_STREAMS));
    let descriptor = created.map_err(|_| NtStatus::NO_MEMORY)?;
    let event = CallerEvent::from_handle(descriptor.as_raw_fd() as u64);
    let event = event.map_err(|_| NtStatus::INTERNAL_ERROR)?;
    let (objects, values) = ([Handle(arguments.hMonitoredFence)], [arguments.FenceValue]);
    let flags = WaitFromCpuFlags::empty();
    let status =
        block_on(session.wait_from_cpu(Handle(arguments.hDevice), &objects, &values, flags, Some(event)));
    if !status.is_success() {
        return Err(status);
    }
    arguments.hSyncFile = descriptor.into_raw_fd() as u64;
    Ok(NtStatus::SUCCESS)
}

/// `D3DKMTWaitSyncFile`: NOT_SUPPORTED.
pub(super) fn wait_sync_file(_: &Session, _: &D3DKMT_WAITSYNCFILE) -> ThunkResult {
    Err(NtStatus::NOT_SUPPORTED)
}

/// `D3DKMTOpenSyncObjectFromSyncFile`: NOT_SUPPORTED.
pub(super) fn open_sync_object_from_sync_file(
    _: &Session,
    _: &mut D3DKMT_OPENSYNCOBJECTFROMSYNCFILE,
) -> ThunkResult {
    Err(NtStatus::NOT_SUPPORTED)
}
