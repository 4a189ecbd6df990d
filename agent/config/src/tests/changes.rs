//! Objects that a request affects, and the work to find them.

use super::*;

const ROUTES: &str = "/network-instances/network-instance[name=DEFAULT]/protocols/protocol[identifier=STATIC][name=s]/static-routes";

#[track_caller]
fn check(before: &[&str], request: &str, want: &[&str]) {
    let old = after(before);
    let new = then(&old, request);
    let native = &models().native;
    let found: Vec<String> = changed_objects(&old, &new)
        .iter()
        .map(|it| {
            let sign = match (&it.old, &it.new) {
                (None, _) => "+",
                (_, None) => "-",
                _ => "~",
            };
            let path = it.path.to_path(native).to_string();
            let object = native.node(it.object).object.clone().unwrap();
            format!("{sign}{object} {}", path.rsplit('[').next().unwrap())
        })
        .collect();
    assert_eq!(found, want, "{request}");
}

#[test]
fn an_object_changes_when_its_own_leaves_do() {
    let address =
        "update native:/interfaces/interface[name=eth0]/ipv4/address[ip=10.0.0.1]/prefix-length 24";
    check(&[], address, &["+link name=eth0]", "+address ip=10.0.0.1]"]);
    check(
        &[address],
        "update native:/interfaces/interface[name=eth0]/mtu 1400",
        &["~link name=eth0]"],
    );
    check(
        &[address],
        "update native:/interfaces/interface[name=eth0]/ipv4/address[ip=10.0.0.1]/prefix-length 25",
        &["~address ip=10.0.0.1]"],
    );
    check(&[address], "delete native:/interfaces", &["-link name=eth0]", "-address ip=10.0.0.1]"]);
    check(&[], "update native:/system/hostname \"a\"", &["+system /system"]);
    // A container that only other objects are in is none itself.
    let user = "update native:/system/user[username=u]/role \"admin\"";
    check(&[], user, &["+user username=u]"]);
    check(&[user], "delete native:/system", &["-user username=u]"]);
    check(&[address], address, &[]);
    let hop = format!(
        "update {ROUTES}/static[prefix=10.0.0.0/8]/next-hops/next-hop[index=a]/config/next-hop \"192.0.2.1\""
    );
    check(
        &[],
        &hop,
        &[
            "+network-instance name=DEFAULT]",
            "+static-protocol name=s]",
            "+static-route prefix=10.0.0.0/8]",
        ],
    );
    check(&[&hop], &hop.replace("192.0.2.1", "192.0.2.2"), &["~static-route prefix=10.0.0.0/8]"]);
}

#[test]
fn work_is_in_proportion_to_the_change() {
    let route = |n: usize| {
        format!(
            "{{\"prefix\":\"10.{}.{}.0/24\",\"next-hops\":{{\"next-hop\":[{{\"index\":\"0\",\"config\":\
             {{\"next-hop\":\"192.0.2.1\"}}}}]}}}}",
            n / 256,
            n % 256
        )
    };
    let routes: Vec<String> = (0..5_000).map(route).collect();
    let many = after(&[&format!("update {ROUTES} {{\"static\":[{}]}}", routes.join(","))]);
    for (request, entries) in [
        (
            format!(
                "update {ROUTES}/static[prefix=10.3.7.0/24]/next-hops/next-hop[index=0]/config/metric 5"
            ),
            5,
        ),
        (format!("delete {ROUTES}/static[prefix=10.3.7.0/24]"), 4),
        ("update /system/config/hostname \"a\"".to_owned(), 1),
        (format!("replace {ROUTES} {{\"static\":[{}]}}", routes.join(",")), 0),
    ] {
        let new = many.edit(&edit(&request)).unwrap();
        assert!(
            new.work().entries <= entries + 4,
            "{} entries for {request:.80}",
            new.work().entries
        );
        let rows = layer_rows_diff(models(), many.layers(), new.layers());
        assert!(rows.len() <= 3, "{} rows for {request:.80}", rows.len());
    }
}
