//! The files that guests boot from: kernel, initramfs with guestd and libdxcore.so; and the accelerator.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use vm_images::{Accelerator, Cache, GuestFile, Initramfs, Kernel, Progress, State};

use crate::artifacts::Artifacts;
use crate::output::Steps;

/// Folder of libdxcore.so in a guest; on the library path of every program run there.
pub const GUEST_LIBRARY_FOLDER: &str = "/usr/lib/gpupv";

/// Where the preload object of `/dev/dxg` is copied to.
pub const GUEST_DEV_DXG: &str = "/usr/lib/gpupv/libgpupv_dev_dxg.so";

/// The files and the accelerator that a guest is started with.
#[derive(Clone)]
pub struct Image {
    pub kernel: Kernel,
    pub initramfs: Initramfs,
    pub accelerator: Accelerator,
    /// Reason for the choice of the accelerator.
    pub accelerator_reason: String,
    /// Guest paths that the image contains, so that they are not copied again.
    pub present: BTreeSet<String>,
}

impl Progress for Steps {
    fn step(&self, what: &str) {
        Steps::step(self, what);
    }

    fn advance(&self, done: u64, total: u64) {
        if let Some(percent) = (done * 100).checked_div(total) {
            self.detail(&format!("{percent}%"));
        }
    }

    fn line(&self, text: &str) {
        self.detail(text);
    }
}

/// Fails with everything that is missing, each with the command that installs it.
fn check(cache: &Cache) -> anyhow::Result<()> {
    let missing: Vec<String> = vm_images::requirements(cache)
        .into_iter()
        .filter(|requirement| !requirement.optional)
        .filter_map(|requirement| match requirement.state {
            State::Ok(_) => None,
            State::Missing { what, mend, .. } => {
                Some(format!("\n  {}: {what}\n    fix: {mend}", requirement.name))
            }
        })
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    bail!(
        "this machine cannot run guests yet:{}\n  or install everything: gpupv doctor --fix",
        missing.concat()
    )
}

/// Installs what is missing to run guests.
pub fn set_up(steps: &Steps) -> anyhow::Result<()> {
    // The package manager refuses two installations at once.
    static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let cache = Cache::from_environment()?;
    for requirement in vm_images::requirements(&cache) {
        if !requirement.optional && !requirement.is_ok() {
            vm_images::mend(&requirement, steps)
                .with_context(|| format!("{} is missing and could not be installed", requirement.name))?;
        }
    }
    check(&cache)
}

impl Image {
    /// Finds or builds everything; the first use on a machine downloads a kernel package.
    pub fn provide(steps: &Steps, artifacts: &Artifacts) -> anyhow::Result<Image> {
        let cache = Cache::from_environment()?;
        check(&cache)?;
        let kernel = Kernel::provide(&cache, steps)?;
        let mut library = GuestFile::new(&artifacts.library, format!("{GUEST_LIBRARY_FOLDER}/libdxcore.so"));
        library.mode = Some(0o755);
        let mut files = vec![library];
        // The library's dependencies; guestd has most of them.
        for needed in vm_images::libraries_of(&artifacts.library, &[])? {
            files.push(GuestFile { mode: Some(0o755), ..GuestFile::new(needed.host, needed.guest) });
        }
        let mut present: BTreeSet<String> = files.iter().map(|file| file.guest.clone()).collect();
        present
            .extend(vm_images::libraries_of(&artifacts.guestd, &[])?.into_iter().map(|needed| needed.guest));
        let initramfs = Initramfs::build(&kernel, &artifacts.guestd, &files, &cache, steps)?;
        let choice = vm_images::accelerator(&kernel, &initramfs, &cache, steps)?;
        Ok(Image {
            kernel,
            initramfs,
            accelerator: choice.accelerator,
            accelerator_reason: choice.reason,
            present,
        })
    }
}

/// Files that a user copies into a guest: `SRC` or `SRC:DST`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedPath {
    pub host: PathBuf,
    pub guest: String,
}

impl std::str::FromStr for CopiedPath {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<CopiedPath> {
        let (host, guest) = match text.split_once(':') {
            Some((host, guest)) => (PathBuf::from(host), guest.to_owned()),
            None => {
                let host = PathBuf::from(text);
                let name = host.file_name().with_context(|| format!("{text} has no file name"))?;
                let name = name.to_str().with_context(|| format!("{text} is not UTF-8"))?.to_owned();
                (host, format!("/{name}"))
            }
        };
        anyhow::ensure!(guest.starts_with('/'), "the path in the guest must be absolute: {guest}");
        anyhow::ensure!(
            host.exists(),
            "{} does not exist on this machine: name a file or folder of it, SRC or SRC:DST",
            host.display()
        );
        Ok(CopiedPath { host, guest })
    }
}

impl CopiedPath {
    /// Returns the files to copy into a guest: the file itself or all files below it, with the shared libraries that
    /// programs need.
    pub fn files(
        &self,
        image: &Image,
        library_path: &[PathBuf],
    ) -> anyhow::Result<Vec<(PathBuf, String, u32)>> {
        use std::os::unix::fs::PermissionsExt as _;
        let metadata = std::fs::metadata(&self.host).with_context(|| format!("{}", self.host.display()))?;
        if metadata.is_dir() {
            let mut files = Vec::new();
            for entry in std::fs::read_dir(&self.host)? {
                let entry = entry?;
                let name = entry
                    .file_name()
                    .into_string()
                    .map_err(|name| anyhow::anyhow!("{} is not UTF-8", name.display()))?;
                let below = CopiedPath { host: entry.path(), guest: format!("{}/{name}", self.guest) };
                files.extend(below.files(image, library_path)?);
            }
            return Ok(files);
        }
        let mode = metadata.permissions().mode() & 0o7777;
        let mut files = vec![(self.host.clone(), self.guest.clone(), mode)];
        if mode & 0o111 != 0 && is_elf(&self.host)? {
            for library in vm_images::libraries_of(&self.host, library_path)? {
                let ours = library.host.file_name().is_some_and(|name| name == "libdxcore.so");
                if !ours && !image.present.contains(&library.guest) {
                    files.push((library.host, library.guest, 0o755));
                }
            }
        }
        Ok(files)
    }
}

fn is_elf(path: &std::path::Path) -> anyhow::Result<bool> {
    use std::io::Read as _;
    let mut magic = [0; 4];
    let read = std::fs::File::open(path).and_then(|mut file| file.read(&mut magic));
    Ok(read.with_context(|| format!("cannot read {}", path.display()))? == 4 && magic == *b"\x7fELF")
}
