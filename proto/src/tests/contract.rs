//! `channel.proto` is the published contract: the rows of the tables must write what it declares, field by field.

use d3dkmt::{Call, Reply};
use proptest::prelude::*;
use prost::Message as _;
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, MessageDescriptor, ReflectMessage as _,
};

use super::any::{call, reply};
use crate::channel::{encode_answer_frame, encode_call_frame};

fn message(name: &str) -> MessageDescriptor {
    let pool = DescriptorPool::decode(crate::DESCRIPTORS).expect("the build wrote them");
    pool.get_message_by_name(&format!("gpupv.channel.{name}")).unwrap_or_else(|| {
        panic!("channel.proto has no message {name}, which a row of shared/d3dkmt names: add it")
    })
}

/// Reads a frame by the contract: every field is known, and writing it gives the same bytes.
fn check(frame: &str, bytes: &[u8]) -> DynamicMessage {
    let read = DynamicMessage::decode(message(frame), bytes).expect("the contract reads it");
    check_known(&read);
    assert_eq!(read.encode_to_vec(), bytes, "{read:?}");
    read
}

fn check_known(message: &DynamicMessage) {
    let unknown: Vec<u32> = message.unknown_fields().map(|field| field.number()).collect();
    let name = message.descriptor().name().to_owned();
    assert_eq!(unknown, [], "fields of {name} that a row has and channel.proto has not");
    for (_, value) in message.fields() {
        let several = value.as_list().unwrap_or_default();
        for inner in [value].into_iter().chain(several) {
            inner.as_message().into_iter().for_each(check_known);
        }
    }
}

/// The field of the frame's body with this number.
fn body(frame: &str, tag: u32, name: &str) -> FieldDescriptor {
    let field = message(frame).get_field(tag);
    let field = field
        .unwrap_or_else(|| panic!("{frame} of channel.proto has no field {tag}: the row of {name} has it"));
    assert!(field.containing_oneof().is_some(), "field {tag} of {frame} is no body");
    field
}

/// `GetDeviceState` is `get_device_state`.
fn snake(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}

/// Fields of a message that have other names in their row: structs name their own, and lists have a first entry.
fn is_spread(tag: &str) -> bool {
    tag.starts_with('(')
}

/// Checks that a row's fields are those of its message, by number and name.
fn check_row(frame: &str, tag: u32, name: &str, fields: &[(&str, &str)]) {
    let body = body(frame, tag, name);
    let kind = body.kind();
    let Some(message) = kind.as_message() else {
        panic!("{name} has fields, and field {tag} of {frame} in channel.proto is no message");
    };
    for (number, field) in fields.iter().filter(|(number, _)| !is_spread(number)) {
        let number = number.parse().expect("a tag is a number");
        let found = message.get_field(number).unwrap_or_else(|| {
            panic!(
                "message {} of channel.proto has no field {number}, which the row of {name} calls {field}",
                message.name()
            )
        });
        let is_called = found.name() == *field || found.name() == format!("{field}_100ns");
        assert!(
            is_called,
            "field {number} of message {} is {}, and {field} in the row",
            message.name(),
            found.name()
        );
    }
}

macro_rules! check_calls {
    ($($(#[$doc:meta])* $tag:literal $name:ident
        $({ $($field_tag:tt $field:ident: $kind:ty),+ $(,)? })?
        $(($bare:ident: $bare_kind:ty))?
        $(-> $reply:ident)?
        $(, $effect:ident)?
        => $form:literal;)+) => {
        #[test]
        fn every_row_of_a_call_has_its_message() {
            $(
                assert_eq!(body("ToHost", $tag, stringify!($name)).name(), snake(stringify!($name)));
                $(check_row("ToHost", $tag, stringify!($name), &[$((stringify!($field_tag), stringify!($field))),+]);)?
            )+
        }
    };
}

macro_rules! check_replies {
    ($($(#[$doc:meta])* $tag:literal $name:ident
        $({ $($field_tag:tt $field:ident: $type:ty),+ $(,)? })?
        $(($bare:ident: $bare_type:ty))?
        $([$index:tt: $tuple:ty])?
        $(=> $value_kind:ident $value:tt)?;)+) => {
        #[test]
        fn every_row_of_a_reply_has_its_message() {
            $(
                body("ToGuest", $tag, stringify!($name));
                $(check_row("ToGuest", $tag, stringify!($name), &[$((stringify!($field_tag), stringify!($field))),+]);)?
            )+
        }
    };
}

d3dkmt::for_each_call!(check_calls);
d3dkmt::for_each_reply!(check_replies);

#[test]
fn every_body_of_the_contract_is_a_row_or_a_frame_of_its_own() {
    let frames = [("ToHost", [2, 80, 81, 190].as_slice()), ("ToGuest", &[3, 4, 5, 40, 41, 42, 190])];
    for (frame, own) in frames {
        for field in message(frame).fields().filter(|field| field.containing_oneof().is_some()) {
            let number = field.number();
            let is_row = match frame {
                "ToHost" => Call::TAGS.contains(&number),
                _ => Reply::TAGS.contains(&number),
            };
            assert!(
                is_row != own.contains(&number),
                "field {number} of {frame}, {}, has no row",
                field.name()
            );
        }
    }
}

proptest! {
    #[test]
    fn a_call_is_written_by_the_contract(request in any::<u64>(), call in call()) {
        let mut bytes = Vec::new();
        encode_call_frame(request, &call, &mut bytes);
        let read = check("ToHost", &bytes);
        prop_assert!(read.has_field_by_number(call.tag()), "{call:?}");
    }

    #[test]
    fn a_reply_is_written_by_the_contract(request in 1..=u64::MAX, status in any::<u32>(), reply in reply()) {
        let mut bytes = Vec::new();
        encode_answer_frame(request, status, &reply, &mut bytes);
        check("ToGuest", &bytes);
    }
}
