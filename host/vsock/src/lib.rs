//! The daemon's own vhost-user-vsock device.
//!
//! QEMU connects to a socket of this process (`-chardev socket,id=vs,path=SOCK -device
//! vhost-user-vsock-pci,chardev=vs`, guest memory shared through a memfd) and passes its guest's memory and virtqueues.
//! Guest connections to CID 2 then end in this process: identity, transport and memory of a VM exist as long as that
//! one socket.
//!
//! [`Device`] is the device of one VM. The daemon implements [`Services`] for the VM. Each connection is an
//! [`Endpoint`] of the daemon's and a [`Connection`] to send on. [`GuestMemory`] is the VM's memory by guest-physical
//! address.
//!
//! | module | contents |
//! |---|---|
//! | [`packet`] | virtio-vsock on the wire, with a primer |
//! | [`muxer`] | the protocol as a plain value |
//! | `vring` | a vring of `vhost-user-backend`, and what that leaves to its user |
//! | `queues` | packets in and out of a vring |
//! | `session` | muxer and vrings of one QEMU; packets to the guest |
//! | `worker` | packets from the guest |
//! | `backend` | the device as `vhost-user-backend` sees it |
//! | `serving` | the device's thread; one QEMU from connect to disconnect |
//! | `direct` | a device without QEMU and threads, for fuzz targets |
//! | `known_connections` | the connections of a guest, for the next daemon |
//! | [`VhostUserProxy`] | keeps QEMU's device alive when the daemon is killed |
//! | [`limits`] | every limit |
//! | [`locks`] | the order of locks |
//!
//! The vhost-user protocol, the vrings with their eventfds, and the memory table are those of `vhost-user-backend`. A
//! device has one thread that waits for QEMUs and, while one is connected, two of that crate: for requests and for
//! kicks.
//!
//! No packet changes threads: the thread that receives a kick calls [`Endpoint::received`], and the thread that calls
//! [`Connection::send`] fills the guest's ring. There is no unsafe code. An idle device has no wake-ups: a timer runs
//! only until the guest is notified of taken packets.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod backend;
mod busy_rings;
mod complaints;
mod connection;
mod device;
#[doc(hidden)]
pub mod direct;
mod known_connections;
pub mod limits;
pub mod locks;
mod memory;
pub mod muxer;
pub mod packet;
mod queues;
mod services;
mod serving;
mod session;
mod timer;
mod vhost_user_proxy;
mod vring;
mod worker;

pub use connection::Connection;
pub use device::{ConnectError, Device, DeviceConfig, DeviceError, DeviceStats};
pub use memory::{DriverRuns, GuestMemory, MemoryError, has_ordinary_pages};
pub use muxer::{SendError, TooManyConnections};
pub use services::{CloseReason, ConnectRequest, Credit, Endpoint, Services};
pub use vhost_user_proxy::VhostUserProxy;
