//! Files of the source tree.

use std::path::{Path, PathBuf};

use crate::programs::tree;

/// Every source file of the tree, without build output and `.git`.
pub fn files() -> Vec<PathBuf> {
    files_below(tree())
}

/// The files below a folder; a file itself.
pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    if folder.is_file() {
        return vec![folder.to_owned()];
    }
    fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("a folder of the tree") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                let built = path.join("CACHEDIR.TAG").is_file() || name == "target" || name == ".git";
                if !built && !path.is_symlink() {
                    walk(&path, files);
                }
            } else if path.is_file() {
                files.push(path);
            }
        }
    }
    let mut files = Vec::new();
    walk(folder, &mut files);
    files
}

pub fn read(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).expect("a file of the tree")).into_owned()
}
