//! The messages and services of gNMI, gNSI, gNOI, bootz and attestz, as the wire has them.
//!
//! The sources are the `.proto` files under `protos/`, written for this project and held equal to the
//! public interfaces by the test `protos` of the crate `holdfast-tests`. Modules have the names of proto
//! packages without their version: start at [`gnmi`]. `bytes` fields are [`bytes::Bytes`](prost::bytes::Bytes), slices of the
//! received message without a copy.
//!
//! Absent on purpose: behaviour. The daemon's `northbound` and the bootstrap client decide what a message means;
//! no other crate sees these types.

/// All files above with their imports, for gRPC reflection: an encoded `google.protobuf.FileDescriptorSet`.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// Declares the modules of proto packages, nested like the packages, because generated code refers to
/// its neighbours by relative paths. The messages of a package with a version are in the module of its name, and `v1`
/// is for generated code alone.
macro_rules! packages {
    ($($(#[$doc:meta])* $name:ident v1 = $file:literal;)*) => {
        $(
            $(#[$doc])*
            pub mod $name {
                pub use self::v1::*;

                #[allow(warnings, clippy::all, reason = "generated")]
                pub(crate) mod v1 {
                    include!(concat!(env!("OUT_DIR"), "/", $file, ".rs"));
                }
            }
        )*
    };
    ($($(#[$doc:meta])* $name:ident { $($inner:tt)* })*) => {
        $($(#[$doc])* pub mod $name { packages! { $($inner)* } })*
    };
    ($($(#[$doc:meta])* $name:ident = $file:literal;)*) => {
        $(
            $(#[$doc])*
            #[allow(warnings, clippy::all, reason = "generated")]
            pub mod $name {
                include!(concat!(env!("OUT_DIR"), "/", $file, ".rs"));
            }
        )*
    };
}

packages! {
    /// Read, write and follow the configuration and state of a device.
    gnmi = "gnmi";
    /// Extensions carried by gNMI messages.
    gnmi_ext = "gnmi_ext";
    /// Bootstrap of a factory-new device.
    bootz = "bootz";
}

/// Our own gNMI extension, and our own services.
#[allow(warnings, clippy::all, reason = "generated")]
pub mod holdfast {
    include!(concat!(env!("OUT_DIR"), "/holdfast.rs"));

    /// Faults of the box.
    pub mod faults {
        pub use self::v1::*;

        pub(crate) mod v1 {
            include!(concat!(env!("OUT_DIR"), "/holdfast.faults.v1.rs"));
        }
    }

    /// Maintenance sessions.
    pub mod maintenance {
        pub use self::v1::*;

        pub(crate) mod v1 {
            include!(concat!(env!("OUT_DIR"), "/holdfast.maintenance.v1.rs"));
        }
    }

    /// Operations on service instances.
    pub mod services {
        pub use self::v1::*;

        pub(crate) mod v1 {
            include!(concat!(env!("OUT_DIR"), "/holdfast.services.v1.rs"));
        }
    }
}

packages! {
    /// Security state of a device.
    gnsi {
        /// Accounting of calls and commands.
        acctz v1 = "gnsi.acctz.v1";
        /// Authorization of rpcs.
        authz v1 = "gnsi.authz.v1";
        /// TLS profiles.
        certz v1 = "gnsi.certz.v1";
        /// SSH and console credentials.
        credentialz v1 = "gnsi.credentialz.v1";
        /// Permissions on gNMI paths.
        pathz v1 = "gnsi.pathz.v1";
    }
    /// Operations on a device.
    gnoi {
        /// The configuration that a device boots with.
        bootconfig = "gnoi.bootconfig";
        /// Certificates, as it was before gNSI.
        certificate = "gnoi.certificate";
        /// Messages used by several services.
        common = "gnoi.common";
        /// Reset to factory state.
        factory_reset = "gnoi.factory_reset";
        /// Files.
        file = "gnoi.file";
        /// The health of components.
        healthz = "gnoi.healthz";
        /// Operating system images.
        os = "gnoi.os";
        /// Reboot, time, ping, traceroute, processes.
        system = "gnoi.system";
        /// Types used by several services.
        types = "gnoi.types";
    }
    /// Packages under the `openconfig` name.
    openconfig {
        /// Attestation of a device's identity and boot state.
        attestz = "openconfig.attestz";
    }
    /// Packages of Google that the others import.
    google {
        /// The status of a call.
        rpc = "google.rpc";
    }
}
