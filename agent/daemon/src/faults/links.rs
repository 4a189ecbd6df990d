//! Conditions of links, as revisions show them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use holdfast_config::schema::Schema;
use holdfast_config::tree::{Branch, LeafMeta, List, ListEntry as _, Tree};
use holdfast_config::{Keys, MissingNode, NodeId, Provenance, Value};
use holdfast_faults::{Condition, Report, Resource};
use holdfast_platform::objects::DownBy;
use holdfast_platform::values::carrier_losses;
use holdfast_telemetry::LeafVersion;
use smol_str::{SmolStr, format_smolstr};

/// How long a link that was just set up may be without a carrier before that is a fault: copper ports take three to four
/// seconds to negotiate.
const NEGOTIATION_TIME: Duration = Duration::from_secs(5);

/// A branch of a revision.
type ViewBranch = Branch<LeafVersion>;

/// The state and the effective configuration of a box.
#[derive(Clone, Copy, Debug)]
pub(super) struct BoxView<'a> {
    pub(super) state: &'a Tree<LeafVersion>,
    pub(super) configuration: &'a Tree<Provenance>,
}

/// Finds conditions of links.
#[derive(Debug)]
pub(super) struct Links {
    nodes: LinkNodes,
    /// The links as they were looked at last.
    seen: LinkLists,
    /// Links that were looked at: the work is in proportion to what changed.
    visited: usize,
}

/// State and configuration of all links.
#[derive(Clone, Debug, Default)]
struct LinkLists {
    state: List<LeafVersion>,
    configuration: List<Provenance>,
}

#[derive(Debug)]
struct LinkNodes {
    interfaces: NodeId,
    interface: NodeId,
    enabled: NodeId,
    subinterface: NodeId,
    subinterface_enabled: NodeId,
    state: NodeId,
    admin_status: NodeId,
    oper_status: NodeId,
    observed_status: NodeId,
    told_down_by: NodeId,
    counters: NodeId,
    carrier_transitions: NodeId,
    ipv6: NodeId,
    address: NodeId,
    address_state: NodeId,
    status: NodeId,
}

/// The properties of one link on which its conditions depend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LinkView {
    /// It is configured, and to be up.
    is_wanted: bool,
    is_admin_up: bool,
    /// Status as it is told.
    status: Option<Status>,
    /// Status that the kernel shows.
    observed: Option<Status>,
    down_by: Option<DownBy>,
    carrier_transitions: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Works,
    Down,
    LowerLayerDown,
    NotPresent,
}

impl Status {
    fn named(name: &str) -> Self {
        match name {
            "LOWER_LAYER_DOWN" => Self::LowerLayerDown,
            "DOWN" => Self::Down,
            "NOT_PRESENT" => Self::NotPresent,
            _ => Self::Works,
        }
    }

    fn is_down(self) -> bool {
        matches!(self, Self::Down | Self::LowerLayerDown)
    }
}

impl LinkView {
    fn is_down(self) -> bool {
        self.status.is_some_and(Status::is_down)
    }

    fn is_observed_down(self) -> bool {
        self.observed.is_some_and(Status::is_down)
    }

    /// The link is to be up, and nothing but its surroundings may keep it from that.
    fn is_watched(self) -> bool {
        self.is_wanted && self.is_admin_up && !self.is_missing()
    }

    fn is_missing(self) -> bool {
        self.is_wanted && self.observed == Some(Status::NotPresent)
    }

    /// How often the carrier was lost since an earlier view, told or not.
    fn losses_since(self, before: Self) -> u64 {
        let changes = self.carrier_transitions.saturating_sub(before.carrier_transitions);
        carrier_losses(changes, before.is_observed_down(), self.is_observed_down())
    }
}

impl Links {
    /// Finds the nodes in the native model.
    ///
    /// # Errors
    /// When the model lacks one of them, which would be a bug that the first test finds.
    pub(super) fn new(native: &Schema) -> Result<Self, MissingNode> {
        let node = |path: &str| native.require(&format!("/interfaces{path}"));
        let link = |leaf: &str| node(&format!("/interface/{leaf}"));
        let nodes = LinkNodes {
            interfaces: node("")?,
            interface: node("/interface")?,
            enabled: link("enabled")?,
            subinterface: link("subinterface")?,
            subinterface_enabled: link("subinterface/enabled")?,
            state: link("state")?,
            admin_status: link("state/admin-status")?,
            oper_status: link("state/oper-status")?,
            observed_status: link("state/observed-status")?,
            told_down_by: link("state/told-down-by")?,
            counters: link("state/counters")?,
            carrier_transitions: link("state/counters/carrier-transitions")?,
            ipv6: link("ipv6")?,
            address: link("ipv6/address")?,
            address_state: link("ipv6/address/state")?,
            status: link("ipv6/address/state/status")?,
        };
        Ok(Self { nodes, seen: LinkLists::default(), visited: 0 })
    }

    /// True for a link that is configured or that the box has, as far as it was looked at.
    pub(super) fn knows(&self, name: &SmolStr) -> bool {
        let keys = Keys::single(Value::Str(name.clone()));
        self.seen.state.get(&keys).is_some() || self.seen.configuration.get(&keys).is_some()
    }

    /// Why a link does not work that should, as far as it was looked at; `None` for one that does.
    pub(super) fn trouble(&self, name: &SmolStr) -> Option<SmolStr> {
        let view = self.nodes.view(&self.seen, &Keys::single(Value::Str(name.clone())));
        if view.observed.is_none_or(|it| it == Status::NotPresent) {
            return Some(format_smolstr!("there is no link {name}"));
        }
        if !view.is_admin_up {
            return Some(format_smolstr!("{name} is administratively down"));
        }
        view.is_down().then(|| format_smolstr!("{name} is up and has no carrier"))
    }

    /// Reports about the links that differ from what was looked at before.
    pub(super) fn look(&mut self, view: BoxView<'_>, now_ns: u64) -> Vec<Report> {
        let now = self.nodes.lists(view);
        let before = std::mem::replace(&mut self.seen, now.clone());
        let mut changed: BTreeSet<&Keys> =
            List::differences(&before.state, &now.state).map(|it| it.keys).collect();
        let configuration = List::differences(&before.configuration, &now.configuration);
        changed.extend(configuration.map(|it| it.keys));
        let mut reports = Vec::new();
        for keys in changed {
            let Some(name) = name_of(keys) else { continue };
            self.visited += 1;
            let views = [&before, &now].map(|lists| self.nodes.view(lists, keys));
            reports.extend(link_reports(name, views, now_ns));
            let addresses = [&before, &now].map(|lists| self.nodes.ipv6(lists, keys));
            reports.extend(self.nodes.duplicate_reports(name, addresses, now_ns));
        }
        reports
    }

    /// Forgets what was looked at, so that the next look reports about all links.
    pub(super) fn forget(&mut self) {
        self.seen = LinkLists::default();
    }

    /// Number of links that were looked at. While it stays, no link has come or gone.
    pub(super) fn visited(&self) -> usize {
        self.visited
    }
}

impl LinkNodes {
    fn lists(&self, view: BoxView<'_>) -> LinkLists {
        LinkLists { state: self.list(view.state), configuration: self.list(view.configuration) }
    }

    fn list<M: LeafMeta>(&self, tree: &Tree<M>) -> List<M> {
        let container = tree.root().container(self.interfaces);
        container.and_then(|it| it.list(self.interface)).cloned().unwrap_or_default()
    }

    fn view(&self, lists: &LinkLists, keys: &Keys) -> LinkView {
        let configuration = lists.configuration.get(keys);
        let is_true = |value: Option<&Value>| value != Some(&Value::Bool(false));
        let is_wanted = configuration.is_some_and(|entry| {
            let subinterface = entry.container(self.subinterface);
            let subinterface = subinterface.and_then(|it| it.value(self.subinterface_enabled));
            is_true(entry.value(self.enabled)) && is_true(subinterface)
        });
        let state = lists.state.get(keys).map(|entry| entry.branch().into_shared());
        let state = state.as_deref().and_then(|entry| entry.container(self.state));
        let leaf = |node| state.and_then(|it| it.value(node));
        let status = |node| leaf(node).map(|status| Status::named(&status.to_string()));
        let told = status(self.oper_status);
        let counters = state.and_then(|it| it.container(self.counters));
        let transitions = counters.and_then(|it| it.value(self.carrier_transitions));
        LinkView {
            is_wanted,
            is_admin_up: leaf(self.admin_status).is_some_and(|status| status.to_string() == "UP"),
            status: told,
            observed: status(self.observed_status).or(told),
            down_by: leaf(self.told_down_by).map(|reason| match reason.to_string().as_str() {
                "PENALTY" => DownBy::Penalty,
                _ => DownBy::Forced,
            }),
            carrier_transitions: match transitions {
                Some(Value::Uint(count)) => *count,
                _ => 0,
            },
        }
    }

    /// The part of a link's state that has its IPv6 addresses.
    fn ipv6(&self, lists: &LinkLists, keys: &Keys) -> Option<Arc<ViewBranch>> {
        let entry = lists.state.get(keys).map(|entry| entry.branch().into_shared())?;
        entry.container(self.ipv6).cloned()
    }

    /// Reports about duplicate addresses, unless nothing of IPv6 differs.
    fn duplicate_reports(
        &self,
        link: &SmolStr,
        [before, now]: [Option<Arc<ViewBranch>>; 2],
        now_ns: u64,
    ) -> Vec<Report> {
        if let (Some(before), Some(now)) = (&before, &now)
            && Arc::ptr_eq(before, now)
        {
            return Vec::new();
        }
        let [before, now] = [before, now].map(|ipv6| self.duplicate_addresses(ipv6.as_deref()));
        let condition = |address: &SmolStr| {
            Condition::new("address-duplicate", Resource::Interface(link.clone()))
                .qualified(address)
        };
        let ended = before.difference(&now);
        let ended = ended.map(|address| Report::ended(condition(address), now_ns));
        let holding = now.iter().map(|address| {
            let text = format_smolstr!("another host on {link} has {address}, so it is not used");
            Report::holding(condition(address), text, now_ns)
        });
        ended.chain(holding).collect()
    }

    fn duplicate_addresses(&self, ipv6: Option<&ViewBranch>) -> BTreeSet<SmolStr> {
        let addresses = ipv6.and_then(|it| it.list(self.address));
        let addresses = addresses.into_iter().flat_map(|list| list.iter());
        let duplicate = addresses.filter(|(_, address)| {
            let branch = address.branch().into_shared();
            let status = branch.container(self.address_state);
            let status = status.and_then(|it| it.value(self.status));
            matches!(status, Some(Value::Enum(word)) if word.as_str() == "DUPLICATE")
        });
        duplicate.filter_map(|(keys, _)| name_of(keys).cloned()).collect()
    }
}

/// Name of the link whose keys these are.
pub(super) fn name_of(keys: &Keys) -> Option<&SmolStr> {
    match keys.first() {
        Some(Value::Str(name)) => Some(name),
        _ => None,
    }
}

/// Reports about the conditions of a link that has changed.
fn link_reports(name: &SmolStr, [before, now]: [LinkView; 2], now_ns: u64) -> Vec<Report> {
    let condition = |kind: &str| Condition::new(kind, Resource::Interface(name.clone()));
    let mut reports = Vec::new();
    if now.is_missing() {
        let text = format_smolstr!("{name} is configured, but there is no such link");
        reports.push(Report::holding(condition("link-missing"), text, now_ns));
    } else if before.is_missing() {
        reports.push(Report::ended(condition("link-missing"), now_ns));
    }
    let is_known = before.is_watched() && now.is_watched();
    let begins = is_known.then(|| now.losses_since(before));
    let down = condition("link-down");
    if now.is_watched() && now.is_down() {
        // Nothing of what is held back is in the text: it would change with each loss.
        let text = match (now.down_by, now.status) {
            (Some(DownBy::Penalty), _) => {
                format_smolstr!("{name} is told as down because it lost its carrier too often")
            }
            (Some(DownBy::Forced), _) => {
                format_smolstr!("{name} is told as down because somebody holds it down")
            }
            (None, Some(Status::LowerLayerDown)) => {
                format_smolstr!("{name} is up, and the link that it stands on is down")
            }
            (None, _) => format_smolstr!("{name} is up and has no carrier"),
        };
        let is_new = !before.is_watched();
        let raise_after = if is_new { NEGOTIATION_TIME } else { Duration::ZERO };
        let report = Report::holding(down, text, now_ns);
        reports.push(Report { begins, raise_after, ..report });
    } else if before.is_watched() {
        reports.push(Report { begins, ..Report::ended(down, now_ns) });
    }
    reports
}
