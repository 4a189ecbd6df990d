//! Text of `holdfast show service-waits`.

use std::error::Error;
use std::fmt::Write as _;

use holdfast_config::Path;
use holdfast_config::json::{Flavour, print};
use holdfast_config::schema::Origin;
use holdfast_config::tree::NodeRef;
use holdfast_telemetry::Revision;
use serde_json::Value;

/// Node of the waits in the native model.
const WAITS: &str = "/service-state";

/// Waits of each instance, ascending by instance; nothing where no type of services is loaded.
pub(super) fn text(
    revision: &Revision,
    json: bool,
) -> Result<String, Box<dyn Error + Send + Sync>> {
    let waits = waits(revision)?;
    if json {
        return Ok(serde_json::to_string_pretty(&waits)? + "\n");
    }
    Ok(table(waits.iter()))
}

fn waits(revision: &Revision) -> Result<Vec<Value>, Box<dyn Error + Send + Sync>> {
    let schema = revision.schema(Origin::Native);
    // The models have it with the first package.
    let Ok(path) = schema.resolve_write(&WAITS.parse::<Path>()?) else { return Ok(Vec::new()) };
    let Some(branch) = revision.native.find_branch(&path.0) else { return Ok(Vec::new()) };
    let at = path.last().map_or(schema.root(), |step| step.node);
    let document = print(schema, at, NodeRef::Branch(&branch), Flavour::Ietf, &|_| true);
    let document = document.map_or(Ok(Value::Null), |text| serde_json::from_slice(&text))?;
    let members = document.as_object().into_iter().flatten();
    let waits = members.filter(|(name, _)| name.rsplit(':').next() == Some("wait"));
    Ok(waits.filter_map(|(_, waits)| waits.as_array()).flatten().cloned().collect())
}

fn table<'w>(waits: impl Iterator<Item = &'w Value>) -> String {
    let mut text = String::new();
    let mut last = "";
    for wait in waits {
        let member = |name: &str| wait[name].as_str().unwrap_or_default();
        let service = member("service");
        if service != last {
            let _never_fails = writeln!(text, "{service}");
            last = service;
        }
        let value = wait["value"].as_str().unwrap_or("nothing");
        let woken = match member("fired") {
            "1" => "once".to_owned(),
            times => format!("{times} times"),
        };
        let _never_fails = writeln!(
            text,
            "  {} {} was {value}  (woke it {woken})",
            member("plane"),
            member("path")
        );
        for place in wait["place"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let _never_fails = writeln!(text, "    {place}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_instance_has_what_it_reads_and_where() {
        let path = "/interfaces/interface[name=eth1]/state/oper-status";
        let waits = [
            json!({ "service": "a[n='x']", "plane": "state", "path": path, "value": "DOWN",
                "fired": "2", "place": ["port eth1, sized: gate `up`"] }),
            json!({ "service": "a[n='x']", "plane": "service", "path": "b[n='y']", "fired": "0" }),
        ];
        let want = format!(
            "a[n='x']\n  state {path} was DOWN  (woke it 2 times)\n    port eth1, sized: gate `up`\n  \
             service b[n='y'] was nothing  (woke it 0 times)\n"
        );
        assert_eq!(table(waits.iter()), want);
    }
}
