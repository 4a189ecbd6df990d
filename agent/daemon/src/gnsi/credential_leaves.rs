//! State of credentialz: leaves for versions and creation times in the native model.

use std::collections::BTreeSet;

use holdfast_config::schema::Schema;
use holdfast_config::{InstancePath, Keys, MissingNode, NodeId, Step, Value};
use holdfast_core::ServiceState;
use holdfast_security::credentialz::{Account, Credentials, Freshness, Host};
use holdfast_security::rotation::created_on_ns;
use smol_str::SmolStr;

/// Nanoseconds in a second: certificates count seconds, leaves nanoseconds.
const NS_PER_S: u64 = 1_000_000_000;

/// Accessor for a stamp.
type StampOf<T> = fn(&T) -> Option<&Freshness>;

/// Artefacts of an account, by leaf name.
const ACCOUNT_STAMPS: [(&str, StampOf<Account>); 3] = [
    ("password", |it| it.password.as_ref().map(|it| &it.stamp)),
    ("authorized-keys-list", |it| it.keys.as_ref().map(|it| &it.stamp)),
    ("authorized-principals-list", |it| it.principals.as_ref().map(|it| &it.stamp)),
];

/// Artefacts of the SSH server, by leaf name.
const HOST_STAMPS: [(&str, StampOf<Host>); 3] = [
    ("trusted-user-ca-keys", |it| it.ca_keys.as_ref().map(|it| &it.stamp)),
    ("host-key", |it| it.keys_freshness.as_ref()),
    ("host-certificate", |it| it.certificates_freshness.as_ref()),
];

/// Schema nodes, looked up once.
#[derive(Debug)]
pub(crate) struct CredentialLeaves {
    system: NodeId,
    user: NodeId,
    /// In the entry of a user: leaves for version and creation time of each artefact, with the accessor of its
    /// stamp.
    of_account: Vec<([Vec<Step>; 2], StampOf<Account>)>,
    of_host: Vec<([InstancePath; 2], StampOf<Host>)>,
    certificate_expires_on: InstancePath,
    glome_enabled: InstancePath,
    glome_version: InstancePath,
}

impl CredentialLeaves {
    pub(super) fn find(native: &Schema) -> Result<Self, MissingNode> {
        let find = |path: &str| native.require(path);
        let state = Step::node(find("/system/user/state")?);
        let in_state = |what: &str, which: &str| {
            let leaf = find(&format!("/system/user/state/{what}-{which}"))?;
            Ok::<_, MissingNode>(vec![state.clone(), Step::node(leaf)])
        };
        let of_account = ACCOUNT_STAMPS.iter().map(|(what, of)| {
            Ok(([in_state(what, "version")?, in_state(what, "created-on")?], *of))
        });
        let at = |container: &str, name: &str| {
            native.instance_path(&[("system", &[]), (container, &[]), (name, &[])])
        };
        let of_host = HOST_STAMPS.iter().map(|(what, of)| {
            let leaf = |which: &str| at("ssh-server", &format!("{what}-{which}"));
            Ok(([leaf("version")?, leaf("created-on")?], *of))
        });
        Ok(Self {
            system: find("/system")?,
            user: find("/system/user")?,
            of_account: of_account.collect::<Result<_, MissingNode>>()?,
            of_host: of_host.collect::<Result<_, MissingNode>>()?,
            certificate_expires_on: at("ssh-server", "host-certificate-expires-on")?,
            glome_enabled: at("glome", "enabled")?,
            glome_version: at("glome", "key-version")?,
        })
    }

    /// State leaves that change when `to` replaces `from`.
    pub(crate) fn state_leaves(&self, from: &Credentials, to: &Credentials) -> ServiceState {
        let mut state = self.host(&to.host);
        let names: BTreeSet<&SmolStr> = from.accounts.keys().chain(to.accounts.keys()).collect();
        for name in names {
            let keys = Keys::single(Value::Str(name.clone()));
            let entry = [Step::node(self.system), Step::entry(self.user, keys)];
            for (leaves, of) in &self.of_account {
                let stamp = to.accounts.get(name).and_then(of);
                let path =
                    |leaf: &Vec<Step>| InstancePath(entry.iter().chain(leaf).cloned().collect());
                state.extend(stamped(leaves.each_ref().map(path), stamp));
            }
        }
        state
    }

    fn host(&self, host: &Host) -> ServiceState {
        let mut state = ServiceState::new();
        for (leaves, of) in &self.of_host {
            state.extend(stamped(leaves.clone(), of(host)));
        }
        let ends = host.server_keys.iter().filter_map(|it| it.certificate.as_ref()?.valid_before());
        let expires_on = ends.min().and_then(|seconds| seconds.checked_mul(NS_PER_S));
        state.push((self.certificate_expires_on.clone(), expires_on.map(Value::Uint)));
        let version = host.glome.as_ref().map(|it| Value::Str(it.key_version.to_string().into()));
        state.push((self.glome_enabled.clone(), Some(Value::Bool(host.glome.is_some()))));
        state.push((self.glome_version.clone(), version));
        state
    }
}

/// Leaves for version and creation time; absent without a stamp.
fn stamped(
    leaves: [InstancePath; 2],
    stamp: Option<&Freshness>,
) -> [(InstancePath, Option<Value>); 2] {
    let [version, created_on] = leaves;
    let age = stamp.and_then(|it| created_on_ns(it.created_on));
    let name = stamp.map(|it| Value::Str(it.version.clone()));
    [(version, name), (created_on, age.map(Value::Uint))]
}
