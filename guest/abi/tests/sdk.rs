//! Numbers and layouts that the host reads, against the crate `windows-sys`, which is generated from the Windows SDK.

use std::mem::offset_of;

use windows_sys::Wdk::Graphics::Direct3D as windows;

use abi::types as ours;

/// Its WCHARs have 4 bytes here: the members after them have the same distances as in the SDK.
#[test]
fn a_display_name_is_longer_and_what_follows_is_the_same() {
    type Display = windows::D3DKMT_OPENADAPTERFROMGDIDISPLAYNAME;
    type Ours = ours::D3DKMT_OPENADAPTERFROMGDIDISPLAYNAME;
    let (ours_end, theirs_end) = (size_of::<[u32; 32]>(), size_of::<[u16; 32]>());
    for (ours, theirs) in [
        (offset_of!(Ours, hAdapter), offset_of!(Display, hAdapter)),
        (offset_of!(Ours, AdapterLuid), offset_of!(Display, AdapterLuid)),
        (offset_of!(Ours, VidPnSourceId), offset_of!(Display, VidPnSourceId)),
        (size_of::<Ours>(), size_of::<Display>()),
    ] {
        assert_eq!(ours - ours_end, theirs - theirs_end);
    }
}

/// Escapes are sent as the caller wrote them: both sides read the structure of the SDK.
#[test]
fn escapes_have_the_layout_that_the_host_reads() {
    type Usage = ours::D3DDDI_DRIVERESCAPE_CPUEVENTUSAGE;
    assert_eq!((size_of::<Usage>(), offset_of!(Usage, hSyncObject)), (d3dkmt::CpuEventUsage::SIZE, 4));
    assert_eq!((offset_of!(Usage, hKmdCpuEvent), offset_of!(Usage, Usage)), (8, 16));
    assert_eq!(size_of::<windows::D3DDDI_ESCAPEFLAGS>(), size_of::<d3dkmt::EscapeFlags>());
}

#[test]
fn queries_of_adapters_have_the_numbers_of_windows() {
    use d3dkmt::query::kind;
    for (ours, theirs) in [
        (kind::UM_DRIVER_PRIVATE, windows::KMTQAITYPE_UMDRIVERPRIVATE),
        (kind::DRIVER_VERSION, windows::KMTQAITYPE_DRIVERVERSION),
        (kind::ADAPTER_TYPE, windows::KMTQAITYPE_ADAPTERTYPE),
        (kind::PHYSICAL_ADAPTER_COUNT, windows::KMTQAITYPE_PHYSICALADAPTERCOUNT),
        (kind::PHYSICAL_ADAPTER_DEVICE_IDS, windows::KMTQAITYPE_PHYSICALADAPTERDEVICEIDS),
        (kind::QUERY_REGISTRY, windows::KMTQAITYPE_QUERYREGISTRY),
        (kind::DRIVER_VERSION_RENDER, windows::KMTQAITYPE_DRIVERVERSION_RENDER),
        (kind::ADAPTER_TYPE_RENDER, windows::KMTQAITYPE_ADAPTERTYPE_RENDER),
        (kind::DRIVER_DESCRIPTION, windows::KMTQAITYPE_DRIVER_DESCRIPTION),
        (kind::WDDM_2_7_CAPS, windows::KMTQAITYPE_WDDM_2_7_CAPS),
    ] {
        assert_eq!(ours as i32, theirs);
    }
}

#[test]
fn a_query_of_the_registry_has_the_layout_and_the_numbers_of_windows() {
    use d3dkmt::query::registry;
    type Info = windows::D3DDDI_QUERYREGISTRY_INFO;
    assert_eq!((offset_of!(Info, QueryType), offset_of!(Info, QueryFlags)), (0, 4));
    for (ours, theirs) in [
        (registry::NAME.start, offset_of!(Info, ValueName)),
        (registry::NAME.end, offset_of!(Info, ValueType)),
        (registry::VALUE_TYPE, offset_of!(Info, ValueType)),
        (registry::PHYSICAL_ADAPTER, offset_of!(Info, PhysicalAdapterIndex)),
        (registry::OUTPUT_SIZE, offset_of!(Info, OutputValueSize)),
        (registry::STATUS, offset_of!(Info, Status)),
        (registry::OUTPUT, offset_of!(Info, Anonymous)),
    ] {
        assert_eq!(ours, theirs);
    }
    for (ours, theirs) in [
        (registry::kind::SERVICE_KEY, windows::D3DDDI_QUERYREGISTRY_SERVICEKEY),
        (registry::kind::ADAPTER_KEY, windows::D3DDDI_QUERYREGISTRY_ADAPTERKEY),
        (registry::kind::DRIVER_STORE_PATH, windows::D3DDDI_QUERYREGISTRY_DRIVERSTOREPATH),
        (registry::kind::DRIVER_IMAGE_PATH, windows::D3DDDI_QUERYREGISTRY_DRIVERIMAGEPATH),
        (registry::status::SUCCESS, windows::D3DDDI_QUERYREGISTRY_STATUS_SUCCESS),
        (registry::status::BUFFER_OVERFLOW, windows::D3DDDI_QUERYREGISTRY_STATUS_BUFFER_OVERFLOW),
        (registry::status::FAIL, windows::D3DDDI_QUERYREGISTRY_STATUS_FAIL),
    ] {
        assert_eq!(ours as i32, theirs);
    }
}
