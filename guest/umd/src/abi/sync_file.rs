//! Sync files, which the Linux driver adds to D3DKMT.
//!
//! A `sync_file` is the kernel's, and there is no kernel of ours in the guest. What a program does with one is poll
//! it, and an eventfd that an asynchronous wait sets is as good for that: it becomes readable when the fence has the
//! value, at once if it has it already, and may be closed before (F01 to F03). It carries no fence, so the two calls
//! that get one out of a sync file answer NOT_SUPPORTED.
//!
//! What they would need (F04 to F08): a descriptor that is pollable, keeps the shared fence alive until its last close in
//! any process, and tells any holder which (fence, value) it stands for. An NT handle of ours keeps and tells, and a
//! memfd cannot be polled; an eventfd can be polled, and neither tells nor has a last close that anybody else sees. A
//! socket pair whose far end the broker keeps, which writes when the value comes and knows point and object by the
//! inode of a descriptor that is sent back to it, could do all three: a second kind of handle in both brokers, with a
//! wait of its own at the host that outlives the process. A table in the process alone would answer wrongly in every other
//! process that a sync file is made to be sent to, and would never learn that one is closed.

use std::os::fd::{AsFd, AsRawFd, IntoRawFd};

use d3dkmt::{Handle, NtStatus, WaitFromCpuFlags};
use rustix::event::EventfdFlags;

use super::thunk::ThunkResult;
use crate::client::{CallerEvent, Session, block_on};
use crate::fork::ABOVE_STANDARD_STREAMS;
use abi::types::{D3DKMT_CREATESYNCFILE, D3DKMT_OPENSYNCOBJECTFROMSYNCFILE, D3DKMT_WAITSYNCFILE};

/// `D3DKMTCreateSyncFile`.
pub(super) fn create_sync_file(session: &Session, arguments: &mut D3DKMT_CREATESYNCFILE) -> ThunkResult {
    let made = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)
        .and_then(|event| rustix::io::fcntl_dupfd_cloexec(event.as_fd(), ABOVE_STANDARD_STREAMS));
    let descriptor = made.map_err(|_| NtStatus::NO_MEMORY)?;
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
