//! The messages and services of gNMI, as the wire has them.
//!
//! The sources are the `.proto` files under `protos/`, written for this project and held equal to the
//! public interfaces by `tests/protos.rs`. Modules have the names of proto packages: start at [`gnmi`].
//! `bytes` fields are [`bytes::Bytes`](prost::bytes::Bytes), slices of the received message without a copy.
//!
//! Absent on purpose: behaviour. What a message means is decided in the daemon's `northbound` and in the
//! bootstrap client, the only two that see these types.

/// All files above with their imports, for gRPC reflection: an encoded `google.protobuf.FileDescriptorSet`.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

macro_rules! package {
    ($name:literal) => {
        include!(concat!(env!("OUT_DIR"), "/", $name, ".rs"));
    };
}

/// Read, write and follow the configuration and state of a device.
#[allow(warnings, clippy::all, reason = "generated")]
pub mod gnmi {
    package!("gnmi");
}

/// Extensions carried by gNMI messages.
#[allow(warnings, clippy::all, reason = "generated")]
pub mod gnmi_ext {
    package!("gnmi_ext");
}
