//! Manual pages and completions, from the command line itself.

use std::fs;
use std::path::Path;

use clap_complete::{Shell, generate};

use crate::tree::write as write_file;

const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "share/bash-completion/completions/gpupv"),
    (Shell::Zsh, "share/zsh/site-functions/_gpupv"),
    (Shell::Fish, "share/fish/vendor_completions.d/gpupv.fish"),
];

/// Writes them below this prefix.
pub fn write(tree: &Path) -> anyhow::Result<()> {
    let command = gpupv::help::command();
    let pages = tree.join("share/man/man1");
    fs::create_dir_all(&pages)?;
    clap_mangen::generate_to(command.clone(), &pages)?;
    for (shell, file) in COMPLETIONS {
        let mut text = vec![];
        generate(shell, &mut command.clone(), "gpupv", &mut text);
        write_file(&tree.join(file), text)?;
    }
    Ok(())
}
