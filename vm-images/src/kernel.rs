//! The guest's kernel: the distribution's own, downloaded once, unpacked into the cache, never installed.
//!
//! ```text
//!   <cache>/kernel/<key>/vmlinux                                      or vmlinuz, if it cannot be unpacked
//!                       /modules/00-virtio.ko 01-virtio_ring.ko ...   in load order
//!                       /package                                      the package's name
//!   <cache>/kernel/current                                            the key in use
//! ```
//!
//! The key is the hash of the entry's manifest, thus of its content. While `current` names a valid entry apt is not
//! used, so a second call needs neither time nor network. To get a newer kernel, remove the cache.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cache::{Cache, Lock, make_folder, write_whole};
use crate::error::{Error, FileContext, Result};
use crate::modules::load_order;
use crate::package::{release_of, resolve, unpack};
use crate::progress::Progress;
use crate::vmlinux::extract;

const KIND: &str = "kernel";
const CURRENT: &str = "current";
/// The kernel in the form that QEMU starts fastest, and in the package's form.
const UNCOMPRESSED_IMAGE: &str = "vmlinux";
const COMPRESSED_IMAGE: &str = "vmlinuz";
const MODULES: &str = "modules";
const PACKAGE: &str = "package";

/// A guest kernel in the cache, with the modules that a guest loads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The package it comes from, `linux-image-6.1.0-56-cloud-amd64`.
    pub package: String,
    /// Hash of its content.
    pub key: String,
    /// The kernel image QEMU loads.
    pub image: PathBuf,
    /// Uncompressed modules, in the order in which they must load.
    pub modules: Vec<PathBuf>,
}

impl Kernel {
    /// The cached kernel, or a new one from the distribution's package. Safe to call from several processes at once.
    pub fn provide(cache: &Cache, progress: &dyn Progress) -> Result<Self> {
        if let Some(kernel) = Self::cached(cache) {
            return Ok(kernel);
        }
        let lock = cache.lock(KIND, progress)?;
        // Another process may have made it while this one waited.
        let kernel = Self::cached(cache).map_or_else(|| Self::make(cache, &lock, progress), Ok);
        progress.finish();
        kernel
    }

    /// The cached kernel, if there is one and its files are unchanged.
    pub fn cached(cache: &Cache) -> Option<Self> {
        let key = fs::read_to_string(cache.folder(KIND).join(CURRENT)).ok()?;
        let key = key.trim();
        // The key becomes a folder name; a damaged pointer must not lead elsewhere.
        if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        Self::from_entry(key, &cache.entry(KIND, key)?).ok()
    }

    fn from_entry(key: &str, folder: &Path) -> Result<Self> {
        let modules_folder = folder.join(MODULES);
        let mut modules = crate::cache::files_below(&modules_folder)?;
        modules.sort();
        let package_file = folder.join(PACKAGE);
        let package = fs::read_to_string(&package_file).at("read", &package_file)?;
        let image = [UNCOMPRESSED_IMAGE, COMPRESSED_IMAGE].map(|name| folder.join(name));
        let image = image.into_iter().find(|image| image.is_file()).unwrap_or_default();
        Ok(Self { package: package.trim().to_owned(), key: key.to_owned(), image, modules })
    }

    fn make(cache: &Cache, lock: &Lock, progress: &dyn Progress) -> Result<Self> {
        progress.step("find the guest kernel package");
        let package = resolve()?;
        let building = cache.building(KIND, lock)?;
        let root = unpack(&package, &building, progress)?;
        let content = building.join("content");
        collect(&package, &root, &content, progress)?;
        let (key, folder) = cache.publish(KIND, None, &content, lock)?;
        write_whole(&cache.folder(KIND).join(CURRENT), key.as_bytes())?;
        Self::from_entry(&key, &folder)
    }
}

/// Copies the files that a guest needs from the unpacked package.
fn collect(package: &str, root: &Path, content: &Path, progress: &dyn Progress) -> Result<()> {
    let unusable = |reason: String| Error::KernelPackageUnusable { package: package.to_owned(), reason };
    let release = release_of(package).unwrap_or_default();
    make_folder(&content.join(MODULES))?;
    let image = root.join("boot").join(format!("vmlinuz-{release}"));
    if !image.is_file() {
        return Err(unusable(format!("it holds no boot/vmlinuz-{release}")));
    }
    progress.step("unpack the kernel image");
    let bytes = fs::read(&image).at("read", &image)?;
    let (file, bytes) = match extract(&bytes) {
        Some(kernel) => (content.join(UNCOMPRESSED_IMAGE), kernel),
        None => (content.join(COMPRESSED_IMAGE), bytes),
    };
    fs::write(&file, bytes).at("write", &file)?;
    // Newer distributions have merged /lib into /usr/lib inside packages as well.
    let modules_folder = ["lib/modules", "usr/lib/modules"]
        .iter()
        .map(|folder| root.join(folder).join(release))
        .find(|folder| folder.is_dir())
        .ok_or_else(|| unusable(format!("it holds no lib/modules/{release}")))?;
    let modules = load_order(&modules_folder).map_err(|error| match error {
        Error::KernelPackageUnusable { reason, .. } => unusable(reason),
        other => other,
    })?;
    for (position, module) in modules.iter().enumerate() {
        let file = content.join(MODULES).join(format!("{position:02}-{}.ko", module.name));
        fs::write(&file, &module.bytes).at("write", &file)?;
    }
    let file = content.join(PACKAGE);
    fs::write(&file, package).at("write", &file)
}
