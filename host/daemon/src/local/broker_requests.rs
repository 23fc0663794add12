//! Requests of local processes on their broker connections.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use anyhow::Context as _;
use d3dkmt::EventId;
use dxgkrnl::{ProcessId, VmId};
use proto::attach::BrokerReply;

use super::replies::Reply;
use super::{Loop, Source, deferred_reads};
use crate::broker::{self, Request};
use crate::closing::ClientFd;
use crate::peer::Peer;
use crate::registered_events::EventSink;

impl Loop {
    /// The turn of a broker connection: one request.
    pub(super) fn broker_packet(&mut self, key: u64) {
        let Some(Source::Broker { vm, connection, process, deferred, .. }) = self.sources.get_mut(&key)
        else {
            return;
        };
        let (vm, connection, process, deferred) = (*vm, connection.clone(), *process, deferred.take());
        let request =
            match deferred.map_or_else(|| broker::read_request(&connection), |request| Ok(Some(request))) {
                Err(error) if deferred_reads::is_read_later(&error, &connection) => return self.hold(key),
                Ok(Some(request @ (Request::MakeNtHandle | Request::MakeSyncFile)))
                    if self.must_close_more(vm, connection.peer()) =>
                {
                    return self.defer_request(key, request);
                }
                Ok(None) => return self.broker_hung_up(key, process),
                Ok(Some(request)) => Ok(request),
                Err(error) => Err(error),
            };
        let reply = request.and_then(|request| {
            let reply = self.broker_request(key, vm, &connection, process, request);
            match (reply, process) {
                (Err(error), Some(process)) => {
                    let line =
                        || format!("a request of process {} at the broker is refused: {error:#}", process.0);
                    self.kernel_host.log.debug(Peer::Process(process), line);
                    Ok(Some(Reply::refusal(&error)))
                }
                (reply, _) => reply,
            }
        });
        let sent = reply.and_then(|reply| reply.map_or(Ok(()), |reply| reply.send(&connection)));
        match (sent, self.sources.get_mut(&key)) {
            (Ok(()), Some(Source::Broker { pending_connection, .. })) => *pending_connection = None,
            (Ok(()), _) => {}
            (Err(error), _) => self.refuse_for_good(key, &connection, &error),
        }
        self.watch_again(key);
    }

    /// Leaves a request for the next turn of its connection.
    fn defer_request(&mut self, key: u64, request: Request) {
        if let Some(Source::Broker { vm, peer, deferred, .. }) = self.sources.get_mut(&key) {
            *deferred = Some(request);
            self.turns.join((*vm, *peer), key);
        }
    }

    /// Handles a request on a broker connection; `process` is the one that it has attached, if any. An error refuses the
    /// request, and without a process the connection. Without a reply the request is answered later.
    fn broker_request(
        &mut self,
        key: u64,
        vm: VmId,
        connection: &Arc<ClientFd>,
        process: Option<ProcessId>,
        request: Request,
    ) -> anyhow::Result<Option<Reply>> {
        let peer = connection.peer();
        let reply = match (request, process) {
            (Request::Invalid(why), _) => return Err(why),
            (Request::Attach { name, rings }, None) if self.returning.is_some() => {
                return self.park(key, vm, connection, name, rings).map(|()| None);
            }
            (Request::Attach { name, rings }, None) => self.attach(key, vm, connection, name, rings)?,
            (Request::Attach { .. }, Some(_)) => {
                anyhow::bail!("this connection has attached a process already")
            }
            (Request::Resume { process, token, rings }, None) => {
                self.resume(key, vm, connection, process, &token, rings)?
            }
            (Request::Resume { .. }, Some(_)) => anyhow::bail!("this connection has its process already"),
            (Request::Regain { first_slot, slots }, Some(process)) => {
                Reply::to(process).with(self.regain(peer, process, first_slot, slots)?)
            }
            (Request::ReattachBacking { address, pages, memory }, Some(process)) => {
                self.reattach_backing(process, address, pages, &memory)?;
                Reply::to(process)
            }
            (Request::HaveNtHandle { handle }, Some(process)) => {
                self.have_nt_handle(vm, &handle)?;
                Reply::to(process)
            }
            (Request::Grow { slots }, Some(process)) => {
                let (first_slot, slots, memory) = broker::grow(&self.kernel_host, peer, process, slots)?;
                let message = BrokerReply { first_slot, slots, process: process.0, ..BrokerReply::default() };
                Reply { message, descriptors: vec![memory] }
            }
            (Request::MakeNtHandle, Some(process)) => {
                Reply::to(process).with(self.make_nt_handle(vm, peer, false)?)
            }
            (Request::MakeSyncFile, Some(process)) => {
                Reply::to(process).with(self.make_nt_handle(vm, peer, true)?)
            }
            (Request::AttachBacking { address, pages }, Some(process)) => {
                self.attach_backing(peer, process, address, pages)?
            }
            (Request::DetachBacking { address, if_unused }, Some(process)) => {
                self.detach_backing(process, address, if_unused)?
            }
            (Request::ShareBacking { allocation, offset }, Some(process)) => {
                self.share_backing(process, allocation, offset)?
            }
            // Its allocation may have ended while no daemon ran.
            (Request::ReshareBacking { allocation, offset, memory }, Some(process)) => {
                self.reshare_backing(process, allocation, offset, &memory)?;
                Reply::to(process)
            }
            (Request::RegisterEvent { name, event }, Some(process)) => {
                self.register_event(process, name, event)?;
                Reply::to(process)
            }
            (Request::UnregisterEvent { name }, Some(process)) => {
                self.unregister_event(process, name)?;
                Reply::to(process)
            }
            (Request::Settle, Some(process)) => {
                // Owed events are set before an answer is sent. Without memory they are woken by the stream.
                self.kernel_host.sessions().client(process).iter().for_each(|client| client.outbox.flush());
                Reply::to(process)
            }
            (_, None) => anyhow::bail!("no process is attached on this connection"),
        };
        Ok(Some(reply))
    }

    /// Handles a broker connection that its process has closed.
    fn broker_hung_up(&mut self, key: u64, process: Option<ProcessId>) {
        if !process.is_some_and(|process| self.drop_unfinished(key, process)) {
            self.end_broker(key);
        }
    }

    /// Closes a connection with a reason, sent to its process and logged.
    pub(super) fn refuse_for_good(&mut self, key: u64, connection: &ClientFd, error: &anyhow::Error) {
        if let Some(Source::Broker { peer, .. }) = self.sources.get(&key) {
            self.kernel_host.log.warn(*peer, || format!("a local process is refused: {error:#}"));
        }
        let _ = Reply::refusal(error).send(connection);
        self.end_broker(key);
    }

    /// Registers an event, which the daemon sets directly from now on.
    fn register_event(&self, process: ProcessId, name: EventId, event: ClientFd) -> anyhow::Result<()> {
        let setter = self.setter.clone().context("this system cannot set events of other processes")?;
        let link = rustix::fs::readlink(format!("/proc/self/fd/{}", event.as_fd().as_raw_fd()), Vec::new())?;
        anyhow::ensure!(link.as_bytes() == b"anon_inode:[eventfd]", "event {} is no eventfd", name.0);
        let client = self.kernel_host.sessions().client(process).context("the process has ended")?;
        let (event, share) = event.keep()?;
        Ok(client.outbox.register_event(name, EventSink::Eventfd(setter, event, share))?)
    }

    fn unregister_event(&self, process: ProcessId, name: EventId) -> anyhow::Result<()> {
        let client = self.kernel_host.sessions().client(process).context("the process has ended")?;
        anyhow::ensure!(client.outbox.unregister_event(name), "event {} is not registered", name.0);
        Ok(())
    }

    /// Handles a closed broker connection: its process, if it has one, is detached.
    pub(super) fn end_broker(&mut self, key: u64) {
        match self.sources.get(&key) {
            Some(Source::Broker { process: Some(process), .. }) => {
                let process = *process;
                self.detach_after_calls(process);
            }
            _ => self.forget(key),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use proto::Message as _;
    use proto::attach::BrokerRequest;
    use proto::attach::broker_request::{Attach, Body, Grow, Regain};
    use rustix::net::{SendFlags, send};

    use super::super::direct::DirectLoop;
    use super::*;
    use crate::Options;
    use crate::kernel_host::KernelHost;
    use crate::receive::{Accepted, receive};

    /// A daemon's loop, and a client's connection to its broker.
    fn connected() -> (Arc<KernelHost>, DirectLoop, OwnedFd, tempfile::TempDir) {
        let kernel_host = KernelHost::new(&Options::default()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut local = DirectLoop::new(kernel_host.clone(), &folder.path().join("broker.sock")).unwrap();
        let broker = local.connect().unwrap();
        (kernel_host, local, broker, folder)
    }

    fn attach() -> Vec<u8> {
        let version = proto::PROTOCOL_VERSION;
        request(Body::Attach(Attach { version, version_min: version, ..Attach::default() }))
    }

    fn request(body: Body) -> Vec<u8> {
        BrokerRequest { body: Some(body) }.encode_to_vec()
    }

    #[test]
    fn a_reply_that_cannot_be_sent_ends_its_process_because_the_request_has_taken_effect() {
        let (kernel_host, mut local, broker, _folder) = connected();
        send(&broker, &attach(), SendFlags::NOSIGNAL).unwrap();
        local.run_ready().unwrap();
        let mut reply = [0; 4096];
        // With the stream in it: its end would be the end of the process.
        let _attached = receive(broker.as_fd(), &mut reply, Accepted::Descriptors).unwrap();
        assert_eq!(kernel_host.sessions().clients().len(), 1);
        rustix::net::shutdown(&broker, rustix::net::Shutdown::Read).unwrap();
        send(&broker, &request(Body::Grow(Grow { slots: 1 })), SendFlags::NOSIGNAL).unwrap();
        local.run_ready().unwrap();
        assert_eq!(kernel_host.sessions().clients().len(), 0);
    }

    #[test]
    fn a_request_that_is_refused_does_not_end_the_process_and_a_packet_that_is_no_message_does() {
        let (kernel_host, mut local, broker, _folder) = connected();
        let mut kept = Vec::new();
        let mut exchange = |packet: &[u8]| {
            send(&broker, packet, SendFlags::NOSIGNAL).unwrap();
            local.run_ready().unwrap();
            let mut reply = [0; 4096];
            let received = receive(broker.as_fd(), &mut reply, Accepted::Descriptors).unwrap();
            // The end of its stream would be the end of the process.
            kept.extend(received.descriptors);
            BrokerReply::decode(&reply[..received.bytes]).unwrap().refused
        };
        assert_eq!(exchange(&attach()), "");
        // A request of a field that no daemon knows yet.
        let of_a_later_version = [0xfa, 0x01, 0x00];
        for (refused, why) in [
            (attach(), "attached a process already"),
            (request(Body::Grow(Grow { slots: 0 })), "0 more fence slots are requested"),
            (request(Body::Regain(Regain { first_slot: 0, slots: 1 })), ""),
            (request(Body::RegisterEvent(1)), "has no descriptor"),
            (request(Body::DetachBacking(0x1000)), "no backing pages are attached"),
            (of_a_later_version.to_vec(), "unknown to this daemon"),
        ] {
            let refusal = exchange(&refused);
            assert!(!refusal.is_empty() && refusal.contains(why), "{refusal}");
            assert_eq!(exchange(&request(Body::Settle(true))), "", "after {refusal}");
        }
        assert_eq!(kernel_host.sessions().clients().len(), 1);
        assert!(exchange(&[0xff; 8]).contains("not a BrokerRequest"));
        assert_eq!(kernel_host.sessions().clients().len(), 0);
    }
}
