use super::*;

#[test]
fn no_struct_has_holes() {
    for row in DDIS.iter().chain(CALLBACKS) {
        let (bytes, of_fields) = row.bytes;
        assert_eq!(bytes, of_fields, "{}: its fields do not fill it", row.arguments);
    }
    assert_eq!(size_of::<DXGK_ALLOCATIONINFO>(), 40);
    assert_eq!(size_of::<DXGK_NATIVEFENCEVALUE>(), 24);
}

#[test]
fn a_row_has_the_number_of_its_place_in_the_table() {
    let last = Ddi::SimEventSignaled(SIM_EVENTSIGNALED::default());
    assert_eq!((last.row(), last.name()), (DDIS.len() - 1, DDIS[DDIS.len() - 1].name));
    assert_eq!(Ddi::DxgkDdiStartDevice(DXGKARG_STARTDEVICE::default()).row(), 0);
    // As in the first header.
    assert_eq!(Ddi::SimRestoreState(SIM_RESTORESTATE::default()).row(), 43);
    let words = 8 + 8 * DDIS.len();
    assert_eq!(size_of::<DRIVER_INITIALIZATION_DATA>(), words);
    assert_eq!(size_of::<DXGKRNL_INTERFACE>(), 16 + 8 * CALLBACKS.len());
}
