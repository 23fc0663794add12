//! A device without QEMU, sockets and threads: its owner plays QEMU and the guest, and calls the worker. Fuzz targets
//! use it, because one input then takes microseconds and always does the same.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use vhost_user_backend::VringT as _;
use vm_memory::GuestMemoryMmap;

use crate::backend::{QUEUES, TRANSMIT};
use crate::connection::Connection;
use crate::device::{DeviceConfig, DeviceStats, Shared, stats_of};
use crate::limits::QUEUE_SIZE_MAX;
use crate::memory::{self, MemoryTable};
use crate::muxer::TooManyConnections;
use crate::services::{Endpoint, Services};
use crate::session::Session;
use crate::timer::OneShot;
use crate::vring::Ring;
use crate::worker::Worker;

/// Turns of the worker for one kick: a guest that goes on to add packets stays busy for ever.
const TURNS_MAX: usize = 8;

/// The addresses of a ring in guest-physical memory.
#[derive(Clone, Copy, Debug)]
pub struct RingAddresses {
    /// Of the descriptor table.
    pub descriptors: u64,
    /// Of the available ring.
    pub available: u64,
    /// Of the used ring.
    pub used: u64,
}

/// The device of one guest, on the thread of its owner.
pub struct DirectDevice {
    shared: Shared,
    session: Arc<Session>,
    worker: Worker,
}

impl DirectDevice {
    /// A device that a guest with this memory is attached to. A file with its connections is beside `socket`.
    pub fn new(
        guest_cid: u64,
        services: Arc<dyn Services>,
        guest_memory: GuestMemoryMmap,
        socket: PathBuf,
    ) -> io::Result<Self> {
        let shared =
            Shared::new(DeviceConfig { guest_cid, socket, connections_copy: None }, Arc::clone(&services))?;
        let table = MemoryTable::new(guest_memory);
        let ring = || Ring::new(table.clone(), QUEUE_SIZE_MAX).map_err(io::Error::other);
        let rings: [Ring; QUEUES] = [ring()?, ring()?, ring()?];
        let session = Arc::new(Session::new(&shared, table.clone(), rings));
        for (index, ring) in session.rings.iter().enumerate() {
            ring.attach(index, &session, Weak::new(), table.clone());
        }
        let worker = Worker::new(guest_cid, services, Arc::clone(&session), OneShot::new()?);
        shared.services.memory_changed(session.guest_memory());
        Ok(DirectDevice { shared, session, worker })
    }

    /// Starts a ring, as QEMU's requests do: size, position, addresses, enable.
    pub fn start_ring(&self, index: usize, size: u16, position: u16, addresses: RingAddresses) {
        let RingAddresses { descriptors, available, used } = addresses;
        let ring = &self.session.rings[index % QUEUES];
        ring.set_queue_size(size);
        ring.set_queue_next_avail(position);
        // An address that the crate refuses leaves the ring as it was, as in a request.
        if ring.set_queue_info(descriptors, available, used).is_ok() {
            ring.set_queue_next_used(ring.queue_used_idx().unwrap_or_default());
        }
        ring.set_queue_event_idx(size.is_multiple_of(2));
        ring.set_queue_ready(true);
        ring.set_enabled(true);
    }

    /// Stops a ring, and returns its position.
    pub fn stop_ring(&self, index: usize) -> u16 {
        let ring = &self.session.rings[index % QUEUES];
        ring.set_queue_ready(false);
        if index % QUEUES == TRANSMIT {
            self.session.driver_stopped();
        }
        ring.queue_next_avail()
    }

    /// Replaces the guest's memory, as a new memory table does.
    pub fn replace_memory(&self, guest_memory: GuestMemoryMmap) {
        memory::replace(&self.session.table, guest_memory);
        self.session.rings.iter().for_each(Ring::revalidate);
        self.shared.services.memory_changed(self.session.guest_memory());
    }

    /// The guest kicks: the worker runs until it has nothing to do, or a number of turns.
    pub fn kick(&mut self) {
        for _ in 0..TURNS_MAX {
            if !self.worker.turn(true) {
                break;
            }
        }
        self.worker.notify_taken();
    }

    /// Requests a connection to a port of the guest, as [`crate::Device::connect`] does.
    pub fn connect(
        &self,
        guest_port: u32,
        endpoint: Box<dyn Endpoint>,
    ) -> Result<Connection, TooManyConnections> {
        let credit = endpoint.credit();
        let (id, ports) = self.session.enter(|outbound| {
            let (id, ports) = outbound.muxer.connect(guest_port, credit)?;
            outbound.arrivals.push((id, endpoint));
            Ok((id, ports))
        })?;
        Ok(Connection::new(Arc::clone(&self.session), id, ports))
    }

    /// Current counters and figures.
    pub fn stats(&self) -> DeviceStats {
        stats_of(&self.session, DeviceStats::default())
    }
}

/// QEMU disconnects.
impl Drop for DirectDevice {
    fn drop(&mut self) {
        self.session.end();
        let cleared = self.shared.known.lock().clear();
        cleared.unwrap_or_else(|error| self.shared.complaints.known_connections(&error));
        self.worker.end();
        self.shared.services.disconnected();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tracing::span;

    use super::*;
    use crate::limits::COMPLAINTS_PER_PERIOD_MAX;
    use crate::locks::{Rank, is_held};
    use crate::services::{CloseReason, ConnectRequest};

    struct Ignored;

    impl Services for Ignored {
        fn accept(&self, _: ConnectRequest, _: Connection) -> Option<Box<dyn Endpoint>> {
            None
        }
    }

    impl Endpoint for Ignored {
        fn received(&mut self, _: &[u8]) {}

        fn closed(&mut self, _: CloseReason) {}
    }

    /// A log that records, for each line, whether its thread holds a lock of the device.
    #[derive(Clone, Default)]
    struct LogOfLocks(Arc<Mutex<Vec<bool>>>);

    impl tracing::Subscriber for LogOfLocks {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }

        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

        fn event(&self, _: &tracing::Event<'_>) {
            self.0.lock().unwrap().push(is_held(Rank::Outbound) || is_held(Rank::Known));
        }

        fn enter(&self, _: &span::Id) {}

        fn exit(&self, _: &span::Id) {}
    }

    #[test]
    fn a_full_disk_is_reported_without_a_lock_and_as_often_as_the_budget_of_lines_allows() {
        let memory = GuestMemoryMmap::from_ranges(&[(vm_memory::GuestAddress(0), 1 << 16)]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let services = Arc::new(Ignored);
        let device = DirectDevice::new(3, services, memory, folder.path().join("vm.sock")).unwrap();
        device.shared.known.lock().fill_disk();
        let log = LogOfLocks::default();
        tracing::subscriber::with_default(log.clone(), || {
            for port in 0..2 * COMPLAINTS_PER_PERIOD_MAX {
                device.connect(port, Box::new(Ignored)).unwrap();
            }
        });
        let lines = log.0.lock().unwrap().clone();
        assert_eq!(lines, vec![false; COMPLAINTS_PER_PERIOD_MAX as usize]);
    }
}
