//! The daemon's configuration file: its text, and a kernel with what it says.

use dxgkrnl::{Effects, Input, Kernel, VmId};
use kmd::SimulatedMiniport;

// The command line's own reader; that crate would bring the whole command line.
#[allow(dead_code)]
#[path = "../../../host/gpupv/src/config.rs"]
mod reader;

/// One input: a file.
pub fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match reader::parse(text) {
        // A message is for people: it is never empty.
        Err(error) => assert!(!format!("{error:#}").is_empty()),
        Ok(config) => {
            let mut kernel = Kernel::new(config.clone(), SimulatedMiniport::default());
            let mut effects = Effects::default();
            for (number, vm) in (1..).zip(&config.vms) {
                let attached = Input::VmAttached { vm: VmId(number), name: vm.name.clone() };
                kernel.handle(0, attached, &mut effects);
            }
            kernel.handle(1_000_000_000, Input::Deadline, &mut effects);
            assert!(effects.answers.is_empty());
        }
    }
}
