//! The intended configuration as text, and changes of it by text: UNION.md section 3.1.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::model::some_request;
use super::stack::{PORTS_DISABLED, factory, with_layer};
use super::*;
use crate::intended::{
    Document, DocumentError, DocumentFormat, Kept, Placement, lines_between, place, tree,
};

fn text_of(configuration: &Configuration) -> String {
    cli::print_with_notes(&models().native, &tree(configuration), &|_, _| None)
}

fn read(text: &str) -> Document {
    let format = DocumentFormat::of(models(), text).unwrap();
    Document::read(models(), text, format).unwrap()
}

fn placed(
    start: &Configuration,
    placement: Placement,
) -> Result<(Configuration, Vec<Kept>), EditErrors> {
    let (edit, kept) = place(start, placement)?;
    Ok((start.edit(&edit)?, kept))
}

#[track_caller]
fn merged(start: &Configuration, text: &str) -> Configuration {
    placed(start, Placement::Merge(read(text))).unwrap_or_else(|error| panic!("{text}: {error}")).0
}

#[track_caller]
fn check_difference(start: &Configuration, end: &Configuration, want: &[&str]) {
    assert_eq!(lines_between(start, end), want);
}

const MIXED: [&str; 3] = [
    "update /interfaces {\"interface\":[{\"name\":\"eth0\",\"config\":{\"name\":\"eth0\",\"mtu\":1514,\"description\":\"one\"}}]}",
    "update native:/interfaces/interface[name=eth1]/mtu 1400",
    "update native:/system {\"domain-name\":\"example\"}",
];

/// Case 15.
#[test]
fn the_whole_configuration_is_one_text_whatever_origin_brought_it() {
    let start = MIXED.iter().fold(factory(PORTS_DISABLED), |start, it| then(&start, it));
    let boot =
        with_layer(&start, LayerKey::BOOT_NATIVE, "update native:/system/motd-banner \"of bootz\"");
    let full = with_layer(
        &boot,
        LayerKey::LEASE,
        "update native:/interfaces/interface[name=eth1]/ipv4/address[ip=10.0.0.1]/prefix-length 24",
    );
    let text = "system\n  hostname factory\n  domain-name example\n  motd-banner \"of bootz\"\n\
                interface eth0\n  enabled true\n  description one\n  mtu 1500\n\
                interface eth1\n  enabled false\n  mtu 1400\n";
    assert_eq!(text_of(&full), text, "a lease is state");
    check_same(&full, Placement::Replace(read(text)), &[]);
    assert_eq!(text_of(&merged(&full, text)), text);
    let json = json::print(
        &models().native,
        models().native.root(),
        NodeRef::Branch(tree(&full).root()),
        json::Flavour::Ietf,
        &|_| true,
    );
    let json = String::from_utf8(json.unwrap()).unwrap();
    assert_eq!(DocumentFormat::of(models(), &json), Ok(DocumentFormat::Json));
    check_same(&full, Placement::Replace(read(&json)), &[]);
}

/// Checks that a change is made and changes nothing.
#[track_caller]
fn check_same(start: &Configuration, placement: Placement, kept: &[&str]) {
    let (end, left) = placed(start, placement).unwrap();
    let names: Vec<&str> = left.iter().map(|it| it.path.as_str()).collect();
    assert_eq!(names, kept);
    assert_eq!(end.layers(), start.layers());
}

/// A leaf is changed in the layer that holds it, and new ones go to the native layer of clients.
// Case 16.
#[test]
fn a_leaf_is_changed_where_it_is_held() {
    let start = after(&MIXED);
    let end = merged(
        &start,
        "interface eth0\n  mtu 1300\n  enabled false\ninterface eth1 mtu 1301\nno system domain-name\n",
    );
    check_difference(
        &start,
        &end,
        &[
            "- system domain-name example",
            "+ interface eth0 enabled false",
            "- interface eth0 mtu 1500",
            "+ interface eth0 mtu 1300",
            "- interface eth1 mtu 1400",
            "+ interface eth1 mtu 1301",
        ],
    );
    assert_eq!(
        explicit(&end, LayerKey::CLIENT_OPENCONFIG),
        [
            "/interfaces/interface[name=eth0]/config/description=one",
            "/interfaces/interface[name=eth0]/config/mtu=1314",
        ]
    );
    assert_eq!(
        explicit(&end, LayerKey::CLIENT_NATIVE),
        [
            "/interfaces/interface[name=eth0]/enabled=false",
            "/interfaces/interface[name=eth1]/mtu=1301",
        ]
    );
    let both = then(&end, "update native:/interfaces/interface[name=eth0]/mtu 1300");
    let both = merged(&both, "interface eth0 mtu 1299");
    let mtu = |layer: LayerKey| explicit(&both, layer).into_iter().find(|it| it.contains("/mtu"));
    assert!(mtu(LayerKey::CLIENT_OPENCONFIG).unwrap().ends_with("=1313"), "both hold it");
    assert!(mtu(LayerKey::CLIENT_NATIVE).unwrap().ends_with("=1299"));
    check_no_intent(&merged(&both, "no interface eth0\nno interface eth1\nno interface eth7"));
}

#[track_caller]
fn check_no_intent(configuration: &Configuration) {
    assert_eq!(text_of(configuration), "");
    for layer in [LayerKey::CLIENT_NATIVE, LayerKey::CLIENT_OPENCONFIG] {
        assert!(explicit(configuration, layer).is_empty(), "{layer}");
    }
}

fn explicit(configuration: &Configuration, layer: LayerKey) -> Vec<String> {
    let schema = models().schema(layer.origin);
    lines(schema, configuration.layers().tree(layer), |mark| match mark {
        LeafMark::Explicit => "",
        LeafMark::Factory => " factory",
        LeafMark::Default => " default",
        LeafMark::Absent => " absent",
    })
}

/// A value that clients do not hold stays, and is named; a line that removes it is refused.
// Case 17.
#[test]
fn what_others_hold_is_named_and_stays() {
    let start = then(&factory(PORTS_DISABLED), MIXED[0]);
    let start =
        with_layer(&start, LayerKey::BOOT_NATIVE, "update native:/system/motd-banner \"of bootz\"");
    let text = text_of(&start).replace("  motd-banner \"of bootz\"\n", "");
    check_same(&start, Placement::Replace(read(&text)), &["/system/motd-banner"]);
    let text = text_of(&start).replace("  enabled true\n", "");
    let kept = ["/interfaces/interface[name=eth0]/enabled"];
    check_same(&start, Placement::Replace(read(&text)), &kept);
    for (line, reason) in [
        ("no system motd-banner", "the value is not held by a client, but by boot native"),
        (
            "no interface eth0 enabled",
            "the value is not held by a client, but by a default of OpenConfig",
        ),
    ] {
        let refused = placed(&start, Placement::Merge(read(line))).unwrap_err();
        assert!(refused.to_string().contains(reason), "{line}: {refused}");
    }
    let other = placed(&start, Placement::Merge(read("system motd-banner mine")));
    assert!(other.unwrap_err().to_string().contains("reserved for bootz"));
    let (end, kept) = placed(&start, Placement::Replace(read(""))).unwrap();
    assert_eq!(kept[0].owners, ["boot native"]);
    assert_eq!(
        text_of(&end),
        "system\n  motd-banner \"of bootz\"\ninterface eth0\n  enabled false\ninterface eth1\n  enabled false\n",
        "ports are as they left the factory"
    );
}

/// An editor's changes are made, whatever others have changed meanwhile.
#[test]
fn only_differences_of_two_versions_are_changed() {
    let start = after(&MIXED);
    let text = text_of(&start);
    let edited = text.replace("mtu 1400", "mtu 1401").replace("  description one\n", "");
    let meanwhile = merged(&start, "interface eth0 mtu 1444\ninterface eth2 description new");
    let versions = [text, edited].map(|text| match read(&text) {
        Document::Native(wishes) => wishes,
        Document::OpenConfig(_) => panic!("it is text"),
    });
    let [old, new] = versions;
    let (end, _) = placed(&meanwhile, Placement::Differences { old, new }).unwrap();
    check_difference(
        &meanwhile,
        &end,
        &[
            "- interface eth0 description one",
            "- interface eth1 mtu 1400",
            "+ interface eth1 mtu 1401",
        ],
    );
}

/// In a text that is merged, values are added to a leaf-list, and a line counts after those before it.
#[test]
fn lines_of_a_text_count_in_their_order() {
    let list = |values: &str| format!("system search-domain {values}");
    let start = merged(&empty(), &list("a.example"));
    for (text, want) in [
        (list("b.example"), "a.example b.example"),
        (format!("no system search-domain\n{}", list("b.example")), "b.example"),
        (format!("{}\nno system search-domain\n", list("b.example")), ""),
    ] {
        let end = text_of(&merged(&start, &text));
        let found = end.trim().rsplit_once("search-domain").map_or("", |it| it.1.trim());
        assert_eq!(found, want, "{text}");
    }
}

#[test]
fn a_document_says_by_itself_what_it_is() {
    for (text, want) in [
        ("interface eth0\n", Ok(DocumentFormat::Text)),
        ("", Ok(DocumentFormat::Text)),
        ("{\"holdfast:interfaces\":{}}", Ok(DocumentFormat::Json)),
        (" {\"openconfig-interfaces:interfaces\":{}}", Ok(DocumentFormat::OpenConfig)),
        ("{\"openconfig-system:system\":{}}", Ok(DocumentFormat::OpenConfig)),
        ("{ not JSON", Ok(DocumentFormat::Json)),
        ("{\"openconfig-system:system\":{},\"holdfast:interfaces\":{}}", Err(DocumentError::Mixed)),
    ] {
        assert_eq!(DocumentFormat::of(models(), text), want, "{text}");
    }
    let read = |text| Document::read(models(), text, DocumentFormat::of(models(), text).unwrap());
    let wrong = "interface eth0\n  mtuu 1\n  enabled maybe\n";
    let error = read(wrong).unwrap_err().to_string();
    assert!(error.contains("line 2: `mtuu 1`") && error.contains("line 3:"), "{error}");
    assert!(read("{\"a\":1}").unwrap_err().to_string().contains("no such node"));
}

/// A box with or without a boot configuration, and the requests that clients have sent.
type Story = (bool, Vec<String>);

fn some_story() -> impl Strategy<Value = Story> {
    (any::<bool>(), prop::collection::vec(some_request(), 0..8))
}

fn told((has_boot, requests): &Story) -> Configuration {
    let mut start = factory(PORTS_DISABLED);
    if *has_boot {
        let boot = "update native:/interfaces/interface[name=a] {\"mtu\":1401}; \
                    update native:/system/motd-banner \"boot\"";
        start = with_layer(&start, LayerKey::BOOT_NATIVE, boot);
    }
    requests.iter().fold(start, |start, request| start.edit(&edit(request)).unwrap_or(start))
}

proptest! {
    #[test]
    fn what_is_shown_sent_back_changes_nothing(story in some_story()) {
        let start = told(&story);
        let text = text_of(&start);
        let (end, kept) = placed(&start, Placement::Replace(read(&text))).unwrap();
        prop_assert_eq!(&kept, &[]);
        prop_assert_eq!(end.layers(), start.layers());
        // Merged values are explicit, factory leaves and defaults included.
        let (end, kept) = placed(&start, Placement::Merge(read(&text))).unwrap();
        prop_assert_eq!(&kept, &[]);
        prop_assert_eq!(text_of(&end), text);
    }

    /// Lines are those of leaves that one of the two has, although they are found without looking at what both share.
    #[test]
    fn lines_are_those_of_leaves_that_differ(one in some_story(), other in some_story()) {
        let [old, new] = [one, other].map(|story| told(&story));
        let leaves = |of: &Configuration| {
            let mut found = BTreeSet::new();
            tree(of).walk(&mut |path, leaf| {
                if !models().native.is_list_key(path.last().unwrap().node) {
                    let act = cli::StatementAction::Set(leaf.value.clone());
                    found.insert(cli::line(&models().native, path, &act));
                }
            });
            found
        };
        let [before, after] = [&old, &new].map(leaves);
        let mut want: Vec<String> = before.difference(&after).map(|line| format!("- {line}")).collect();
        want.extend(after.difference(&before).map(|line| format!("+ {line}")));
        let mut found = lines_between(&old, &new);
        // An entry without a leaf has a line of its own.
        found.retain(|line| line.split(' ').count() > 3);
        found.sort_unstable();
        want.sort_unstable();
        prop_assert_eq!(found, want);
    }

    /// A replace gives what its text says, except what it lists as kept and ports as they left the factory.
    #[test]
    fn a_replace_gives_what_its_text_says(one in some_story(), other in some_story()) {
        let [start, wanted] = [one, other].map(|story| told(&story));
        let text = text_of(&wanted);
        let Ok((end, kept)) = placed(&start, Placement::Replace(read(&text))) else {
            return Ok(());
        };
        let (again, _) = placed(&end, Placement::Replace(read(&text))).unwrap();
        prop_assert_eq!(again.layers(), end.layers(), "once more");
        let is_kept = |line: &str| kept.iter().any(|it| line.starts_with(&it.path));
        let leaves = |of: &Configuration| {
            let mut found = lines(&models().native, &tree(of), |_| "");
            found.retain(|line| !is_kept(line));
            found
        };
        prop_assert_eq!(leaves(&end), leaves(&wanted));
    }
}
