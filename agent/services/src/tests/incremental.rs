//! Walks after each change come to the same end as one evaluation of everything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use holdfast_config::services::{
    Applied, Book, InstanceRecord, ServicePlan, Services, Surroundings,
};
use holdfast_config::{Configuration, Layers, ServiceTag, layer_rows_diff};
use proptest::prelude::*;

use super::limits::counted;
use super::plans::{FixedBox, LINK_UP, PORT, SIZE, box_of, due, see, types_with};
use super::types::{edit, made};
use crate::ServiceTypes;

/// Most walks until nothing changes any more.
const WALKS: usize = 20;

/// Types whose second state waits for the link of its port.
static TYPES: LazyLock<Arc<ServiceTypes>> =
    LazyLock::new(|| types_with(&PORT.replace("GATE", LINK_UP), SIZE));
/// A box without instances.
static EMPTY: LazyLock<Configuration> = LazyLock::new(|| box_of(Arc::clone(&TYPES)));

#[derive(Clone, Debug)]
enum Event {
    /// The parameters of an instance, which replace those it has.
    Set {
        name: &'static str,
        params: String,
    },
    Delete(&'static str),
    /// The links go up, or down.
    Links(bool),
    /// The objects of the first state wait, or are there.
    Pending(bool),
    /// One walk of one instance.
    Walk(&'static str),
    /// The objects of all instances are verified.
    Verify,
    /// Everything is stored and read again.
    Restart,
}

fn event() -> impl Strategy<Value = Event> {
    let name = prop::sample::select(vec!["acme", "bolt", "cord"]);
    let port = prop::option::of(prop::sample::select(vec!["eth1", "eth2"]));
    let gateway = prop::option::of(prop::sample::select(vec!["10.0.0.1/24", "10.0.0.1/25"]));
    let bridge = prop::sample::select(vec!["br0", "br1"]);
    let params = (port, gateway, bridge, prop::bool::weighted(0.9)).prop_map(|it| {
        let (port, gateway, bridge, deploy) = it;
        let port = port.map(|port| format!(r#","port":"{port}""#)).unwrap_or_default();
        let gateway = gateway.map(|it| format!(r#","gateway":"{it}""#)).unwrap_or_default();
        format!(r#"{{"bridge":"{bridge}","deploy":{deploy}{port}{gateway}}}"#)
    });
    prop_oneof![
        4 => (name.clone(), params).prop_map(|(name, params)| Event::Set { name, params }),
        2 => name.clone().prop_map(Event::Delete),
        2 => any::<bool>().prop_map(Event::Links),
        1 => any::<bool>().prop_map(Event::Pending),
        3 => name.prop_map(Event::Walk),
        2 => Just(Event::Verify),
        1 => Just(Event::Restart),
    ]
}

fn tag(name: &str) -> ServiceTag {
    format!("access[name='{name}']").parse().unwrap()
}

/// The configuration after walks of all instances until nothing changes.
fn settle(mut configuration: Configuration, state: &FixedBox) -> Configuration {
    let all: BTreeSet<ServiceTag> = ["acme", "bolt", "cord"].map(tag).into();
    for _ in 0..WALKS {
        let surroundings = Surroundings { due: all.clone(), ..due(state.clone(), 2) };
        if configuration.trial(&surroundings).is_empty() {
            return configuration;
        }
        configuration = configuration.with_surroundings(surroundings).walked().unwrap();
    }
    panic!("the walks do not end: {:?}", configuration.layers().book);
}

/// Checks that the owners of each object are those whose claims have to do with it.
pub(super) fn check_owners(configuration: &Configuration) {
    let models = configuration.models();
    let claims = configuration.layers().claims();
    let mut owners = BTreeMap::<_, BTreeSet<_>>::new();
    for (key, claim) in claims.iter() {
        for object in claim.objects(models) {
            owners.entry(object).or_default().insert(key.owner());
        }
    }
    for (object, names) in owners {
        assert_eq!(claims.owners(models, &object), names, "{object:?}");
    }
}

/// The service plans without the times of their changes, and what is noted of the ways there.
fn timeless(book: &Book) -> BTreeMap<ServiceTag, ServicePlan> {
    let plan = |(tag, plan): (&ServiceTag, &Arc<ServicePlan>)| {
        let mut plan = (**plan).clone();
        let states = plan.components.iter_mut().flat_map(|it| &mut it.states);
        states.for_each(|state| state.since_ns = 0);
        plan.record = InstanceRecord::default();
        (tag.clone(), plan)
    };
    book.iter().map(plan).collect()
}

/// The same configuration, from its rows.
pub(super) fn restarted(before: &Configuration, types: &Arc<ServiceTypes>) -> Configuration {
    let rows = layer_rows_diff(before.models(), &Layers::new(), before.layers());
    let rows = rows.into_iter().filter_map(|row| Some((row.key, row.value?)));
    let (layers, unknown) = Layers::from_rows(before.models(), rows).unwrap();
    assert_eq!(unknown, 0);
    let services: Arc<dyn Services> = Arc::<ServiceTypes>::clone(types);
    let after =
        Configuration::new(Arc::clone(types.models()), layers).with_services(Some(services));
    assert_eq!(after.effective(), before.effective());
    after
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn walks_in_any_order_end_like_one_evaluation(events in prop::collection::vec(event(), 1..25)) {
        let mut state = FixedBox { status: "DOWN", unapplied: None };
        let mut configuration = EMPTY.clone();
        let mut instances = BTreeMap::new();
        for event in events {
            let before = see(&configuration, state.clone());
            match event {
                Event::Set { name, params } => {
                    let operations = format!("delete {name}\nupdate {name} {params}");
                    // A contradiction is refused, and nothing of it stays.
                    if let Ok(after) = before.edit(&edit(&operations)) {
                        configuration = after;
                        instances.insert(name, params);
                    }
                }
                Event::Delete(name) => {
                    configuration = before.edit(&edit(&format!("delete {name}"))).unwrap();
                    instances.remove(name);
                }
                Event::Links(up) => state.status = if up { "UP" } else { "DOWN" },
                Event::Pending(true) => {
                    state.unapplied = Some(("attached", Applied::Pending("link".into())));
                }
                Event::Pending(false) => state.unapplied = None,
                Event::Walk(name) => {
                    let surroundings =
                        Surroundings { due: BTreeSet::from([tag(name)]), ..due(state.clone(), 2) };
                    configuration = configuration.with_surroundings(surroundings).walked().unwrap();
                }
                Event::Verify => {
                    let due = ["acme", "bolt", "cord"].map(tag).into();
                    let surroundings = Surroundings { due, ..self::due(state.clone(), 2) };
                    configuration = configuration.with_ready_judged(&surroundings);
                }
                Event::Restart => configuration = restarted(&configuration, &TYPES),
            }
            let book = &configuration.layers().book;
            prop_assert_eq!(book.totals(), counted(book));
        }
        state.unapplied = None;
        let configuration = settle(configuration, &state);
        check_owners(&configuration);
        let whole: String =
            instances.iter().map(|(name, params)| format!("update {name} {params}\n")).collect();
        let naive = see(&EMPTY, state.clone()).edit(&edit(&whole)).unwrap();
        let naive = settle(naive, &state);
        prop_assert_eq!(made(&configuration), made(&naive));
        prop_assert_eq!(configuration.layers().claims(), naive.layers().claims());
        prop_assert_eq!(configuration.effective(), naive.effective());
        prop_assert_eq!(
            timeless(&configuration.layers().book),
            timeless(&naive.layers().book)
        );
    }
}
