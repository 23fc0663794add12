//! Whether real guests can be tested here.

use gpupv::output::Steps;
use gpupv::virtual_machine::image;

/// Installs the requirements of guests. If that fails, CI fails; elsewhere the reason is printed.
pub fn guests_can_run() -> bool {
    let Err(why) = image::set_up(&Steps::new()) else { return true };
    let in_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
    assert!(!in_ci, "guests must run in CI: {why:#}");
    eprintln!("NOT TESTED in real guests: {why:#}");
    false
}
