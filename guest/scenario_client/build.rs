//! Links to `libdxcore.so` as a user's program does. `OUT_DIR` gives its path: `OUT_DIR` is
//! `target/PROFILE/build/scenario-client-HASH/out`, and the library is in `target/PROFILE/deps`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let out = std::path::PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let profile = out.ancestors().nth(3).expect("OUT_DIR is three below the profile's folder");
    println!("cargo:rustc-link-search=native={}", profile.join("deps").display());
    println!("cargo:rustc-link-lib=dylib=dxcore");
}
