//! The tree of what is installed, below the prefix.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::build::Source;

/// Programs that `gpupv` starts or gives to guests, in `lib/gpupv`.
pub const LIBRARY_FOLDER: [&str; 5] =
    ["libdxcore.so", "libgpupv_dev_dxg.so", "guestd", "scenario-client", "driver-host"];
/// Folders of headers.
const HEADERS: [&str; 2] = ["guest/umd/include", "host/driver_host/include"];

/// Files for clusters and containers, in `share/gpupv`.
const SHARED: [(&str, &str); 5] = [
    ("host/scenario/cluster", "cluster"),
    ("host/dist/Containerfile", ""),
    // The programs of README and of the first hour.
    ("tests/c/fence_tour.c", "examples"),
    ("tests/c/hang.c", "examples"),
    ("tests/c/check.h", "examples"),
];

/// Folders of pages and their pictures.
const PAGES: [&str; 7] =
    ["", "docs", "docs/zh", "docs/ja", "docs/decisions", "tests/scenarios", "tests/conformance/rules"];

/// Copies a file and gives it these permissions.
pub fn put(from: &Path, to: &Path, mode: u32) -> anyhow::Result<()> {
    let folder = to.parent().context("a file has a folder")?;
    fs::create_dir_all(folder)?;
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(fs::set_permissions(to, fs::Permissions::from_mode(mode))?)
}

/// Writes a file that everybody may read.
pub fn write(to: &Path, text: impl AsRef<[u8]>) -> anyhow::Result<()> {
    let folder = to.parent().context("a file has a folder")?;
    fs::create_dir_all(folder)?;
    fs::write(to, text).with_context(|| format!("cannot write {}", to.display()))?;
    Ok(fs::set_permissions(to, fs::Permissions::from_mode(0o644))?)
}

/// Files of a folder, sorted; of those with this extension, if one is named.
pub fn files_of(folder: &Path, extension: Option<&str>) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = vec![];
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        let is_of = |extension| path.extension().is_some_and(|of| of == extension);
        if path.is_file() && extension.is_none_or(is_of) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn copy_all(from: &Path, extension: &str, to: &Path) -> anyhow::Result<()> {
    for file in files_of(from, Some(extension))? {
        put(&file, &to.join(file.file_name().context("a file has a name")?), 0o644)?;
    }
    Ok(())
}

/// The description for pkg-config. `up` leads from its folder to the prefix, below which the others are.
pub fn pkg_config(version: &str, up: &str, library: &str, headers: &str) -> String {
    format!(
        "prefix=${{pcfiledir}}/{up}\n\
         libdir=${{prefix}}/{library}\n\
         includedir=${{prefix}}/{headers}\n\
         \n\
         Name: gpupv\n\
         Description: D3DKMT calls of a paravirtualized GPU\n\
         Version: {version}\n\
         Libs: -L${{libdir}} -ldxcore\n\
         Cflags: -I${{includedir}}\n"
    )
}

/// Makes the tree anew from these programs.
pub fn stage(source: &Source, programs: &Path, to: &Path) -> anyhow::Result<PathBuf> {
    if to.exists() {
        fs::remove_dir_all(to).with_context(|| format!("cannot remove {}", to.display()))?;
    }
    put(&programs.join("gpupv"), &to.join("bin/gpupv"), 0o755)?;
    for name in LIBRARY_FOLDER {
        let mode = if name.ends_with(".so") { 0o644 } else { 0o755 };
        put(&programs.join(name), &to.join("lib/gpupv").join(name), mode)?;
    }
    for folder in HEADERS {
        copy_all(&source.tree.join(folder), "h", &to.join("include/gpupv"))?;
    }
    write(
        &to.join("lib/pkgconfig/gpupv.pc"),
        pkg_config(source.version, "../..", "lib/gpupv", "include/gpupv"),
    )?;
    copy_all(&source.tree.join("host/dist/systemd"), "service", &to.join("lib/systemd/system"))?;
    for (from, folder) in SHARED {
        let from = source.tree.join(from);
        let files = if from.is_dir() { files_of(&from, None)? } else { vec![from] };
        for file in files {
            let mode = if file.extension().is_some_and(|of| of == "sh") { 0o755 } else { 0o644 };
            let name = file.file_name().context("a file has a name")?;
            put(&file, &to.join("share/gpupv").join(folder).join(name), mode)?;
        }
    }
    // With the folders of the source tree, so that links between pages lead somewhere.
    for folder in PAGES {
        for extension in ["md", "svg", "png"] {
            copy_all(&source.tree.join(folder), extension, &to.join("share/doc/gpupv").join(folder))?;
        }
    }
    Ok(to.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_programs_headers_units_and_docs() {
        let folder = tempfile::tempdir().unwrap();
        let programs = folder.path().join("programs");
        fs::create_dir(&programs).unwrap();
        for name in LIBRARY_FOLDER.iter().chain(&["gpupv"]) {
            fs::write(programs.join(name), name).unwrap();
        }
        let source = Source { epoch: 0, ..Source::find().unwrap() };
        let tree = stage(&source, &programs, &folder.path().join("tree")).unwrap();
        crate::pages::write(&tree).unwrap();
        for file in [
            "bin/gpupv",
            "lib/gpupv/libdxcore.so",
            "include/gpupv/d3dkmthk.h",
            "include/gpupv/dxgk_miniport.h",
            "lib/pkgconfig/gpupv.pc",
            "lib/systemd/system/gpupv-guestd.service",
            "lib/systemd/system/gpupv.service",
            "share/gpupv/Containerfile",
            "share/gpupv/examples/fence_tour.c",
            "share/gpupv/examples/hang.c",
            "share/gpupv/examples/check.h",
            "share/gpupv/cluster/kubernetes-job.yaml",
            "share/gpupv/cluster/slurm-array.sh",
            "share/doc/gpupv/README.md",
            "share/doc/gpupv/docs/SCENARIOS.md",
            "share/doc/gpupv/docs/zh/README.md",
            "share/doc/gpupv/docs/ja/ERRORS.md",
            "share/man/man1/gpupv.1",
            "share/man/man1/gpupv-vm-run.1",
            "share/bash-completion/completions/gpupv",
            "share/zsh/site-functions/_gpupv",
            "share/fish/vendor_completions.d/gpupv.fish",
        ] {
            assert!(tree.join(file).is_file(), "{file}");
        }
        let page = fs::read_to_string(tree.join("share/man/man1/gpupv-vm-run.1")).unwrap();
        for part in ["gpupv vm run", "\n.SH EXAMPLES\n", "\"gpupv 0.", "\" gpupv\n"] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!page.contains("EXTRA"), "{page}");
        // Pages link to pages and pictures that are installed; sources are not.
        let docs = tree.join("share/doc/gpupv");
        for folder in PAGES {
            for page in files_of(&docs.join(folder), Some("md")).unwrap() {
                let text = fs::read_to_string(&page).unwrap();
                for link in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
                    let is_page = [".md", ".svg", ".png"].iter().any(|end| link.ends_with(end));
                    let target = page.parent().unwrap().join(link);
                    assert!(
                        !is_page || link.contains("://") || target.is_file(),
                        "{}: {link}",
                        page.display()
                    );
                }
            }
        }
        let mode = |name: &str| fs::metadata(tree.join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("bin/gpupv"), mode("lib/gpupv/libdxcore.so")), (0o755, 0o644));
    }

    #[test]
    fn a_missing_program_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let source = Source { epoch: 0, ..Source::find().unwrap() };
        let error = stage(&source, folder.path(), &folder.path().join("tree")).unwrap_err();
        assert!(format!("{error:#}").contains("cannot copy"), "{error:#}");
    }
}
