//! The switch of a type of services, `/service-settings/type[name]/enabled`. While it is off, nothing is made of the
//! instances of the type, and nothing that was made goes.

use super::Ground;
use crate::instance::InstancePath;
use crate::models::Models;
use crate::path::{Elem, Path};
use crate::value::Value;

/// Path of the switch of a type; `None` in models without services.
pub(crate) fn path_of(models: &Models, service: &str) -> Option<InstancePath> {
    let entry = Elem::new("type").key("name", service);
    let elems = vec![Elem::new("service-settings"), entry, Elem::new("enabled")];
    models.native.resolve_write(&Path { elems }).ok()
}

impl Ground {
    /// False for a type of services that is switched off.
    pub fn is_switched_on(&self, models: &Models, service: &str) -> bool {
        let switch = path_of(models, service);
        let switch = switch.as_ref().and_then(|path| self.effective().find_leaf(path));
        switch.is_none_or(|leaf| leaf.value != Value::Bool(false))
    }
}
