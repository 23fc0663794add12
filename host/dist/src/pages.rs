//! Manual pages and completions, from the command line itself.

use std::fs;
use std::path::Path;

use clap::Command;
use clap_complete::{Shell, generate};
use clap_mangen::Man;

use crate::tree::write as write_file;

const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "share/bash-completion/completions/gpupv"),
    (Shell::Zsh, "share/zsh/site-functions/_gpupv"),
    (Shell::Fish, "share/fish/vendor_completions.d/gpupv.fish"),
];

/// The manual page of a command, and those of its subcommands.
fn write_page(command: &Command, folder: &Path) -> anyhow::Result<()> {
    for one in command.get_subcommands().filter(|one| !one.is_hide_set()) {
        write_page(one, folder)?;
    }
    let source = concat!("gpupv ", env!("CARGO_PKG_VERSION"));
    let page = Man::new(command.clone()).source(source).manual("gpupv");
    let mut text = vec![];
    page.render(&mut text)?;
    // clap has no heading for the text after the options; ours are the examples.
    let text = String::from_utf8(text)?.replace(".SH EXTRA\nExamples:\n", ".SH EXAMPLES\n");
    write_file(&folder.join(page.get_filename()), text)
}

/// Writes them below this prefix.
pub fn write(tree: &Path) -> anyhow::Result<()> {
    let command = gpupv::help::command();
    let pages = tree.join("share/man/man1");
    fs::create_dir_all(&pages)?;
    let mut all = command.clone().disable_help_subcommand(true);
    all.build();
    write_page(&all, &pages)?;
    for (shell, file) in COMPLETIONS {
        let mut text = vec![];
        generate(shell, &mut command.clone(), "gpupv", &mut text);
        write_file(&tree.join(file), text)?;
    }
    Ok(())
}
