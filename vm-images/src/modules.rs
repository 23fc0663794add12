//! Which kernel modules the guest needs and in which order they load.
//!
//! `modules.dep` is made by depmod when a kernel is *installed*, so an unpacked package has none. Each module lists its
//! dependencies in its own `.modinfo` section, which depmod reads too. A module compiled into the kernel is listed in
//! `modules.builtin` and needs no file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use elf::ElfBytes;
use elf::endian::AnyEndian;

use crate::cache::files_below;
use crate::decompress::decompressed;
use crate::error::{Error, FileContext, Result};

/// Modules that every guest needs: for PCI virtio devices, and for vsock over one.
const WANTED: [&str; 2] = ["virtio_pci", "vmw_vsock_virtio_transport"];

/// A module and its decompressed bytes.
pub(crate) struct Module {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

/// The wanted modules with all they depend on, each after its dependencies.
pub(crate) fn load_order(modules_folder: &Path) -> Result<Vec<Module>> {
    let files = files_below(modules_folder)?
        .into_iter()
        .filter_map(|file| Some((module_name(&file)?, file)))
        .collect::<BTreeMap<_, _>>();
    let builtin = fs::read_to_string(modules_folder.join("modules.builtin")).unwrap_or_default();
    let builtin = builtin.lines().filter_map(|line| module_name(Path::new(line))).collect::<BTreeSet<_>>();
    let mut order = Vec::new();
    for name in WANTED {
        visit(name, &files, &builtin, &mut order)?;
    }
    Ok(order)
}

fn visit(
    name: &str,
    files: &BTreeMap<String, PathBuf>,
    builtin: &BTreeSet<String>,
    order: &mut Vec<Module>,
) -> Result<()> {
    if builtin.contains(name) || order.iter().any(|module| module.name == name) {
        return Ok(());
    }
    let Some(file) = files.get(name) else {
        let reason = format!("it has no module {name}, either as a file or built in");
        return Err(Error::KernelPackageUnusable { package: "unpacked kernel".to_owned(), reason });
    };
    let bytes = decompressed(fs::read(file).at("read", file)?).at("decompress", file)?;
    // The kernel's build refuses cyclic dependencies, so this recursion terminates.
    for dependency in dependencies(&bytes) {
        visit(&dependency, files, builtin, order)?;
    }
    order.push(Module { name: name.to_owned(), bytes });
    Ok(())
}

/// `kernel/net/vmw_vsock/vsock.ko.xz` is the module `vsock`; dashes and underscores are the same to the kernel.
fn module_name(file: &Path) -> Option<String> {
    let (name, extension) = file.file_name()?.to_str()?.split_once('.')?;
    matches!(extension, "ko" | "ko.xz" | "ko.zst").then(|| name.replace('-', "_"))
}

/// `.modinfo` is a list of zero-terminated `key=value` strings; `depends` is a comma-separated list.
fn dependencies(module: &[u8]) -> Vec<String> {
    let section = || {
        let file = ElfBytes::<AnyEndian>::minimal_parse(module).ok()?;
        let header = file.section_header_by_name(".modinfo").ok()??;
        Some(file.section_data(&header).ok()?.0)
    };
    section()
        .unwrap_or_default()
        .split(|&byte| byte == 0)
        .filter_map(|entry| std::str::from_utf8(entry).ok()?.strip_prefix("depends="))
        .flat_map(|list| list.split(','))
        .filter(|name| !name.is_empty())
        .map(|name| name.replace('-', "_"))
        .collect()
}

#[cfg(test)]
#[path = "modules_tests.rs"]
mod tests;
