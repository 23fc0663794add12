//! Says at build time what this crate lacks on other processors.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let processor = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    if processor != "x86_64" {
        println!(
            "cargo:warning=guests are x86-64 only: programs built for {processor} do not run in them, local processes do"
        );
    }
}
