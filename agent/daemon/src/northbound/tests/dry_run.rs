//! Dry runs, and changes that name the plan they expect, through a real channel.

use holdfast_core::Datastore;
use holdfast_proto::gnmi_ext::extension::Ext;
use holdfast_proto::{gnmi, holdfast};
use prost::Message;
use tonic::Code;

use super::commits::{MTU, Rig};

fn preview(response: &gnmi::SetResponse) -> holdfast::Preview {
    let [gnmi_extension] = &response.extension[..] else { panic!("{response:?}") };
    let Some(Ext::RegisteredExt(registered)) = &gnmi_extension.ext else { panic!("{response:?}") };
    assert_eq!(registered.id, 26150);
    match holdfast::Plan::decode(&registered.msg[..]).unwrap().content {
        Some(holdfast::plan::Content::Preview(preview)) => preview,
        other => panic!("{other:?}"),
    }
}

/// `EFFECT object` of each operation, without the prefix of the enum.
fn operations(preview: &holdfast::Preview) -> Vec<String> {
    let text = |operation: &holdfast::Operation| {
        let effect = operation.effect().as_str_name().trim_start_matches("EFFECT_").to_lowercase();
        format!("{effect} {}", operation.object)
    };
    preview.operations.iter().map(text).collect()
}

#[tokio::test]
async fn a_dry_run_says_what_a_set_would_do_and_changes_nothing() {
    let mut rig = Rig::new().await;
    let before = rig.snapshot();
    let requests = rig.kernel.requests();
    let revision = rig.agent.handle.revision().number;
    let missing = concat!(
        r#"update /interfaces/interface[name=eth9]/config "#,
        r#"{"name": "eth9", "type": "iana-if-type:ethernetCsmacd"}"#
    );
    for (request, expected) in [
        (format!("update {MTU} 1314"), "changed_in_place"),
        ("delete /network-instances".to_owned(), "removed"),
        (missing.to_owned(), ""),
        (String::new(), ""),
    ] {
        let preview_of_set = preview(&rig.set_with(&request, "dry-run").await.unwrap());
        let operations = operations(&preview_of_set);
        assert_eq!(operations.is_empty(), expected.is_empty(), "{request}: {operations:?}");
        assert!(operations.iter().all(|it| it.starts_with(expected)), "{request}: {operations:?}");
        assert_eq!(
            preview_of_set.pending.is_empty(),
            request != missing,
            "{request}: {preview_of_set:?}"
        );
        let explained = |pending: &holdfast::Pending| pending.waits_for.join(" ").contains("eth9");
        assert!(preview_of_set.pending.iter().all(explained), "{preview_of_set:?}");
        assert_eq!(
            preview_of_set.configuration.is_empty(),
            request.is_empty(),
            "{request}: {preview_of_set:?}"
        );
        assert_eq!(preview_of_set.totals.unwrap().operations, operations.len() as u64);
    }
    let preview_of_set =
        preview(&rig.set_with(&format!("update {MTU} 1314"), "dry-run").await.unwrap());
    let mtu = preview_of_set.configuration.iter().find(|change| change.path == MTU).unwrap();
    assert_eq!((&*mtu.origin, &*mtu.before, &*mtu.after), ("openconfig", "1414", "1314"));
    // A dry run is refused for the same reasons as its Set.
    let refused = rig.set_with(&format!("update {MTU} 70000"), "dry-run").await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert_eq!((rig.snapshot(), rig.kernel.requests()), (before, requests));
    assert_eq!(rig.agent.handle.revision().number, revision);
    rig.agent.stop().await;
}

#[tokio::test]
async fn a_set_with_a_plan_hash_does_that_plan_or_nothing() {
    let mut rig = Rig::new().await;
    let change = format!("update {MTU} 1314");
    let previewed = preview(&rig.set_with(&change, "dry-run").await.unwrap());
    let before = rig.snapshot();
    let wrong = rig.set_with(&change, "expected 0123456789abcdef").await.unwrap_err();
    assert_eq!(wrong.code(), Code::Aborted, "{wrong:?}");
    assert!(wrong.message().contains(&previewed.hash), "{wrong:?}");
    // The hash does not permit another change.
    let expected = format!("expected {}", previewed.hash);
    let other = rig.set_with(&format!("update {MTU} 1315"), &expected).await.unwrap_err();
    assert_eq!(other.code(), Code::Aborted, "{other:?}");
    assert_eq!(rig.snapshot(), before);
    // The box changes, so the plan of the same change is another one.
    let mut revisions = rig.agent.handle.watch();
    rig.kernel.unplug("eth0");
    while rig.agent.published_text().contains(r#""oper-status":"UP""#) {
        revisions.changed().await.unwrap();
    }
    let outdated = rig.set_with(&change, &expected).await.unwrap_err();
    assert_eq!(outdated.code(), Code::Aborted, "{outdated:?}");
    let previewed = preview(&rig.set_with(&change, "dry-run").await.unwrap());
    let expected = format!("expected {}", previewed.hash);
    rig.set_with(&change, &format!("{expected}; begin a")).await.unwrap();
    rig.set_with("", "confirm a").await.unwrap();
    rig.agent.stop().await;
}
