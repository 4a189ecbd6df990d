//! The table of methods: for each method of the listener the role that it needs and the limit on its messages.

use holdfast_base::{Caller, Role};
use holdfast_config::Limit;
use holdfast_config::limits::{MESSAGE_SIZE, PLAIN_MESSAGE_SIZE, READ_MESSAGE_SIZE};
use tonic::Status;

/// Rules for one method, which the AAA layer enforces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodRules {
    /// Least role of a caller: [`Role::ReadOnly`] or [`Role::Admin`].
    role: &'static Role,
    /// Limit on each message of the client.
    pub message_limit: &'static Limit,
}

/// Rules of a method without a row, so that a new service is closed until it is listed.
pub(super) const UNLISTED: MethodRules =
    MethodRules { role: &Role::Admin, message_limit: &PLAIN_MESSAGE_SIZE };

/// Rows by HTTP/2 path; a trailing `/` covers all methods of a service.
static TABLE: &[(&str, Role, &Limit)] = &[
    ("/gnmi.gNMI/Capabilities", Role::ReadOnly, &READ_MESSAGE_SIZE),
    ("/gnmi.gNMI/Get", Role::ReadOnly, &READ_MESSAGE_SIZE),
    ("/gnmi.gNMI/Set", Role::Admin, &MESSAGE_SIZE),
    ("/gnmi.gNMI/Subscribe", Role::ReadOnly, &READ_MESSAGE_SIZE),
    // Shows the whole boot configuration, about which pathz is not asked.
    ("/gnoi.bootconfig.BootConfig/GetBootConfig", Role::Admin, &READ_MESSAGE_SIZE),
    ("/gnoi.bootconfig.BootConfig/SetBootConfig", Role::Admin, &MESSAGE_SIZE),
    ("/gnoi.bootconfig.BootConfig/SetBootConfigVerified", Role::Admin, &MESSAGE_SIZE),
    ("/gnoi.factory_reset.FactoryReset/Start", Role::Admin, &PLAIN_MESSAGE_SIZE),
    ("/gnoi.file.File/", Role::Admin, &PLAIN_MESSAGE_SIZE),
    // Their answers show state about which pathz is not asked.
    ("/gnoi.healthz.Healthz/", Role::Admin, &READ_MESSAGE_SIZE),
    // An activation contains a whole boot configuration.
    ("/gnoi.os.OS/Activate", Role::Admin, &MESSAGE_SIZE),
    ("/gnoi.os.OS/Install", Role::Admin, &PLAIN_MESSAGE_SIZE),
    ("/gnoi.os.OS/Verify", Role::ReadOnly, &READ_MESSAGE_SIZE),
    ("/gnoi.system.System/CancelReboot", Role::Admin, &PLAIN_MESSAGE_SIZE),
    ("/gnoi.system.System/KillProcess", Role::Admin, &PLAIN_MESSAGE_SIZE),
    ("/gnoi.system.System/Ping", Role::Admin, &PLAIN_MESSAGE_SIZE),
    ("/gnoi.system.System/Reboot", Role::Admin, &PLAIN_MESSAGE_SIZE),
    ("/gnoi.system.System/RebootStatus", Role::ReadOnly, &READ_MESSAGE_SIZE),
    ("/gnoi.system.System/SetPackage", Role::Admin, &PLAIN_MESSAGE_SIZE),
    ("/gnoi.system.System/SwitchControlProcessor", Role::Admin, &PLAIN_MESSAGE_SIZE),
    ("/gnoi.system.System/Time", Role::ReadOnly, &READ_MESSAGE_SIZE),
    ("/gnoi.system.System/Traceroute", Role::Admin, &PLAIN_MESSAGE_SIZE),
    ("/gnsi.acctz.v1.AcctzStream/RecordSubscribe", Role::Admin, &PLAIN_MESSAGE_SIZE),
    ("/gnsi.authz.v1.Authz/Get", Role::ReadOnly, &READ_MESSAGE_SIZE),
    ("/gnsi.authz.v1.Authz/Probe", Role::ReadOnly, &READ_MESSAGE_SIZE),
    ("/gnsi.authz.v1.Authz/Rotate", Role::Admin, &PLAIN_MESSAGE_SIZE),
    ("/gnsi.certz.v1.Certz/AddProfile", Role::Admin, &PLAIN_MESSAGE_SIZE),
    ("/gnsi.certz.v1.Certz/CanGenerateCSR", Role::ReadOnly, &READ_MESSAGE_SIZE),
    ("/gnsi.certz.v1.Certz/DeleteProfile", Role::Admin, &PLAIN_MESSAGE_SIZE),
    ("/gnsi.certz.v1.Certz/GetIntegrityManifest", Role::ReadOnly, &READ_MESSAGE_SIZE),
    ("/gnsi.certz.v1.Certz/GetProfileList", Role::ReadOnly, &READ_MESSAGE_SIZE),
    // A bundle of 20 000 authorities.
    ("/gnsi.certz.v1.Certz/Rotate", Role::Admin, &MESSAGE_SIZE),
    ("/gnsi.credentialz.v1.Credentialz/CanGenerateKey", Role::ReadOnly, &READ_MESSAGE_SIZE),
    ("/gnsi.credentialz.v1.Credentialz/GetPublicKeys", Role::ReadOnly, &READ_MESSAGE_SIZE),
    ("/gnsi.credentialz.v1.Credentialz/RotateAccountCredentials", Role::Admin, &PLAIN_MESSAGE_SIZE),
    ("/gnsi.credentialz.v1.Credentialz/RotateHostParameters", Role::Admin, &PLAIN_MESSAGE_SIZE),
    ("/gnsi.pathz.v1.Pathz/Get", Role::ReadOnly, &READ_MESSAGE_SIZE),
    ("/gnsi.pathz.v1.Pathz/Probe", Role::ReadOnly, &READ_MESSAGE_SIZE),
    // A policy of 20 000 rules.
    ("/gnsi.pathz.v1.Pathz/Rotate", Role::Admin, &MESSAGE_SIZE),
    ("/grpc.health.v1.Health/", Role::ReadOnly, &READ_MESSAGE_SIZE),
    ("/grpc.reflection.v1.ServerReflection/", Role::ReadOnly, &READ_MESSAGE_SIZE),
    ("/grpc.reflection.v1alpha.ServerReflection/", Role::ReadOnly, &READ_MESSAGE_SIZE),
    ("/holdfast.faults.v1.Faults/Query", Role::ReadOnly, &READ_MESSAGE_SIZE),
    // A `monitor` entry names who may report, of whatever role.
    ("/holdfast.faults.v1.Faults/ReportEvent", Role::ReadOnly, &READ_MESSAGE_SIZE),
    ("/holdfast.faults.v1.Faults/ResetAlarm", Role::Admin, &PLAIN_MESSAGE_SIZE),
    ("/holdfast.faults.v1.Faults/SetDataPlaneDown", Role::Admin, &PLAIN_MESSAGE_SIZE),
    ("/holdfast.faults.v1.Faults/SetForcedDown", Role::Admin, &PLAIN_MESSAGE_SIZE),
    ("/holdfast.faults.v1.Faults/SetOperatorState", Role::Admin, &PLAIN_MESSAGE_SIZE),
    ("/holdfast.faults.v1.Faults/Watch", Role::ReadOnly, &READ_MESSAGE_SIZE),
    ("/holdfast.maintenance.v1.Maintenance/Cancel", Role::Admin, &PLAIN_MESSAGE_SIZE),
    ("/holdfast.maintenance.v1.Maintenance/Create", Role::Admin, &PLAIN_MESSAGE_SIZE),
    ("/holdfast.maintenance.v1.Maintenance/Delete", Role::Admin, &PLAIN_MESSAGE_SIZE),
    // Consumers, of whatever role, see what affects them.
    ("/holdfast.maintenance.v1.Maintenance/Get", Role::ReadOnly, &READ_MESSAGE_SIZE),
    ("/holdfast.maintenance.v1.Maintenance/List", Role::ReadOnly, &READ_MESSAGE_SIZE),
    // A `consumer` entry names who may reply, of whatever role.
    ("/holdfast.maintenance.v1.Maintenance/Reply", Role::ReadOnly, &PLAIN_MESSAGE_SIZE),
    ("/holdfast.maintenance.v1.Maintenance/Watch", Role::ReadOnly, &READ_MESSAGE_SIZE),
    ("/holdfast.maintenance.v1.Maintenance/WorkDone", Role::Admin, &PLAIN_MESSAGE_SIZE),
    // The outline of the type names those who may serve it, of whatever role.
    ("/holdfast.services.v1.Handler/", Role::ReadOnly, &PLAIN_MESSAGE_SIZE),
    // Their answers show configuration about which pathz is not asked.
    ("/holdfast.services.v1.Operations/", Role::Admin, &READ_MESSAGE_SIZE),
    // A package has up to 1 MiB.
    ("/holdfast.services.v1.Packages/", Role::Admin, &PLAIN_MESSAGE_SIZE),
];

impl MethodRules {
    /// The rules of a method. One without a row is closed to everyone but administrators.
    pub(crate) fn of(path: &str) -> Self {
        let fits = |row: &str| if row.ends_with('/') { path.starts_with(row) } else { path == row };
        let row = TABLE.iter().find(|(row, ..)| fits(row));
        row.map_or(UNLISTED, |(_, role, message_limit)| Self { role, message_limit })
    }

    /// True for a method that only an administrator may call: it changes something, or shows what others may not see.
    pub fn changes_something(&self) -> bool {
        *self.role == Role::Admin
    }

    /// Refuses a caller whose role does not allow the method at `path`. About the calls of a named role the authz policy
    /// alone decides, which is asked next.
    ///
    /// # Errors
    ///
    /// `PERMISSION_DENIED` with the names of caller, method and role.
    pub fn require_role(&self, caller: &Caller, path: &str) -> Result<(), Status> {
        let path = path.trim_start_matches('/');
        match (&caller.role, self.role) {
            (Role::None, _) => Err(Status::permission_denied(format!(
                "`{}` has no role: it may log in and call nothing, not even {path}",
                caller.name
            ))),
            (Role::Named(_), _) | (_, Role::ReadOnly) => Ok(()),
            _ => caller.require_admin(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::{Methods, rpcs};

    #[test]
    fn every_method_of_the_listener_has_one_row() {
        let rpcs = rpcs();
        for rpc in &rpcs {
            let fits = |row: &str| row == rpc || row.ends_with('/') && rpc.starts_with(row);
            assert_eq!(TABLE.iter().filter(|(row, ..)| fits(row)).count(), 1, "{rpc}");
        }
        for (row, ..) in TABLE {
            assert!(rpcs.iter().any(|rpc| rpc.starts_with(row)), "{row} is not a method");
        }
    }

    #[test]
    fn methods_are_closed_to_readers_unless_the_table_opens_them() {
        let methods = Methods::new();
        for (path, role) in [
            ("/gnmi.gNMI/Get", Role::ReadOnly),
            ("/gnmi.gNMI/Subscribe", Role::ReadOnly),
            ("/grpc.health.v1.Health/Watch", Role::ReadOnly),
            ("/gnmi.gNMI/Set", Role::Admin),
            ("/gnmi.gNMI/Getter", Role::Admin),
            ("/gnoi.bootconfig.BootConfig/GetBootConfig", Role::Admin),
            ("/gnmi.gNMI/", Role::Admin),
            ("/gnoi.os.OS/Verify", Role::ReadOnly),
            ("/gnoi.os.OS/Activate", Role::Admin),
            ("/gnoi.os.OS/Install", Role::Admin),
            ("/gnoi.system.System/Reboot", Role::Admin),
            ("/grpc.health.v1.Healthier/Check", Role::Admin),
        ] {
            assert_eq!(*methods.rules(path).role, role, "{path}");
        }
    }

    #[test]
    fn each_method_has_a_limit_for_its_messages() {
        let methods = Methods::new();
        for (method, want) in [
            ("/gnmi.gNMI/Set", &MESSAGE_SIZE),
            ("/gnmi.gNMI/Get", &READ_MESSAGE_SIZE),
            ("/gnmi.gNMI/Subscribe", &READ_MESSAGE_SIZE),
            ("/gnmi.gNMI/Capabilities", &READ_MESSAGE_SIZE),
            ("/gnsi.pathz.v1.Pathz/Rotate", &MESSAGE_SIZE),
            ("/gnsi.pathz.v1.Pathz/Probe", &READ_MESSAGE_SIZE),
            ("/gnsi.certz.v1.Certz/Rotate", &MESSAGE_SIZE),
            ("/gnoi.os.OS/Install", &PLAIN_MESSAGE_SIZE),
            ("/gnoi.os.OS/Activate", &MESSAGE_SIZE),
            ("/grpc.health.v1.Health/Check", &READ_MESSAGE_SIZE),
            ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", &READ_MESSAGE_SIZE),
            ("/gnmi.gNMI/Settle", &PLAIN_MESSAGE_SIZE),
            ("/of.nobody/Known", &PLAIN_MESSAGE_SIZE),
        ] {
            assert_eq!(methods.rules(method).message_limit.name, want.name, "{method}");
        }
    }
}
