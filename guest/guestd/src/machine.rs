//! What the broker needs from the machine it runs on: pinned memory and streams to the host.

use std::os::fd::OwnedFd;

use proto::limits::CHANNEL_PORT;
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown, sockopt};

use crate::broker::{Machine, MadeRegion, MadeStream, Purpose};
use crate::pagemap::Pagemap;
use crate::pin::Pinner;
use crate::region::{NewRegion, Region};
use crate::vsock;

/// Real memory, real vsock.
pub struct GuestMachine {
    pinner: Pinner,
    pagemap: Pagemap,
}

/// The broker's copy of a process's stream. Dropping it shuts the stream down for every copy, also in forked children.
pub struct ProcessStream(OwnedFd);

impl Drop for ProcessStream {
    fn drop(&mut self) {
        // The peer may have closed it already.
        let _ = shutdown(&self.0, Shutdown::Both);
        // The process may have set SO_LINGER on its copy: then the close would wait for the host.
        let _ = sockopt::set_socket_linger(&self.0, None);
    }
}

impl GuestMachine {
    pub fn new(pinner: Pinner, pagemap: Pagemap) -> Self {
        Self { pinner, pagemap }
    }
}

impl Machine for GuestMachine {
    type Region = Region;
    type Stream = ProcessStream;
    type Descriptor = OwnedFd;

    /// Half of the memory, so that the guest keeps working.
    fn pages_total_max(&self) -> u32 {
        let info = rustix::system::sysinfo();
        let bytes = info.totalram * u64::from(info.mem_unit);
        u32::try_from(bytes / 2 / fence_page::PAGE_BYTES as u64).unwrap_or(u32::MAX)
    }

    fn make_region(&mut self, purpose: Purpose, pages: u32) -> Result<MadeRegion<Self>, String> {
        let new = NewRegion::make(purpose, pages, &self.pinner, &self.pagemap)?;
        Ok(MadeRegion { region: new.region, addresses: new.addresses, descriptor: new.descriptor })
    }

    fn share_region(&mut self, region: &Region) -> Result<OwnedFd, String> {
        region.descriptor()
    }

    fn open_stream(&mut self) -> Result<MadeStream<Self>, String> {
        let stream = vsock::connect_host(CHANNEL_PORT).map_err(|error| match error {
            // The host is running, because it has just answered the attach.
            Errno::CONNRESET => "the host refuses a stream (has this VM too many connections?)".to_owned(),
            error => format!("cannot open a stream to the host: {}", vsock::connect_words(error)),
        })?;
        let descriptor = stream.try_clone().map_err(|error| format!("cannot copy a stream: {error}"))?;
        Ok(MadeStream { stream: ProcessStream(stream), descriptor })
    }
}
