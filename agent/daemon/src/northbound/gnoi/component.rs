//! Components of the box, as gNOI names them: by the path of their entry in OpenConfig.

use holdfast_config::Models;
use holdfast_config::schema::Origin;
use holdfast_proto::gnoi::types::Path;

use crate::northbound::status::Refusal;

/// The one processor of this box, which runs the agent.
pub(super) const CONTROL_PROCESSOR: &str = "cpu0";

/// Refuses every path but that of the one component: `/components/component[name=cpu0]`.
pub(super) fn require_processor(models: &Models, path: &Path) -> Result<(), Refusal> {
    match name(models, path)? {
        CONTROL_PROCESSOR => Ok(()),
        other => Err(Refusal::missing(format!(
            "the component `{other}` cannot be restarted alone: only `{CONTROL_PROCESSOR}` can, with the whole box"
        ))),
    }
}

/// The name of the component that a path names.
pub(super) fn name<'p>(models: &Models, path: &'p Path) -> Result<&'p str, Refusal> {
    let elems: Vec<_> = path.elem.iter().map(|elem| (elem.name.as_str(), &elem.key)).collect();
    let (Some(Origin::OpenConfig), [("components", none), ("component", key)]) =
        (models.origin(&path.origin), &elems[..])
    else {
        return Err(no_component(path));
    };
    match key.get("name") {
        Some(name) if none.is_empty() && key.len() == 1 => Ok(name),
        _ => Err(no_component(path)),
    }
}

fn no_component(path: &Path) -> Refusal {
    let names: Vec<_> = path.elem.iter().map(|elem| elem.name.as_str()).collect();
    let origin = match path.origin.as_str() {
        "" => String::new(),
        origin => format!("{origin}:"),
    };
    Refusal::malformed(
        format!("{origin}/{}", names.join("/")),
        "the path does not name a component: write /components/component[name=...]",
    )
}

#[cfg(test)]
mod tests {
    use holdfast_proto::gnoi::types::PathElem;
    use tonic::{Code, Status};

    use super::*;

    fn path(origin: &str, elems: &[(&str, &[(&str, &str)])]) -> Path {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let elem = |(name, keys): &(&str, &[(&str, &str)])| PathElem {
            name: (*name).to_owned(),
            key: keys.iter().map(owned).collect(),
        };
        Path { origin: origin.to_owned(), elem: elems.iter().map(elem).collect() }
    }

    // proves 6.31
    #[test]
    fn a_component_is_found_by_its_name() {
        let models = Models::load().unwrap();
        let component = |name| [("components", &[][..]), ("component", name)];
        for (path, want) in [
            (path("", &component(&[("name", "cpu0")])), Code::Ok),
            (path("openconfig", &component(&[("name", "cpu0")])), Code::Ok),
            (path("openconfig-system", &component(&[("name", "cpu0")])), Code::Ok),
            (path("holdfast", &component(&[("name", "cpu0")])), Code::InvalidArgument),
            (path("", &component(&[("name", "cpu1")])), Code::NotFound),
            (path("holdfast_native", &component(&[("name", "cpu0")])), Code::InvalidArgument),
            (path("", &component(&[])), Code::InvalidArgument),
            (path("", &component(&[("name", "cpu0"), ("slot", "1")])), Code::InvalidArgument),
            (path("", &[("components", &[])]), Code::InvalidArgument),
            (path("", &[("cpu0", &[])]), Code::InvalidArgument),
            (path("", &[]), Code::InvalidArgument),
        ] {
            let found = require_processor(&models, &path).map_err(Status::from);
            assert_eq!(found.map_or_else(|status| status.code(), |()| Code::Ok), want, "{path:?}");
        }
    }
}
