//! Interfaces that are shut, on the simulated kernel.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast_base::ErrorChain;
use holdfast_config::{BootChange, BootConfiguration, FenceItem, FenceOwner};
use holdfast_core::{Datastore as _, Intent};
use holdfast_faults::Resource;
use smol_str::SmolStr;

use super::agent;
use crate::agent_tests::caller;
use crate::connections::OpenConnections;
use crate::faults::fencer::{Removal, Wishes, fence_each};
use crate::faults::guard::Guard;

#[tokio::test]
async fn an_interface_that_cannot_be_shut_keeps_no_other_one_open() {
    let folder = tempfile::tempdir().unwrap();
    let agent = agent(folder.path(), &["eth0", "eth1", "eth2"]).await;
    let text = "interface eth1 enabled true";
    let boot = BootConfiguration { vendor: text.into(), ..BootConfiguration::default() };
    let boot = Intent::boot(BootChange::Set(Some(boot.into())));
    agent.handle.change(&caller(), boot).await.unwrap();
    let guard = Guard::new(agent.handle.clone(), OpenConnections::default(), Arc::default());
    let owner = FenceOwner::Policy("errors".into());
    let interface = |name: &str| Resource::Interface(name.into());
    let mut wishes: Wishes =
        ["eth0", "eth1", "eth2"].iter().map(|name| (interface(name), true)).collect();
    let shut = || -> BTreeSet<SmolStr> {
        let configuration = agent.handle.configuration();
        let shut = configuration.fence_items().filter_map(|(item, _)| match item {
            FenceItem::Shut { interface } => Some(interface),
            _ => None,
        });
        shut.collect()
    };
    for _ in 0..2 {
        let errors = fence_each(&agent.handle, &guard, &owner, &wishes, Removal::Shut).await;
        let refused: Vec<&Resource> = errors.iter().map(|(resource, _)| resource).collect();
        assert_eq!(refused, [&interface("eth1")], "{errors:?}");
        assert!(ErrorChain(&errors[0].1).to_string().contains("boot"), "{errors:?}");
        assert_eq!(shut(), BTreeSet::from(["eth0".into(), "eth2".into()]));
    }
    wishes.remove(&interface("eth0"));
    let errors = fence_each(&agent.handle, &guard, &owner, &wishes, Removal::Shut).await;
    assert_eq!(errors.len(), 1);
    assert_eq!(shut(), BTreeSet::from(["eth2".into()]), "what is not wanted is given back");
}
