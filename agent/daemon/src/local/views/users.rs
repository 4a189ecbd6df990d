//! `holdfast show users`: who may log in, as what, and who says so.

use std::collections::BTreeSet;

use holdfast_base::Caller;
use holdfast_config::schema::Origin;
use holdfast_config::tree::NodeRef;
use holdfast_config::{Configuration, InstancePath};
use holdfast_core::Datastore as _;
use serde_json::{Value, json};

use super::look::{Look, Readable};
use super::{list, word, words};
use crate::local::rights::LookError;
use crate::local::table::{Column, Ink, Table};

pub(super) async fn document(look: &Look, caller: &Caller) -> Result<Value, LookError> {
    let readable = look.readable(caller, &[]).await;
    let configuration = look.core.configuration();
    let shown = readable.top("system");
    let states: Vec<&Value> = list(&shown, "user").collect();
    let mut users = Vec::new();
    for name in names(look, &readable) {
        let Some(path) = path_of(&readable, &name) else { continue };
        let state = states.iter().find(|it| it["username"] == name.as_str());
        let state = state.map(|it| &it["state"]).unwrap_or(&Value::Null);
        let role = look.users.role(&name).map(|role| role.to_string());
        let mut sources = owners(&configuration, &path);
        if look.users.own_role(&name).is_some() {
            sources.push("holdfast user set".to_owned());
        }
        if [
            "password-version",
            "authorized-keys-list-version",
            "authorized-principals-list-version",
        ]
        .iter()
        .any(|leaf| state[*leaf].is_string())
        {
            sources.push("gNSI credentialz".to_owned());
        }
        users.push(json!({ "name": name, "role": role, "from": sources }));
    }
    Ok(json!({ "users": users }))
}

/// Names of the users that a caller may read.
pub(in crate::local) fn names(look: &Look, readable: &Readable) -> Vec<String> {
    let system = readable.top("system");
    let shown = list(&system, "user").map(|it| word(it, "username"));
    let own = look.users.list().into_iter().map(|(name, _)| name.to_string());
    let names: BTreeSet<String> = shown.chain(own).collect();
    let permitted = |name: &String| path_of(readable, name).is_some_and(|it| readable.permits(&it));
    names.into_iter().filter(permitted).collect()
}

fn path_of(readable: &Readable, name: &str) -> Option<InstancePath> {
    let keys = [("username", name)];
    let schema = readable.models.schema(Origin::Native);
    schema.instance_path(&[("system", &[][..]), ("user", &keys[..])]).ok()
}

/// Owners of the entry of a user in the configuration.
fn owners(configuration: &Configuration, path: &InstancePath) -> Vec<String> {
    let Some(branch) = configuration.effective().find_branch(&path.0) else { return Vec::new() };
    let mut owners: Vec<String> = Vec::new();
    NodeRef::Branch(&branch).walk(&mut path.clone(), &mut |path, leaf| {
        for name in configuration.owner_names(path, &leaf.meta) {
            if !owners.contains(&name) {
                owners.push(name);
            }
        }
    });
    owners
}

pub(super) fn table(document: &Value, ink: Ink) -> String {
    let columns = [Column::left("USER"), Column::left("ROLE"), Column::left("FROM")];
    let mut table = Table::new(&columns);
    for it in list(document, "users") {
        let from = words(it, "from").collect::<Vec<_>>().join(", ");
        table.rows.push(vec![word(it, "name").into(), word(it, "role").into(), from.into()]);
    }
    table.text(ink)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_a_table() {
        let document = json!({ "users": [
            { "name": "admin", "role": "admin", "from": ["holdfast user set", "client openconfig"] },
            { "name": "ada", "role": "read-only", "from": ["client openconfig"] },
        ] });
        let want = "\
USER   ROLE       FROM
admin  admin      holdfast user set, client openconfig
ada    read-only  client openconfig
";
        assert_eq!(table(&document, Ink::Plain), want);
    }
}
