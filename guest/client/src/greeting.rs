//! The greeting: the guest says Hello with its token, the host's first frame is the Welcome.

use proto::PROTOCOL_VERSION;
use proto::channel::{Hello, ToHost, Welcome, to_host};
use proto::convert::{FromHost, from_host};
use proto::frame::decode;

/// The first frame of a stream, of a session that has read so many answers and wakes: none, unless it is resumed.
pub fn hello(token: Vec<u8>, received: u64) -> ToHost {
    let hello = Hello { version: PROTOCOL_VERSION, token, received };
    ToHost { request: 0, body: Some(to_host::Body::Hello(hello)) }
}

/// Reads the host's first frame. The error says why it is no Welcome.
pub fn welcome_from(frame: &[u8]) -> Result<Welcome, String> {
    let message = decode(frame).map_err(|error| error.to_string())?;
    match from_host(message).map_err(|error| error.to_string())? {
        FromHost::Welcome(welcome) if welcome.version == PROTOCOL_VERSION => Ok(welcome),
        FromHost::Welcome(welcome) => {
            Err(format!("it speaks version {} and this library version {PROTOCOL_VERSION}", welcome.version))
        }
        FromHost::Goodbye(reason) => Err(reason),
        FromHost::Wake { .. }
        | FromHost::GuestEvent { .. }
        | FromHost::Answer { .. }
        | FromHost::Applied(_)
        | FromHost::Asked(_) => Err("it sent something else first".to_owned()),
    }
}
