//! Words that `gpupv bench` and `guest-bench`, its client process, share, other than measurements.
//!
//! ```text
//!   guest-bench ── order, 2 bytes ──▶ Service::Driver     the host's side of a wake
//!   guest-bench ── {"ask": word} on its output ──▶ gpupv bench ── word ──▶ guest-bench flood, in another VM
//!               ◀── a line on its input: done ──              ◀── word ──
//!   guest-bench ── {"ask": word} on its output ──▶ gpupv bench   starts or stops a recording; answered alike
//! ```

/// What a raw peer does with the bytes that it receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// Sends them back.
    Echo,
    /// The same, from one epoll loop for all connections. Local only.
    EchoMany,
    /// Discards them, after 8 bytes with their number (little-endian); then answers one byte.
    Sink,
    /// Sends them to the other connection.
    Relay,
    /// Executes them as [`Order`]s. Raw bytes go to the other connection.
    Driver,
}

impl Service {
    pub const ALL: [Service; 5] =
        [Service::Echo, Service::EchoMany, Service::Sink, Service::Relay, Service::Driver];

    /// The name of its Unix socket.
    pub fn socket(self) -> &'static str {
        match self {
            Service::Echo => "echo",
            Service::EchoMany => "echo-many",
            Service::Sink => "sink",
            Service::Relay => "relay",
            Service::Driver => "driver",
        }
    }

    /// Its vsock port of the host.
    pub fn port(self) -> u32 {
        match self {
            Service::Echo => 7010,
            Service::Sink => 7011,
            Service::Relay => 7012,
            Service::Driver => 7013,
            Service::EchoMany => 7014,
        }
    }
}

/// `Usage[0]` of the CPU event that [`Order::Signal`] has signaled.
pub const DRIVER_USAGE: u32 = 0x4250;

/// An order that the host executes at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// The driver's object of [`DRIVER_USAGE`] goes bad: the driver signals its CPU events.
    Signal,
    /// Send this many bytes to every other connection of the service.
    Raw(u8),
    /// Report when the last of those orders began: CLOCK_MONOTONIC of the host, 8 bytes little-endian, nanoseconds.
    When,
}

impl Order {
    pub const BYTES: usize = 2;

    pub fn bytes(self) -> [u8; Order::BYTES] {
        match self {
            Order::Signal => [1, 0],
            Order::Raw(count) => [2, count],
            Order::When => [3, 0],
        }
    }

    pub fn parse(bytes: [u8; Order::BYTES]) -> Option<Order> {
        match bytes {
            [1, 0] => Some(Order::Signal),
            [2, count] => Some(Order::Raw(count)),
            [3, 0] => Some(Order::When),
            _ => None,
        }
    }
}

/// What another VM floods the host with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flood {
    Off,
    /// Escapes with little data.
    Small,
    /// Escapes with [`FLOOD_DATA_BYTES`].
    Large,
}

/// Private data of an escape of [`Flood::Large`].
pub const FLOOD_DATA_BYTES: usize = 64 * 1024;

impl Flood {
    pub fn word(self) -> &'static str {
        match self {
            Flood::Off => "off",
            Flood::Small => "small",
            Flood::Large => "large",
        }
    }

    pub fn parse(word: &str) -> Option<Flood> {
        [Flood::Off, Flood::Small, Flood::Large].into_iter().find(|flood| flood.word() == word)
    }
}

/// Whether the host records a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record {
    Off,
    On,
}

impl Record {
    pub fn word(self) -> &'static str {
        match self {
            Record::Off => "record-no-more",
            Record::On => "record",
        }
    }

    pub fn parse(word: &str) -> Option<Record> {
        [Record::Off, Record::On].into_iter().find(|record| record.word() == word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_and_words_survive_the_way() {
        for order in [Order::Signal, Order::Raw(0), Order::Raw(7), Order::When] {
            assert_eq!(Order::parse(order.bytes()), Some(order));
        }
        assert_eq!(Order::parse([1, 1]), None);
        for flood in [Flood::Off, Flood::Small, Flood::Large] {
            assert_eq!(Flood::parse(flood.word()), Some(flood));
        }
        assert_eq!(Flood::parse(""), None);
        for record in [Record::Off, Record::On] {
            assert_eq!(Record::parse(record.word()), Some(record));
            assert_eq!(Flood::parse(record.word()), None);
        }
    }
}
