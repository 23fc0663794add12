//! Generates the message and service types. `protox` compiles the files, so no `protoc` is needed.

use prost::Message as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files =
        ["channel.proto", "attach.proto", "trace.proto", "control.proto", "agent.proto", "actor.proto"];
    let descriptors = protox::compile(files, ["proto"])?;
    let services = std::env::var_os("CARGO_FEATURE_SERVICES").is_some();
    // Reflection serves this.
    let path = std::path::PathBuf::from(std::env::var("OUT_DIR")?).join("descriptors.bin");
    std::fs::write(path, descriptors.encode_to_vec())?;
    // What can be long: see bulk.rs.
    let long = [".gpupv.channel.Escape.data", ".gpupv.channel.ToGuest.escape"];
    let builder = long.into_iter().fold(tonic_prost_build::configure(), |builder, path| builder.bytes(path));
    builder.build_client(services).build_server(services).compile_fds(descriptors)?;
    Ok(())
}
