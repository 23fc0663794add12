//! Ports, paths and limits of the wire.

/// vsock port of the daemon for guestd's connection, the first of a VM.
pub const GUESTD_PORT: u32 = 7000;
/// vsock port of the daemon for the stream of a guest process.
pub const CHANNEL_PORT: u32 = 7001;
/// vsock port of the daemon for event channels: a stream for each event that guestd registers for a process.
pub const EVENT_CHANNEL_PORT: u32 = 7002;
/// vsock port of the guest on which guestd serves the agent.
pub const AGENT_PORT: u32 = 7100;
/// Source ports below this are reserved for guestd, because only root may bind them.
pub const PRIVILEGED_PORT_END: u32 = 1024;

/// The default path of the broker's socket, unless `GPUPV_BROKER` names another.
pub const BROKER_PATH: &str = "/run/gpupv/broker.sock";
/// Environment variable with the path of the broker's socket.
pub const BROKER_ENV: &str = "GPUPV_BROKER";
/// Environment variable that is `1` for a scenario client that must die with the thread that spawned it, because a
/// stopped one would outlive a killed runner.
pub const SCENARIO_CLIENT_DIES_WITH_PARENT_ENV: &str = "GPUPV_SCENARIO_CLIENT_DIES_WITH_PARENT";

/// Longest frame, its length prefix not counted (GPV-009).
pub const FRAME_BYTES_MAX: usize = d3dkmt::limits::MESSAGE_BYTES_MAX;
/// Bytes of answers and wakes that a process may have read without a report to a host that can be resumed, which
/// retains them until then.
pub const RECEIVED_BYTES_UNREPORTED_MAX: usize = 8 * 1024;
/// Longest packet between the guest library and its broker.
pub const BROKER_PACKET_BYTES_MAX: usize = 4096;
/// Pages that one message may add to fence memory, or attach as backing.
pub const PAGES_PER_MESSAGE_MAX: usize = 4096;
/// Bytes of a process name that are kept.
pub const NAME_BYTES_MAX: usize = 260;
/// Bytes of a one-time token.
pub const TOKEN_BYTES: usize = 16;
/// Name of a process's backing pages, as `/proc/PID/maps` shows it.
pub const BACKING_MEMFD: &str = "gpupv-pages";
/// Backing pages of one process at a time: 1 GiB.
pub const BACKING_PAGES_MAX: u32 = 1 << 18;
