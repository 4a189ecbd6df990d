//! Plausible requests made of bytes: of every kind, at times with very many, very long or very deep parts, and none
//! larger than [`LARGEST`].

use holdfast_proto::gnmi::{self, TypedValue, typed_value};
use holdfast_proto::gnsi::{authz, certz, credentialz, pathz};
use prost::Message;

/// Bytes that make the decisions. When they are used up, each decision is the first choice.
pub(crate) struct Source {
    octets: Vec<u8>,
    used: usize,
    /// Bytes that the request may still grow by.
    room: usize,
}

/// Approximate limit of the bytes of a request: nested repetitions would otherwise result in gigabytes, which are
/// refused by their length alone.
const LARGEST: usize = 16 << 20;
const NAMES: [&str; 16] = [
    "interfaces",
    "interface",
    "config",
    "state",
    "mtu",
    "*",
    "...",
    "system",
    "dns",
    "search",
    "subinterfaces",
    "subinterface",
    "network-instances",
    "network-instance",
    "holdfast:interfaces",
    "",
];
const PATHS: [&[&str]; 8] = [
    &[],
    &["interfaces"],
    &["interfaces", "interface"],
    &["interfaces", "interface", "config"],
    &["interfaces", "interface", "config", "mtu"],
    &["system", "dns", "config", "search"],
    &["system", "config", "hostname"],
    &["..."],
];
const ORIGINS: [&str; 5] = ["", "openconfig", "holdfast_native", "holdfast_cli", "x"];
const VALUES: [&str; 6] = ["eth0", "eth1", "*", "0", "", "a]b\\c"];
const LINES: [&str; 8] = [
    "interface eth0",
    "  mtu 1400",
    "system search-domain",
    "no interface eth0",
    "system hostname",
    "\"",
    "!",
    "interface eth0 ipv4 address 192.0.2.1 prefix-length 24",
];

impl Source {
    pub(crate) fn new(octets: &[u8]) -> Self {
        Self { octets: octets.to_vec(), used: 0, room: LARGEST }
    }

    fn below(&mut self, count: usize) -> usize {
        let octet = self.octets.get(self.used).copied().unwrap_or_default();
        self.used += 1;
        usize::from(octet) % count
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn perhaps(&mut self) -> bool {
        self.below(8) == 7
    }

    /// A number of items of `size` bytes each: a few in most cases, and up to `most`, as far as there is room.
    fn many(&mut self, most: usize, size: usize) -> usize {
        let few = self.below(4);
        let length = if self.perhaps() { most >> self.below(12) } else { few };
        let count = length.min(self.room / size.max(1));
        self.room -= count * size;
        count
    }

    /// Copies of these messages, in order and repeated.
    fn copies<M: Message + Clone>(&mut self, of: &[M], most: usize) -> Vec<M> {
        let octets: usize = of.iter().map(M::encoded_len).sum();
        let count = self.many(most, octets / of.len());
        of.iter().cycle().take(count).cloned().collect()
    }

    fn text(&mut self) -> String {
        let value = self.one(&VALUES);
        if self.perhaps() { "x".repeat(self.many(1 << 20, 1)) } else { value.to_owned() }
    }

    fn path(&mut self) -> gnmi::Path {
        let names: Vec<&str> = match self.below(4) {
            0 => (0..self.many(256, 16)).map(|_| self.one(&NAMES)).collect(),
            _ => self.one(&PATHS).to_vec(),
        };
        let elem = names.into_iter().map(|name| self.elem(name)).collect();
        gnmi::Path { origin: self.one(&ORIGINS).to_owned(), elem, ..Default::default() }
    }

    fn elem(&mut self, name: &str) -> gnmi::PathElem {
        let mut elem = gnmi::PathElem { name: name.to_owned(), ..Default::default() };
        if ["interface", "subinterface", "network-instance"].contains(&name) {
            let key = if name == "subinterface" { "index" } else { "name" };
            elem.key.insert(key.to_owned(), self.text());
        }
        if self.perhaps() {
            elem.key
                .extend((0..self.many(1 << 14, 16)).map(|at| (format!("k{at}"), "1".to_owned())));
        }
        elem
    }

    fn paths(&mut self, most: usize) -> Vec<gnmi::Path> {
        let some: Vec<_> = (0..1 + self.below(4)).map(|_| self.path()).collect();
        self.copies(&some, most)
    }

    fn prefix(&mut self) -> Option<gnmi::Path> {
        self.perhaps().then(|| self.path())
    }

    pub(crate) fn get(&mut self) -> gnmi::GetRequest {
        gnmi::GetRequest {
            prefix: self.prefix(),
            path: self.paths(1 << 16),
            r#type: i32::try_from(self.below(5)).unwrap(),
            encoding: i32::try_from(self.below(6)).unwrap(),
            ..Default::default()
        }
    }

    pub(crate) fn subscribe(&mut self) -> gnmi::SubscribeRequest {
        let paths = self.paths(1 << 16);
        let subscription = |path| gnmi::Subscription {
            path: Some(path),
            mode: i32::try_from(self.below(4)).unwrap(),
            sample_interval: u64::try_from(self.below(3)).unwrap() * 1_000_000_000,
            ..Default::default()
        };
        let subscription = paths.into_iter().map(subscription).collect();
        let list = gnmi::SubscriptionList {
            subscription,
            prefix: self.prefix(),
            mode: i32::try_from(self.below(4)).unwrap(),
            encoding: i32::try_from(self.below(6)).unwrap(),
            updates_only: self.perhaps(),
            ..Default::default()
        };
        let request = Some(gnmi::subscribe_request::Request::Subscribe(list));
        gnmi::SubscribeRequest { request, ..Default::default() }
    }

    pub(crate) fn set(&mut self) -> gnmi::SetRequest {
        let mut request = gnmi::SetRequest {
            prefix: self.prefix(),
            delete: self.paths(1 << 14),
            ..Default::default()
        };
        match self.below(4) {
            0 => request.union_replace = self.updates(),
            1 => request.replace = self.updates(),
            _ => request.update = self.updates(),
        }
        request
    }

    fn updates(&mut self) -> Vec<gnmi::Update> {
        let some: Vec<_> = (0..1 + self.below(4)).map(|_| self.update()).collect();
        let more = self.copies(&some, 1 << 12);
        if more.is_empty() { some } else { more }
    }

    fn update(&mut self) -> gnmi::Update {
        let path = self.path();
        let value = self.value();
        gnmi::Update {
            path: Some(path),
            val: Some(TypedValue { value: Some(value) }),
            ..Default::default()
        }
    }

    fn value(&mut self) -> typed_value::Value {
        match self.below(8) {
            0 => typed_value::Value::StringVal(self.text()),
            1 => typed_value::Value::UintVal(1400),
            2 => typed_value::Value::AsciiVal(self.lines()),
            3 => {
                let entry = |at| TypedValue {
                    value: Some(typed_value::Value::StringVal(format!("d{at}"))),
                };
                let element = (0..self.many(1 << 16, 8)).map(entry).collect();
                typed_value::Value::LeaflistVal(gnmi::ScalarArray { element })
            }
            4 => typed_value::Value::JsonVal(self.json().into()),
            _ => typed_value::Value::JsonIetfVal(self.json().into()),
        }
    }

    fn lines(&mut self) -> String {
        let mut text = String::new();
        for _ in 0..1 + self.many(1 << 8, 64) {
            text.push_str(self.one(&LINES));
            if self.perhaps() {
                let words = (0..self.many(1 << 15, 7)).map(|at| format!(" d{at}"));
                text.extend(words);
            }
            text.push('\n');
        }
        text
    }

    fn json(&mut self) -> String {
        let list = |items: Vec<String>| format!("[{}]", items.join(","));
        match self.below(8) {
            0 => "[".repeat(self.many(1 << 20, 1)),
            1 => r#"{"interfaces":"#.repeat(self.many(1 << 16, 14)),
            2 => list((0..self.many(1 << 16, 9)).map(|at| format!("\"d{at}\"")).collect()),
            3 => format!("\"{}\"", self.text()),
            4 => {
                format!("{{\"interface\":{}}}", list(vec!["{}".to_owned(); self.many(1 << 21, 3)]))
            }
            5 => {
                let entry =
                    |at| format!(r#"{{"name":"v{at}","config":{{"name":"v{at}","mtu":1414}}}}"#);
                let entries = list((0..self.many(1 << 6, 48)).map(entry).collect());
                format!(r#"{{"openconfig-interfaces:interface":{entries}}}"#)
            }
            6 => r#"{"mtu":1414,"description":"x"}"#.to_owned(),
            _ => self.text(),
        }
    }

    pub(crate) fn authz(&mut self) -> authz::RotateAuthzRequest {
        let rule = r#"{"name":"r","source":{"principals":["a*"]},"request":{"paths":["*"]}}"#;
        let policy = match self.below(4) {
            0 => self.json(),
            1 => rule.to_owned(),
            _ => {
                let rules = vec![rule; self.many(1 << 14, rule.len())].join(",");
                format!(r#"{{"name":"p","allow_rules":[{rules}]}}"#)
            }
        };
        let upload = authz::UploadRequest { version: self.text(), created_on: 1, policy };
        let upload = authz::rotate_authz_request::RotateRequest::UploadRequest(upload);
        let force_overwrite = self.perhaps();
        authz::RotateAuthzRequest {
            rotate_request: Some(upload),
            force_overwrite,
            ..Default::default()
        }
    }

    pub(crate) fn pathz(&mut self) -> pathz::RotateRequest {
        let rules = self.paths(1 << 14).into_iter().enumerate().map(|(at, path)| {
            pathz::AuthorizationRule {
                id: format!("r{at}"),
                path: Some(path),
                action: i32::try_from(self.below(4)).unwrap(),
                mode: i32::try_from(self.below(4)).unwrap(),
                principal: Some(pathz::authorization_rule::Principal::User(self.text())),
            }
        });
        let policy = pathz::AuthorizationPolicy { rules: rules.collect(), groups: Vec::new() };
        let version = self.text();
        let created_on = 1;
        let policy = Some(policy);
        let upload = pathz::UploadRequest { version, created_on, policy };
        let upload = pathz::rotate_request::RotateRequest::UploadRequest(upload);
        pathz::RotateRequest { rotate_request: Some(upload), force_overwrite: self.perhaps() }
    }

    pub(crate) fn certz(&mut self) -> certz::RotateCertificateRequest {
        let certificate = certz::Certificate {
            r#type: 1,
            encoding: i32::try_from(self.below(4)).unwrap(),
            certificate_type: Some(certz::certificate::CertificateType::RawCertificate(
                self.text().into(),
            )),
            private_key_type: Some(certz::certificate::PrivateKeyType::RawPrivateKey(
                self.text().into(),
            )),
            ..Default::default()
        };
        let mut chain = certz::CertificateChain { certificate: Some(certificate), parent: None };
        for _ in 0..self.many(90, chain.encoded_len()) {
            chain = certz::CertificateChain {
                certificate: chain.certificate.clone(),
                parent: Some(Box::new(chain)),
            };
        }
        let entity = match self.below(3) {
            0 => certz::entity::Entity::CertificateChain(chain),
            1 => certz::entity::Entity::TrustBundle(chain),
            _ => certz::entity::Entity::TrustBundlePkcs7(certz::TrustBundle {
                pkcs7_block: self.text(),
            }),
        };
        let entity = certz::Entity { version: self.text(), created_on: 1, entity: Some(entity) };
        let entities = self.copies(&[entity], 64);
        let upload = certz::UploadRequest { entities };
        let upload = certz::rotate_certificate_request::RotateRequest::Certificates(upload);
        certz::RotateCertificateRequest {
            force_overwrite: self.perhaps(),
            ssl_profile_id: "fuzz".to_owned(),
            rotate_request: Some(upload),
        }
    }

    pub(crate) fn account_credentials(&mut self) -> credentialz::RotateAccountCredentialsRequest {
        let key = credentialz::account_credentials::AuthorizedKey {
            authorized_key: self.text().into(),
            key_type: i32::try_from(self.below(5)).unwrap(),
            ..Default::default()
        };
        let account = credentialz::AccountCredentials {
            account: "alice".to_owned(),
            authorized_keys: self.copies(&[key], 64),
            version: self.text(),
            created_on: 1,
        };
        let credentials = self.copies(&[account], 64);
        let request = credentialz::AuthorizedKeysRequest { credentials };
        let request = credentialz::rotate_account_credentials_request::Request::Credential(request);
        credentialz::RotateAccountCredentialsRequest {
            request: Some(request),
            force_overwrite: self.perhaps(),
        }
    }

    pub(crate) fn host_parameters(&mut self) -> credentialz::RotateHostParametersRequest {
        let key = credentialz::PublicKey {
            public_key: self.text().into(),
            key_type: i32::try_from(self.below(5)).unwrap(),
            ..Default::default()
        };
        let request = credentialz::CaPublicKeyRequest {
            ssh_ca_public_keys: self.copies(&[key], 64),
            version: self.text(),
            created_on: 1,
        };
        let request = credentialz::rotate_host_parameters_request::Request::SshCaPublicKey(request);
        credentialz::RotateHostParametersRequest { request: Some(request) }
    }
}
