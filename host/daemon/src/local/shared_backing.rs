//! Pages of shared memory of the device, for local processes that have opened it.

use std::os::fd::AsFd;

use d3dkmt::Handle;
use dxgkrnl::ProcessId;
use proto::attach::BrokerReply;

use super::Loop;
use super::replies::refuse;
use crate::backing::{BackingPages, LocalPages};
use crate::broker;
use crate::closing::ClientFd;
use crate::kernel_host::SharedPiece;

impl Loop {
    /// Gives a process the piece at an offset of memory that it has opened.
    pub(super) fn share_backing(
        &self,
        connection: &ClientFd,
        process: ProcessId,
        allocation: Handle,
        offset: u64,
    ) -> anyhow::Result<bool> {
        match self.kernel_host.sessions().share_backing(process, allocation, offset) {
            Ok(SharedPiece { bytes, descriptor: Some(memory), .. }) => {
                let reply = BrokerReply { process: process.0, bytes, ..BrokerReply::default() };
                broker::send_reply(connection, &reply, &[memory.as_fd()]).map(|()| true)
            }
            Ok(SharedPiece { owner, address, .. }) => {
                let why =
                    anyhow::anyhow!("the pages at {address:#x} of process {} have no descriptor", owner.0);
                refuse(connection, &why)
            }
            Err(error) => refuse(connection, &error),
        }
    }

    /// Lets other processes get pages by this descriptor.
    pub(super) fn shareable(&self, local: LocalPages, memory: &ClientFd) -> anyhow::Result<LocalPages> {
        let share = self.kernel_host.budgets.descriptors.take(memory.peer(), 1)?;
        Ok(local.shareable(memory.as_fd().try_clone_to_owned()?, share))
    }

    /// Attaches pages of shared memory again that a returning process has mapped.
    pub(super) fn reshare_backing(
        &self,
        process: ProcessId,
        allocation: Handle,
        offset: u64,
        memory: &ClientFd,
    ) -> anyhow::Result<()> {
        let pages = |count| {
            let share = self.kernel_host.budgets.mappings.take(memory.peer(), 1)?;
            let local = LocalPages::of(memory, count)?.charged_to(share);
            self.shareable(local, memory).map(BackingPages::Local)
        };
        self.kernel_host.resumption().reshare_backing(process, allocation, offset, pages)
    }
}
