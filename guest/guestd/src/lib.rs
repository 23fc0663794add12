//! guestd: the privileged daemon of a guest, and PID 1 of the bundled guest image.
//!
//! ```text
//!            guest processes                        host daemon
//!                  │ Unix SOCK_SEQPACKET                 ▲ vsock, from a port below 1024
//!                  ▼                                     │
//!                  ┌─ broker: driver ── Broker ──────────┘   a child process, restricted once it is set up;
//!                  │    │                                    blocking std + rustix, asleep at rest
//!                  │    └─ threads "close-UID": close what clients of that user sent, which may wait
//!   init ──▶ serve ┤
//!  (PID 1)         └─ thread "agent": gRPC over vsock: programs, files, power-off
//! ```
//!
//! Invariants:
//! - [`broker::Broker`] is a value: given the time and an input, it returns effects.
//! - A fence page stays pinned and allocated until the host has answered that it will never store into it again, or the
//!   host is gone.
//! - What reads programs of the guest starts none and shares no memory with what does: [`broker_process`].
//! - The broker's thread waits only in its epoll, and no user of the guest can take all of a broker's resource.
//! - PID 1 does as little as possible: everything that may fail or is reachable from outside is in its child `serve`.
//! - One line, one `write`, one prefix: all logging goes through [`console::say`].

pub mod agent;
pub mod arguments;
pub mod broker;
pub mod broker_process;
pub mod console;
pub mod driver;
pub mod init;
pub mod limits;
pub mod machine;
pub mod pagemap;
pub mod pin;
pub mod region;
pub mod ring;
pub mod serve;
pub mod thread_kind;
pub mod vsock;
