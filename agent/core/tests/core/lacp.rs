//! The priority of LACP that bonds take from one leaf for all of them.

use holdfast_platform::kinds::lacp;
use holdfast_platform::values::Lacp;

use super::*;

/// Priority of a bond without configuration.
const OF_THE_KERNEL: u16 = 65_535;

fn of_all(priority: u16) -> String {
    format!(r#"{{"openconfig-lacp:lacp":{{"config":{{"system-priority":{priority}}}}}}}"#)
}

/// LACP of a bond, with this leaf.
fn of_bond(bond: &str, leaf: &str) -> String {
    let entry = format!(r#"{{"name":"{bond}","config":{{"name":"{bond}"{leaf}}}}}"#);
    format!(r#"{{"openconfig-lacp:lacp":{{"interfaces":{{"interface":[{entry}]}}}}}}"#)
}

fn bond(bond: &str) -> String {
    let config = format!(r#"{{"name":"{bond}","type":"iana-if-type:ieee8023adLag"}}"#);
    format!(
        r#"{{"openconfig-interfaces:interfaces":{{"interface":[{{"name":"{bond}","config":{config}}}]}}}}"#
    )
}

fn priority(kernel: &SimulatedKernel, bond: &str) -> u16 {
    let observed = kernel.observed(&lacp::key(bond)).unwrap();
    let lacp: &Lacp = observed.as_any().downcast_ref().unwrap();
    lacp.system.as_ref().unwrap().priority
}

#[tokio::test]
async fn bonds_take_the_priority_of_all_unless_they_have_their_own() {
    let own = r#","system-priority":7"#;
    let parts = [of_all(5), bond("b0"), bond("b1"), of_bond("b0", ""), of_bond("b1", own)];
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let backwards: Vec<&str> = parts.iter().rev().copied().collect();
    for (order, is_one_request) in
        [(&parts, true), (&parts, false), (&backwards, true), (&backwards, false)]
    {
        let kernel = SimulatedKernel::new(&["eth0"]);
        let folder = tempfile::tempdir().unwrap();
        let agent = Agent::start(&kernel, folder.path()).await;
        if is_one_request {
            agent.update_all(order).await.unwrap();
        } else {
            for document in order {
                agent.update(document).await.unwrap();
            }
        }
        let priorities = || ["b0", "b1"].map(|bond| priority(&kernel, bond));
        assert_eq!(priorities(), [5, 7], "{order:?}, one request: {is_one_request}");

        // In place: nothing else is asked of the kernel.
        let before = kernel.requests();
        agent.update(&of_all(6)).await.unwrap();
        assert_eq!((priorities(), kernel.requests() - before), ([6, 7], 1));
        let published = agent.published_text();
        let shown = r#""openconfig-lacp:lacp":{"config":{"system-priority":6}"#;
        assert!(published.contains(shown), "{published}");
        assert!(published.contains(r#""state":{"system-priority":6}"#), "{published}");
        agent.stop().await;

        let before = kernel.requests();
        let agent = Agent::start(&kernel, folder.path()).await;
        assert_eq!((agent.published_text(), kernel.requests() - before), (published, 0));
        agent.delete("/lacp/interfaces/interface[name=b1]/config/system-priority").await.unwrap();
        assert_eq!(priorities(), [6, 6]);
        agent.delete("/lacp/config/system-priority").await.unwrap();
        assert_eq!(priorities(), [OF_THE_KERNEL; 2]);
        agent.handle.current_revision().await;
        let published = agent.published_text();
        assert!(!published.contains(r#""state":{"system-priority":6}"#), "{published}");
        agent.stop().await;
    }
}

/// The kernel takes priorities from 1 on.
#[tokio::test]
async fn the_priority_zero_is_refused() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    agent.update(&of_all(0)).await.unwrap_err();
    agent.update(&of_all(1)).await.unwrap();
    agent.stop().await;
}

/// A bond that comes while the priority changes takes the new one, whichever of both is examined first.
#[tokio::test]
async fn a_bond_that_comes_with_a_change_of_the_priority_takes_the_new_one() {
    for priority_first in [true, false] {
        let kernel = SimulatedKernel::new(&["eth0"]);
        let folder = tempfile::tempdir().unwrap();
        let agent = Agent::start(&kernel, folder.path()).await;
        agent.update_all(&[&of_all(5), &bond("b0")]).await.unwrap();
        let change = of_all(6);
        let entry = of_bond("b0", "");
        let change = [change.as_str()];
        let entry = [entry.as_str()];
        let [first, second] = if priority_first { [&change, &entry] } else { [&entry, &change] };
        let (one, other) = tokio::join!(agent.update_all(first), agent.update_all(second));
        one.and(other).unwrap();
        assert_eq!(priority(&kernel, "b0"), 6, "the priority first: {priority_first}");
        agent.stop().await;
    }
}
