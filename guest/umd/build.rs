//! Link flags of the shared object that clients load.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Clients find the library by this name, and we register fork handlers and may run a thread:
    // dlclose must not take the code away.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libdxcore.so");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
