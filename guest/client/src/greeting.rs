//! The greeting: the client process sends Hello with its token; the host's first frame is the Welcome.

use proto::channel::{Hello, ToHost, Welcome, to_host};
use proto::convert::{FromHost, from_host};
use proto::frame::decode;
use proto::{PROTOCOL_VERSION, Versions};

/// The first frame of a stream. `fence_address` is where the process maps its fence memory; 0 keeps it from the host.
/// `received` counts the answers and wakes that the session has read: 0, unless the session is resumed.
pub fn hello(token: Vec<u8>, fence_address: u64, received: u64, rings: bool) -> ToHost {
    let (version, version_min) = (PROTOCOL_VERSION, Versions::OURS.oldest());
    let hello = Hello { version, token, received, version_min, fence_address, rings };
    ToHost { request: 0, body: Some(to_host::Body::Hello(hello)) }
}

/// Reads the host's first frame. The error says why the frame is no Welcome.
pub fn welcome_from(frame: &[u8]) -> Result<Welcome, String> {
    let message = decode(frame).map_err(|error| error.to_string())?;
    match from_host(message).map_err(|error| error.to_string())? {
        FromHost::Welcome(welcome) if Versions::OURS.contains(welcome.version) => Ok(welcome),
        FromHost::Welcome(welcome) => {
            Err(format!("it speaks version {} and this library {}", welcome.version, Versions::OURS))
        }
        FromHost::Goodbye(reason) => Err(reason),
        FromHost::Wake { .. }
        | FromHost::GuestEvent { .. }
        | FromHost::Answer { .. }
        | FromHost::Applied(_)
        | FromHost::InRing
        | FromHost::HostTime(_) => Err("it sent something else first".to_owned()),
    }
}
