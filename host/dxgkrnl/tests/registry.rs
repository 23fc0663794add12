//! QUERYREGISTRY: how a user-mode driver reads the registry of the host.

use covers::covers;

use crate::common::World;
use d3dkmt::{Call, NtStatus, Reply};
use dxgkrnl::{AdapterConfig, Config, ProcessId, RegistryData, RegistryKey, RegistryValue};

const QUERY_REGISTRY: u32 = 48;
const G: ProcessId = ProcessId(21);
const SZ: u32 = 1;
const BINARY: u32 = 3;
const DWORD: u32 = 4;
const QWORD: u32 = 11;
const SUCCESS: u32 = 0;
const BUFFER_OVERFLOW: u32 = 1;
const FAIL: u32 = 2;
const TRANSLATE_PATH: u32 = 1;
const HOST_PATH: &str = r"C:\Windows\system32\DRIVERSTORE\FileRepository\a.inf\umd.dll";
const GUEST_PATH: &str = r"C:\Windows\System32\HostDriverStore\FileRepository\a.inf\umd.dll";

/// `D3DDDI_QUERYREGISTRY_INFO` with room for so many bytes of a value.
fn query(kind: u32, flags: u32, name: &str, value_type: u32, room: usize) -> Vec<u8> {
    let mut data = vec![0; 544 + room];
    data[..4].copy_from_slice(&kind.to_le_bytes());
    data[4..8].copy_from_slice(&flags.to_le_bytes());
    for (bytes, unit) in data[8..528].chunks_exact_mut(2).zip(name.encode_utf16()) {
        bytes.copy_from_slice(&unit.to_le_bytes());
    }
    data[528..532].copy_from_slice(&value_type.to_le_bytes());
    data
}

fn call(world: &mut World, data: Vec<u8>) -> (NtStatus, Reply) {
    let adapter = world.adapter();
    world.call(Call::QueryAdapterInfo { adapter, kind: QUERY_REGISTRY, data })
}

/// The status, the size and the bytes of the value.
fn query_registry(world: &mut World, data: Vec<u8>) -> (u32, usize, Vec<u8>) {
    let length = data.len();
    let (status, reply) = call(world, data);
    let (NtStatus::SUCCESS, Reply::AdapterInfo(data)) = (status, reply) else { panic!("{status}") };
    assert_eq!(data.len(), length);
    let word = |at: usize| u32::from_le_bytes(data[at..at + 4].try_into().unwrap());
    let (size, status) = (word(536) as usize, word(540));
    (status, size, if status == SUCCESS { data[544..544 + size].to_vec() } else { Vec::new() })
}

fn text(bytes: &[u8]) -> String {
    let units: Vec<u16> = bytes.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]])).collect();
    let (end, units) = units.split_last().unwrap();
    assert_eq!(*end, 0, "text ends with its NUL");
    String::from_utf16(units).unwrap()
}

fn world() -> World {
    let value = |key, name: &str, data| RegistryValue { key, name: name.into(), data };
    let registry = vec![
        value(RegistryKey::Service, "Level", RegistryData::Dword(7)),
        value(RegistryKey::Adapter, "Level", RegistryData::Qword(8 << 32)),
        value(RegistryKey::Adapter, "UmdPath", RegistryData::Text(HOST_PATH.into())),
        value(RegistryKey::Adapter, "Blob", RegistryData::Binary(vec![1, 2, 3])),
    ];
    let adapters = vec![AdapterConfig { registry, ..AdapterConfig::default() }];
    let mut world = World::with_config(Config { adapters, ..Config::default() });
    world.guest(1, G);
    world
}

#[test]
fn a_guest_reads_the_values_of_both_keys() {
    covers!("GPV-028");
    let mut world = world();
    let mut value = |kind, name, value_type| query_registry(&mut world, query(kind, 0, name, value_type, 64));
    assert_eq!(value(0, "level", DWORD), (SUCCESS, 4, vec![7, 0, 0, 0]));
    assert_eq!(value(1, "LEVEL", QWORD), (SUCCESS, 8, vec![0, 0, 0, 0, 8, 0, 0, 0]));
    assert_eq!(value(1, "Blob", BINARY), (SUCCESS, 3, vec![1, 2, 3]));
    // Missing, under the other key, of another type, or not valid text.
    for (kind, name, value_type) in [(0, "Lev", DWORD), (0, "Blob", BINARY), (0, "Level", QWORD), (1, "", SZ)]
    {
        assert_eq!(value(kind, name, value_type), (FAIL, 0, vec![]), "{kind} {name}");
    }
    let mut lone = query(0, 0, "", DWORD, 4);
    lone[8..10].copy_from_slice(&0xD800u16.to_le_bytes());
    assert_eq!(query_registry(&mut world, lone), (FAIL, 0, vec![]));
}

#[test]
fn a_value_too_large_for_the_buffer_returns_its_size() {
    covers!("GPV-028");
    let mut world = world();
    for (room, expected) in [(3, (SUCCESS, 3, vec![1, 2, 3])), (2, (BUFFER_OVERFLOW, 3, vec![]))] {
        assert_eq!(query_registry(&mut world, query(1, 0, "Blob", BINARY, room)), expected);
    }
    let (status, needed, _) = query_registry(&mut world, query(2, 0, "", 0, 0));
    assert_eq!(status, BUFFER_OVERFLOW);
    assert_eq!(query_registry(&mut world, query(2, 0, "", 0, needed)).0, SUCCESS);
}

#[test]
fn a_guest_gets_paths_of_the_hosts_drivers_as_it_can_open_them() {
    covers!("GPV-028");
    const FOLDER: &str = r"FileRepository\simulated.inf_amd64";
    let mut world = world();
    let mut path = |process, kind, flags| {
        world.process = process;
        let (status, _, bytes) = query_registry(&mut world, query(kind, flags, "UmdPath", SZ, 512));
        assert_eq!(status, SUCCESS);
        text(&bytes)
    };
    for flags in [0, TRANSLATE_PATH] {
        assert_eq!(path(G, 2, flags), format!(r"C:\Windows\System32\HostDriverStore\{FOLDER}"));
        let image = format!(r"C:\Windows\System32\HostDriverStore\{FOLDER}\simulated.sys");
        assert_eq!(path(G, 3, flags), image);
        // The host opens them where they are.
        assert_eq!(path(crate::common::P, 2, flags), format!(r"C:\Windows\System32\DriverStore\{FOLDER}"));
        assert_eq!(path(crate::common::P, 1, flags), HOST_PATH);
    }
    assert_eq!(path(G, 1, 0), HOST_PATH, "without TranslatePath the value is unchanged");
    assert_eq!(path(G, 1, TRANSLATE_PATH), GUEST_PATH);
}

#[test]
fn a_malformed_registry_query_is_refused() {
    let mut world = world();
    let mut physical = query(0, 0, "Level", DWORD, 8);
    physical[532] = 1;
    let refused = [query(4, 0, "", 0, 8), query(0, 4, "Level", DWORD, 8), physical, vec![0; 543], vec![]];
    for data in refused {
        assert_eq!(call(&mut world, data).0, NtStatus::INVALID_PARAMETER);
    }
}
