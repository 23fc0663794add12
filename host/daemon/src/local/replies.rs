//! Replies of the broker of local processes.

use std::os::fd::BorrowedFd;

use dxgkrnl::ProcessId;
use proto::attach::BrokerReply;

use crate::broker;
use crate::closing::ClientFd;

/// Answers a request of a process; true: the connection stays open.
pub(super) fn answer(
    connection: &ClientFd,
    process: ProcessId,
    descriptors: &[BorrowedFd<'_>],
) -> anyhow::Result<bool> {
    let reply = BrokerReply { process: process.0, ..BrokerReply::default() };
    broker::send_reply(connection, &reply, descriptors).map(|()| true)
}

pub(super) fn refuse(connection: &ClientFd, error: &anyhow::Error) -> anyhow::Result<bool> {
    let reply = BrokerReply { refused: format!("{error:#}"), ..BrokerReply::default() };
    broker::send_reply(connection, &reply, &[]).map(|()| true)
}
