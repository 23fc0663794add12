//! Generates the message and service types. `protox` compiles the files, so no `protoc` is needed.

use prost::Message as _;

/// The frames of the channel, whose types are written by hand.
const FRAMES: [&str; 2] = ["ToHost", "ToGuest"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = [
        "channel.proto",
        "attach.proto",
        "trace.proto",
        "control.proto",
        "agent.proto",
        "scenario_client.proto",
    ];
    let descriptors = protox::compile(files, ["proto"])?;
    let services = std::env::var_os("CARGO_FEATURE_SERVICES").is_some();
    // gRPC reflection serves this file.
    let path = std::path::PathBuf::from(std::env::var("OUT_DIR")?).join("descriptors.bin");
    std::fs::write(path, descriptors.encode_to_vec())?;
    let builder = FRAMES.into_iter().fold(tonic_prost_build::configure(), |builder, frame| {
        builder.extern_path(format!(".gpupv.channel.{frame}"), format!("crate::channel::{frame}"))
    });
    let mut builder = builder.build_client(services).build_server(services);
    if services {
        // `gpupv inspect --json` prints these messages.
        builder = builder.type_attribute(".gpupv.control.v1", "#[derive(serde::Serialize)]");
    }
    builder.compile_fds(without_calls(descriptors))?;
    Ok(())
}

/// Removes the messages of the channel that are frames, or calls and replies in them: those are encoded by their rows
/// in `d3dkmt`, and `tests/contract.rs` compares the rows with the file.
fn without_calls(mut descriptors: prost_types::FileDescriptorSet) -> prost_types::FileDescriptorSet {
    const GENERATED: [&str; 5] = ["Hello", "Welcome", "Times", "Woken", "Luid"];
    for file in descriptors.file.iter_mut().filter(|file| file.package() == "gpupv.channel") {
        file.message_type.retain(|message| [&GENERATED[..], &FRAMES].concat().contains(&message.name()));
        // Messages that contain a frame take their derives from the frame's fields, so one field of each kind stays.
        for frame in file.message_type.iter_mut().filter(|message| FRAMES.contains(&message.name())) {
            frame.oneof_decl.clear();
            frame.field.retain(|field| ["times", "goodbye"].contains(&field.name()));
            frame.field.iter_mut().for_each(|field| field.oneof_index = None);
        }
        // It refers to messages by their numbers, which have changed.
        file.source_code_info = None;
    }
    descriptors
}
