//! Rules for the fields of messages that may be recorded.

use holdfast_security::acctz::secrets::is_secret;

/// Treatment of the bytes of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordingRule {
    Keep,
    Withhold,
    /// A JSON document: members with secret names are withheld.
    Json,
    /// CLI text: the words after a secret name are withheld.
    Lines,
    /// Kept, unless the path of the same update leads to a secret.
    Value,
}

/// Packages whose texts are not secrets, except in fields with a secret name. In all others (certz, credentialz,
/// bootz, messages with arbitrary content) texts are withheld, except for [`HARMLESS`].
const OPEN: [&str; 20] = [
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
    "holdfast.faults.v1",
    "holdfast.maintenance.v1",
    "holdfast.services.v1",
];

/// Text fields that identify an object, and are of no use to an attacker.
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

pub(super) fn of_string(package: &str, message: &str, field: &str) -> RecordingRule {
    match (message, field) {
        ("gnmi.TypedValue", "ascii_val") => RecordingRule::Lines,
        ("gnmi.TypedValue", _) => RecordingRule::Value,
        _ if OPEN.contains(&package) && !is_secret(field) => RecordingRule::Keep,
        _ if HARMLESS.contains(&format!("{message}.{field}").as_str()) => RecordingRule::Keep,
        _ => RecordingRule::Withhold,
    }
}

/// Rule for bytes. Bytes of unknown meaning are withheld: keys, files, encoded messages.
pub(super) fn of_bytes(message: &str, field: &str) -> RecordingRule {
    match (message, field) {
        ("gnmi.TypedValue", "json_val" | "json_ietf_val") => RecordingRule::Json,
        _ => RecordingRule::Withhold,
    }
}

#[cfg(test)]
pub(super) fn harmless() -> &'static [&'static str] {
    &HARMLESS
}
