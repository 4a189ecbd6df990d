//! Budgets of memory for a thousand routes: allocations and bytes, which do not depend on the load of the machine.
//!
//! A row that fails has grown, or shows that its budget can be tightened. The count includes memory that is given back;
//! `kept` is what stays. A thousand entries are worked on by one thread, so that all of it is counted.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use allocation_counter::{AllocationInfo, measure};
use holdfast_config::edit::{Edit, EditTarget, Payload};
use holdfast_config::schema::Origin;
use holdfast_config::{Configuration, Layers, Models};

const ROUTES: usize = 1000;

/// Most that a step may take, for each route. Both are within a twentieth of what it takes.
struct Budget {
    allocations: u64,
    kept_octets: i64,
}

/// An Edit that replaces the static routes by a thousand, all through one neighbour except each `other`th.
fn routes(other: usize) -> Edit {
    let route = |number: usize| {
        let prefix = format!("10.0.{}.{}/32", number / 256, number % 256);
        let via = if number.is_multiple_of(other) { 3 } else { 2 };
        serde_json::json!({"prefix": prefix, "config": {"prefix": prefix}, "next-hops": {"next-hop": [
            {"index": "0", "config": {"index": "0", "next-hop": format!("192.0.2.{via}")}}]}})
    };
    let routes: Vec<_> = (0..ROUTES).map(route).collect();
    let text = serde_json::json!({ "static": routes }).to_string();
    let path = "/network-instances/network-instance[name=DEFAULT]/protocols/protocol[identifier=STATIC][name=static]/static-routes";
    let target = EditTarget { origin: Origin::OpenConfig, path: path.parse().unwrap() };
    let payload = Payload::Json { text: text.into_bytes().into(), ietf: true };
    Edit { updates: vec![(target, payload)], ..Edit::default() }
}

#[track_caller]
fn check(what: &str, used: &AllocationInfo, budget: &Budget) {
    let routes = u64::try_from(ROUTES).unwrap();
    let allocations = used.count_total / routes;
    let bytes = used.bytes_current / i64::try_from(ROUTES).unwrap();
    let within = |value: f64, most: f64| value <= most && value >= most * 0.9 - 1.0;
    #[allow(clippy::cast_precision_loss, reason = "both are far below 2^52")]
    let count = within(allocations as f64, budget.allocations as f64);
    let octets = within(bytes as f64, budget.kept_octets as f64);
    assert!(
        count && octets,
        "{what}: {allocations} allocations of at most {}, {bytes} bytes kept of at most {}, for each route",
        budget.allocations,
        budget.kept_octets
    );
}

#[test]
fn a_thousand_routes_take_what_they_may() {
    let models = Arc::new(Models::load().unwrap());
    let empty = Configuration::new(models, Layers::new());
    empty.edit(&routes(2)).unwrap(); // what is made once, such as compiled patterns, is there then
    for (what, other, budget) in [
        (
            "routes with the same next hops",
            usize::MAX,
            Budget { allocations: 32, kept_octets: 570 },
        ),
        ("routes whose next hops alternate", 2, Budget { allocations: 42, kept_octets: 1075 }),
    ] {
        let edit = routes(other);
        let mut result = None;
        let used = measure(|| result = Some(empty.edit(&edit).unwrap()));
        check(what, &used, &budget);
    }
}
