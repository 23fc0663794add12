//! Finds the distribution's kernel package, and unpacks its files without installing it.
//!
//! Debian has `linux-image-cloud-amd64`, a meta package that depends on the concrete `linux-image-6.1.0-56-cloud-amd64`.
//! Ubuntu's meta packages do the same, and keep modules in `linux-modules-*` and `linux-modules-extra-*`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cache::{files_below, make_folder};
use crate::command::{find_on_path, output_of, run};
use crate::error::{Error, FileContext, Result};
use crate::progress::Progress;
use crate::requirements::{Mend, running_as_root};

/// Small kernels for virtual machines first.
const META_PACKAGES: [&str; 5] = [
    "linux-image-cloud-amd64",
    "linux-image-kvm",
    "linux-image-virtual",
    "linux-image-amd64",
    "linux-image-generic",
];
const IMAGE_PREFIX: &str = "linux-image-";
/// A meta package may depend on another one; three hops are more than any known distribution needs.
const META_HOPS_MAX: usize = 3;

/// Finds the concrete kernel package in apt's lists.
pub(crate) fn resolve() -> Result<String> {
    if find_on_path("apt-cache").is_none() {
        let mend = "use Debian or Ubuntu, or install their apt tools".to_owned();
        return Err(Error::ProgramMissing { program: "apt-cache".to_owned(), mend });
    }
    META_PACKAGES.iter().find_map(|meta| concrete(meta)).ok_or_else(|| Error::KernelPackageUnknown {
        packages: META_PACKAGES.join(", "),
        mend: Mend::refresh_lists().to_string(),
    })
}

fn concrete(meta: &str) -> Option<String> {
    let mut package = meta.to_owned();
    for _ in 0..META_HOPS_MAX {
        let shown =
            output_of(Command::new("apt-cache").args(["show", "--no-all-versions", &package])).ok()?;
        if release_of(&package).is_some() {
            return Some(package);
        }
        package = image_dependency(&shown)?;
    }
    None
}

/// The kernel package among the dependencies in the output of `apt-cache show`.
fn image_dependency(shown: &str) -> Option<String> {
    let dependencies = shown.lines().find_map(|line| line.strip_prefix("Depends: "))?;
    dependencies
        .split([',', '|'])
        .filter_map(|dependency| dependency.split_whitespace().next())
        .find(|name| name.starts_with(IMAGE_PREFIX))
        .map(str::to_owned)
}

/// The kernel release in a concrete package name: `6.1.0-56-cloud-amd64`.
pub(crate) fn release_of(package: &str) -> Option<&str> {
    let release = package.strip_prefix(IMAGE_PREFIX)?;
    let release = release.strip_prefix("unsigned-").unwrap_or(release);
    release.starts_with(|first: char| first.is_ascii_digit()).then_some(release)
}

/// Downloads `package` and, where the distribution splits them off, its module packages, and unpacks them into
/// `folder/root`. Nothing is installed.
pub(crate) fn unpack(package: &str, folder: &Path, progress: &dyn Progress) -> Result<PathBuf> {
    let root = folder.join("root");
    make_folder(&root)?;
    unpack_one(package, folder, &root, progress)?;
    for split in release_of(package)
        .iter()
        .flat_map(|release| [format!("linux-modules-{release}"), format!("linux-modules-extra-{release}")])
    {
        let known = output_of(Command::new("apt-cache").args(["show", "--no-all-versions", &split]));
        if known.is_ok() && !has_vsock(&root)? {
            unpack_one(&split, folder, &root, progress)?;
        }
    }
    Ok(root)
}

fn has_vsock(root: &Path) -> Result<bool> {
    let modules = files_below(root)?;
    Ok(modules.iter().any(|file| file.to_string_lossy().contains("/vmw_vsock_virtio_transport.ko")))
}

fn unpack_one(package: &str, folder: &Path, root: &Path, progress: &dyn Progress) -> Result<()> {
    let downloads = folder.join(package);
    make_folder(&downloads)?;
    progress.step(&format!("download {package}"));
    if let Err(error) = download(package, &downloads, progress) {
        // Lists that are days old may name a version that the mirror has removed.
        if !running_as_root() {
            let reason = format!("{error}\nIf apt's lists are old: {}", Mend::refresh_lists());
            return Err(Error::KernelPackageUnusable { package: package.to_owned(), reason });
        }
        progress.step("refresh apt's lists, because the download failed");
        run(Command::new("apt-get").args(["update", "-q"]), progress)?;
        progress.step(&format!("download {package} again"));
        download(package, &downloads, progress)?;
    }
    progress.step(&format!("unpack {package}"));
    let archive = fs::read_dir(&downloads)
        .at("list", &downloads)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"));
    let Some(archive) = archive else {
        let reason = "apt-get download left no .deb file".to_owned();
        return Err(Error::KernelPackageUnusable { package: package.to_owned(), reason });
    };
    run(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(root), progress)?;
    fs::remove_file(&archive).at("remove", &archive)
}

fn download(package: &str, folder: &Path, progress: &dyn Progress) -> Result<()> {
    let mut command = Command::new("apt-get");
    // Without this, root's download prints a warning about a sandbox user who cannot reach the folder.
    command.args(["download", "-q", "-o", "APT::Sandbox::User=root", package]).current_dir(folder);
    run(&mut command, progress)
}

#[cfg(test)]
#[path = "package_tests.rs"]
mod tests;
