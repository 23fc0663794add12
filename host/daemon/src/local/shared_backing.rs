//! Backing pages of local processes: of their own, and of shared memory of the device that they have opened.

use std::os::fd::AsFd as _;

use anyhow::Context as _;
use d3dkmt::Handle;
use dxgkrnl::ProcessId;

use super::Loop;
use super::replies::Reply;
use crate::backing::{BackingPages, LocalPages};
use crate::broker;
use crate::closing::ClientFd;
use crate::kernel_host::{Detach, SharedPiece};
use crate::peer::Peer;
use crate::shares::Budgets;

impl Loop {
    /// Gives a process backing pages of its own.
    pub(super) fn attach_backing(
        &self,
        peer: Peer,
        process: ProcessId,
        address: u64,
        pages: u32,
    ) -> anyhow::Result<Reply> {
        let attached = broker::attach_backing(&self.kernel_host, peer, process, address, pages);
        let memory = attached.inspect_err(|error| {
            let line = || format!("process {} gets no backing memory: {error:#}", process.0);
            self.kernel_host.log.warn(Peer::Process(process), line);
        })?;
        Ok(Reply::to(process).with(memory))
    }

    /// Detaches backing pages of a process; with `if_unused`, unless they are in use.
    pub(super) fn detach_backing(
        &self,
        process: ProcessId,
        address: u64,
        if_unused: bool,
    ) -> anyhow::Result<Reply> {
        let mut reply = Reply::to(process);
        reply.message.in_use =
            match self.kernel_host.sessions().detach_backing(process, address, if_unused)? {
                Detach::Detached | Detach::Kept => false,
                Detach::InUse => true,
            };
        Ok(reply)
    }

    /// Gives a process the piece at an offset of memory that it has opened.
    pub(super) fn share_backing(
        &self,
        process: ProcessId,
        allocation: Handle,
        offset: u64,
    ) -> anyhow::Result<Reply> {
        let piece = self.kernel_host.sessions().share_backing(process, allocation, offset)?;
        let SharedPiece { owner, address, bytes, descriptor } = piece;
        let no_descriptor = || format!("the pages at {address:#x} of process {} have no descriptor", owner.0);
        let memory = descriptor.with_context(no_descriptor)?;
        let mut reply = Reply::to(process).with(memory);
        reply.message.bytes = bytes;
        Ok(reply)
    }

    /// Lets other processes get pages by this descriptor.
    pub(super) fn shareable(&self, local: LocalPages, memory: &ClientFd) -> anyhow::Result<LocalPages> {
        let share = self.kernel_host.budgets.descriptors.take(memory.peer(), 1)?;
        Ok(local.shareable(memory.as_fd().try_clone_to_owned()?, share))
    }

    /// Maps pages that a returning process brings. Its user had them before, so they are not refused.
    pub(super) fn mapped_again(&self, memory: &ClientFd, pages: u32) -> anyhow::Result<LocalPages> {
        let Budgets { mappings, backing_pages, .. } = &self.kernel_host.budgets;
        let local = LocalPages::of(memory, pages)?;
        let peer = memory.peer();
        Ok(local.charged_to([mappings.count(peer, 1), backing_pages.count(peer, pages as usize)]))
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
            let local = self.mapped_again(memory, count)?;
            self.shareable(local, memory).map(BackingPages::Local)
        };
        self.kernel_host.resumption().reshare_backing(process, allocation, offset, pages)
    }
}
