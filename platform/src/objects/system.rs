//! Conversion of `system`, the settings of the box as a whole.

use std::sync::Arc;

use holdfast_config::LeafMeta;
use holdfast_scheduler::{Key, SharedValue};
use smol_str::SmolStr;

use super::{Entry, ObjectError, ObjectKeys, ObjectValues, Registry};
use crate::kinds::system::{
    HOSTNAME_FILE, HOSTS_FILE, ISSUE_FILE, MOTD_FILE, RESOLV_FILE, file_key, hostname_key,
    hosts_block, search_block,
};
use crate::values::{Content, Hostname, TextFile};

/// Octets of the longest host name that the kernel takes (`__NEW_UTS_LEN`).
const MAX_HOSTNAME_OCTETS: usize = 64;

/// Settings of the box, each of which a file or the kernel has.
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

    pub(super) fn keys(&self) -> ObjectKeys {
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

impl Registry {
    pub(super) fn system<M: LeafMeta>(&self, entry: &Entry<'_, M>) -> Result<System, ObjectError> {
        let system = self.system_of(entry);
        if system.hostname.as_ref().is_some_and(|name| name.len() > MAX_HOSTNAME_OCTETS) {
            let reason = format!("a host name has at most {MAX_HOSTNAME_OCTETS} octets");
            return Err(entry.leaf_error(self.nodes.system.hostname, reason));
        }
        Ok(system)
    }

    /// Settings as they are configured, checked or not.
    pub(super) fn system_of<M: LeafMeta>(&self, entry: &Entry<'_, M>) -> System {
        let nodes = &self.nodes.system;
        System {
            hostname: entry.text(nodes.hostname),
            domain_name: entry.text(nodes.domain_name),
            search_domains: entry.texts(nodes.search_domain),
            login_banner: entry.text(nodes.login_banner),
            motd_banner: entry.text(nodes.motd_banner),
        }
    }
}
