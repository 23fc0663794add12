//! The tarball of the tree, and that of its symbols.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::build::Source;
use crate::command::run;
use crate::tree::files_of;

const FOLDERS_OF_PROGRAMS: [&str; 2] = ["bin", "lib/gpupv"];

/// Writes both; returns their paths.
pub fn write(source: &Source, tree: &Path, output: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let name = format!("gpupv-{}-{}-linux", source.version, source.architecture());
    let (stripped, symbols) = (output.join(&name), output.join(format!("gpupv-symbols-{}", source.version)));
    for folder in [&stripped, &symbols] {
        if folder.exists() {
            std::fs::remove_dir_all(folder)?;
        }
    }
    run(Command::new("cp").arg("-a").args([tree, &stripped]), "coreutils")?;
    for folder in FOLDERS_OF_PROGRAMS {
        let (folder, aside) = (stripped.join(folder), symbols.join(folder));
        std::fs::create_dir_all(&aside)?;
        for file in files_of(&folder, None)? {
            strip(&file, &aside)?;
        }
    }
    let mut written = vec![];
    for folder in [&stripped, &symbols] {
        let file = PathBuf::from(format!("{}.tar.xz", folder.display()));
        pack(source, folder, &file)?;
        std::fs::remove_dir_all(folder)?;
        written.push(file);
    }
    Ok(written)
}

/// Moves the symbols of a program into a file aside, where debuggers find them by the link that stays.
fn strip(program: &Path, aside: &Path) -> anyhow::Result<()> {
    let name = format!("{}.debug", program.file_name().unwrap_or_default().to_string_lossy());
    let symbols = aside.join(&name);
    let objcopy = |arguments: &[&str], files: &[&Path]| {
        run(Command::new("objcopy").args(arguments).args(files), "binutils")
    };
    objcopy(&["--only-keep-debug"], &[program, &symbols])?;
    objcopy(&["--strip-unneeded"], &[program])?;
    // A link is found by the file's name in the folder where objcopy runs.
    let mut link = Command::new("objcopy");
    run(link.current_dir(aside).arg(format!("--add-gnu-debuglink={name}")).arg(program), "binutils")
}

/// Packs a folder: the same files give the same bytes.
fn pack(source: &Source, folder: &Path, file: &Path) -> anyhow::Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--create", "--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=gnu"]);
    // Folders have the permissions that the user's umask leaves.
    tar.arg("--mode=u=rwX,go=rX")
        .arg(format!("--mtime=@{}", source.epoch))
        .arg("--use-compress-program=xz -6 --threads=1");
    tar.arg("--file").arg(file).arg("--directory").arg(folder.parent().unwrap_or(Path::new("/")));
    run(tar.arg(folder.file_name().unwrap_or_default()), "xz-utils")
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::tree::put;

    /// A tree in a folder, whose folders and files have these permissions, made in this order.
    fn tree(folder: &Path, mode: u32, is_reversed: bool) -> PathBuf {
        let tree = folder.join("tree");
        let program = Path::new("/bin/sh").canonicalize().unwrap();
        let mut files =
            vec!["bin/gpupv", "lib/gpupv/guestd", "share/doc/gpupv/README.md", "share/a", "share/b"];
        if is_reversed {
            files.reverse();
        }
        for file in files {
            let (from, mode) = match file.split_once('/') {
                Some(("share", _)) => (Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"), mode),
                _ => (program.clone(), mode | 0o100),
            };
            put(&from, &tree.join(file), mode).unwrap();
        }
        for folder in ["share/doc/gpupv", "share/doc", "share", ""] {
            fs::set_permissions(tree.join(folder), Permissions::from_mode(mode | 0o300)).unwrap();
        }
        tree
    }

    #[test]
    fn two_packings_are_the_same_bytes() {
        let source = Source { epoch: 1_700_000_000, ..Source::find().unwrap() };
        let packed = [(0o644, false), (0o600, true)].map(|(mode, is_reversed)| {
            let folder = tempfile::tempdir().unwrap();
            let tree = tree(folder.path(), mode, is_reversed);
            let files = write(&source, &tree, folder.path()).unwrap();
            files.iter().map(|file| fs::read(file).unwrap()).collect::<Vec<_>>()
        });
        assert!(packed[0] == packed[1], "the tarballs differ");
    }
}
