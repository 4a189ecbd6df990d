use std::collections::BTreeSet;

use super::*;

const HOST: &[u8] = include_bytes!("../../tests/data/ssh/host");
const HOST_PUBLIC: &[u8] = include_bytes!("../../tests/data/ssh/host.pub");
const HOST_CERTIFICATE: &[u8] = include_bytes!("../../tests/data/ssh/host-cert.pub");
const USER: &[u8] = include_bytes!("../../tests/data/ssh/user.pub");
const USER_CERTIFICATE: &[u8] = include_bytes!("../../tests/data/ssh/user-cert.pub");
const CA: &[u8] = include_bytes!("../../tests/data/ssh/ca.pub");
const EC: &[u8] = include_bytes!("../../tests/data/ssh/ec.pub");
const RSA: &[u8] = include_bytes!("../../tests/data/ssh/rsa.pub");
const WEAK: &[u8] = include_bytes!("../../tests/data/ssh/weak.pub");
const LOCKED: &[u8] = include_bytes!("../../tests/data/ssh/locked");

fn rules() -> CredentialzRules {
    let names = ["alice", "bob", "spiffe://box/robot"];
    CredentialzRules { accounts: names.map(SmolStr::from).into(), box_keys: Vec::new() }
}

fn stamp(version: &str) -> Freshness {
    Freshness { version: version.into(), created_on: 7 }
}

fn upload<T>(account: &str, version: &str, what: T) -> AccountUpload<T> {
    AccountUpload { account: account.into(), stamp: stamp(version), what }
}

fn raw(octets: &[u8]) -> RawKey {
    RawKey { octets: octets.to_vec(), kind: None, description: String::new(), options: Vec::new() }
}

fn principals(account: &str, names: &[&str]) -> Upload {
    let principal = |name: &&str| RawPrincipal { name: (*name).to_owned(), options: Vec::new() };
    let names = names.iter().map(principal).collect();
    Upload::Principals(vec![upload(account, "1", names)])
}

fn server_keys(artefacts: &[(&[u8], &[u8])]) -> Upload {
    let artefact = |(key, certificate): &(&[u8], &[u8])| Artefact {
        private_key: key.to_vec().into(),
        certificate: certificate.to_vec(),
    };
    Upload::ServerKeys { stamp: stamp("h"), artefacts: artefacts.iter().map(artefact).collect() }
}

/// The credentials after these uploads; the last one may be refused.
fn after(rules: &CredentialzRules, uploads: Vec<Upload>) -> Result<Credentials, String> {
    uploads.into_iter().try_fold(Credentials::default(), |credentials, upload| {
        rules.apply(&credentials, upload).map(|(new, _)| new).map_err(|error| error.to_string())
    })
}

#[track_caller]
fn refused(uploads: Vec<Upload>, why: &str) {
    let error = after(&rules(), uploads).unwrap_err();
    assert!(error.contains(why), "{error}");
}

/// The text of a file, by the end of its path.
#[track_caller]
fn text(rendered: &RenderedCredentials, path: &str) -> String {
    let file = rendered.files.iter().find(|file| file.path.contains(path));
    String::from_utf8(file.unwrap_or_else(|| panic!("{rendered:?}")).content.to_vec()).unwrap()
}

// proves 5.82, 5.84
#[test]
fn lists_are_replaced_as_a_whole_and_an_empty_one_clears() {
    let keys = |list: &[&[u8]]| {
        Upload::Keys(vec![upload("alice", "1", list.iter().map(|it| raw(it)).collect())])
    };
    let file = |uploads| {
        let rendered = after(&rules(), uploads).unwrap().render();
        assert!(rendered.server.as_ref().unwrap().text.contains(
            "Match User alice\n    AuthorizedKeysFile /etc/ssh/holdfast/authorized_keys/alice\n"
        ));
        text(&rendered, "authorized_keys/alice")
    };
    let line = |octets: &[u8]| String::from_utf8(octets.to_vec()).unwrap();
    assert_eq!(file(vec![keys(&[USER, EC])]), format!("{}{}", line(USER), line(EC)));
    assert_eq!(file(vec![keys(&[USER, EC]), keys(&[RSA])]), line(RSA));
    // The file stays: what the account has in its home does not count any more.
    assert_eq!(file(vec![keys(&[USER]), keys(&[])]), "");

    let credentials = after(&rules(), vec![principals("bob", &["a", "b"])]).unwrap();
    assert_eq!(text(&credentials.render(), "principals/bob"), "a\nb\n");
    let both = vec![principals("bob", &["a", "b"]), principals("bob", &["c"])];
    assert_eq!(text(&after(&rules(), both).unwrap().render(), "principals/bob"), "c\n");
    let none = vec![principals("bob", &["a"]), principals("bob", &[])];
    assert_eq!(after(&rules(), none).unwrap().render(), RenderedCredentials::default());
}

// proves 5.82, 5.84, 5.85
#[test]
fn accounts_must_exist_and_be_unique() {
    let password = |account| Upload::Passwords(vec![upload(account, "1", hash())]);
    refused(vec![Upload::Keys(vec![upload("eve", "1", Vec::new())])], "no account `eve`");
    refused(vec![principals("eve", &[])], "no account `eve`");
    refused(vec![password("eve")], "no account `eve`");
    refused(vec![password("..")], "no account `..`");
    let twice = vec![upload("bob", "1", Vec::new()), upload("bob", "2", Vec::new())];
    refused(vec![Upload::Keys(twice)], "`bob` is named twice");
    refused(vec![principals("spiffe://box/robot", &["a"])], "over gRPC only");
    refused(vec![Upload::Keys(Vec::new())], "the request is empty");
    let robot = after(&rules(), vec![password("spiffe://box/robot")]).unwrap();
    assert!(robot.render().passwords.is_empty() && robot.accounts.len() == 1);
}

fn hash() -> Result<CryptHash, CryptError> {
    CryptHash::md5("$1$saltsalt$NuzA7WTAelpl95xgBGWN60")
}

// proves 5.83
#[test]
fn an_invalid_key_option_refuses_the_upload() {
    let with = |options: Vec<Result<KeyOption, OptionError>>| {
        let key = RawKey { options, ..raw(USER) };
        vec![
            Upload::Keys(vec![upload("bob", "0", vec![raw(EC)])]),
            Upload::Keys(vec![upload("bob", "1", vec![raw(EC), key])]),
        ]
    };
    let key_option = KeyOption::named;
    let ok = vec![
        KeyOption::numbered(3, "echo \"a\", b"),
        key_option("FROM", "10.0.0.0/8,!10.1.0.0/16"),
        key_option("restrict", ""),
        key_option("environment", "A=b"),
        key_option("expiry-time", "20301231"),
    ];
    let file = text(&after(&rules(), with(ok)).unwrap().render(), "authorized_keys/bob");
    let options = file.lines().nth(1).unwrap();
    assert!(options.starts_with(
        "command=\"echo \\\"a\\\", b\",from=\"10.0.0.0/8,!10.1.0.0/16\",restrict,environment=\"A=b\",expiry-time=\"20301231\" ssh-ed25519 "
    ), "{options}");
    // option, reason
    for (option, why) in [
        (key_option("no-such-thing", ""), "no key option `no-such-thing`"),
        (KeyOption::numbered(0, ""), "number 0"),
        (KeyOption::numbered(23, ""), "number 23"),
        (Err(OptionError::Nothing), "neither a name nor a number"),
        (key_option("command", ""), "`command` needs a value"),
        (key_option("pty", "x"), "`pty` takes no value"),
        (key_option("command", "a\nssh-rsa B"), "control characters"),
        (key_option("environment", "=x"), "NAME=value"),
        (key_option("expiry-time", "tomorrow"), "not a time"),
    ] {
        let error = after(&rules(), with(vec![option])).unwrap_err();
        assert!(error.contains(why) && error.contains("account `bob`"), "{error}");
        assert!(error.contains(", 2"), "the key is named: {error}");
    }
}

#[test]
fn every_standard_option_has_its_name() {
    for number in 1..=22 {
        let value = match number {
            4 => "A=b",
            5 => "20301231",
            3 | 6 | 12 | 13 | 15 | 20 => "x",
            _ => "",
        };
        let option = KeyOption::numbered(number, value).unwrap();
        assert_eq!(KeyOption::named(option.parts().0, value).unwrap(), option);
    }
}

#[test]
fn public_keys_are_parsed_from_lines_base64_and_octets() {
    let text = std::str::from_utf8(USER).unwrap();
    let base64 = text.split(' ').nth(1).unwrap();
    use base64::Engine as _;
    let octets = base64::engine::general_purpose::STANDARD.decode(base64).unwrap();
    let whole = PublicKey::parse(USER, Some(KeyKind::Ed25519)).unwrap();
    assert_eq!(whole.comment(), "alice");
    for form in [base64.as_bytes(), &octets] {
        assert_eq!(PublicKey::parse(form, None).unwrap().line(), whole.line());
    }
    assert_eq!(PublicKey::parse(EC, None).unwrap().kind(), Some(KeyKind::EcdsaP384));
    assert_eq!(PublicKey::parse(RSA, None).unwrap().kind(), Some(KeyKind::Rsa3072));
}

#[test]
fn invalid_keys_are_refused() {
    let two = [USER, EC].concat();
    // bytes, what the client calls it, reason
    let public: [(&[u8], Option<KeyKind>, &str); 8] = [
        (b"", None, "empty"),
        (b"ssh-ed25519 AAAA", None, "not an SSH public key"),
        (b"\xff\x00", None, "not an SSH public key"),
        (&[b'A'; 70_000], None, "longer than"),
        (&two, None, "several lines"),
        (USER, Some(KeyKind::Rsa2048), "declared as Rsa2048"),
        (WEAK, None, "RSA key has 1024 bits"),
        (USER_CERTIFICATE, None, "a certificate, not a key"), // one that never expires
    ];
    for (octets, kind, why) in public {
        let error = PublicKey::parse(octets, kind).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    let private = |octets| PrivateKey::parse(octets).unwrap_err();
    assert_eq!(private(LOCKED), KeyError::Encrypted);
    assert!(private(b"-----BEGIN RSA PRIVATE KEY-----").to_string().contains("OpenSSH's format"));
    assert_eq!(Certificate::parse_for_host(USER_CERTIFICATE), Err(KeyError::ForUsers));
    assert!(
        Certificate::parse(USER)
            .unwrap_err()
            .to_string()
            .contains("the type is not one of certificates")
    );
    let octets = std::str::from_utf8(HOST_CERTIFICATE).unwrap().split(' ').nth(1).unwrap();
    let half = &octets.as_bytes()[..octets.len() / 8 * 4];
    assert!(Certificate::parse(half).unwrap_err().to_string().contains("ends too early"));
    let renamed = format!("ssh-rsa-cert-v01@openssh.com {octets}");
    assert!(
        Certificate::parse(renamed.as_bytes())
            .unwrap_err()
            .to_string()
            .contains("the name of the type")
    );
}

// proves 5.85
#[test]
fn hashes_of_crypt_are_checked_and_compared() {
    // hash, its password (made by other tools)
    for (hash, password) in [
        ("$1$saltsalt$NuzA7WTAelpl95xgBGWN60", "correct horse"),
        ("$1$ab$e2KlfqG5YBMTjSz7XF.Eu1", "x"),
        ("$1$abcdefgh$4rkowJR2jB2U9.Vqq3XKW1", "a password of more than sixteen octets"),
        (
            "$6$saltstring$.r0X7ub5wGR2v4Xz7svCIozfnlorFh19V89t8KC9Umd81uGhFgsyTRNyzQDXDIm17fFcR9z3z7oBNdsyYBbtm/",
            "correct horse",
        ),
        (
            "$6$rounds=1400$anotherlongsalts$BIJq9mRCZh1kev4gsEFy0R5hLBKgZM.fwvpxgy31e6bRJqRdXTpSE8TJFJysi3GwDPeX9bz4aZklq669D26ai0",
            "correct horse",
        ),
    ] {
        let parsed = CryptHash::parse(hash).unwrap();
        assert!(parsed.matches(password.as_bytes()), "{hash}");
        assert!(!parsed.matches(b"") && !parsed.matches(b"correct mule"), "{hash}");
        assert_eq!(parsed.text(), hash);
        assert!(!format!("{parsed:?}").contains('$'), "hashes are not printed");
    }
    let hashed = CryptHash::of(b"correct horse", [3; SALT_OCTETS]).unwrap();
    assert!(hashed.text().starts_with("$6$rounds=100000$") && hashed.matches(b"correct horse"));
    assert_eq!(CryptHash::sha512(hashed.text()).unwrap(), hashed);
    assert_eq!(CryptHash::of(b"", [0; SALT_OCTETS]), Err(CryptError::Empty));
    assert_eq!(CryptHash::of(b"a\0b", [0; SALT_OCTETS]), Err(CryptError::Zero));
    assert_eq!(CryptHash::of(&[b'x'; 512], [0; SALT_OCTETS]), Err(CryptError::TooLong));
}

#[test]
fn an_overlong_password_matches_no_hash() {
    for (octets, want) in [(511, true), (512, false), (1024, false)] {
        let password = vec![b'x'; octets];
        let hash = format!("$1$saltsalt${}", super::md5_crypt::hash(&password, b"saltsalt"));
        assert_eq!(CryptHash::parse(&hash).unwrap().matches(&password), want, "{octets} bytes");
    }
    let longest = CryptHash::of(&[b'x'; 511], [3; SALT_OCTETS]).unwrap();
    assert!(longest.matches(&[b'x'; 511]) && !longest.matches(&[b'x'; 512]));
}

// proves 5.85
#[test]
fn malformed_hashes_are_refused() {
    let long = "x".repeat(86);
    let sha512 = [
        String::new(),
        "!".to_owned(),
        "plain".to_owned(),
        "$6$salt$short".to_owned(),
        format!("$6$sa:lt${long}"),
        format!("$6$salt${long}:0:"),
        format!("$6$saltsaltsaltsalts${long}"),
        format!("$6$rounds=10$salt${long}"),
        format!("$6$rounds=x$salt${long}"),
        format!("$5$salt${long}"),
        hash().unwrap().text().to_owned(),
    ];
    for text in sha512 {
        assert_eq!(CryptHash::sha512(&text), Err(CryptError::Malformed("SHA-512-crypt")), "{text}");
    }
    let endless = format!("$6$rounds=999999999$salt${long}");
    assert_eq!(CryptHash::sha512(&endless), Err(CryptError::Rounds));
    for text in
        ["$1$salt$", "$1$toolongsalt$NuzA7WTAelpl95xgBGWN60", "$1$a\n$NuzA7WTAelpl95xgBGWN60"]
    {
        assert_eq!(CryptHash::md5(text), Err(CryptError::Malformed("MD5-crypt")), "{text}");
    }
}

// proves 5.86
#[test]
fn host_settings_are_rendered_for_sshd() {
    let glome = Glome {
        key: "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb".into(),
        key_version: 1,
        url_prefix: "https://glome.example.net".into(),
    };
    let uploads = vec![
        Upload::CaKeys { stamp: stamp("ca"), keys: vec![raw(CA)] },
        server_keys(&[(HOST, HOST_CERTIFICATE)]),
        Upload::Allowed([Authentication::PublicKey].into()),
        Upload::PrincipalsTool(Some(PrincipalsTool::Hiba)),
        Upload::Glome(Some(glome)),
    ];
    let rendered = after(&rules(), uploads).unwrap().render();
    let server = rendered.server.clone().unwrap();
    let key = rendered.files.iter().find(|it| it.secret).unwrap();
    let name = &key.path[CREDENTIALS_FOLDER.len() + 1..];
    assert_eq!(key.content.as_slice(), HOST);
    let certificate = rendered.files.iter().find(|it| it.path.contains("-cert-")).unwrap();
    assert_eq!(certificate.content.as_slice(), HOST_CERTIFICATE);
    let authority = rendered.files.iter().find(|it| it.path.contains("ca_keys")).unwrap();
    let want = format!(
        "{FRAGMENT_HEADER}\n\
         HostKey /etc/ssh/holdfast/{name}\n\
         HostCertificate /{}\n\
         TrustedUserCAKeys /{}\n\
         PubkeyAuthentication yes\n\
         PasswordAuthentication no\n\
         KbdInteractiveAuthentication no\n\
         AuthorizedPrincipalsCommand /usr/sbin/hiba-chk -i /{} -r %u %k\n\
         AuthorizedPrincipalsCommandUser nobody\n",
        certificate.path, authority.path, certificate.path
    );
    assert_eq!(server.text, want);
    assert_eq!(server.programs, [HIBA_PROGRAM]);
    assert_eq!(server.files, [&key.path, &certificate.path, &authority.path].map(Clone::clone));
    let glome = text(&rendered, GLOME_FILE);
    assert!(glome.ends_with("key-version = 1\nurl-prefix = https://glome.example.net\n"));
    assert_eq!(rendered.files.iter().filter(|it| it.program == GLOME_PROGRAM).count(), 1);
    for printed in [format!("{rendered:?}"), format!("{:?}", server_keys(&[(HOST, b"")]))] {
        assert!(!printed.contains("PRIVATE"), "secrets are not printed");
    }
}

// proves 5.86
#[test]
fn generated_host_keys_replace_earlier_ones() {
    let host_key = PrivateKey::parse(HOST).unwrap();
    let upload = Upload::GeneratedKeys { stamp: stamp("g"), keys: vec![host_key.clone()] };
    let (credentials, reply) = rules().apply(&Credentials::default(), upload).unwrap();
    assert_eq!(reply, Reply::GeneratedKeys(vec![host_key.public().clone()]));
    assert_eq!(credentials.host.keys_freshness, Some(stamp("g")));
    // An empty upload returns the server to its own keys.
    let (bare, _) = rules().apply(&credentials, server_keys(&[])).unwrap();
    assert_eq!(bare.render(), RenderedCredentials::default());
}

// proves 5.90
#[test]
fn a_certificate_is_attached_to_a_present_host_key() {
    let with_key = vec![server_keys(&[(HOST, b"")]), server_keys(&[(b"", HOST_CERTIFICATE)])];
    let credentials = after(&rules(), with_key).unwrap();
    let server = credentials.render().server.unwrap().text;
    assert!(server.contains("HostKey /etc/ssh/holdfast/host_key-"), "{server}");
    assert!(server.contains("HostCertificate /etc/ssh/holdfast/host_key-"), "{server}");

    let path = "/etc/ssh/ssh_host_ed25519_key".to_owned();
    let public = PublicKey::parse(HOST_PUBLIC, None).unwrap();
    let of_box = CredentialzRules { box_keys: vec![BoxKey { path, public }], ..rules() };
    let credentials = after(&of_box, vec![server_keys(&[(b"", HOST_CERTIFICATE)])]).unwrap();
    let server = credentials.render().server.unwrap().text;
    assert!(!server.contains("HostKey ") && server.contains("HostCertificate "), "{server}");
    assert_eq!(
        (credentials.host.keys_freshness, credentials.host.certificates_freshness),
        (None, Some(stamp("h")))
    );

    refused(vec![server_keys(&[(b"", HOST_CERTIFICATE)])], "to none of the host keys");
    refused(vec![server_keys(&[(HOST, USER_CERTIFICATE)])], "for users, not for hosts");
    refused(vec![server_keys(&[(HOST, b""), (HOST, b"")])], "host key 2 is the same");
    refused(vec![server_keys(&[(b"", b"")])], "artefact 1 has neither");
}

// proves 5.87
#[test]
fn the_tool_and_lists_of_principals_exclude_one_another() {
    let tool = || Upload::PrincipalsTool(Some(PrincipalsTool::Hiba));
    let none = || Upload::PrincipalsTool(None);
    refused(vec![principals("bob", &["a"]), tool()], "account `bob` has a list");
    refused(vec![tool(), principals("bob", &["a"])], "the tool for principals is set");
    assert!(after(&rules(), vec![tool(), principals("bob", &[])]).is_ok());
    assert!(
        after(&rules(), vec![principals("bob", &["a"]), principals("bob", &[]), tool()]).is_ok()
    );
    let removed = after(&rules(), vec![tool(), none(), principals("bob", &["a"])]).unwrap();
    assert!(!removed.render().server.unwrap().text.contains("AuthorizedPrincipalsCommand"));
}

#[test]
fn principals_are_single_words() {
    for (name, why) in
        [("", "no name"), ("a b", "one word"), ("#a", "one word"), ("a\nb", "one word")]
    {
        refused(vec![principals("bob", &[name])], why);
    }
}

// proves 5.8, 5.5
#[test]
fn a_version_is_in_use_by_its_account_alone() {
    let keys = |account, version| Upload::Keys(vec![upload(account, version, Vec::new())]);
    let credentials = after(&rules(), vec![keys("alice", "1")]).unwrap();
    let in_use = |upload| rules().version_in_use(&credentials, &upload);
    assert_eq!(in_use(keys("alice", "1")).as_deref(), Some("1"));
    assert_eq!(in_use(keys("alice", "2")), None);
    assert_eq!(in_use(keys("bob", "1")), None);
    assert_eq!(in_use(principals("alice", &[])), None);
    let host = || Upload::CaKeys { stamp: stamp("ca"), keys: Vec::new() };
    let twice = after(&rules(), vec![host()]).unwrap();
    assert_eq!(rules().version_in_use(&twice, &host()), None);
}

// proves 5.7
#[test]
fn stored_credentials_round_trip() {
    let options = vec![KeyOption::named("command", "a \"b\""), KeyOption::named("pty", "")];
    let key = RawKey { options, description: "key of alice".into(), ..raw(USER) };
    let uploads = vec![
        Upload::Keys(vec![upload("alice", "k", vec![key, raw(EC)])]),
        principals("bob", &["a", "b"]),
        Upload::Passwords(vec![upload("alice", "p", hash())]),
        Upload::CaKeys { stamp: stamp("ca"), keys: vec![raw(CA)] },
        server_keys(&[(HOST, HOST_CERTIFICATE)]),
        Upload::Allowed(BTreeSet::from([Authentication::Password])),
    ];
    let credentials = after(&rules(), uploads).unwrap();
    let mut read = Credentials::default();
    for (name, octets) in credentials.rows() {
        assert!(read.restore_row(&name, &octets).unwrap());
        assert!(read.clone().restore_row(&name, b"{}").is_err() || name.starts_with("account/"));
    }
    assert_eq!(read.rows(), credentials.rows());
    assert_eq!(read.render(), credentials.render());
    assert_eq!(read.restore_row("kept/0", b""), Ok(false));
}

#[test]
fn the_expiry_of_certificates_is_parsed() {
    let host = Certificate::parse_for_host(HOST_CERTIFICATE).unwrap();
    assert_eq!(host.line().as_bytes(), HOST_CERTIFICATE.trim_ascii_end());
    assert!(host.is_for(&PublicKey::parse(HOST_PUBLIC, None).unwrap()));
    assert!(host.valid_before().is_some_and(|at| at > 1_800_000_000 && at < 2_000_000_000));
    assert_eq!(Certificate::parse(USER_CERTIFICATE).unwrap().valid_before(), None);
}

#[test]
fn glome_settings_are_validated() {
    let good = Glome { key: "0".repeat(64), key_version: 1, url_prefix: "https://x".into() };
    let with = |change: fn(&mut Glome)| {
        let mut glome = good.clone();
        change(&mut glome);
        vec![Upload::Glome(Some(glome))]
    };
    assert!(after(&rules(), with(|_| ())).is_ok());
    refused(with(|it| it.key.push('0')), "64 hexadecimal digits");
    refused(with(|it| it.key_version = 128), "between 0 and 127");
    refused(with(|it| it.url_prefix = "http://x".into()), "https URL");
    refused(with(|it| it.url_prefix.push_str("\nkey = 1")), "https URL");
    refused(vec![Upload::Allowed(BTreeSet::new())], "the request is empty");
}
