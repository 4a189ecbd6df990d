//! Types of services as state: `/service-state/type`.

use std::collections::BTreeMap;

use holdfast_config::services::{ActionTarget, CallPhase, CallPlace};
use holdfast_config::{ClaimKey, Elem, Models, Name, Path, ServiceTag, Value};
use holdfast_core::{CoreHandle, Datastore};
use holdfast_services::outline::Version;
use holdfast_services::{PackageVersion, ServiceTypes};
use smol_str::SmolStr;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::{rendering, stored};
use crate::services::digest_text;
use crate::services::handlers::{ActionName, Handlers};
use crate::services::shown::{Leaves, difference};

/// Versions of types beside the newest ones.
type OtherVersions = BTreeMap<SmolStr, Vec<Version>>;

/// Shows the types for as long as the handle is kept.
pub(in crate::services) fn show(
    core: CoreHandle,
    handlers: Handlers,
    types_rx: watch::Receiver<ServiceTypes>,
) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(run(core, handlers, types_rx)))
}

async fn run(core: CoreHandle, handlers: Handlers, mut types_rx: watch::Receiver<ServiceTypes>) {
    let mut shown = Leaves::new();
    let mut served_rx = handlers.watch_served();
    loop {
        served_rx.mark_unchanged();
        let types = types_rx.borrow_and_update().clone();
        let others = types.other_versions(&core.configuration().layers().book);
        let leaves = leaves(&core.models(), &types, &others, &handlers);
        let changes = difference(&shown, &leaves);
        shown = leaves;
        if !changes.is_empty() {
            core.show_state(changes).await;
        }
        let changed = tokio::select! {
            changed = types_rx.changed() => changed,
            changed = served_rx.changed() => changed,
            changed = until_others_go(&core, &types, &others), if !others.is_empty() => changed,
        };
        if changed.is_err() {
            return;
        }
    }
}

/// Waits until some of these versions have no instance any more. No version gets its first instance without news of types.
async fn until_others_go(
    core: &CoreHandle,
    types: &ServiceTypes,
    others: &OtherVersions,
) -> Result<(), watch::error::RecvError> {
    let mut revisions = core.watch();
    while types.other_versions(&core.configuration().layers().book) == *others {
        revisions.changed().await?;
    }
    Ok(())
}

fn leaves(
    models: &Models,
    types: &ServiceTypes,
    others: &OtherVersions,
    handlers: &Handlers,
) -> Leaves {
    let mut leaves = Leaves::new();
    for package in types.packages() {
        let name = &package.outline.name.text;
        let Some(newest) = types.versions(name).next() else { continue };
        let mut shown = ShownType { models, name, leaves: &mut leaves };
        shown.package(newest);
        if let Some(others) = others.get(&**name) {
            let others = others.iter().map(|version| text(&version.to_string())).collect();
            shown.put(&[], "other-version", Value::List(others));
        }
        shown.calls(newest, handlers);
    }
    leaves
}

fn text(text: &str) -> Value {
    Value::Str(text.into())
}

/// Leaves of one type.
struct ShownType<'a> {
    models: &'a Models,
    name: &'a str,
    leaves: &'a mut Leaves,
}

impl ShownType<'_> {
    /// Adds a leaf below the entry of the type. Nodes that the models lack are left out.
    fn put(&mut self, below: &[Elem], leaf: &str, value: Value) {
        let entry = Elem::new("type").key("name", self.name);
        let above = [Elem::new("service-state"), entry].into_iter().chain(below.iter().cloned());
        let path = Path { elems: above.chain([Elem::new(leaf)]).collect() };
        if let Ok(path) = self.models.native.resolve_write(&path) {
            self.leaves.insert(path, value);
        }
    }

    fn package(&mut self, version: &PackageVersion) {
        let package = &version.package;
        self.put(&[], "name", text(self.name));
        self.put(&[], "version", text(&package.version().to_string()));
        self.put(&[], "outline", text(&rendering::summary(package, &[])));
        let Some(source) = &version.source else { return };
        self.put(&[], "digest", text(&digest_text(&source.archive.octets)));
        self.put(&[], "installed", Value::Bool(source.is_installed));
        if let Some(signer) = stored::signer(source) {
            self.put(&[], "signer", text(signer));
        }
        if let Some(reason) = &source.refusal {
            self.put(&[], "signer-refused", text(reason));
        }
    }

    /// The calls that handlers are to take, and those who take them.
    fn calls(&mut self, version: &PackageVersion, handlers: &Handlers) {
        let mut is_served = true;
        for (component, state, phase) in version.handler_calls() {
            let holder = handlers.holder(&place(self.name, [&component, &state], phase));
            is_served &= holder.is_some();
            let phase = phase.name();
            let call = Elem::new("call").key("component-type", &*component);
            let call = [call.key("state", &*state).key("phase", phase)];
            self.put(&call, "component-type", text(&component));
            self.put(&call, "state", text(&state));
            self.put(&call, "phase", Value::Enum(Name::of(phase)));
            if let Some(holder) = holder {
                self.put(&call, "handler", text(&holder));
            }
        }
        for action in version.package.outline.actions() {
            if let ActionTarget::Handler(action) = &action.target {
                let name = ActionName { service: self.name.into(), action: action.clone() };
                is_served &= handlers.carries_out(&name);
            }
        }
        self.put(&[], "served", Value::Bool(is_served));
    }
}

/// A place of a call, in any instance and component.
fn place(service: &str, [component, state]: [&SmolStr; 2], phase: CallPhase) -> CallPlace {
    let none = SmolStr::default;
    let tag = ServiceTag { service: service.into(), key_name: none(), key: none() };
    let component = [component.clone(), none()];
    CallPlace { state: ClaimKey { tag, component, state: state.clone() }, phase }
}
