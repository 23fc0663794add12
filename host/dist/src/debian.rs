//! The Debian packages, by debhelper.
//!
//! `debian/` beside this crate has their descriptions. Here the tree becomes a folder beside it, from which they take
//! their files, and the changelog gets its one entry.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::build::Source;
use crate::command::{output, run};
use crate::tree::{files_of, pkg_config, put, write};

/// Builds the packages; returns their paths.
pub fn build(source: &Source, tree: &Path, to: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let folder = to.join("debian-build");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let debian = folder.join("debian");
    for file in files_of(&source.tree.join("host/dist/debian"), None)? {
        let name = file.file_name().context("a file has a name")?;
        put(&file, &debian.join(name), if name == "rules" { 0o755 } else { 0o644 })?;
    }
    // With the list of what is linked.
    put(&tree.join("share/doc/gpupv/copyright"), &debian.join("copyright"), 0o644)?;
    for unit in files_of(&tree.join("lib/systemd/system"), Some("service"))? {
        let name = unit.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let package = if name == "gpupv-guestd.service" { "gpupv-guest.".to_owned() } else { String::new() };
        put(&unit, &debian.join(package + &name), 0o644)?;
    }
    let day =
        output(Command::new("date").args(["-u", "-R", "-d"]).arg(format!("@{}", source.epoch)), "coreutils")?;
    let entry = format!(
        "gpupv ({}) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- gpupv <gpupv@localhost>  {day}\n",
        source.version
    );
    write(&debian.join("changelog"), entry)?;
    stage(source, tree, &folder.join("usr"))?;
    let mut dpkg = Command::new("dpkg-buildpackage");
    dpkg.current_dir(&folder).args(["--build=binary", "--no-sign"]);
    dpkg.env("SOURCE_DATE_EPOCH", source.epoch.to_string());
    run(&mut dpkg, "dpkg-dev debhelper")?;
    fs::remove_dir_all(&folder)?;
    files_of(to, Some("deb"))
}

/// Lays the files out as Debian does. In a guest, programs find the library in the loader's path.
fn stage(source: &Source, tree: &Path, usr: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(usr)?;
    run(Command::new("cp").arg("-a").arg(format!("{}/.", tree.display())).arg(usr), "coreutils")?;
    let on_host = pkg_config(source.version, "../..", "lib/gpupv", "lib/gpupv/include/gpupv");
    write(&usr.join("share/pkgconfig/gpupv.pc"), on_host)?;
    let triplet = format!("{}-linux-gnu", source.architecture());
    let guest = usr.join("guest/usr");
    let library = guest.join("lib").join(&triplet);
    let versioned = format!("libdxcore.so.{}", source.version);
    put(&tree.join("lib/gpupv/libdxcore.so"), &library.join(&versioned), 0o644)?;
    std::os::unix::fs::symlink(&versioned, library.join("libdxcore.so"))?;
    put(&tree.join("lib/gpupv/guestd"), &guest.join("sbin/guestd"), 0o755)?;
    run(Command::new("cp").arg("-a").arg(tree.join("include")).arg(&guest), "coreutils")?;
    let in_guest = pkg_config(source.version, "../../..", &format!("lib/{triplet}"), "include/gpupv");
    write(&library.join("pkgconfig/gpupv.pc"), in_guest)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::tree::LIBRARY_FOLDER;

    #[test]
    #[ignore = "it needs debhelper: `just reproducible`"]
    fn two_packagings_are_the_same_bytes() {
        let source = Source { epoch: 1_700_000_000, ..Source::find().unwrap() };
        let programs = tempfile::tempdir().unwrap();
        for name in LIBRARY_FOLDER.iter().chain(&["gpupv"]) {
            put(Path::new("/bin/sh"), &programs.path().join(name), 0o755).unwrap();
        }
        let packed = [0o755, 0o700].map(|mode| {
            let folder = tempfile::tempdir().unwrap();
            let tree = crate::tree::stage(&source, programs.path(), &folder.path().join("tree")).unwrap();
            crate::pages::write(&tree).unwrap();
            crate::licences::write(&source, &tree).unwrap();
            for folder in ["share/man/man1", "share/man", "share", "bin", ""] {
                fs::set_permissions(tree.join(folder), fs::Permissions::from_mode(mode)).unwrap();
            }
            let files = build(&source, &tree, folder.path()).unwrap();
            files.iter().map(|file| fs::read(file).unwrap()).collect::<Vec<_>>()
        });
        assert!(packed[0].len() >= 2, "both packages are built");
        assert!(packed[0] == packed[1], "the packages differ");
    }
}
