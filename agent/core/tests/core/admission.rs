//! Ends of veth pairs that fit one another, or are refused.

use std::sync::Arc;

use holdfast_config::edit::{Edit, EditTarget, Payload};
use holdfast_config::rows::layer_rows_diff;
use holdfast_config::schema::Origin;
use holdfast_config::{BootChange, BootConfiguration, Configuration, Layers, Models};
use holdfast_core::{CommitError, CommitOptions, CommitStamp, Datastore, Intent, Statuses};
use holdfast_platform::kinds::link;
use holdfast_platform::transport::SimulatedKernel;
use holdfast_platform::values::Link;
use holdfast_store::{self, Store};

use super::{Agent, BOX, caller};

/// Lines of the command line: each as an update, or all as one union.
fn lines(text: &str, union: bool) -> Edit {
    let payload = |line: &str| {
        let target = EditTarget { origin: Origin::Native, path: "/".parse().unwrap() };
        (target, Payload::Cli { text: line.to_owned() })
    };
    if union {
        let whole = text.replace("; ", "\n");
        Edit { union_replace: vec![payload(&whole)], ..Edit::default() }
    } else {
        Edit { updates: text.split("; ").map(payload).collect(), ..Edit::default() }
    }
}

async fn commit(agent: &Agent, edit: Edit) -> Result<CommitStamp, CommitError> {
    agent.handle.commit(&caller(), edit, CommitOptions::default()).await
}

/// The veth links that the kernel has, each with its other end.
fn pairs(kernel: &SimulatedKernel) -> String {
    let end = |name: &&str| {
        let observed = kernel.observed(&link::key(name))?;
        let link: &Link = observed.as_any().downcast_ref()?;
        Some(format!("{name}-{}", link.kind.far_end()?))
    };
    let ends: Vec<String> = ["va", "vb", "vc", "vd"].iter().filter_map(end).collect();
    ends.join(" ")
}

fn veth(pair: &str) -> String {
    let (name, peer) = pair.split_once('-').unwrap();
    format!("interface {name} type veth; interface {name} veth peer {peer}")
}

#[tokio::test]
async fn a_veth_end_does_not_leave_the_other_one_behind() {
    for union in [false, true] {
        let kernel = SimulatedKernel::new(&[]);
        let folder = tempfile::tempdir().unwrap();
        let agent = Agent::start(&kernel, folder.path()).await;
        let both = format!("{}; {}", veth("va-vb"), veth("vb-va"));
        commit(&agent, lines(&both, union)).await.unwrap();
        assert_eq!(pairs(&kernel), "va-vb vb-va");
        let before = kernel.contents();
        let requests = kernel.requests();
        // In a union, the other end is there because it is said again.
        let alone = format!("{}; {}", veth("va-vc"), veth("vb-va"));
        let edit = || lines(if union { &alone } else { "interface va veth peer vc" }, union);
        let refused = commit(&agent, edit()).await.unwrap_err();
        assert!(matches!(refused, CommitError::Object { .. }), "{refused}");
        let reason = "interface[name=va]/veth/peer: link `va` cannot have the other end `vc`: link `vb` still names `va` as its other end";
        assert!(refused.to_string().ends_with(reason), "{refused}");
        let options = CommitOptions::default();
        let preview =
            agent.handle.preview(&caller(), Intent::edit(edit()), options).await.unwrap_err();
        assert!(preview.to_string().ends_with(reason), "{preview}");
        assert_eq!((kernel.contents(), kernel.requests()), (before, requests));

        // One request takes both ends along, whichever way the old one goes: the change, what is configured then, and
        // what the kernel has.
        for (change, whole, want) in [
            ("interface va veth peer vc; no interface vb", "va-vc", "va-vc vc-va"),
            ("interface vc type veth; interface vc veth peer va", "va-vc vc-va", "va-vc vc-va"),
            (
                "interface va veth peer vb; interface vc veth peer vd",
                "va-vb vc-vd",
                "va-vb vb-va vc-vd vd-vc",
            ),
            (
                "interface va veth peer vd; interface vc veth peer vb",
                "va-vd vc-vb",
                "va-vd vb-vc vc-vb vd-va",
            ),
        ] {
            let whole: Vec<String> = whole.split(' ').map(veth).collect();
            let text = if union { whole.join("; ") } else { change.to_owned() };
            commit(&agent, lines(&text, union)).await.unwrap();
            assert_eq!(pairs(&kernel), want, "{change}");
            let waiting = agent.handle.statuses(true).await.unwrap();
            assert!(waiting.is_empty(), "{change}: {waiting:#?}");
        }
        agent.stop().await;
    }
}

#[tokio::test]
async fn boot_configuration_and_clients_agree_on_veth_peers() {
    let kernel = SimulatedKernel::new(&[]);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    commit(&agent, lines(&veth("va-vb"), false)).await.unwrap();
    let boot = |pair: &str| {
        let vendor = veth(pair).replace("; ", "\n").into_bytes();
        let boot = BootConfiguration { vendor, ..BootConfiguration::default() };
        Intent::boot(BootChange::Set(Some(boot.into())))
    };
    let refused = agent.handle.change(&caller(), boot("vb-vc")).await.unwrap_err();
    assert!(refused.to_string().contains("link `va` still names `vb`"), "{refused}");
    agent.handle.change(&caller(), boot("vb-va")).await.unwrap();
    let refused = commit(&agent, lines("interface va veth peer vc", false)).await.unwrap_err();
    assert!(refused.to_string().contains("link `vb` still names `va`"), "{refused}");
    // A refused change leaves nothing behind that the next change would be judged by.
    agent.handle.change(&caller(), Intent::boot(BootChange::Set(None))).await.unwrap();
    commit(&agent, lines("interface va veth peer vc", false)).await.unwrap();
    assert_eq!(pairs(&kernel), "va-vc vc-va");
    agent.stop().await;
}

/// A version without the rule may have stored it: the rest of the box comes up, and every way out is open.
#[tokio::test]
async fn stored_veth_peers_that_disagree_do_not_stop_the_agent() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    agent.stop().await;
    let models = Arc::new(Models::load().unwrap());
    let before = Configuration::new(Arc::clone(&models), Layers::new());
    let pairs_stored = format!("{}; {}", veth("va-vc"), veth("vb-va"));
    let stored = before.edit(&lines(&pairs_stored, false)).unwrap();
    let rows = layer_rows_diff(&models, before.layers(), stored.layers());
    let (store, _) = Store::open(folder.path()).unwrap();
    store.write(rows.into_iter().map(holdfast_store::Change::from).collect()).await.unwrap();
    store.close().await.unwrap();

    let agent = Agent::start(&kernel, folder.path()).await;
    agent.update(BOX).await.unwrap();
    let mtu = commit(&agent, lines("interface va mtu 1300", false)).await.unwrap_err();
    assert!(mtu.to_string().contains("link `vb` still names `va`"), "{mtu}");
    commit(&agent, lines("no interface vb", false)).await.unwrap();
    commit(&agent, lines("interface va mtu 1300", false)).await.unwrap();
    assert_eq!(pairs(&kernel), "va-vc vc-va");
    agent.stop().await;
}
