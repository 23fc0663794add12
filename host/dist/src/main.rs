//! `cargo dist`: builds what is installed.
//!
//! ```text
//!   target/package/build/                           cargo's target folder: nothing names the source tree in it
//!   target/package/tree/                            what is installed, by its path below the prefix, with symbols
//!   target/package/gpupv-VERSION-ARCH-linux.tar.xz  the tree, stripped
//!   target/package/gpupv-symbols-..tar.xz           the symbols
//!   target/package/*.deb                            gpupv, gpupv-guest, and their symbols
//! ```

mod build;
mod command;
mod debian;
mod licences;
mod pages;
mod tarball;
mod tree;

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Parser;

use crate::build::Source;

/// Build the tarball and the Debian packages of gpupv
#[derive(Parser, Debug)]
#[command(bin_name = "cargo dist", max_term_width = 100)]
struct Arguments {
    /// Folder for all that is built [default: target/package of the source tree]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Take built programs from this folder, such as target/debug, instead of building them with the profile `dist`
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
    /// Only the tree: no tarball, no packages
    #[arg(long)]
    tree: bool,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let source = Source::find()?;
    let output = arguments.output.unwrap_or_else(|| source.tree.join("target/package"));
    std::fs::create_dir_all(&output).with_context(|| format!("cannot create {}", output.display()))?;
    let output = output.canonicalize()?;
    let programs = match arguments.from {
        Some(from) => from.canonicalize().with_context(|| format!("there is no {}", from.display()))?,
        None => source.build(&output.join("build"))?,
    };
    let tree = tree::stage(&source, &programs, &output.join("tree"))?;
    pages::write(&tree)?;
    licences::write(&source, &tree)?;
    if arguments.tree {
        println!("{}", tree.display());
        return Ok(());
    }
    let mut files = tarball::write(&source, &tree, &output)?;
    files.extend(debian::build(&source, &tree, &output)?);
    for file in files {
        let bytes = std::fs::metadata(&file)?.len();
        println!("{} {:.1} MB", file.display(), bytes as f64 / 1e6);
    }
    Ok(())
}
