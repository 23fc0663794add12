//! A session that could not be started: calls that need one say so, and do not try again for each handle.

mod host;

use std::path::Path;

use d3dkmt::NtStatus;
use host::{ADAPTER, Listener, point_environment_to};

unsafe extern "C" {
    fn D3DKMTCloseAdapter(argument: *const u32) -> i32;
    fn gpupv_has_session() -> i32;
}

fn close_adapter() -> NtStatus {
    // SAFETY: one handle.
    NtStatus(unsafe { D3DKMTCloseAdapter(&ADAPTER.0) } as u32)
}

#[test]
fn a_call_with_a_handle_does_not_try_again_to_start_a_session() {
    point_environment_to(Path::new("/nowhere/broker.sock"));
    assert_eq!(close_adapter(), NtStatus::UNSUCCESSFUL);
    let listener = Listener::new();
    point_environment_to(&listener.path);
    assert_eq!(close_adapter(), NtStatus::UNSUCCESSFUL);
    assert!(!listener.has_connection());
    // SAFETY: no precondition.
    assert_eq!(unsafe { gpupv_has_session() }, 0);
}
