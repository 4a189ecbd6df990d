//! What is done with the extensions of a request.
//!
//! An extension that we do not know, registered or not, is ignored: it may not change what the
//! request itself means (section 2.8 of the specification), so doing the request is right. One
//! that we know and do not have yet is refused by its name, because a client that asks for a
//! commit to be confirmed must not get one that is final.

use holdfast_proto::gnmi_ext::Extension;
use holdfast_proto::gnmi_ext::extension::Ext;

use super::status::Refusal;

pub(super) fn check(extensions: &[Extension]) -> Result<(), Refusal> {
    match extensions.iter().find_map(|extension| extension.ext.as_ref().and_then(known)) {
        Some(name) => {
            Err(Refusal::unimplemented(format!("the extension `{name}` is not implemented yet")))
        }
        None => Ok(()),
    }
}

fn known(ext: &Ext) -> Option<&'static str> {
    match ext {
        Ext::RegisteredExt(_) => None,
        Ext::MasterArbitration(_) => Some("master_arbitration"),
        Ext::History(_) => Some("history"),
        Ext::Commit(_) => Some("commit"),
        Ext::Depth(_) => Some("depth"),
        Ext::ConfigSubscription(_) => Some("config_subscription"),
    }
}
