//! Loads the kernel modules that the image brings: one absolute path a line, in load order.

use std::ffi::CStr;
use std::fs::File;
use std::path::Path;

use rustix::io::Errno;
use rustix::system::finit_module;

use crate::console::say;

/// The file in which the image lists them (`vm_images::MODULE_LIST_PATH`).
const LIST_PATH: &str = "/etc/gpupv/modules";
const NO_PARAMETERS: &CStr = c"";
/// `MODULE_INIT_COMPRESSED_FILE`.
const COMPRESSED: i32 = 4;

/// Loads every module of the list; failures are logged. An image without a list has all modules built in.
pub(super) fn load_all() {
    let list = match std::fs::read_to_string(LIST_PATH) {
        Ok(list) => list,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
        Err(error) => return say(&format!("cannot read {LIST_PATH}: {error}")),
    };
    for path in paths(&list) {
        if let Err(error) = load(path) {
            say(&format!("kernel module {} is not loaded: {error}", path.display()));
        }
    }
}

fn paths(list: &str) -> impl Iterator<Item = &Path> {
    list.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).map(Path::new)
}

fn load(path: &Path) -> std::io::Result<()> {
    let flags = if path.extension().is_some_and(|extension| extension == "ko") { 0 } else { COMPRESSED };
    match finit_module(File::open(path)?, NO_PARAMETERS, flags) {
        // EEXIST: it is loaded or built in.
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn the_list_is_one_path_a_line_with_comments() {
        let list = "# order matters\n/a.ko\n\n  /b.ko  \n";
        assert_eq!(super::paths(list).collect::<Vec<_>>(), [Path::new("/a.ko"), Path::new("/b.ko")]);
    }
}
