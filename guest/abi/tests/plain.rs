//! A plain call survives the round trip through its struct, and so does its reply.

use abi::types::*;
use abi::{Plain, PlainCall, zeroed};
use d3dkmt::{Call, Reply};

/// A struct with a different number in each byte.
fn numbered<T: Plain>() -> T {
    let mut value = zeroed::<T>();
    // SAFETY: any bytes are a valid value.
    let bytes = unsafe { std::slice::from_raw_parts_mut((&raw mut value).cast::<u8>(), size_of::<T>()) };
    bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8);
    value
}

fn goes_round<T: PlainCall>(name: &str, other: &Call) {
    let given = numbered::<T>();
    let call = given.call();
    let mut again = T::of(&call).unwrap_or_else(|| panic!("{name} does not know its own call"));
    assert_eq!(again.call(), call, "{name}");
    assert!(T::of(other).is_none(), "{name} takes another call for its own");
    let reply = given.reply();
    assert!(again.take(&reply), "{name} does not know its own reply");
    assert_eq!(again.reply(), reply, "{name}");
    assert_eq!(again.call(), call, "{name}: a member is of the call and of the reply");
    assert!(!again.take(&Reply::FenceMemoryExhausted), "{name} takes another reply for its own");
}

macro_rules! go_round {
    ($($(#[doc = $doc:literal])* $starts:ident fn $name:ident($mode:ident $struct:ident $(of $process:ident)?)
        = $call:ident $fields:tt $(-> $reply:ident $outputs:tt)?;)*) => {
        $(goes_round::<$struct>(stringify!($name), &Call::ProcessPriorityClass);)*
    };
}

#[test]
fn every_plain_call_and_its_reply_go_round() {
    abi::for_each_plain_call!(go_round);
}
