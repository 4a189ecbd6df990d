//! Causes of the walks that instances need by themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_config::limits::excerpt;
use holdfast_config::services::{CauseKind, WalkCause};
use holdfast_config::{Models, ServiceTag};
use holdfast_services::watch::{Answer, AnswerChange};

use super::waits::{answer_text, subject};

/// Instances with the causes of their walks. Of several causes, the first one of the strongest kind is kept.
#[derive(Clone, Debug, Default)]
pub(in crate::services) struct DueWalks(BTreeMap<ServiceTag, WalkCause>);

impl DueWalks {
    pub(in crate::services) fn len(&self) -> usize {
        self.0.len()
    }

    /// The instances, ascending by name.
    pub(in crate::services) fn tags(&self) -> BTreeSet<ServiceTag> {
        self.0.keys().cloned().collect()
    }

    pub(in crate::services) fn causes(&self) -> &BTreeMap<ServiceTag, WalkCause> {
        &self.0
    }

    pub(in crate::services) fn note(&mut self, tag: &ServiceTag, cause: &WalkCause) {
        match self.0.get_mut(tag) {
            Some(known) if known.kind >= cause.kind => {}
            Some(known) => *known = cause.clone(),
            None => drop(self.0.insert(tag.clone(), cause.clone())),
        }
    }

    /// Notes the instances that another answer wakes.
    pub(in crate::services) fn note_answer(
        &mut self,
        models: &Models,
        AnswerChange { read, before, after, woken }: &AnswerChange,
    ) {
        let (plane, path) = subject(models, read);
        let moved: Arc<str> = excerpt(&format_args!("{plane} {path}")).into();
        let value = |answer: &Answer| answer_text(answer).map(|text| excerpt(&text).into());
        let values = [before, after].map(value);
        for (tag, places) in woken {
            self.note(tag, &WalkCause::condition(Arc::clone(&moved), values.clone(), places));
        }
    }

    /// Takes instances out. One without a known cause may go on with its service plan.
    pub(in crate::services) fn take<'t>(
        &mut self,
        tags: impl IntoIterator<Item = &'t ServiceTag>,
    ) -> Self {
        let cause = |tag: &ServiceTag| {
            let known = self.0.remove(tag);
            (tag.clone(), known.unwrap_or_else(|| WalkCause::bare(CauseKind::Plan)))
        };
        Self(tags.into_iter().map(cause).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(key: &str) -> ServiceTag {
        format!("access[name='{key}']").parse().unwrap()
    }

    #[test]
    fn the_first_cause_of_the_strongest_kind_is_kept() {
        let mut due = DueWalks::default();
        let object = |state| WalkCause::object("link eth9", state);
        let plan = WalkCause::bare(CauseKind::Plan);
        due.note(&tag("acme"), &plan);
        due.note(&tag("bolt"), &plan);
        due.note(&tag("acme"), &object("PENDING"));
        due.note(&tag("acme"), &object("CONFIGURED"));
        due.note(&tag("acme"), &WalkCause::bare(CauseKind::Start));
        let taken = due.take(&[tag("acme"), tag("cord")]);
        let want = [(tag("acme"), object("PENDING")), (tag("cord"), plan.clone())];
        assert_eq!(*taken.causes(), BTreeMap::from(want));
        assert_eq!(*due.causes(), BTreeMap::from([(tag("bolt"), plan)]));
    }
}
