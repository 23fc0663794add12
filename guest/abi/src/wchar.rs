//! WCHARs of 2 bytes, as the kernel has them, and of 4, as clients on Linux have them: the data of those queries of
//! `D3DKMTQueryAdapterInfo` that embed text.
//!
//! ```text
//!   DRIVER_DESCRIPTION   text only
//!   QUERYREGISTRY        D3DDDI_QUERYREGISTRY_INFO, whose ValueName has 260 WCHARs, and behind it the value
//! ```
//! Data of other queries are the same in both forms.

use d3dkmt::query::kind::{DRIVER_DESCRIPTION, QUERY_REGISTRY};
use d3dkmt::query::registry::{NAME, kind, status};

/// Units of `ValueName`.
const NAME_UNITS: usize = 260;
const REG_SZ: u32 = 1;

/// The size of a WCHAR.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wchar {
    /// 2 bytes: UTF-16.
    Kernel,
    /// 4 bytes: UTF-32.
    Client,
}

impl Wchar {
    const fn bytes(self) -> usize {
        match self {
            Wchar::Kernel => 2,
            Wchar::Client => 4,
        }
    }

    /// Where `ValueType` is, behind the name. PhysicalAdapterIndex, OutputValueSize and Status follow it.
    const fn value_type(self) -> usize {
        NAME.start + NAME_UNITS * self.bytes()
    }

    /// Where the value begins.
    const fn output(self) -> usize {
        self.value_type() + 16
    }

    /// The text up to its NUL.
    fn decode(self, bytes: &[u8]) -> String {
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte));
        let units = bytes.chunks_exact(self.bytes()).map(number).take_while(|unit| *unit != 0);
        let text = match self {
            Wchar::Kernel => char::decode_utf16(units.map(|unit| unit as u16)).map(Result::ok).collect(),
            Wchar::Client => units.map(char::from_u32).collect::<Vec<_>>(),
        };
        text.into_iter().map(|one| one.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    }

    fn encode(self, text: &str) -> Vec<u8> {
        match self {
            Wchar::Kernel => text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
            Wchar::Client => text.chars().flat_map(|one| u32::from(one).to_le_bytes()).collect(),
        }
    }
}

fn word(data: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(data[at..at + 4].try_into().expect("four bytes"))
}

/// Whether the data of this query differ in the two forms.
pub fn has_text(query: u32) -> bool {
    matches!(query, DRIVER_DESCRIPTION | QUERY_REGISTRY)
}

/// The data of a query in the form of the other side, with room for its answer. Data that are too short stay so.
pub fn request(query: u32, data: &[u8], from: Wchar, to: Wchar) -> Vec<u8> {
    match query {
        // It is output only.
        DRIVER_DESCRIPTION => vec![0; data.len() / from.bytes() * to.bytes()],
        QUERY_REGISTRY if data.len() < from.output() => vec![0; to.output() - 1],
        QUERY_REGISTRY => {
            let mut request = registry_head(data, from, to);
            let room = data.len() - from.output();
            request.resize(to.output() + room * to.bytes().div_ceil(from.bytes()), 0);
            request
        }
        _ => data.to_vec(),
    }
}

/// The answer to a query in the form of the other side, for a buffer of this many bytes there.
pub fn answer(query: u32, data: &[u8], from: Wchar, to: Wchar, bytes: usize) -> Vec<u8> {
    match query {
        DRIVER_DESCRIPTION => {
            let mut text = to.encode(&from.decode(data));
            text.resize(bytes, 0);
            text
        }
        QUERY_REGISTRY if data.len() >= from.output() => registry_answer(data, from, to, bytes),
        _ => data[..data.len().min(bytes)].to_vec(),
    }
}

/// `D3DDDI_QUERYREGISTRY_INFO` up to the value.
fn registry_head(data: &[u8], from: Wchar, to: Wchar) -> Vec<u8> {
    let mut head = data[..NAME.start].to_vec();
    head.extend(to.encode(&from.decode(&data[NAME.start..from.value_type()])));
    // The last unit is a NUL.
    head.truncate(to.value_type() - to.bytes());
    head.resize(to.value_type(), 0);
    head.extend_from_slice(&data[from.value_type()..from.output()]);
    head
}

fn registry_answer(data: &[u8], from: Wchar, to: Wchar, bytes: usize) -> Vec<u8> {
    let mut answer = registry_head(data, from, to);
    let is_path = matches!(word(data, 0), kind::DRIVER_STORE_PATH | kind::DRIVER_IMAGE_PATH);
    let is_text = is_path || word(data, from.value_type()) == REG_SZ;
    let (size, mut result) = (word(data, from.value_type() + 8) as usize, word(data, from.value_type() + 12));
    let value = data[from.output()..].get(..size).filter(|_| result == status::SUCCESS);
    let value = value.map(|value| match is_text {
        true => to.encode(&(from.decode(value) + "\0")),
        false => value.to_vec(),
    });
    let size = match &value {
        Some(value) => value.len(),
        None if is_text => size / from.bytes() * to.bytes(),
        None => size,
    };
    if let Some(value) = value {
        match to.output() + value.len() <= bytes {
            true => answer.extend(value),
            false => result = status::BUFFER_OVERFLOW,
        }
    }
    let words = [size as u32, result].map(u32::to_le_bytes).concat();
    answer[to.output() - words.len()..][..words.len()].copy_from_slice(&words);
    answer.truncate(bytes);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM_CLIENT: (Wchar, Wchar) = (Wchar::Client, Wchar::Kernel);

    /// A query for the value of this name, with room for so many bytes of it.
    fn query(form: Wchar, name: &str, value_type: u32, room: usize) -> Vec<u8> {
        let mut data = vec![0, 0, 0, 0, 1, 0, 0, 0];
        data.extend(form.encode(name));
        data.resize(form.value_type(), 0);
        data.extend([value_type, 7, 0, 0].map(u32::to_le_bytes).concat());
        data.resize(form.output() + room, 0);
        data
    }

    /// The same with its answer.
    fn answered(mut query: Vec<u8>, form: Wchar, status: u32, value: &[u8]) -> Vec<u8> {
        query[form.output() - 8..form.output()]
            .copy_from_slice(&[value.len() as u32, status].map(u32::to_le_bytes).concat());
        let room = query.len() - form.output();
        query[form.output()..].copy_from_slice(&[value, &vec![0; room]].concat()[..room]);
        query
    }

    #[test]
    fn forms_of_the_registry_query_differ_in_the_name_and_in_text() {
        assert_eq!((Wchar::Kernel.output(), Wchar::Client.output()), (544, 1064));
        for (value_type, on_client, in_kernel) in [
            (1, Wchar::Client.encode("gpü😀\0"), Wchar::Kernel.encode("gpü😀\0")),
            (4, vec![1, 2, 3, 4], vec![1, 2, 3, 4]),
        ] {
            let [client, kernel] =
                [Wchar::Client, Wchar::Kernel].map(|form| query(form, "Näme😀", value_type, 24));
            let (from, to) = FROM_CLIENT;
            assert_eq!(request(QUERY_REGISTRY, &client, from, to), kernel);
            let there = answered(kernel, to, status::SUCCESS, &in_kernel);
            let here = answer(QUERY_REGISTRY, &there, to, from, client.len());
            let expected = answered(client, from, status::SUCCESS, &on_client);
            assert_eq!(here, expected[..from.output() + on_client.len()]);
            // And back, as a driver has it whose clients convert.
            let back = answer(QUERY_REGISTRY, &here, from, to, there.len());
            assert_eq!(back, there[..to.output() + in_kernel.len()]);
        }
    }

    #[test]
    fn a_value_that_fits_one_form_only_overflows_in_the_other() {
        let (from, to) = FROM_CLIENT;
        let (room, text) = (12, Wchar::Kernel.encode("abc\0"));
        let client = query(from, "name", 1, room);
        let there = answered(query(to, "name", 1, room), to, status::SUCCESS, &text);
        let here = answer(QUERY_REGISTRY, &there, to, from, client.len());
        assert_eq!(here, answered(client.clone(), from, status::BUFFER_OVERFLOW, &[0; 16])[..from.output()]);
        // The kernel knows only that it does not fit there.
        let there = answered(query(to, "name", 1, 2), to, status::BUFFER_OVERFLOW, &text);
        let here = answer(QUERY_REGISTRY, &there, to, from, client.len());
        assert_eq!(here, answered(client, from, status::BUFFER_OVERFLOW, &[0; 16])[..from.output()]);
    }

    #[test]
    fn short_buffers_stay_short() {
        let (from, to) = FROM_CLIENT;
        assert_eq!(request(QUERY_REGISTRY, &[0; 1063], from, to).len(), 543);
        assert_eq!(request(QUERY_REGISTRY, &[0; 543], to, from).len(), 1063);
        assert_eq!(request(15, &[1, 2, 3], from, to), [1, 2, 3]);
        assert_eq!(answer(15, &[1, 2, 3], to, from, 2), [1, 2]);
    }

    #[test]
    fn a_description_is_text_padded_with_zeros() {
        let (from, to) = FROM_CLIENT;
        assert_eq!(request(DRIVER_DESCRIPTION, &[1; 16], from, to), [0; 8]);
        assert_eq!(
            answer(DRIVER_DESCRIPTION, b"g\0p\0\0\0x\0", to, from, 16),
            b"g\0\0\0p\0\0\0\0\0\0\0\0\0\0\0"
        );
        let wide = Wchar::Client.encode("g😀\0\0");
        assert_eq!(answer(DRIVER_DESCRIPTION, &wide, from, to, 10), b"g\0\x3D\xD8\0\xDE\0\0\0\0");
    }
}
