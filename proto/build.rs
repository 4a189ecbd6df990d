//! Compiles every `.proto` file under `protos/` to Rust, and keeps the descriptors for reflection.
//! Neither step needs `protoc`.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use protox::Compiler;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new("protos");
    println!("cargo::rerun-if-changed={}", root.display());
    let mut compiler = Compiler::new([root])?;
    compiler.include_imports(true).include_source_info(true).open_files(proto_files(root)?)?;
    let described = compiler.file_descriptor_set();

    // The encoded form keeps custom options such as `gnmi_service`; comments would only make the binary bigger.
    let descriptors = compiler.include_source_info(false).encode_file_descriptor_set();
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), descriptors)?;

    tonic_prost_build::configure()
        .bytes(".") // a payload of many megabytes stays in the buffer it arrived in
        .btree_map(".") // elements of a path keep their keys in a fixed order
        .compile_fds(described)?;
    Ok(())
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
