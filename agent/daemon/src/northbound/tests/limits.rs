//! Limits of a request, and the order in which its mistakes are reported.

use holdfast_base::Role;
use holdfast_config::Limit;
use holdfast_config::limits::{
    ANSWER_SIZE, CUT_MARK, ELEMENT_KEYS, ERROR_TEXT, JOINED_PATHS, MESSAGE_SIZE, NAMED_NODES,
    PATH_DEPTH_WILDCARDS, PATH_ELEMENTS, REQUEST_PATHS, SUBSCRIPTIONS,
};
use holdfast_proto::gnmi;
use holdfast_proto::gnmi::subscription_list::Mode;
use holdfast_proto::gnsi::pathz;
use holdfast_proto::gnsi::pathz::pathz_client::PathzClient;
use tonic::{Code, Status};

use super::fake_datastore::FakeDatastore;
use super::harness::{
    Client, Subscription, channel, client, get_request, json, list, path, set, subscribe,
};
use crate::gnsi::pathz::tests::judge;

fn named(names: &[&str]) -> gnmi::Path {
    let elem = |name: &&str| gnmi::PathElem { name: (*name).to_owned(), ..Default::default() };
    gnmi::Path { elem: names.iter().map(elem).collect(), ..Default::default() }
}

fn keyed(count: usize) -> gnmi::Path {
    let mut path = named(&["interfaces", "interface"]);
    path.elem[1].key = (0..count).map(|at| (format!("k{at}"), "v".to_owned())).collect();
    path
}

#[expect(deprecated, reason = "old clients send it")]
fn old(elements: &[String]) -> gnmi::Path {
    gnmi::Path { element: elements.to_vec(), ..Default::default() }
}

#[track_caller]
fn check(got: Result<(), Status>, limit: &Limit, what: &str) {
    let status = got.expect_err(what);
    assert_eq!(status.code(), Code::ResourceExhausted, "{what}: {status:?}");
    let text = status.message();
    let figure = limit.figure.to_string();
    assert!(text.contains(limit.name) && text.contains(&figure), "{what}: {text}");
}

async fn get(client: &mut Client, request: gnmi::GetRequest) -> Result<(), Status> {
    client.get(request).await.map(drop)
}

async fn subscribed(client: &mut Client, list: gnmi::SubscriptionList) -> Result<(), Status> {
    let mut stream = Subscription::open(client, subscribe(list)).await;
    stream.responses.message().await.map(drop)
}

/// All places of a request that have a path.
#[tokio::test]
async fn a_path_over_a_limit_is_refused_wherever_it_stands() {
    let core = FakeDatastore::new();
    let mut client = client(&core).await;
    let mut policies = PathzClient::new(channel(&core, Some(Role::Admin)).await);
    let keys: String = (0..17).map(|at| format!("[k{at}=v]")).collect();
    let rows = [
        (&PATH_ELEMENTS, named(&["a"; 65])),
        (&PATH_DEPTH_WILDCARDS, named(&["..."; 5])),
        (&ELEMENT_KEYS, keyed(17)),
        (&PATH_ELEMENTS, old(&vec!["a".to_owned(); 65])),
        (&PATH_DEPTH_WILDCARDS, old(&vec!["...".to_owned(); 5])),
        (&ELEMENT_KEYS, old(&[format!("interface{keys}")])),
    ];
    for (limit, at) in rows {
        let what = limit.name;
        let request = gnmi::GetRequest { path: vec![at.clone()], ..get_request(&[]) };
        check(get(&mut client, request.clone()).await, limit, what);
        let request = gnmi::GetRequest { prefix: Some(at.clone()), ..get_request(&["/"]) };
        check(get(&mut client, request).await, limit, what);
        for mode in [Mode::Once, Mode::Stream] {
            let mut subscriptions = list(mode, &["change /"]);
            subscriptions.subscription[0].path = Some(at.clone());
            check(subscribed(&mut client, subscriptions).await, limit, what);
        }
        let update = gnmi::Update { path: Some(at.clone()), val: json("1"), ..Default::default() };
        for request in [
            gnmi::SetRequest { delete: vec![at.clone()], ..Default::default() },
            gnmi::SetRequest { update: vec![update.clone()], ..Default::default() },
            gnmi::SetRequest { replace: vec![update.clone()], ..Default::default() },
            gnmi::SetRequest { union_replace: vec![update], ..Default::default() },
        ] {
            check(client.set(request).await.map(drop), limit, what);
        }
        let request = pathz::ProbeRequest {
            user: "ada".into(),
            path: Some(at),
            mode: pathz::Mode::Read.into(),
            policy_instance: pathz::PolicyInstance::Active.into(),
        };
        core.pathz().enforce(Some(judge("user other + read /")));
        check(policies.probe(request).await.map(drop), limit, what);
        core.pathz().enforce(None);
    }
    // Elements of the prefix and the path are counted together.
    let request = gnmi::GetRequest {
        prefix: Some(named(&["a"; 33])),
        path: vec![named(&["b"; 32])],
        ..get_request(&[])
    };
    check(get(&mut client, request).await, &PATH_ELEMENTS, "prefix and path");
    let request = gnmi::SetRequest {
        prefix: Some(named(&["..."; 3])),
        delete: vec![named(&["..."; 2])],
        ..Default::default()
    };
    check(client.set(request).await.map(drop), &PATH_DEPTH_WILDCARDS, "prefix and path");
}

#[tokio::test]
async fn paths_subscriptions_and_what_they_name_are_counted() {
    let core = FakeDatastore::new();
    let mut client = client(&core).await;
    let paths = |count: usize, one: gnmi::Path| gnmi::GetRequest {
        path: vec![one; count],
        ..get_request(&[])
    };
    let root = gnmi::Path::default();
    get(&mut client, paths(REQUEST_PATHS.figure, root.clone())).await.unwrap();
    check(get(&mut client, paths(REQUEST_PATHS.figure + 1, root)).await, &REQUEST_PATHS, "paths");
    let subscriptions = |count| {
        let mut subscriptions = list(Mode::Stream, &["change /system/config/hostname"]);
        subscriptions.subscription = vec![subscriptions.subscription[0].clone(); count];
        subscriptions
    };
    let most = SUBSCRIPTIONS.figure;
    subscribed(&mut client, subscriptions(most)).await.unwrap();
    check(subscribed(&mut client, subscriptions(most + 1)).await, &SUBSCRIPTIONS, "subscriptions");
    // Each subscription is looked up with a copy of the prefix.
    let mut subscriptions = subscriptions(most);
    subscriptions.subscription.iter_mut().for_each(|it| it.path = None);
    subscriptions.prefix = Some(named(&["x".repeat(JOINED_PATHS.figure / most).as_str()]));
    check(subscribed(&mut client, subscriptions).await, &JOINED_PATHS, "copies of the prefix");
    // Each path expands to all configuration leaves, and differs from the others in a key.
    let many = (0..REQUEST_PATHS.figure).map(|at| {
        let mut one = named(&["*", "*", "...", "config", "*"]);
        one.elem[1].key = [("name".to_owned(), format!("p{at}"))].into();
        one
    });
    let request = gnmi::GetRequest { path: many.collect(), ..get_request(&[]) };
    check(get(&mut client, request).await, &NAMED_NODES, "named nodes");
}

#[tokio::test]
async fn an_answer_is_counted_while_it_is_made() {
    let core = FakeDatastore::new();
    let mut client = client(&core).await;
    let port = |at| {
        format!(
            r#"{{"name":"p{at}","config":{{"name":"p{at}","description":"{}"}}}}"#,
            "x".repeat(250)
        )
    };
    let ports: Vec<String> = (0..300).map(port).collect();
    set(&mut client, &format!(r#"update /interfaces {{"interface":[{}]}}"#, ports.join(","))).await;
    let many = |encoding: gnmi::Encoding| gnmi::GetRequest {
        encoding: encoding.into(),
        ..get_request(&["/"; 1000])
    };
    // A document has the same size in memory and on the wire; leaves take more in memory.
    check(get(&mut client, many(gnmi::Encoding::Json)).await, &MESSAGE_SIZE, "documents");
    check(get(&mut client, many(gnmi::Encoding::Proto)).await, &ANSWER_SIZE, "leaves");
    get(&mut client, get_request(&["/"; 10])).await.unwrap();
}

#[tokio::test]
async fn an_error_text_that_is_too_long_is_truncated_with_a_mark() {
    let core = FakeDatastore::new();
    let mut client = client(&core).await;
    let long = "long".repeat(50_000);
    let port = format!("/interfaces/interface[name={long}]");
    for request in [
        get_request(&[&format!("{port}/config/mtu")]),
        get_request(&[&format!("{port}/bogus")]),
        get_request(&[&format!("/interfaces/interface[name=a][{long}=b]")]),
        get_request(&[&format!("/{long}")]),
    ] {
        let status = client.get(request).await.unwrap_err();
        assert!(status.message().len() <= ERROR_TEXT.figure, "{}", status.message().len());
        assert!(status.message().contains(CUT_MARK), "{}", status.message());
    }
    let mut request = super::harness::set_request("delete /interfaces");
    request.delete = vec![path(&format!("{port}/bogus")); 40];
    let status = client.set(request).await.unwrap_err();
    assert!(status.message().len() <= ERROR_TEXT.figure, "{}", status.message().len());
    assert!(status.message().contains(CUT_MARK), "{}", status.message());
    assert!(status.details().len() < 6 * 1024, "{}", status.details().len());
}

/// Limits are checked first, then syntax, the pathz policy, the models, the data.
// proves 5.46
#[tokio::test]
async fn the_first_error_in_order_is_reported() {
    const CLOSED: &str = "user other + read /";
    const NO_SYSTEM: &str = "user test + read /; user test - read /system";
    let core = FakeDatastore::new();
    let mut client = client(&core).await;
    set(&mut client, r#"update /system/config/hostname "box""#).await;
    let nameless = named(&["interfaces", ""]);
    let mut keys_on_depth = named(&["...", "bogus"]);
    keys_on_depth.elem[0].key = [("name".to_owned(), "a".to_owned())].into();
    let long_and_nameless = named(&[""; 65]);
    let rows = [
        (CLOSED, long_and_nameless.clone(), "ResourceExhausted"),
        ("", long_and_nameless, "ResourceExhausted"),
        (CLOSED, nameless, "InvalidArgument"),
        (CLOSED, keys_on_depth, "InvalidArgument"),
        // A refusal reveals nothing of models or data that the caller may not read.
        (CLOSED, path("/bogus"), "PermissionDenied"),
        (CLOSED, path("/.../bogus"), "PermissionDenied"),
        (CLOSED, path("/system[name=a]"), "PermissionDenied"),
        (CLOSED, path("/interfaces/interface[bogus=a]"), "PermissionDenied"),
        (
            CLOSED,
            path("/interfaces/interface/subinterfaces/subinterface[index=x]"),
            "PermissionDenied",
        ),
        (NO_SYSTEM, path("/system/config/hostname"), "PermissionDenied"),
        (NO_SYSTEM, path("/system/config/bogus"), "PermissionDenied"),
        (NO_SYSTEM, path("/system/*/hostname"), "PermissionDenied"),
        (NO_SYSTEM, path("/system/*/bogus"), "PermissionDenied"),
        (NO_SYSTEM, path("/.../hostname"), ""),
        (NO_SYSTEM, path("/.../bogus"), ""),
        (NO_SYSTEM, path("/*/config/hostname"), ""),
        (NO_SYSTEM, path("/*/config/bogus"), ""),
        (NO_SYSTEM, path("/*/dns[name=x]/bogus"), ""),
        (NO_SYSTEM, path("/interfaces/bogus"), "Unimplemented"),
        (NO_SYSTEM, path("/interfaces/*/bogus"), "Unimplemented"),
        ("", path("/interfaces/interface[name=eth9]/config/bogus"), "Unimplemented"),
        ("", path("/.../bogus"), "Unimplemented"),
        ("", path("/interfaces/interface[name=eth9]/config/mtu"), "NotFound"),
    ];
    for (rules, at, want) in rows {
        core.pathz().enforce((!rules.is_empty()).then(|| judge(rules)));
        let what = format!("{rules}: {at:?}");
        for encoding in [gnmi::Encoding::Proto, gnmi::Encoding::JsonIetf] {
            let encoding = encoding.into();
            let request = gnmi::GetRequest { path: vec![at.clone()], encoding, ..get_request(&[]) };
            let got = match client.get(request).await {
                Err(status) => format!("{:?}", status.code()),
                Ok(answer) => {
                    let updates = answer.into_inner().notification.remove(0).update;
                    assert!(updates.is_empty(), "{what}: {updates:?}");
                    String::new()
                }
            };
            assert_eq!(got, want, "{what}");
        }
    }
}
