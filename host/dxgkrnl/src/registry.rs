//! `KMTQAITYPE_QUERYREGISTRY`: how a user-mode driver reads the registry of the host, from a guest as well (GPV-028).
//!
//! `D3DDDI_QUERYREGISTRY_INFO`, little-endian; the value follows it in the same buffer:
//!
//! ```text
//!     0 u32 QueryType             0 SERVICEKEY, 1 ADAPTERKEY, 2 DRIVERSTOREPATH, 3 DRIVERIMAGEPATH
//!     4 u32 QueryFlags            0x1 TranslatePath, 0x2 MutableValue
//!     8 u16 ValueName[260]        of the two keys; ends at a NUL
//!   528 u32 ValueType             REG_SZ 1, REG_BINARY 3, REG_DWORD 4, REG_QWORD 11; of the two keys
//!   532 u32 PhysicalAdapterIndex
//!   536 u32 OutputValueSize       out: bytes of the value; of BUFFER_OVERFLOW, how many it needs
//!   540 u32 Status                out: 0 SUCCESS, 1 BUFFER_OVERFLOW, 2 FAIL
//!   544     the value             text with its NUL
//! ```
//! A missing value is no error of the call: it succeeds, and Status is FAIL. A guest finds the host's driver store in a
//! folder of its own, so paths in the store are rewritten to that folder: the driver's own paths always, paths in a
//! value with TranslatePath.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use d3dkmt::query::registry::{
    NAME, OUTPUT, OUTPUT_SIZE, PHYSICAL_ADAPTER, STATUS, VALUE_TYPE, kind, status,
};

use crate::error::{Refusal, invalid};
use crate::{AdapterConfig, RegistryData, RegistryKey};

const TRANSLATE_PATH: u32 = 0x1;

const KNOWN_FLAGS: u32 = 0x3;

/// The folder of the host's drivers, and the one in which a guest finds them.
const HOST_STORE: &str = r"\System32\DriverStore\";

const GUEST_STORE: &str = r"\System32\HostDriverStore\";

impl RegistryData {
    /// REG_SZ, REG_BINARY, REG_DWORD, REG_QWORD.
    fn value_type(&self) -> u32 {
        match self {
            RegistryData::Text(_) => 1,
            RegistryData::Binary(_) => 3,
            RegistryData::Dword(_) => 4,
            RegistryData::Qword(_) => 11,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        match self {
            RegistryData::Dword(number) => number.to_le_bytes().into(),
            RegistryData::Qword(number) => number.to_le_bytes().into(),
            RegistryData::Text(text) => text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect(),
            RegistryData::Binary(bytes) => bytes.clone(),
        }
    }
}

/// The driver's folder in the host's driver store.
fn driver_store(adapter: &AdapterConfig) -> String {
    format!(r"C:\Windows\System32\DriverStore\FileRepository\{}.inf_amd64", adapter.kmd)
}

/// Rewrites a path in the host's driver store, in any letter case, to the guest's folder.
fn translated(path: &str) -> String {
    let found = path.char_indices().map(|(at, _)| at).find(|at| {
        path.get(*at..*at + HOST_STORE.len()).is_some_and(|part| part.eq_ignore_ascii_case(HOST_STORE))
    });
    match found {
        None => path.to_string(),
        Some(at) => format!("{}{GUEST_STORE}{}", &path[..at], &path[at + HOST_STORE.len()..]),
    }
}

/// Answers a query in its own buffer.
pub(crate) fn answer(
    adapter: &AdapterConfig,
    linked: u32,
    is_guest: bool,
    data: &mut [u8],
) -> Result<(), Refusal> {
    if data.len() < OUTPUT {
        return invalid(format!("QUERYREGISTRY needs {OUTPUT} bytes, the buffer has {}", data.len()));
    }
    let word = |at: usize| u32::from_le_bytes(data[at..at + 4].try_into().expect("four bytes"));
    let (query, flags, physical) = (word(0), word(4), word(PHYSICAL_ADAPTER));
    if flags & !KNOWN_FLAGS != 0 {
        return invalid(format!("QUERYREGISTRY flags {flags:#x} have reserved bits set"));
    }
    if physical >= linked {
        return invalid(format!("physical adapter {physical} does not exist, there are {linked}"));
    }
    let value = match query {
        kind::SERVICE_KEY => find_value(adapter, RegistryKey::Service, data),
        kind::ADAPTER_KEY => find_value(adapter, RegistryKey::Adapter, data),
        kind::DRIVER_STORE_PATH => Some(RegistryData::Text(driver_store(adapter))),
        kind::DRIVER_IMAGE_PATH => {
            Some(RegistryData::Text(format!(r"{}\{}.sys", driver_store(adapter), adapter.kmd)))
        }
        other => return invalid(format!("registry query type {other} is none of 0 to 3")),
    };
    let is_path = matches!(query, kind::DRIVER_STORE_PATH | kind::DRIVER_IMAGE_PATH);
    let rewrites = is_guest && (is_path || flags & TRANSLATE_PATH != 0);
    let value = value.map(|value| match value {
        RegistryData::Text(path) if rewrites => RegistryData::Text(translated(&path)),
        value => value,
    });
    let (size, status) = match value.map(|value| value.bytes()) {
        None => (0, status::FAIL),
        Some(bytes) => match data.get_mut(OUTPUT..OUTPUT + bytes.len()) {
            None => (bytes.len(), status::BUFFER_OVERFLOW),
            Some(output) => {
                output.copy_from_slice(&bytes);
                (bytes.len(), status::SUCCESS)
            }
        },
    };
    data[OUTPUT_SIZE..STATUS].copy_from_slice(&(size as u32).to_le_bytes());
    data[STATUS..OUTPUT].copy_from_slice(&status.to_le_bytes());
    Ok(())
}

/// The value of the name and the type that a query asks for.
fn find_value(adapter: &AdapterConfig, key: RegistryKey, data: &[u8]) -> Option<RegistryData> {
    let units = data[NAME].chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
    let units: Vec<u16> = units.take_while(|unit| *unit != 0).collect();
    let name = String::from_utf16(&units).ok()?;
    let value_type = u32::from_le_bytes(data[VALUE_TYPE..PHYSICAL_ADAPTER].try_into().ok()?);
    let mut values = adapter.registry.iter().filter(|value| value.key == key);
    let value = values.find(|value| value.name.eq_ignore_ascii_case(&name))?;
    (value.data.value_type() == value_type).then(|| value.data.clone())
}
