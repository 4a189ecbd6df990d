//! Maintenance sessions as leaves of the native model.

use std::collections::BTreeSet;

use holdfast_config::schema::Schema;
use holdfast_config::{InstancePath, Keys, MissingNode, Name, Value};
use holdfast_core::ServiceState;
use holdfast_faults::{ObjectAction, Session, SessionConsumer};
use smol_str::SmolStr;

/// Paths of the leaves that show sessions.
#[derive(Debug)]
pub(super) struct SessionLeaves {
    id: InstancePath,
    resource: InstancePath,
    kind: InstancePath,
    starts_at: InstancePath,
    ends_at: InstancePath,
    created_by: InstancePath,
    status: InstancePath,
    told_as: InstancePath,
    since: InstancePath,
    reason: InstancePath,
    overdue: InstancePath,
    consumer: ConsumerLeaves,
    /// Consumers that are shown, by session, so that those that go are not shown any more.
    shown: BTreeSet<(SmolStr, SmolStr)>,
}

/// Paths of the leaves of a consumer in a session.
#[derive(Debug)]
struct ConsumerLeaves {
    id: InstancePath,
    status: InstancePath,
    default_action: InstancePath,
    allowed_action: InstancePath,
    deadline: InstancePath,
    answer: InstancePath,
    object: InstancePath,
    done: InstancePath,
}

impl SessionLeaves {
    /// Finds the leaves in the native model.
    ///
    /// # Errors
    /// When the model lacks one of them, which would be a bug that the first test finds.
    pub(super) fn find(native: &Schema) -> Result<Self, MissingNode> {
        let session = ("session", &[("id", "any")][..]);
        let root = ("maintenance-state", &[][..]);
        let leaf = |name: &str| native.instance_path(&[root, session, ("state", &[]), (name, &[])]);
        let consumer = |name: &str| {
            let consumer = ("consumer", &[("id", "any")][..]);
            native.instance_path(&[root, session, consumer, ("state", &[]), (name, &[])])
        };
        Ok(Self {
            id: leaf("id")?,
            resource: leaf("resource")?,
            kind: leaf("kind")?,
            starts_at: leaf("starts-at")?,
            ends_at: leaf("ends-at")?,
            created_by: leaf("created-by")?,
            status: leaf("status")?,
            told_as: leaf("told-as")?,
            since: leaf("since")?,
            reason: leaf("reason")?,
            overdue: leaf("overdue")?,
            consumer: ConsumerLeaves {
                id: consumer("id")?,
                status: consumer("status")?,
                default_action: consumer("default-action")?,
                allowed_action: consumer("allowed-action")?,
                deadline: consumer("deadline")?,
                answer: consumer("answer")?,
                object: consumer("object")?,
                done: consumer("done")?,
            },
            shown: BTreeSet::new(),
        })
    }

    /// Leaves of a session and of its consumers; all of them go without one.
    pub(super) fn show(&mut self, id: &SmolStr, session: Option<&Session>) -> ServiceState {
        let at = |path: &InstancePath| path.clone().with_last_key(Value::Str(id.clone()));
        let text = |text: &str| Value::Str(text.into());
        let word = |name: &'static str| Value::Enum(Name::constant(name));
        let texts = |it: &Session| it.resources.iter().map(|it| text(&it.to_string())).collect();
        let told_as = session.and_then(|it| it.state.alias());
        let reason = session.map(|it| &it.reason).filter(|it| !it.is_empty());
        let mut leaves = vec![
            (at(&self.id), session.map(|_| text(id))),
            (at(&self.resource), session.map(|it| Value::List(texts(it)))),
            (at(&self.kind), session.map(|it| word(it.kind.name()))),
            (at(&self.starts_at), session.map(|it| Value::Uint(it.starts_at_ns))),
            (at(&self.ends_at), session.and_then(|it| it.ends_at_ns).map(Value::Uint)),
            (at(&self.created_by), session.map(|it| text(&it.created_by))),
            (at(&self.status), session.map(|it| word(it.state.name()))),
            (at(&self.told_as), told_as.map(text)),
            (at(&self.since), session.map(|it| Value::Uint(it.since_ns))),
            (at(&self.reason), reason.map(|it| text(it))),
            (at(&self.overdue), session.map(|it| Value::Bool(it.is_overdue))),
        ];
        let mut consumers: BTreeSet<SmolStr> =
            self.shown.iter().filter(|(of, _)| of == id).map(|(_, it)| it.clone()).collect();
        consumers.extend(session.into_iter().flat_map(|it| it.consumers.keys().cloned()));
        for name in consumers {
            let consumer = session.and_then(|it| Some((it, it.consumers.get(&name)?)));
            leaves.extend(self.consumer.show([id, &name], consumer));
            match consumer {
                Some(_) => self.shown.insert((id.clone(), name)),
                None => self.shown.remove(&(id.clone(), name)),
            };
        }
        leaves
    }
}

impl ConsumerLeaves {
    fn show(
        &self,
        [session, name]: [&SmolStr; 2],
        consumer: Option<(&Session, &SessionConsumer)>,
    ) -> ServiceState {
        let at = |path: &InstancePath| {
            let mut path = path.clone().with_last_key(Value::Str(name.clone()));
            if let Some(entry) = path.0.iter_mut().find(|step| step.keys.is_some()) {
                entry.keys = Some(Keys::single(Value::Str(session.clone())));
            }
            path
        };
        let word = |name: &'static str| Value::Enum(Name::constant(name));
        let allowed = |it: &Session| {
            let actions = ObjectAction::allowed(it.kind).iter();
            Value::List(actions.map(|action| word(action.name())).collect())
        };
        let objects = |it: &SessionConsumer, is_done: bool| {
            let objects = it.objects.iter().filter(|(_, it)| !is_done || it.is_done);
            Value::List(objects.map(|(name, _)| Value::Str(name.clone())).collect())
        };
        let answer = consumer.and_then(|(_, it)| it.answer);
        vec![
            (at(&self.id), consumer.map(|_| Value::Str(name.clone()))),
            (at(&self.status), consumer.map(|(_, it)| word(it.told.name()))),
            (at(&self.default_action), consumer.map(|(_, it)| word(it.default_action.name()))),
            (at(&self.allowed_action), consumer.map(|(session, _)| allowed(session))),
            (at(&self.deadline), consumer.map(|(it, _)| Value::Uint(it.reply_by_ns))),
            (at(&self.answer), answer.map(|it| word(it.name()))),
            (at(&self.object), consumer.map(|(_, it)| objects(it, false))),
            (at(&self.done), consumer.map(|(_, it)| objects(it, true))),
        ]
    }
}
