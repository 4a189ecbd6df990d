//! Compiles every `.proto` file under `protos/` to Rust, and keeps the descriptors for reflection.
//! Neither step needs `protoc`.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use prost_types::FileDescriptorSet;
use prost_types::field_descriptor_proto::Type;
use protox::Compiler;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new("protos");
    println!("cargo::rerun-if-changed={}", root.display());
    let mut compiler = Compiler::new([root])?;
    compiler.include_imports(true).include_source_info(true).open_files(proto_files(root)?)?;
    let mut described = compiler.file_descriptor_set();

    // The encoded form keeps custom options such as `gnmi_service`; comments would only make the binary bigger.
    let descriptors = compiler.include_source_info(false).encode_file_descriptor_set();
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), descriptors)?;

    take_encoded_notifications(&mut described);
    tonic_prost_build::configure()
        .bytes(".") // a payload of many megabytes stays in the buffer it arrived in
        .btree_map(".") // elements of a path keep their keys in a fixed order
        .compile_fds(described)?;
    Ok(())
}

/// Generates the notification of a `SubscribeResponse` as bytes, which are the same on the wire. The agent writes the
/// leaves of a stream as they are sent, without a message of the generated type for each of them.
fn take_encoded_notifications(described: &mut FileDescriptorSet) {
    let gnmi = described.file.iter_mut().filter(|file| file.package() == "gnmi");
    let messages = gnmi.flat_map(|file| &mut file.message_type);
    let responses = messages.filter(|message| message.name() == "SubscribeResponse");
    let fields = responses.flat_map(|message| &mut message.field);
    for field in fields.filter(|field| field.name() == "update") {
        field.set_type(Type::Bytes);
        field.type_name = None;
    }
}

/// Every `.proto` file below `folder`, sorted, so that builds are reproducible.
fn proto_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(proto_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
