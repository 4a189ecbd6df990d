//! Waits of instances, as state: `/service-state/wait`.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_config::services::Read;
use holdfast_config::{Elem, Models, Name, Path, ServiceTag, Value};
use holdfast_core::ServiceState;
use holdfast_services::Watches;
use holdfast_services::watch::{Answer, Wait};
use smol_str::SmolStr;

use crate::services::shown::{Leaves, difference};

/// The waits that are shown.
#[derive(Debug, Default)]
pub(in crate::services) struct ShownWaits(BTreeMap<ServiceTag, Leaves>);

impl ShownWaits {
    /// Leaves by which the waits of these instances differ from what is shown; they are shown from now on.
    pub(in crate::services) fn update(
        &mut self,
        models: &Models,
        watches: &Watches,
        tags: BTreeSet<ServiceTag>,
    ) -> ServiceState {
        let mut changes = ServiceState::new();
        for tag in tags {
            let leaves = leaves(models, watches, &tag);
            let before = self.0.remove(&tag).unwrap_or_default();
            changes.extend(difference(&before, &leaves));
            if !leaves.is_empty() {
                self.0.insert(tag, leaves);
            }
        }
        changes
    }
}

fn leaves(models: &Models, watches: &Watches, tag: &ServiceTag) -> Leaves {
    watches.of_instance(tag).flat_map(|wait| wait_leaves(models, tag, wait)).collect()
}

/// Where something is read, and its path or name.
pub(in crate::services) fn subject(models: &Models, read: &Read) -> (&'static str, SmolStr) {
    match read {
        Read::Leaves(read) => (read.plane.name(), read.to_text(models).into()),
        Read::Service(other) => ("service", other.to_string().into()),
    }
}

/// The values of an answer; `None` where there are none.
pub(in crate::services) fn answer_text(answer: &Answer) -> Option<String> {
    let texts: Vec<String> = answer.iter().map(ToString::to_string).collect();
    (!texts.is_empty()).then(|| texts.join(" "))
}

fn wait_leaves(models: &Models, tag: &ServiceTag, wait: Wait<'_>) -> Leaves {
    let (plane, path) = subject(models, wait.read);
    let entry = Elem::new("wait").key("service", tag.to_string());
    let entry = [Elem::new("service-state"), entry.key("plane", plane).key("path", &*path)];
    let places = wait.places.iter().map(|place| Value::Str((&**place).into())).collect();
    let value = answer_text(wait.answer).map(|text| Value::Str(text.into()));
    let leaves = [
        ("service", Some(Value::Str(tag.to_string().into()))),
        ("plane", Some(Value::Enum(Name::of(plane)))),
        ("path", Some(Value::Str(path))),
        ("place", Some(Value::List(places))),
        ("value", value),
        ("fired", Some(Value::Uint(wait.fired))),
    ];
    let located = leaves.into_iter().filter_map(|(name, value)| {
        let elems = entry.iter().cloned().chain([Elem::new(name)]).collect();
        Some((models.native.resolve_write(&Path { elems }).ok()?, value?))
    });
    located.collect()
}
