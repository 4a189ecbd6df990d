use holdfast_proto::gnmi::typed_value::Value;
use holdfast_proto::gnmi::{self, SetRequest, TypedValue, Update};
use holdfast_proto::gnoi::bootconfig::SetBootConfigRequest;
use holdfast_proto::gnoi::system::{PingRequest, RebootRequest, SetPackageRequest};
use holdfast_proto::gnoi::{common, os, system, types};
use holdfast_proto::gnsi::{certz, credentialz};
use holdfast_proto::{bootz, gnmi_ext};
use proptest::prelude::*;

use super::*;

/// A secret that no record may show, in whatever field of a request it was.
const SECRET: &str = "hunter2";

const SET: &str = "/gnmi.gNMI/Set";
const ROTATE: &str = "/gnsi.credentialz.v1.Credentialz/RotateAccountCredentials";
const HOST: &str = "/gnsi.credentialz.v1.Credentialz/RotateHostParameters";
const CERTZ: &str = "/gnsi.certz.v1.Certz/Rotate";

fn payload(path: &str, octets: &[u8]) -> Payload {
    let methods = Methods::new();
    let whole = octets.len() <= MAX_PAYLOAD;
    let octets = &octets[..octets.len().min(MAX_PAYLOAD)];
    methods.payload(methods.method(path).unwrap(), octets, whole)
}

fn update(path: &str, value: Value) -> Update {
    let elem = |name: &str| gnmi::PathElem { name: name.to_owned(), ..Default::default() };
    let elem = path.split('/').filter(|it| !it.is_empty()).map(elem).collect();
    let path = Some(gnmi::Path { elem, ..Default::default() });
    Update { path, val: Some(TypedValue { value: Some(value) }), ..Default::default() }
}

fn set(path: &str, value: Value) -> Vec<u8> {
    SetRequest { update: vec![update(path, value)], ..Default::default() }.encode_to_vec()
}

fn json(text: String) -> Value {
    Value::JsonIetfVal(text.into_bytes().into())
}

// proves 5.101
#[test]
fn secrets_are_withheld_and_the_rest_is_kept() {
    let secret = || SECRET.to_owned();
    let octets = || bytes::Bytes::from(SECRET);
    let under = |prefix: &str, path: &str| {
        let prefix = update(prefix, Value::BoolVal(true)).path;
        let update = vec![update(path, Value::StringVal(secret()))];
        SetRequest { prefix, update, ..Default::default() }.encode_to_vec()
    };
    let password = |password| {
        let account = credentialz::password_request::Account {
            account: "ada".to_owned(),
            password: Some(credentialz::password_request::Password { value: Some(password) }),
            version: "v1".to_owned(),
            ..Default::default()
        };
        let request = credentialz::PasswordRequest { accounts: vec![account] };
        let request = credentialz::rotate_account_credentials_request::Request::Password(request);
        credentialz::RotateAccountCredentialsRequest {
            request: Some(request),
            ..Default::default()
        }
        .encode_to_vec()
    };
    let hash =
        credentialz::password_request::CryptoHash { hash_value: secret(), ..Default::default() };
    let key = credentialz::ServerKeysRequest {
        auth_artifacts: vec![credentialz::server_keys_request::AuthenticationArtifacts {
            private_key: octets(),
            certificate: octets(),
        }],
        version: "v2".to_owned(),
        ..Default::default()
    };
    let host = credentialz::rotate_host_parameters_request::Request::ServerKeys(key);
    let host = credentialz::RotateHostParametersRequest { request: Some(host) };
    let extension = gnmi_ext::RegisteredExtension { msg: octets(), ..Default::default() };
    let extension =
        gnmi_ext::Extension { ext: Some(gnmi_ext::extension::Ext::RegisteredExt(extension)) };
    let upload = certz::Certificate {
        private_key_type: Some(certz::certificate::PrivateKeyType::RawPrivateKey(octets())),
        ..Default::default()
    };
    let entity = certz::Entity {
        version: "v3".to_owned(),
        entity: Some(certz::entity::Entity::CertificateChain(certz::CertificateChain {
            certificate: Some(upload),
            parent: None,
        })),
        ..Default::default()
    };
    let certz = certz::RotateCertificateRequest {
        ssl_profile_id: "gnxi".to_owned(),
        rotate_request: Some(certz::rotate_certificate_request::RotateRequest::Certificates(
            certz::UploadRequest { entities: vec![entity] },
        )),
        ..Default::default()
    };
    let boot = SetBootConfigRequest {
        boot_config: Some(bootz::BootConfig { vendor_config: octets(), ..Default::default() }),
        ..Default::default()
    };
    let remote = common::RemoteDownload {
        path: format!("sftp://me:{SECRET}@host/image"),
        credentials: Some(types::Credentials {
            username: "me".to_owned(),
            password: Some(types::credentials::Password::Cleartext(secret())),
        }),
        ..Default::default()
    };
    let package = system::Package {
        filename: "/tmp/image".to_owned(),
        remote_download: Some(remote),
        ..Default::default()
    };
    let package =
        SetPackageRequest { request: Some(system::set_package_request::Request::Package(package)) };
    let activate = os::ActivateRequest {
        version: "v9".to_owned(),
        boot_config: Some(boot.clone()),
        ..Default::default()
    };
    let content = os::install_request::Request::TransferContent(octets());
    let content = os::InstallRequest { request: Some(content) };
    let users = "system/aaa/authentication/users/user/config";
    let whole = ["password", "password-hashed", "ssh-key"].map(|leaf| {
        let config = format!(r#"{{"role":"r9","{leaf}":"{SECRET}"}}"#);
        let users = format!(r#"{{"user":[{{"username":"ada","config":{config}}}]}}"#);
        let aaa = format!(r#"{{"aaa":{{"authentication":{{"users":{users}}}}}}}"#);
        update("", json(format!(r#"{{"openconfig-system:system":{aaa}}}"#)))
    });
    let union = SetRequest { union_replace: whole.to_vec(), ..Default::default() };
    let replace = SetRequest { replace: whole.to_vec(), ..Default::default() };
    // method, request, what must still be there
    for (path, request, words) in [
        (SET, set("system/config/hostname", Value::StringVal("edge".into())), &["edge"][..]),
        (SET, set(&format!("{users}/password"), Value::StringVal(secret())), &["password"]),
        (SET, set(&format!("{users}/password"), json(format!("\"{SECRET}\""))), &["password"]),
        (SET, set(&format!("{users}/ssh-key"), Value::AsciiVal(secret())), &["ssh-key"]),
        (
            SET,
            set(users, json(format!(r#"{{"role":"r7","oc-sys:password":"{SECRET}"}}"#))),
            &["r7"],
        ),
        (SET, set(users, json(format!(r#"{{"password":"{SECRET}"#))), &["users"]),
        (
            SET,
            set("", Value::AsciiVal(format!("mtu 9\nuser ada password {SECRET}\nrole r8"))),
            &["mtu 9", "r8"],
        ),
        (SET, set(&format!("{users}/password-hashed"), Value::StringVal(secret())), &["hashed"]),
        (SET, union.encode_to_vec(), &["ada", "r9", "ssh-key"]),
        (SET, replace.encode_to_vec(), &["ada", "r9", "ssh-key"]),
        (SET, set("system", Value::BytesVal(octets())), &["system"]),
        (SET, set("system", Value::ProtoBytes(octets())), &["system"]),
        (SET, under(users, "password"), &["password"]),
        (SET, under(&format!("{users}/password"), ""), &["password"]),
        (SET, SetRequest { extension: vec![extension], ..Default::default() }.encode_to_vec(), &[]),
        (
            ROTATE,
            password(credentialz::password_request::password::Value::Plaintext(secret())),
            &["ada", "v1"],
        ),
        (
            ROTATE,
            password(credentialz::password_request::password::Value::CryptoHash(hash)),
            &["ada", "v1"],
        ),
        (HOST, host.encode_to_vec(), &["v2"]),
        (CERTZ, certz.encode_to_vec(), &["gnxi", "v3"]),
        ("/gnoi.bootconfig.BootConfig/SetBootConfig", boot.encode_to_vec(), &[]),
        ("/gnoi.os.OS/Activate", activate.encode_to_vec(), &["v9"]),
        ("/gnoi.os.OS/Install", content.encode_to_vec(), &[]),
        ("/gnoi.system.System/SetPackage", package.encode_to_vec(), &["/tmp/image", "me"]),
        (
            "/gnoi.system.System/Reboot",
            RebootRequest { message: "why not".into(), ..Default::default() }.encode_to_vec(),
            &["why not"],
        ),
    ] {
        let payload = payload(path, &request);
        let payload_text = String::from_utf8_lossy(&payload.octets);
        assert!(!payload_text.contains(SECRET), "{path}: {payload_text}");
        assert!(!payload.cut, "{path}: {payload_text}");
        for word in words {
            assert!(payload_text.contains(word), "{path}: {word} is not in {payload_text}");
        }
    }
}

/// Clients before gNMI 0.4 name a path in one string for each element.
// proves 5.101
#[test]
fn secrets_at_deprecated_elements_are_withheld() {
    let old = |elements: &[&str]| {
        #[expect(deprecated, reason = "old clients send it")]
        gnmi::Path {
            element: elements.iter().map(ToString::to_string).collect(),
            ..Default::default()
        }
    };
    let user = ["system", "aaa", "user[username=x]", "config"];
    for (prefix, path, withheld) in [
        (&user[..], &["password"][..], true),
        (&[], &["user[username=x]", "openconfig-system:password"], true),
        (&["secret-keys[name=x]"], &["value"], true),
        (&user, &["role"], false),
    ] {
        let val = Some(TypedValue { value: Some(Value::StringVal(SECRET.to_owned())) });
        let update = Update { path: Some(old(path)), val, ..Default::default() };
        let request =
            SetRequest { prefix: Some(old(prefix)), update: vec![update], ..Default::default() };
        let recorded = payload(SET, &request.encode_to_vec()).octets;
        let found = recorded.windows(SECRET.len()).any(|octets| octets == SECRET.as_bytes());
        assert_eq!(!found, withheld, "{prefix:?} {path:?}");
    }
}

// proves 5.100, 5.101
#[test]
fn a_message_without_secrets_is_copied_unchanged() {
    let request = PingRequest {
        destination: "192.0.2.1".to_owned(),
        count: -1,
        interval: 5,
        do_not_resolve: true,
        ..Default::default()
    };
    let payload = payload("/gnoi.system.System/Ping", &request.encode_to_vec());
    assert_eq!(payload.message, "gnoi.system.PingRequest");
    assert_eq!(PingRequest::decode(&payload.octets[..]).unwrap(), request);
    assert!(!payload.cut);
}

// proves 5.101
#[test]
fn a_large_request_is_cut_and_still_a_message() {
    let many = |count: usize| -> SetRequest {
        let port = |number| format!("interfaces/interface{number}/config/description");
        let value = |number| Value::StringVal(format!("port {number}"));
        let update = (0..count).map(|number| update(&port(number), value(number))).collect();
        SetRequest { update, ..Default::default() }
    };
    let large = payload(SET, &many(1000).encode_to_vec());
    let decoded = SetRequest::decode(&large.octets[..]).unwrap().update;
    assert!(large.cut && large.octets.len() <= MAX_PAYLOAD);
    assert!(decoded.len() > 30, "{}", decoded.len());
    // All updates but the last are unchanged.
    assert_eq!(decoded[..decoded.len() - 1], many(1000).update[..decoded.len() - 1]);

    let document = format!(r#"{{"description":"{}"}}"#, "x".repeat(MAX_PAYLOAD));
    let one = payload(SET, &set("interfaces/interface", json(document)));
    let decoded = SetRequest::decode(&one.octets[..]).unwrap();
    let expected = update("interfaces/interface", json(r#""(cut)""#.to_owned()));
    assert_eq!((decoded.update, one.cut), (vec![expected], true));

    let newer = [PingRequest::default().encode_to_vec(), vec![0xfa, 0x3e, 1, b'x']].concat();
    let unknown = payload("/gnoi.system.System/Ping", &newer);
    assert_eq!((unknown.octets, unknown.cut), (vec![], true));
}

#[test]
fn harmless_fields_are_fields() {
    for row in rules::harmless() {
        let (message, field) = row.rsplit_once('.').unwrap();
        let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
        let file = set.file.iter().find(|it| message.starts_with(&format!("{}.", it.package())));
        let mut scope = &file.unwrap().message_type;
        let mut found = None;
        for name in message[file.unwrap().package().len() + 1..].split('.') {
            found = scope.iter().find(|it| it.name() == name);
            scope = &found.unwrap_or_else(|| panic!("{row}")).nested_type;
        }
        assert!(found.unwrap().field.iter().any(|it| it.name() == field), "{row}");
    }
}

#[test]
fn methods_are_known_by_their_path() {
    let methods = Methods::new();
    for (path, streams, family) in [
        (SET, Some(false), ServiceFamily::Gnmi),
        ("/gnmi.gNMI/Subscribe", Some(true), ServiceFamily::Gnmi),
        ("/gnoi.system.System/Ping", Some(true), ServiceFamily::Gnoi),
        (CERTZ, Some(true), ServiceFamily::Gnsi),
        ("/gnsi.acctz.v1.AcctzStream/RecordSubscribe", Some(true), ServiceFamily::Gnsi),
        ("/grpc.health.v1.Health/Check", Some(false), ServiceFamily::Other),
        ("/grpc.health.v1.Health/Watch", Some(true), ServiceFamily::Other),
        (
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
            Some(true),
            ServiceFamily::Other,
        ),
        ("/gnmi.gNMI/Nothing", None, ServiceFamily::Gnmi),
        ("/nobody/knows", None, ServiceFamily::Other),
    ] {
        assert_eq!(methods.method(path).map(|it| it.streams), streams, "{path}");
        assert_eq!(Methods::family(path), family, "{path}");
    }
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        "[a-z]{0,40}".prop_map(Value::StringVal),
        any::<u64>().prop_map(Value::UintVal),
        Just(json(format!(r#"{{"a":{{"password":"{SECRET}","b":[1,2]}}}}"#))),
        Just(Value::AsciiVal(format!("a\nsecret {SECRET}\nb\n"))),
        Just(Value::BytesVal(SECRET.into())),
        Just(Value::LeaflistVal(gnmi::ScalarArray {
            element: vec![TypedValue { value: Some(Value::BytesVal(SECRET.into())) }],
        })),
    ]
}

proptest! {
    /// Any beginning of a request results in a valid message without secrets.
    #[test]
    fn any_beginning_of_a_set_can_be_read(
        values in proptest::collection::vec(value(), 0..6),
        secret in any::<bool>(),
        end in 0..400_usize,
    ) {
        let mut update: Vec<_> = values.into_iter().map(|value| update("a/b", value)).collect();
        if secret {
            update.insert(0, self::update("a/password", Value::StringVal(SECRET.to_owned())));
        }
        let octets = SetRequest { update, ..Default::default() }.encode_to_vec();
        let end = end.min(octets.len());
        let methods = Methods::new();
        let cut = methods.payload(methods.method(SET).unwrap(), &octets[..end], end == octets.len());
        prop_assert!(SetRequest::decode(&cut.octets[..]).is_ok());
        prop_assert!(cut.cut == (end < octets.len()));
        prop_assert!(!String::from_utf8_lossy(&cut.octets).contains(SECRET));
    }

    /// Bytes that are not a message result in a valid message.
    #[test]
    fn any_octets_come_out_as_a_message(octets in proptest::collection::vec(any::<u8>(), 0..300)) {
        let methods = Methods::new();
        let of = |path: &str| methods.payload(methods.method(path).unwrap(), &octets, true).octets;
        prop_assert!(SetRequest::decode(&of(SET)[..]).is_ok());
        prop_assert!(PingRequest::decode(&of("/gnoi.system.System/Ping")[..]).is_ok());
        prop_assert!(certz::RotateCertificateRequest::decode(&of(CERTZ)[..]).is_ok());
        prop_assert!(credentialz::RotateAccountCredentialsRequest::decode(&of(ROTATE)[..]).is_ok());
    }
}
