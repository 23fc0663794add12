//! Link flags of the preload object.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // libdxcore.so is in the same folder unless the library path names another.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libgpupv_dev_dxg.so");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-rpath,$ORIGIN");
}
