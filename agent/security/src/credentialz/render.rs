//! OpenSSH files for the credentials, relative to the root of the box.
//!
//! Files that the server reads at its start (host keys, certificates, authorities) are named by their content. New
//! ones therefore lie next to the old ones until the configuration that names them has been tried, and a power cut
//! at any moment leaves a configuration whose files all exist.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use ssh_key::HashAlg;
use zeroize::Zeroizing;

use super::{
    Authentication, AuthorizedKey, Credentials, CryptHash, Glome, Host, Principal, PrincipalsTool,
    ServerKeySource, option,
};

/// Folder that belongs to credentialz as a whole.
pub const CREDENTIALS_FOLDER: &str = "etc/ssh/holdfast";
/// Folder with one file for each account that has keys from credentialz.
pub const AUTHORIZED_KEYS_FOLDER: &str = "etc/ssh/holdfast/authorized_keys";
/// Folder with one file for each account that has principals from credentialz.
pub const PRINCIPALS_FOLDER: &str = "etc/ssh/holdfast/principals";
/// Our fragment of the server's configuration. sshd takes the first value of an option and reads fragments in the
/// order of their names, hence the `00`.
pub const FRAGMENT_FILE: &str = "etc/ssh/sshd_config.d/00-holdfast.conf";
/// First line of the fragment, which marks it as ours.
pub const FRAGMENT_HEADER: &str =
    "# Written by holdfast for gNSI credentialz. Changes of others here are undone.";
/// Configuration of glome-login.
pub const GLOME_FILE: &str = "etc/glome/config";
/// The SSH server.
pub const SSHD_PROGRAM: &str = "usr/sbin/sshd";
/// Program that authorizes principals by the host's certificate.
pub const HIBA_PROGRAM: &str = "usr/sbin/hiba-chk";
/// Login program for the console by challenge and response.
pub const GLOME_PROGRAM: &str = "usr/sbin/glome-login";
/// User that runs the tool for principals, which needs no permissions.
const HIBA_USER: &str = "nobody";
/// Bytes of a digest that go into a file name.
const NAME_OCTETS: usize = 8;
/// Longest name of an account on Linux, in bytes (useradd(8)).
const MAX_ACCOUNT_OCTETS: usize = 32;

/// SHA-256 of a file's content, or of a hash in the shadow file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Digest(pub [u8; 32]);

impl Digest {
    pub fn of(content: &[u8]) -> Self {
        let octets = HashAlg::Sha256.digest(content);
        Self(octets.try_into().expect("SHA-256 has 32 bytes"))
    }

    /// First digits of the digest, for file names.
    fn short(&self) -> String {
        hex(&self.0[..NAME_OCTETS])
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// Prints 64 hexadecimal digits.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

holdfast_config::text_form!(Digest);

/// A text is not a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a digest has 64 hexadecimal digits")]
pub struct DigestError;

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let digits = text.as_bytes();
        let mut octets = [0; 32];
        if digits.len() != 2 * octets.len() || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(DigestError);
        }
        for (octet, pair) in octets.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| DigestError)?;
            *octet = u8::from_str_radix(pair, 16).map_err(|_| DigestError)?;
        }
        Ok(Self(octets))
    }
}

fn hex(octets: &[u8]) -> String {
    octets.iter().fold(String::new(), |mut text, octet| {
        let _ = write!(text, "{octet:02x}");
        text
    })
}

/// All files and settings that the credentials result in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RenderedCredentials {
    pub files: Vec<File>,
    /// `None` when credentialz does not configure the server.
    pub server: Option<SshServerConfig>,
    /// Password hashes by account, without names that no Unix account can have.
    pub passwords: Vec<(SmolStr, CryptHash)>,
}

/// One file. `Debug` omits its content.
#[derive(Clone, PartialEq, Eq)]
pub struct File {
    /// Path relative to the root, without a leading slash.
    pub path: String,
    pub content: Zeroizing<Vec<u8>>,
    /// Readable by root alone. Files that sshd reads as the user who logs in cannot be.
    pub secret: bool,
    /// Program that reads the file, relative to the root; the file is pointless without it.
    pub program: &'static str,
}

impl File {
    pub fn digest(&self) -> Digest {
        Digest::of(&self.content)
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "File({}, {:?})", self.path, self.digest())
    }
}

/// Configuration of the SSH server, which contains no secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SshServerConfig {
    /// Content of [`FRAGMENT_FILE`].
    pub text: String,
    /// Files of ours that the text names, relative to the root.
    pub files: Vec<String>,
    /// Programs that the text names, relative to the root.
    pub programs: Vec<&'static str>,
}

/// File with the keys of an account, relative to the root.
pub fn authorized_keys_file(account: &str) -> String {
    format!("{AUTHORIZED_KEYS_FOLDER}/{account}")
}

/// True for a name that a Unix account can have. Other names, such as SPIFFE ids, can log in over gRPC only.
pub fn is_unix_name(name: &str) -> bool {
    let plain = |octet: u8| octet.is_ascii_alphanumeric() || matches!(octet, b'_' | b'-' | b'.');
    (1..=MAX_ACCOUNT_OCTETS).contains(&name.len())
        && name.bytes().all(plain)
        && !name.starts_with(['-', '.'])
}

impl Credentials {
    /// Renders the files, the server's configuration and the shadow entries.
    pub fn render(&self) -> RenderedCredentials {
        let mut rendered = RenderedCredentials::default();
        let mut server = SshServerConfig::default();
        self.host_keys(&mut rendered.files, &mut server);
        self.authorities(&mut rendered.files, &mut server);
        self.host.authentication_lines(&mut server.text);
        self.principals_tool(&mut server);
        // `Match` blocks come last, because each extends to the end of the file.
        self.accounts(&mut rendered, &mut server);
        if let Some(glome) = &self.host.glome {
            rendered.files.push(glome.file());
        }
        if !server.text.is_empty() {
            server.text.insert_str(0, &format!("{FRAGMENT_HEADER}\n"));
            rendered.server = Some(server);
        }
        rendered
    }

    fn host_keys(&self, files: &mut Vec<File>, server: &mut SshServerConfig) {
        // Without a `HostKey` line the server finds the box's own keys.
        let all_named = self.host.has_managed_keys();
        for key in &self.host.server_keys {
            let name = Digest::of(key.public().line().as_bytes()).short();
            let path = match &key.key {
                ServerKeySource::Given(private) => {
                    let path = format!("{CREDENTIALS_FOLDER}/host_key-{name}");
                    files.push(secret(path.clone(), private.text().as_bytes()));
                    server.files.push(path.clone());
                    format!("/{path}")
                }
                ServerKeySource::PreExisting(key) => key.path.clone(),
            };
            if all_named {
                line(&mut server.text, "HostKey", &path);
            }
            if let Some(certificate) = &key.certificate {
                let text = format!("{}\n", certificate.line());
                let digest = Digest::of(text.as_bytes()).short();
                let path = format!("{CREDENTIALS_FOLDER}/host_key-{name}-cert-{digest}.pub");
                files.push(public(path.clone(), &text));
                line(&mut server.text, "HostCertificate", &format!("/{path}"));
                server.files.push(path);
            }
        }
    }

    fn authorities(&self, files: &mut Vec<File>, server: &mut SshServerConfig) {
        let Some(keys) = self.host.ca_keys.as_ref().filter(|it| !it.value.is_empty()) else {
            return;
        };
        let text: String = keys.value.iter().map(|key| format!("{}\n", key.line())).collect();
        let path = format!(
            "{CREDENTIALS_FOLDER}/user_ca_keys-{}.pub",
            Digest::of(text.as_bytes()).short()
        );
        files.push(public(path.clone(), &text));
        line(&mut server.text, "TrustedUserCAKeys", &format!("/{path}"));
        server.files.push(path);
    }

    fn principals_tool(&self, server: &mut SshServerConfig) {
        let Some(PrincipalsTool::Hiba) = self.host.principals_tool else { return };
        let certificate = self.host.server_keys.iter().position(|it| it.certificate.is_some());
        let certificate = certificate.and_then(|at| {
            let name = Digest::of(self.host.server_keys[at].public().line().as_bytes()).short();
            server.files.iter().find(|it| it.contains(&format!("{name}-cert-"))).cloned()
        });
        let argument = certificate.map_or(String::new(), |path| format!(" -i /{path}"));
        let command = format!("/{HIBA_PROGRAM}{argument} -r %u %k");
        line(&mut server.text, "AuthorizedPrincipalsCommand", &command);
        line(&mut server.text, "AuthorizedPrincipalsCommandUser", HIBA_USER);
        server.programs.push(HIBA_PROGRAM);
    }

    fn accounts(&self, rendered: &mut RenderedCredentials, server: &mut SshServerConfig) {
        for (name, account) in self.accounts.iter().filter(|(name, _)| is_unix_name(name)) {
            let mut lines = String::new();
            if let Some(keys) = &account.keys {
                let path = authorized_keys_file(name);
                let _ = writeln!(lines, "    AuthorizedKeysFile /{path}");
                let text: String = keys.value.iter().map(AuthorizedKey::line).collect();
                server.files.push(path.clone());
                rendered.files.push(public(path, &text));
            }
            if let Some(list) = account.principals.as_ref().filter(|it| !it.value.is_empty()) {
                let path = format!("{PRINCIPALS_FOLDER}/{name}");
                let _ = writeln!(lines, "    AuthorizedPrincipalsFile /{path}");
                let text: String = list.value.iter().map(Principal::line).collect();
                server.files.push(path.clone());
                rendered.files.push(public(path, &text));
            }
            if !lines.is_empty() {
                let _ = write!(server.text, "Match User {name}\n{lines}");
            }
            if let Some(password) = &account.password {
                rendered.passwords.push((name.clone(), password.value.clone()));
            }
        }
    }
}

impl Host {
    fn authentication_lines(&self, text: &mut String) {
        let Some(allowed) = &self.allowed else { return };
        let mut way = |name: &str, way: Authentication| {
            line(text, name, if has(allowed, way) { "yes" } else { "no" });
        };
        way("PubkeyAuthentication", Authentication::PublicKey);
        way("PasswordAuthentication", Authentication::Password);
        way("KbdInteractiveAuthentication", Authentication::KeyboardInteractive);
    }
}

fn has(allowed: &BTreeSet<Authentication>, way: Authentication) -> bool {
    allowed.contains(&way)
}

impl AuthorizedKey {
    fn line(&self) -> String {
        let mut line = String::new();
        option::render(&self.options, &mut line);
        line.push_str(&self.key.line());
        let comment =
            if self.description.is_empty() { self.key.comment() } else { &self.description };
        // A comment extends to the end of its line, so control characters are removed: a line end would begin
        // another key.
        let comment: String = comment.chars().filter(|it| !it.is_control()).collect();
        if !comment.trim().is_empty() {
            line.push(' ');
            line.push_str(comment.trim());
        }
        line.push('\n');
        line
    }
}

impl Principal {
    fn line(&self) -> String {
        let mut line = String::new();
        option::render(&self.options, &mut line);
        line.push_str(&self.name);
        line.push('\n');
        line
    }
}

impl Glome {
    fn file(&self) -> File {
        let text = format!(
            "{FRAGMENT_HEADER}\n[service]\nkey = {}\nkey-version = {}\nurl-prefix = {}\n",
            self.key, self.key_version, self.url_prefix
        );
        File { program: GLOME_PROGRAM, ..public(GLOME_FILE.to_owned(), &text) }
    }
}

fn line(text: &mut String, keyword: &str, argument: &str) {
    let _ = writeln!(text, "{keyword} {argument}");
}

fn secret(path: String, content: &[u8]) -> File {
    let content = Zeroizing::new(content.to_vec());
    File { path, content, secret: true, program: SSHD_PROGRAM }
}

fn public(path: String, text: &str) -> File {
    File { secret: false, ..secret(path, text.as_bytes()) }
}
