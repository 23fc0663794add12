//! Ports, paths and limits of the wire.

/// vsock port of the daemon for guestd's connection, the first of a VM.
pub const GUESTD_PORT: u32 = 7000;
/// vsock port of the daemon for the stream of a guest process.
pub const CHANNEL_PORT: u32 = 7001;
/// vsock port of the daemon for event channels: a stream for each event that guestd keeps for a process.
pub const EVENT_CHANNEL_PORT: u32 = 7002;
/// vsock port of the daemon that sends back what it gets; open only while `gpupv bench` runs.
pub const ECHO_PORT: u32 = 7010;
/// vsock port of the daemon that swallows what it gets; open only while `gpupv bench` runs.
pub const SINK_PORT: u32 = 7011;
/// vsock port of the daemon that passes bytes on to the other connection there; open only while `gpupv bench` runs.
pub const RELAY_PORT: u32 = 7012;
/// vsock port of the daemon that obeys [`crate::bench::Order`]s; open only while `gpupv bench` runs.
pub const DRIVER_PORT: u32 = 7013;
/// vsock port of the guest on which guestd serves the agent.
pub const AGENT_PORT: u32 = 7100;
/// Source ports below this are guestd's alone: only root may bind them.
pub const PRIVILEGED_PORT_END: u32 = 1024;

/// Where the guest library looks for its broker unless `GPUPV_BROKER` says otherwise.
pub const BROKER_PATH: &str = "/run/gpupv/broker.sock";
/// Environment variable with the path of the broker's socket.
pub const BROKER_ENV: &str = "GPUPV_BROKER";
/// Environment variable that is `1` for a scenario client that is to end when the thread that spawned it does: a stopped
/// one would outlive a killed runner.
pub const SCENARIO_CLIENT_DIES_WITH_PARENT_ENV: &str = "GPUPV_SCENARIO_CLIENT_DIES_WITH_PARENT";

/// Longest frame, its length prefix not counted (GPV-009).
pub const FRAME_BYTES_MAX: usize = d3dkmt::limits::MESSAGE_BYTES_MAX;
/// Longest packet between the guest library and its broker.
pub const BROKER_PACKET_BYTES_MAX: usize = 4096;
/// Pages that one message may add to fence memory, or lend.
pub const PAGES_PER_MESSAGE_MAX: usize = 4096;
/// Bytes of a process name that are kept.
pub const NAME_BYTES_MAX: usize = 260;
/// Bytes of a one-time token.
pub const TOKEN_BYTES: usize = 16;
/// Name of the memory that a process lends to engines, as it stands in `/proc/PID/maps`.
pub const BACKING_MEMFD: &str = "gpupv-pages";
/// Pages that one process may have lent at a time: 1 GiB.
pub const BACKING_PAGES_MAX: u32 = 1 << 18;
