//! Candidates for the completion of command lines: names of what there is on the box, as far as the caller may read it.

use axum::extract::{Query, State};
use axum::routing::get;
use axum::{Extension, Json, Router};
use holdfast_base::Caller;
use holdfast_config::cli::{self, NextWord};
use holdfast_config::schema::Origin;
use holdfast_config::tree::Child;
use holdfast_config::{InstancePath, Keys, Path, Step};
use holdfast_core::{CoreView, Datastore as _};
use holdfast_platform::kinds::registry;
use holdfast_store::RevisionRange;
use serde::Deserialize;

use super::rights::{LookError, require_reader};
use super::views::{Look, Readable, instance_names, interface_names, user_names};
use crate::settings::{CANDIDATES, Topic};

/// Most candidates of an answer: more than anyone chooses from.
const MOST: usize = 1000;

/// Most revisions of an answer: each is read from the disk with its difference.
const MOST_REVISIONS: usize = 50;

/// Topic and begin of the candidates.
#[derive(Debug, Deserialize)]
struct Question {
    topic: Topic,
    /// Words of the same argument before the candidates, a line each.
    #[serde(default)]
    before: String,
    /// Begin of the candidates.
    text: String,
}

/// Routes of candidates, for [`super::start`].
pub fn completion_routes(look: Look) -> Router {
    Router::new().route(CANDIDATES, get(candidates)).with_state(look)
}

async fn candidates(
    State(look): State<Look>,
    Extension(caller): Extension<Caller>,
    Query(Question { topic, before, text }): Query<Question>,
) -> Result<Json<Vec<String>>, LookError> {
    require_reader(&caller)?;
    let native = look.readable(&caller, &[]).await;
    let mut found = match topic {
        Topic::Interfaces | Topic::Resources => interface_names(&native),
        Topic::Instances => instance_names(&look, &native),
        Topic::Users => user_names(&look, &native),
        Topic::Values => values(&look, &native, &text).await?,
        Topic::Subjects => {
            let mut all = values(&look, &native, &text).await?;
            all.extend(interface_names(&native));
            all.extend(instance_names(&look, &native));
            all
        }
        Topic::Alarms => {
            let alarms = look.alarms(&native).await?;
            alarms.iter().map(|alarm| alarm.condition.to_string()).collect()
        }
        Topic::ConfigWords => config_words(&native, &before),
        Topic::Revisions => revisions(&look, &native).await?,
        Topic::Paths => {
            let mut found = paths(&look, &caller, Origin::Native, &text).await;
            found.extend(paths(&look, &caller, Origin::OpenConfig, &text).await);
            found
        }
    };
    found.retain(|it| it.starts_with(&text));
    found.sort_unstable();
    found.dedup();
    found.truncate(MOST);
    Ok(Json(found))
}

/// Words that may come next on a line of the configuration: words of its grammar, keys of entries that are there, and names of
/// values.
fn config_words(native: &Readable, before: &str) -> Vec<String> {
    let schema = native.models.schema(Origin::Native);
    let line: Vec<&str> = before.lines().collect();
    let (list, before) = match cli::next_word(schema, &line) {
        NextWord::Words(words) => return words,
        NextWord::Key { list, before } => (list, before),
    };
    let Some((last, above)) = list.0.split_last() else { return Vec::new() };
    let Some(branch) = native.tree.find_branch(above) else { return Vec::new() };
    let entries = branch.list(last.node).into_iter().flat_map(|list| list.iter());
    let key = |(keys, _): (&Keys, _)| {
        let is_meant = keys.iter().zip(&before).all(|(key, before)| key == before);
        keys.get(before.len()).filter(|_| is_meant).map(ToString::to_string)
    };
    entries.filter_map(key).take(MOST).collect()
}

/// Numbers of the last revisions, and names of checkpoints. A caller with a pathz policy may have no part of a revision.
async fn revisions(look: &Look, readable: &Readable) -> Result<Vec<String>, LookError> {
    if readable.rights.is_some() {
        return Ok(Vec::new());
    }
    let range = RevisionRange::newest(MOST_REVISIONS);
    let list = look.core.revisions(range).await.map_err(LookError::failed)?;
    let checkpoints = look.core.checkpoints().await.map_err(LookError::failed)?;
    let numbers = list.revisions.iter().map(|listed| listed.revision.number.to_string());
    Ok(numbers.chain(checkpoints.into_iter().map(|it| it.name.to_string())).collect())
}

/// Names of the values of the engine. Values have no paths by which a policy could judge them, so a caller with one
/// has none.
async fn values(look: &Look, readable: &Readable, text: &str) -> Result<Vec<String>, LookError> {
    if readable.rights.is_some() {
        return Ok(Vec::new());
    }
    let keys = look.core.inspect(|view: &CoreView<'_>| view.engine.keys(|_| true)).await;
    let registry = registry();
    let names = keys.map_err(LookError::failed)?.into_iter().map(|key| registry.key_text(&key));
    Ok(names.filter(|name| name.starts_with(text)).take(MOST).collect())
}

/// Paths that are one element longer than the last whole one of a text.
async fn paths(look: &Look, caller: &Caller, origin: Origin, text: &str) -> Vec<String> {
    let models = look.core.models();
    let schema = models.schema(origin);
    let above = &text[..last_slash(text)];
    let above = if above.is_empty() { "/" } else { above };
    let Ok(path) = above.parse::<Path>() else { return Vec::new() };
    let Ok(at) = schema.resolve_write(&path) else { return Vec::new() };
    let end = at.leaf().unwrap_or(schema.root());
    let is_below = |leaf| schema.with_ancestors(leaf).any(|node| node == end);
    let sources = look.core.polled_catalog().sources(origin, is_below);
    let readable = look.readable_of(caller, origin, &sources).await;
    let Some(branch) = readable.tree.find_branch(&at.0) else { return Vec::new() };
    let mut found = Vec::new();
    for (node, child) in branch.children() {
        let below = |step: Step| InstancePath(at.0.iter().cloned().chain([step]).collect());
        match child {
            Child::List(list) => {
                for (keys, _) in list.iter().take(MOST) {
                    found.push(below(Step::entry(*node, keys.clone())));
                }
            }
            _ if schema.is_list_key(*node) => {}
            _ => found.push(below(Step::node(*node))),
        }
    }
    found.iter().map(|path| path.to_path(schema).to_string()).collect()
}

/// Place of the last slash that is not within a key.
fn last_slash(text: &str) -> usize {
    let mut is_in_key = false;
    let mut last = 0;
    for (at, character) in text.char_indices() {
        match character {
            '[' => is_in_key = true,
            ']' => is_in_key = false,
            '/' if !is_in_key => last = at,
            _ => {}
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_in_keys_part_no_elements() {
        for (text, want) in [
            ("", ""),
            ("/sys", ""),
            ("/system/st", "/system"),
            ("/a[n=x/y]/s", "/a[n=x/y]"),
            ("/a[n=x/y", ""),
        ] {
            assert_eq!(&text[..last_slash(text)], want, "{text}");
        }
    }
}
