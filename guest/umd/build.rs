//! Link flags of the shared object that clients load.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Clients load the library by this name. dlclose must not unmap the code, because the library registers fork
    // handlers and may run a thread.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libdxcore.so");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
