//! Which fields of which messages may be written down.

use holdfast_security::acctz::secrets::is_secret;

/// What becomes of the octets of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    Keep,
    Withhold,
    /// A JSON document: members with secret names are withheld.
    Json,
    /// Lines of the command line: what follows a secret name is withheld.
    Lines,
    /// Kept, unless the path beside it leads to a secret.
    Value,
}

/// Packages whose texts are no secrets, unless a field's name says otherwise. In all others (certz, credentialz,
/// what bootz hands over, messages that carry anything) texts are withheld but for [`HARMLESS`].
const OPEN: [&str; 17] = [
    "gnmi",
    "gnmi_ext",
    "gnoi.bootconfig",
    "gnoi.common",
    "gnoi.factory_reset",
    "gnoi.file",
    "gnoi.healthz",
    "gnoi.os",
    "gnoi.system",
    "gnoi.types",
    "gnsi.acctz.v1",
    "gnsi.authz.v1",
    "gnsi.pathz.v1",
    "grpc.health.v1",
    "grpc.reflection.v1",
    "grpc.reflection.v1alpha",
    "holdfast",
];

/// Fields of text that say which thing is meant, and nothing that would help a thief.
const HARMLESS: [&str; 23] = [
    "gnsi.certz.v1.AddProfileRequest.ssl_profile_id",
    "gnsi.certz.v1.CSRParams.common_name",
    "gnsi.certz.v1.CSRParams.organization",
    "gnsi.certz.v1.CertificateRevocationList.id",
    "gnsi.certz.v1.DeleteProfileRequest.ssl_profile_id",
    "gnsi.certz.v1.Entity.version",
    "gnsi.certz.v1.ExistingEntity.ssl_profile_id",
    "gnsi.certz.v1.RotateCertificateRequest.ssl_profile_id",
    "gnsi.certz.v1.V3ExtensionSAN.dns",
    "gnsi.certz.v1.V3ExtensionSAN.emails",
    "gnsi.certz.v1.V3ExtensionSAN.ips",
    "gnsi.certz.v1.V3ExtensionSAN.uris",
    "gnsi.credentialz.v1.AccountCredentials.account",
    "gnsi.credentialz.v1.AccountCredentials.version",
    "gnsi.credentialz.v1.CaPublicKeyRequest.version",
    "gnsi.credentialz.v1.GenerateKeysRequest.version",
    "gnsi.credentialz.v1.PasswordRequest.Account.account",
    "gnsi.credentialz.v1.PasswordRequest.Account.version",
    "gnsi.credentialz.v1.ServerKeysRequest.version",
    "gnsi.credentialz.v1.UserPolicy.SshAuthorizedPrincipal.authorized_user",
    "gnsi.credentialz.v1.UserPolicy.account",
    "gnsi.credentialz.v1.UserPolicy.version",
    "google.protobuf.Any.type_url",
];

pub(super) fn of_string(package: &str, message: &str, field: &str) -> Rule {
    match (message, field) {
        ("gnmi.TypedValue", "ascii_val") => Rule::Lines,
        ("gnmi.TypedValue", _) => Rule::Value,
        _ if OPEN.contains(&package) && !is_secret(field) => Rule::Keep,
        _ if HARMLESS.contains(&format!("{message}.{field}").as_str()) => Rule::Keep,
        _ => Rule::Withhold,
    }
}

/// Octets without a meaning that is known are withheld: keys, files, messages of others.
pub(super) fn of_bytes(message: &str, field: &str) -> Rule {
    match (message, field) {
        ("gnmi.TypedValue", "json_val" | "json_ietf_val") => Rule::Json,
        _ => Rule::Withhold,
    }
}

#[cfg(test)]
pub(super) fn harmless() -> &'static [&'static str] {
    &HARMLESS
}
