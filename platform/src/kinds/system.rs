//! The box itself: its name, its domain, its banners.

use holdfast_config::{InstancePath, NodeId, Schema, Step, Value};
use holdfast_scheduler::{Descriptor, Effect, Key, KindId, SharedValue};
use holdfast_security::credentialz::GLOME_FILE;
use serde::{Deserialize, Serialize};
use smallvec::smallvec;
use smol_str::SmolStr;
use std::sync::Arc;

use super::codec::{EncodeError, Op, Request, Requests};
use super::entry::{Entry, ObjectError, ObjectKeys, ObjectValues};
use super::links::LinkIndex;
use super::native::{Bind, ModelError, NativeKind, nodes};
use super::reading::Read;
use super::row::{Encode, Kind, PreImageForm, PreImageRow};
use super::state::{Leaves, Planes, StateEntry};
use crate::transport_id;

/// Name in the UTS namespace.
pub const HOSTNAME: KindId = KindId(2);

/// Text of a file below `--root`.
pub const TEXT_FILE: KindId = KindId(3);

/// The name in the UTS namespace of the managed kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hostname {
    /// The name.
    pub name: SmolStr,
}

/// The text of one file below the settings' `--root`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextFile {
    /// Path without a leading slash, `etc/motd`.
    pub path: SmolStr,
    /// Our content in the file.
    pub content: Content,
}

/// Extent of our content in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// The whole file.
    Whole(String),
    /// Lines between our markers; the rest of the file is left untouched.
    Block(String),
    /// The block of the hosts file that gives a domain to the name that the box has, whoever gave it that name.
    OwnHost {
        /// Domain of the box.
        domain: SmolStr,
        /// Name of the box in an observed block; `None` in a request, where the name at that moment is meant.
        host: Option<SmolStr>,
    },
    /// Observed only: the file does not exist, or has no block of ours.
    Absent,
    /// Observed only: the path is a symbolic link, which is restored when the file is given up.
    Link {
        /// Target of the link.
        target: String,
        /// Content of the target.
        text: String,
    },
}

/// The name in the UTS namespace.
#[derive(Debug, Default)]
pub struct HostnameDescriptor;

/// Texts of files.
#[derive(Debug, Default)]
pub struct TextFileDescriptor;

/// File with the host name for the next boot.
pub const HOSTNAME_FILE: &str = "etc/hostname";
/// Hosts file; our block in it sets the domain name.
pub const HOSTS_FILE: &str = "etc/hosts";
/// Resolver file; our block in it sets the search domains.
pub const RESOLV_FILE: &str = "etc/resolv.conf";
/// The file shown before login.
pub const ISSUE_FILE: &str = "etc/issue";
/// The file shown after login.
pub const MOTD_FILE: &str = "etc/motd";

/// Files that may hold content of ours, as a whole (`true`) or as a block; all are read at start.
pub const FILES: [(&str, bool); 6] = [
    (HOSTNAME_FILE, true),
    (HOSTS_FILE, false),
    (RESOLV_FILE, false),
    (ISSUE_FILE, true),
    (MOTD_FILE, true),
    (GLOME_FILE, true),
];

/// Keyword of the line with the search domains; the last such line counts (resolv.conf(5)).
const SEARCH: &str = "search";

/// Address of the box itself in its hosts file.
const OWN_ADDRESS: &str = "127.0.1.1";

/// The key of the host name.
pub fn hostname_key() -> Key {
    Key::of(HOSTNAME)
}

/// The key of a file.
pub fn file_key(path: &str) -> Key {
    Key::of(TEXT_FILE).str(path)
}

/// Domain name in our block of the hosts file.
pub(crate) fn domain_of(block: &str) -> Option<&str> {
    let name = block.strip_prefix(OWN_ADDRESS)?.split_whitespace().next()?;
    name.split_once('.').map(|(_, domain)| domain)
}

/// Search domains in our block of the resolver file.
pub(crate) fn search_domains_of(block: &str) -> Option<impl Iterator<Item = &str>> {
    Some(block.strip_prefix(SEARCH)?.split_whitespace())
}

/// Our block of the hosts file. Writes the full name before the short one: resolvers take the domain from the first
/// (hosts(5)).
pub(crate) fn hosts_block(hostname: &str, domain: &str) -> String {
    let short = hostname.split('.').next().unwrap_or(hostname);
    format!("{OWN_ADDRESS} {short}.{domain} {short}\n")
}

/// Content of an observed hosts file on a box that has the name `hostname`.
pub(crate) fn observed_hosts(content: Content, hostname: &str) -> Content {
    let own = match &content {
        Content::Block(block) => {
            domain_of(block).filter(|domain| *block == hosts_block(hostname, domain))
        }
        _ => None,
    };
    match own {
        Some(domain) => Content::OwnHost { domain: domain.into(), host: Some(hostname.into()) },
        None => content,
    }
}

/// Our block of the resolver file.
pub(crate) fn search_block(domains: &[SmolStr]) -> String {
    format!("{SEARCH} {}\n", domains.join(" "))
}

impl Kind for HostnameDescriptor {
    const NATIVE: Option<Bind> = Some(|schema| Ok(Box::new(NativeSystem::find(schema)?)));
    const READ: Read = Read::Files;
    const ENCODE: Option<Encode<Hostname>> = Some(encode_hostname);
    const PRE_IMAGE: Option<PreImageForm> = Some(PreImageForm::of::<Self, Hostname>());
}

impl Descriptor for HostnameDescriptor {
    type Value = Hostname;

    fn kind(&self) -> KindId {
        HOSTNAME
    }

    fn name(&self) -> &'static str {
        "hostname"
    }

    fn key(&self, _: &Hostname) -> Key {
        hostname_key()
    }

    fn label(&self, hostname: &Hostname) -> String {
        format!("host name {}", hostname.name)
    }

    fn effect(&self) -> Effect {
        Effect::Operation(transport_id::UTS)
    }

    /// A box always has a name.
    fn restore(&self, observed: &Hostname) -> Option<Hostname> {
        Some(observed.clone())
    }
}

impl PreImageRow<HostnameDescriptor> for Hostname {
    const TAG: &'static str = "hostname";

    fn of(hostname: &Self) -> Option<Self> {
        Some(hostname.clone())
    }

    fn value(self) -> Self {
        self
    }
}

fn encode_hostname(op: Op<'_, Hostname>, _: &mut LinkIndex) -> Result<Requests, EncodeError> {
    Ok(match op {
        Op::Create(new)
        | Op::Adopt { new, .. }
        | Op::Update { new, .. }
        | Op::Release { restore: new, .. } => smallvec![Request::Hostname(new.name.clone())],
        Op::Delete(_) => Requests::new(), // a box always has a name
    })
}

impl Kind for TextFileDescriptor {
    const NATIVE: Option<Bind> =
        Some(|schema| Ok(Box::new(NativeFile(NativeSystem::find(schema)?))));
    const READ: Read = Read::Files;
    const ENCODE: Option<Encode<TextFile>> = Some(encode_file);
    const PRE_IMAGE: Option<PreImageForm> = Some(PreImageForm::of::<Self, FileRow>());
}

impl Descriptor for TextFileDescriptor {
    type Value = TextFile;

    fn kind(&self) -> KindId {
        TEXT_FILE
    }

    fn name(&self) -> &'static str {
        "file"
    }

    fn key(&self, file: &TextFile) -> Key {
        file_key(&file.path)
    }

    fn label(&self, file: &TextFile) -> String {
        format!("file {}", file.path)
    }

    fn effect(&self) -> Effect {
        Effect::Operation(transport_id::FILES)
    }

    fn satisfied_by(&self, expected: &TextFile, observed: &TextFile) -> bool {
        match (&expected.content, &observed.content) {
            (Content::OwnHost { domain, host: None }, Content::OwnHost { domain: found, .. }) => {
                domain == found
            }
            (Content::Block(block), Content::OwnHost { domain, host: Some(host) }) => {
                *block == hosts_block(host, domain)
            }
            _ => expected == observed,
        }
    }

    /// An absent file is observed as absent, so there is always a value to restore.
    fn restore(&self, observed: &TextFile) -> Option<TextFile> {
        Some(observed.clone())
    }
}

#[derive(Serialize, Deserialize)]
struct FileRow {
    path: SmolStr,
    whole: Option<String>,
    block: Option<String>,
    /// Target of the symbolic link that the file replaced.
    #[serde(default)]
    link: Option<String>,
}

impl PreImageRow<TextFileDescriptor> for FileRow {
    const TAG: &'static str = "file";

    fn of(file: &TextFile) -> Option<Self> {
        let (whole, block, link) = match &file.content {
            Content::Whole(text) => (Some(text.clone()), None, None),
            Content::Block(text) => (None, Some(text.clone()), None),
            Content::OwnHost { domain, host } => {
                (None, host.as_ref().map(|host| hosts_block(host, domain)), None)
            }
            Content::Absent => (None, None, None),
            Content::Link { target, text } => (Some(text.clone()), None, Some(target.clone())),
        };
        Some(Self { path: file.path.clone(), whole, block, link })
    }

    fn value(self) -> TextFile {
        let content = match (self.whole, self.block, self.link) {
            (text, _, Some(target)) => Content::Link { target, text: text.unwrap_or_default() },
            (Some(text), ..) => Content::Whole(text),
            (None, Some(text), _) => Content::Block(text),
            (None, None, None) => Content::Absent,
        };
        TextFile { path: self.path, content }
    }
}

fn encode_file(op: Op<'_, TextFile>, _: &mut LinkIndex) -> Result<Requests, EncodeError> {
    let (path, content) = match op {
        Op::Create(new)
        | Op::Adopt { new, .. }
        | Op::Update { new, .. }
        | Op::Release { restore: new, .. } => (&new.path, new.content.clone()),
        Op::Delete(old) => (&old.path, Content::Absent),
    };
    Ok(smallvec![Request::File { path: path.clone(), content }])
}

/// Bytes of the longest host name that the kernel takes (`__NEW_UTS_LEN`).
const MAX_HOSTNAME_OCTETS: usize = 64;

/// Settings of the box, each kept by a file or the kernel.
#[derive(Clone, Debug, Default)]
pub(crate) struct System {
    pub(crate) hostname: Option<SmolStr>,
    pub(crate) domain_name: Option<SmolStr>,
    /// Search domains for short names, in this order.
    pub(crate) search_domains: Vec<SmolStr>,
    /// Banner shown before login.
    pub(crate) login_banner: Option<SmolStr>,
    /// Banner shown after login.
    pub(crate) motd_banner: Option<SmolStr>,
}

impl System {
    /// The host name and the files.
    pub(crate) fn values(&self) -> ObjectValues {
        let file = |(path, content): (&str, Content)| {
            let value = TextFile { path: path.into(), content };
            (file_key(path), Arc::new(value) as SharedValue)
        };
        let name = self.hostname.clone().map(|name| Hostname { name });
        let name = name.map(|name| (hostname_key(), Arc::new(name) as SharedValue));
        self.files().map(file).chain(name).collect()
    }

    fn keys(&self) -> ObjectKeys {
        let name = self.hostname.as_ref().map(|_| hostname_key());
        self.files().map(|(path, _)| file_key(path)).chain(name).collect::<Vec<Key>>().into()
    }

    /// Files, by path, with our content in each.
    fn files(&self) -> impl Iterator<Item = (&'static str, Content)> {
        let line = |text: &SmolStr| Content::Whole(format!("{text}\n"));
        let hosts = self.domain_name.as_ref().map(|domain| match &self.hostname {
            Some(hostname) => Content::Block(hosts_block(hostname, domain)),
            None => Content::OwnHost { domain: domain.clone(), host: None },
        });
        let domains = &self.search_domains;
        let resolv = (!domains.is_empty()).then(|| Content::Block(search_block(domains)));
        let files = [
            (HOSTNAME_FILE, self.hostname.as_ref().map(line)),
            (HOSTS_FILE, hosts),
            (RESOLV_FILE, resolv),
            (ISSUE_FILE, self.login_banner.as_ref().map(line)),
            (MOTD_FILE, self.motd_banner.as_ref().map(line)),
        ];
        files.into_iter().filter_map(|(path, content)| Some((path, content?)))
    }
}

nodes!(
    /// `system`, of configuration and below `state`.
    SystemNodes {
        system: "",
        hostname: "/hostname",
        domain_name: "/domain-name",
        search_domain: "/search-domain",
        login_banner: "/login-banner",
        motd_banner: "/motd-banner",
        state: "/state",
        state_hostname: "/state/hostname",
        state_domain_name: "/state/domain-name",
        state_search_domain: "/state/search-domain",
        state_login_banner: "/state/login-banner",
        state_motd_banner: "/state/motd-banner",
        state_boot_time: "/state/boot-time",
        state_software_version: "/state/software-version",
    }
);

/// `system` in the native model.
#[derive(Debug)]
struct NativeSystem {
    nodes: SystemNodes,
}

impl NativeSystem {
    fn find(schema: &Schema) -> Result<Self, ModelError> {
        Ok(Self { nodes: SystemNodes::find(schema, "/system")? })
    }

    fn system(&self, entry: &Entry<'_>) -> Result<System, ObjectError> {
        let system = self.system_of(entry);
        if system.hostname.as_ref().is_some_and(|name| name.len() > MAX_HOSTNAME_OCTETS) {
            let reason = format!("a host name may have {MAX_HOSTNAME_OCTETS} bytes at most");
            return Err(entry.leaf_error(self.nodes.hostname, reason));
        }
        Ok(system)
    }

    /// Settings as they are configured, checked or not.
    fn system_of(&self, entry: &Entry<'_>) -> System {
        let nodes = &self.nodes;
        System {
            hostname: entry.text(nodes.hostname),
            domain_name: entry.text(nodes.domain_name),
            search_domains: entry.texts(nodes.search_domain),
            login_banner: entry.text(nodes.login_banner),
            motd_banner: entry.text(nodes.motd_banner),
        }
    }

    fn file_state(&self, file: &TextFile) -> Option<StateEntry> {
        let nodes = &self.nodes;
        let text = match &file.content {
            Content::Whole(text) | Content::Block(text) | Content::Link { text, .. } => {
                text.as_str()
            }
            Content::OwnHost { domain, .. } => {
                return self.system_leaf(nodes.state_domain_name, domain);
            }
            Content::Absent => return None,
        };
        match file.path.as_str() {
            HOSTS_FILE => self.system_leaf(nodes.state_domain_name, domain_of(text)?),
            RESOLV_FILE => {
                let domains = search_domains_of(text)?;
                let domains = domains.map(|domain| Value::Str(domain.into())).collect();
                self.system_value(nodes.state_search_domain, Value::List(domains))
            }
            ISSUE_FILE => self.system_leaf(nodes.state_login_banner, last_newline_off(text)),
            MOTD_FILE => self.system_leaf(nodes.state_motd_banner, last_newline_off(text)),
            _ => None,
        }
    }

    fn system_leaf(&self, leaf: NodeId, text: &str) -> Option<StateEntry> {
        self.system_value(leaf, Value::Str(text.into()))
    }

    fn system_value(&self, leaf: NodeId, value: Value) -> Option<StateEntry> {
        let path = InstancePath(vec![Step::node(self.nodes.system)]);
        let mut leaves = Leaves::of(self.nodes.state);
        leaves.put(leaf, value);
        Some(leaves.entry(path))
    }
}

impl NativeKind for NativeSystem {
    fn lists(&self) -> Vec<NodeId> {
        vec![self.nodes.system]
    }

    fn values(&self, entry: &Entry<'_>) -> Result<ObjectValues, ObjectError> {
        Ok(self.system(entry)?.values())
    }

    fn keys(&self, entry: &Entry<'_>) -> Result<ObjectKeys, ObjectError> {
        Ok(self.system_of(entry).keys())
    }

    fn state(&self, _: &Key, planes: Planes<'_>) -> Option<StateEntry> {
        let hostname: &Hostname = planes.observed()?;
        self.system_leaf(self.nodes.state_hostname, &hostname.name)
    }
}

/// Files of `system` in the native model: its values are those of [`NativeSystem`].
#[derive(Debug)]
struct NativeFile(NativeSystem);

impl NativeKind for NativeFile {
    fn state(&self, _: &Key, planes: Planes<'_>) -> Option<StateEntry> {
        self.0.file_state(planes.observed()?)
    }
}

fn last_newline_off(text: &str) -> &str {
    text.strip_suffix('\n').unwrap_or(text)
}
