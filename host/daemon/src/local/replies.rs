//! Replies of the broker of local processes.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use dxgkrnl::ProcessId;
use proto::Message as _;
use proto::attach::BrokerReply;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

/// A reply with its descriptors. What it answers has taken effect, so a process that cannot be sent it is ended.
pub(super) struct Reply {
    pub message: BrokerReply,
    pub descriptors: Vec<OwnedFd>,
}

impl Reply {
    /// Answers a request of a process.
    pub fn to(process: ProcessId) -> Reply {
        Reply {
            message: BrokerReply { process: process.0, ..BrokerReply::default() },
            descriptors: Vec::new(),
        }
    }

    pub fn with(self, descriptor: OwnedFd) -> Reply {
        Reply { descriptors: vec![descriptor], ..self }
    }

    pub fn refusal(error: &anyhow::Error) -> Reply {
        let message = BrokerReply { refused: format!("{error:#}"), ..BrokerReply::default() };
        Reply { message, descriptors: Vec::new() }
    }

    pub fn send(&self, connection: impl AsFd) -> anyhow::Result<()> {
        let bytes = self.message.encode_to_vec();
        let descriptors: Vec<_> = self.descriptors.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            anyhow::bail!("{} descriptors do not fit a reply", descriptors.len());
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        rustix::net::sendmsg(connection, &[IoSlice::new(&bytes)], &mut ancillary, flags)?;
        Ok(())
    }
}
