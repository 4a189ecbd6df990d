//! Differences of layers as lines, and returns to earlier layers.

use proptest::prelude::*;

use super::secrets::edit_with;
use super::*;
use crate::edit::{EditAuthorization, EditAuthorizer, RequestForms};
use crate::resolve::PatternStep;

const ETH0: &str = "/interfaces/interface[name=eth0]/config";

/// The difference that the last of `requests` makes.
#[track_caller]
fn difference(requests: &[&str]) -> LayerDifference {
    let (last, first) = requests.split_last().unwrap();
    let old = after(first);
    LayerDifference::of(&old, &then(&old, last))
}

#[track_caller]
fn check_lines(requests: &[&str], want: &[&str]) {
    let LayerDifference { lines, total_lines, .. } = difference(requests);
    assert_eq!(lines, want, "{requests:#?}");
    assert_eq!(total_lines, want.len());
}

#[test]
fn a_difference_is_lines_of_cli_text() {
    let mtu = |mtu: u16| format!(r#"update {ETH0} {{"name": "eth0", "mtu": {mtu}}}"#);
    let one = mtu(1414);
    let two = mtu(1514);
    check_lines(&["update native:/system/hostname \"r1\""], &["+ system hostname r1"]);
    // OpenConfig counts the Ethernet header.
    check_lines(&[&one], &["+ interface eth0 mtu 1400"]);
    check_lines(&[&one, &two], &["- interface eth0 mtu 1400", "+ interface eth0 mtu 1500"]);
    check_lines(&[&one, "delete /"], &["- interface eth0 mtu 1400"]);
    check_lines(&[&one, &one], &[]);
    check_lines(
        &["update cli:interface br0\n  type bridge\n  description \"two words\""],
        &["+ interface br0 type bridge", "+ interface br0 description \"two words\""],
    );
    // A value that two layers ask for is listed once.
    check_lines(
        &[&format!("{one}; update native:/interfaces/interface[name=eth0]/mtu 1400")],
        &["+ interface eth0 mtu 1400"],
    );
    check_lines(
        &["replace / {\"@\": {\"openconfig-metadata:protobuf-metadata\": \"aGk=\"}}"],
        &["+ (annotation of the root)"],
    );
}

#[test]
fn all_leaves_are_counted_and_the_first_lines_are_kept() {
    let users = |from: usize| {
        let users =
            (from..from + 400).map(|it| format!(r#"{{"username": "u{it:03}", "role": "admin"}}"#));
        format!("update native:/system {{\"user\": [{}]}}", users.collect::<Vec<_>>().join(","))
    };
    let found = difference(&[&users(0)]);
    let per_user = found.leaves / 400;
    let kept = found.lines.len();
    assert_eq!((found.leaves, found.total_lines), (per_user * 400, per_user * 400));
    assert_eq!(kept, (per_user * 400).min(MAX_DIFFERENCE_LINES));
    let both = difference(&[&format!("{}; {}", users(0), users(400))]);
    assert_eq!((both.leaves, both.total_lines), (per_user * 800, per_user * 800));
    assert_eq!(both.lines.len(), MAX_DIFFERENCE_LINES);
    // A change of each, and the way back.
    let changed = users(0).replace("admin", "read-only");
    let found = difference(&[&users(0), &changed]);
    assert_eq!((found.leaves, found.total_lines), (400, 800));
    let back = found.inverted();
    assert_eq!(back.lines[0], found.lines[0].replacen('-', "+", 1));
    assert_eq!(back.inverted(), found);
}

#[test]
fn secrets_are_withheld() {
    let user = "/system/aaa/authentication/users/user[username=ada]/config";
    let off = empty().switched(Namespace::Gnsi, false);
    let set = |before: &Configuration, leaf: &str| {
        let request = format!("update {user} {{\"username\": \"ada\", {leaf}}}");
        before.edit(&edit_with(&request)).unwrap()
    };
    let one = set(&off, "\"password\": \"hunter2\", \"role\": \"admin\"");
    let two = set(&one, "\"password\": \"hunter22\"");
    let found = LayerDifference::of(&off, &one);
    assert_eq!(
        found.lines,
        ["+ system user ada role admin", "+ system user ada password (withheld)"]
    );
    let found = LayerDifference::of(&one, &two);
    assert_eq!(
        found.lines,
        ["- system user ada password (withheld)", "+ system user ada password (withheld)"]
    );
    assert_eq!(found.leaves, 1);
    // They come back with the rest.
    let back = restored(&two, &one);
    assert_eq!(back.layers(), one.layers());
    assert_eq!(LayerDifference::of(&one, &off).lines.len(), 2);
}

/// Layers as they are read from rows of clients.
fn client_layers(configuration: &Configuration) -> Layers {
    let rows = layer_rows_diff(models(), &Layers::new(), configuration.layers());
    let rows = rows.into_iter().filter(|row| is_client_row(&row.key));
    Layers::from_rows(models(), rows.map(|row| (row.key, row.value.unwrap()))).unwrap().0
}

fn restore(
    now: &Configuration,
    earlier: &Configuration,
    authorization: &EditAuthorization,
) -> Result<Configuration, EditErrors> {
    now.restored(&client_layers(earlier), authorization, &CancelToken::default())
}

#[track_caller]
fn restored(now: &Configuration, earlier: &Configuration) -> Configuration {
    let back = restore(now, earlier, &EditAuthorization::default()).unwrap();
    let scratch = Configuration::new(models().clone(), back.layers().clone());
    assert_eq!(lines_effective(&back), lines_effective(&scratch));
    back
}

#[test]
fn what_boot_and_gnsi_keep_to_themselves_refuses_no_return() {
    let earlier = after(&[
        "update native:/system/hostname \"client\"",
        "update native:/interfaces/interface[name=eth1]/mtu 1300",
    ]);
    let now = then(&earlier, "delete native:/");
    let boot = BootConfiguration { vendor: b"system hostname boot".to_vec(), ..Default::default() };
    let now = now.boot_changed(&BootChange::Set(Some(Arc::new(boot)))).unwrap();
    let back = restored(&now, &earlier);
    for origin in [Origin::OpenConfig, Origin::Native] {
        let client = LayerKey::client(origin);
        assert_eq!(back.layers().tree(client), earlier.layers().tree(client));
    }
    assert!(lines_effective(&back).contains(&"/system/hostname=boot".to_owned()));
}

#[test]
fn what_does_not_differ_shares_its_memory() {
    let earlier = after(&[&format!(r#"update {ETH0} {{"name": "eth0", "mtu": 1414}}"#)]);
    let now = then(&earlier, "update native:/system/hostname \"r1\"");
    let back = restored(&now, &earlier);
    let client = LayerKey::CLIENT_OPENCONFIG;
    assert!(back.layers().tree(client).is_same(now.layers().tree(client)));
    assert!(back.layers().tree(LayerKey::CLIENT_NATIVE).is_empty());
}

/// Permits a change of the layers, or the secrets of users, or both.
#[derive(Debug)]
struct Rights {
    changes: bool,
    secrets: bool,
    reads: bool,
}

impl EditAuthorizer for Rights {
    fn for_models(&self, _: &Arc<Models>) -> Option<Arc<dyn EditAuthorizer>> {
        None
    }

    fn may_clear(&self, _: Origin, _: &[PatternStep]) -> bool {
        false
    }

    fn may_send_cli_text(&self) -> bool {
        false
    }

    fn may_apply_statement(&self, _: &Configuration, _: &cli::Statement) -> bool {
        false
    }

    fn may_write_payload(
        &self,
        _: &Configuration,
        _: Origin,
        path: &InstancePath,
        _: NodeRef<'_, LeafMark>,
    ) -> Result<(), InstancePath> {
        if self.secrets { Ok(()) } else { Err(path.clone()) }
    }

    fn may_change(
        &self,
        _: &Configuration,
        after: &Layers,
        written: RequestForms,
    ) -> Result<(), (Origin, InstancePath)> {
        assert_eq!(written, RequestForms { native: true, text: false });
        assert!(after.tree(LayerKey::CLIENT_NATIVE).is_empty(), "the layers after it");
        let path = models().native.resolve_write(&"/system/hostname".parse().unwrap()).unwrap();
        if self.changes { Ok(()) } else { Err((Origin::Native, path)) }
    }

    fn may_read(&self, _: Origin, _: &InstancePath) -> bool {
        self.reads
    }
}

#[test]
fn the_author_needs_the_permission_for_what_differs() {
    let user = "update /system/aaa/authentication/users/user[username=ada]/config \
        {\"username\": \"ada\", \"password\": \"hunter2\"}";
    let off = empty().switched(Namespace::Gnsi, false);
    let now = off.edit(&edit_with(user)).unwrap();
    let now = then(&now, "update native:/system/hostname \"r1\"");
    for (changes, secrets, reads, refusal) in [
        (true, true, true, None),
        (false, true, true, Some("/system/hostname")),
        (false, true, false, Some("`/`")),
        (true, false, true, Some("user[username=ada]/config/password")),
        (true, false, false, Some("`/`")),
    ] {
        let rights = EditAuthorization::new(Arc::new(Rights { changes, secrets, reads }));
        match (restore(&now, &off, &rights), refusal) {
            (Ok(back), None) => assert_eq!(back.layers(), off.layers()),
            (Err(errors), Some(place)) => {
                assert_eq!(errors.first().cause, EditCause::Denied);
                assert_eq!(errors.first().operation, EditOperation::Restore);
                let text = errors.to_string();
                assert!(text.contains(place), "{text}");
                assert!(!text.contains("hunter"), "{text}");
            }
            (found, _) => panic!("{found:?}"),
        }
    }
}

/// Requests that lead from anywhere to somewhere.
const REQUESTS: [&str; 9] = [
    r#"update /interfaces/interface[name=eth0]/config {"name": "eth0", "mtu": 1414, "description": "one"}"#,
    r#"replace /interfaces/interface[name=eth0]/config {"name": "eth0", "description": "two"}"#,
    "delete /interfaces",
    "update native:/interfaces/interface[name=eth1]/mtu 1300",
    "update cli:interface eth1\n  description text\nsystem hostname r1",
    "update cli:no interface eth1",
    "delete native:/",
    "replace / {\"@\": {\"openconfig-metadata:protobuf-metadata\": \"aGk=\"}}",
    "union cli:interface eth0\n  mtu 1400",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A return gives exactly the layers of then, and its difference is none to them.
    #[test]
    fn a_return_gives_the_layers_of_then(
        requests in prop::collection::vec(0..REQUESTS.len(), 1..12),
        at in any::<prop::sample::Index>(),
    ) {
        let mut history = vec![empty()];
        for request in requests {
            let now = history.last().unwrap();
            let next = now.edit(&edit(REQUESTS[request]));
            history.extend(next);
        }
        let now = history.last().unwrap();
        let earlier = at.get(&history);
        let back = restored(now, earlier);
        prop_assert_eq!(back.layers(), earlier.layers());
        let found = LayerDifference::of(earlier, &back);
        prop_assert_eq!(found, LayerDifference::default());
        let forth = LayerDifference::of(now, &back);
        let mut again = LayerDifference::of(&back, now);
        prop_assert_eq!((forth.leaves, forth.total_lines), (again.leaves, again.total_lines));
        let mut inverted = forth.inverted();
        inverted.lines.sort_unstable();
        again.lines.sort_unstable();
        prop_assert_eq!(inverted.lines, again.lines);
    }
}
