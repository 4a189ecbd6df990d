//! The CLI origin: text that is written and shown, and requests that are refused.

use holdfast_proto::gnmi::{self, Encoding, TypedValue, typed_value};
use holdfast_proto::google::rpc;
use prost::Message;
use tonic::{Code, Status};

use super::fake_datastore::FakeDatastore;
use super::harness::Subscription;
use super::harness::{Client, client, list, path, set, subscribe, text};

const ASCII: Encoding = Encoding::Ascii;

fn get_request(paths: &[&str], encoding: Encoding) -> gnmi::GetRequest {
    gnmi::GetRequest {
        path: paths.iter().map(|it| path(it)).collect(),
        encoding: encoding as i32,
        ..Default::default()
    }
}

async fn show_text(client: &mut Client, command: &str) -> String {
    let request = get_request(&[command], ASCII);
    let mut answer = client.get(request).await.unwrap().into_inner().notification;
    let update = answer[0].update.pop().unwrap();
    match update.val.unwrap().value.unwrap() {
        typed_value::Value::AsciiVal(text) => text,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn check_refused(
    answer: Result<tonic::Response<impl std::fmt::Debug>, Status>,
    code: Code,
    part: &str,
) {
    let status = answer.expect_err(part);
    assert_eq!(status.code(), code, "{status}");
    assert!(status.message().contains(part), "{status}");
}

// proves 1.25, 1.40, 1.61
#[tokio::test]
async fn show_commands_are_answered_as_text() {
    let core = FakeDatastore::new();
    let mut client = client(&core).await;
    set(
        &mut client,
        r#"update holdfast_native:/interfaces/interface[name=eth0] {"mtu":1400,"ipv4":{"address":[{"ip":"10.0.0.1","prefix-length":24}]}}; update /interfaces/interface[name=eth0]/config/description "to the core""#,
    )
    .await;
    let running = "\
interface eth0
  mtu 1400
  ipv4
    address 10.0.0.1
      prefix-length 24
";
    for command in [
        "holdfast_cli:/show running-config",
        "cli:/show running-config",
        "cli:/show/running-config",
    ] {
        assert_eq!(show_text(&mut client, command).await, running, "{command}");
    }
    let effective = "\
interface eth0 # client native, client openconfig
  type physical # default
  enabled true # OpenConfig default of client openconfig
  description \"to the core\" # client openconfig
  mtu 1400 # client native
  ipv4
    address 10.0.0.1 # client native
      prefix-length 24 # client native
";
    assert_eq!(show_text(&mut client, "cli:/show effective").await, effective);
    assert_eq!(show_text(&mut client, "cli:/show factory").await, "");

    let mut request = get_request(&["/show factory", "/show effective"], ASCII);
    let target = "box".to_owned();
    request.prefix = Some(gnmi::Path { origin: "cli".into(), target, ..Default::default() });
    let answer = client.get(request).await.unwrap().into_inner().notification;
    assert_eq!(answer.len(), 2, "one for each path");
    let prefix = answer[1].prefix.as_ref().unwrap();
    assert_eq!((&*prefix.origin, &*prefix.target), ("holdfast_cli", "box"));
    assert_eq!(text(answer[1].update[0].path.as_ref()), "/show effective");
}

// proves 1.40, 1.42, 1.61
#[tokio::test]
async fn unknown_show_commands_are_refused_with_the_known_ones() {
    let mut client = client(&FakeDatastore::new()).await;
    for command in
        ["cli:/show version", "cli:/", "cli:/running-config", "cli:/show interfaces/interface"]
    {
        let answer = client.get(get_request(&[command], ASCII)).await;
        check_refused(answer, Code::Unimplemented, "`show running-config` is what clients set");
    }
    let keyed = client.get(get_request(&["cli:/show[name=x]"], ASCII)).await;
    check_refused(keyed, Code::InvalidArgument, "a command cannot have keys");
    for encoding in [Encoding::Json, Encoding::JsonIetf, Encoding::Proto, Encoding::Bytes] {
        let answer = client.get(get_request(&["cli:/show factory"], encoding)).await;
        check_refused(answer, Code::Unimplemented, "is answered in encoding ASCII");
    }
    for origin in ["", "openconfig:", "holdfast_native:"] {
        let answer = client.get(get_request(&[&format!("{origin}/interfaces")], ASCII)).await;
        check_refused(answer, Code::Unimplemented, "encoding ASCII is unsupported here");
    }
    let mixed = client.get(get_request(&["cli:/show factory", "/system"], ASCII)).await;
    check_refused(mixed, Code::InvalidArgument, "a Get has one encoding");
    let state = gnmi::get_request::DataType::State as i32;
    let answer = client
        .get(gnmi::GetRequest { r#type: state, ..get_request(&["cli:/show factory"], ASCII) })
        .await;
    check_refused(answer, Code::InvalidArgument, "a command shows what its name says");
}

// proves 1.42
#[tokio::test]
async fn texts_are_not_subscribed_to() {
    let mut client = client(&FakeDatastore::new()).await;
    for mode in [gnmi::subscription_list::Mode::Once, gnmi::subscription_list::Mode::Stream] {
        let request = subscribe(list(mode, &["target cli:/show/factory"]));
        let mut subscription = Subscription::open(&mut client, request).await;
        assert_eq!(subscription.next().await, "Unimplemented");
    }
}

fn ascii(text: &str) -> Option<TypedValue> {
    Some(TypedValue { value: Some(typed_value::Value::AsciiVal(text.into())) })
}

// proves 1.42, 2.53
#[tokio::test]
async fn writes_to_the_cli_origin_need_ascii_values() {
    let mut client = client(&FakeDatastore::new()).await;
    let delete = gnmi::SetRequest { delete: vec![path("cli:/")], ..Default::default() };
    check_refused(client.set(delete).await, Code::InvalidArgument, "send `no`");
    let json = super::harness::update("cli:/", "{}");
    let write = gnmi::SetRequest { replace: vec![json], ..Default::default() };
    check_refused(client.set(write).await, Code::Unimplemented, "ascii_val");
    let text = gnmi::Update {
        path: Some(path("/system")),
        val: ascii("hostname x"),
        ..Default::default()
    };
    let write = gnmi::SetRequest { update: vec![text], ..Default::default() };
    check_refused(client.set(write).await, Code::Unimplemented, "encoding ASCII");
}

fn written(origin: &str, text: &str) -> gnmi::Update {
    gnmi::Update { path: Some(path(origin)), val: ascii(text), ..Default::default() }
}

async fn replace(client: &mut Client, origin: &str, text: &str) -> gnmi::SetResponse {
    let request = gnmi::SetRequest { replace: vec![written(origin, text)], ..Default::default() };
    client.set(request).await.unwrap().into_inner()
}

const RUNNING: &str = "cli:/show running-config";

// proves 1.24, 1.25, 2.25, 2.51
#[tokio::test]
async fn a_text_replaces_the_last_one_wherever_its_path_points() {
    let core = FakeDatastore::new();
    let mut client = client(&core).await;
    for (number, origin) in
        ["cli:/", "holdfast_cli:/", "cli:/no/such[thing=x]", "cli:/*/..."].into_iter().enumerate()
    {
        let text = format!("interface eth{number}\n  description \"by text\"\n  mtu 1400\n");
        let answer = replace(&mut client, origin, &text).await;
        assert_eq!(answer.response[0].op(), gnmi::update_result::Operation::Replace);
        assert_eq!(answer.prefix.unwrap().origin, "holdfast_cli");
        let running = show_text(&mut client, RUNNING).await;
        assert_eq!(running, text, "all of it and nothing else");
        replace(&mut client, origin, &running).await;
        assert_eq!(show_text(&mut client, RUNNING).await, running, "what is read can be sent back");
    }
}

// proves 2.25
#[tokio::test]
async fn a_text_that_was_read_is_sent_back_beside_openconfig() {
    const OPENCONFIG: &str = r#"{"openconfig-system:system":{"config":{"motd-banner":"oc"}}}"#;
    let core = FakeDatastore::new();
    let mut client = client(&core).await;
    let union = |text: &str| gnmi::SetRequest {
        union_replace: vec![super::harness::update("/", OPENCONFIG), written("cli:/", text)],
        ..Default::default()
    };
    let first = "interface eth1\n  description \"by text\"\n  mtu 1400\n";
    client.set(union(first)).await.unwrap();
    let running = show_text(&mut client, RUNNING).await;
    let effective = show_text(&mut client, "cli:/show effective").await;
    for line in ["mtu 1400 # client native", "motd-banner oc # client openconfig"] {
        assert!(effective.contains(line), "{line}: {effective}");
    }
    client.set(union(&running)).await.unwrap();
    assert_eq!(show_text(&mut client, RUNNING).await, running);
    assert_eq!(show_text(&mut client, "cli:/show effective").await, effective);
    replace(&mut client, "cli:/", "system hostname other").await; // and the way back
    client.set(union(&running)).await.unwrap();
    assert_eq!(show_text(&mut client, "cli:/show effective").await, effective);
}

// proves 2.51, 2.52, 2.56, 2.57
#[tokio::test]
async fn one_replace_and_any_updates_are_one_text() {
    let core = FakeDatastore::new();
    let mut client = client(&core).await;
    set(&mut client, r#"update /interfaces/interface[name=eth0]/config/description "oc""#).await;
    replace(&mut client, "cli:/", "interface eth1 mtu 1400").await;
    let mut request = gnmi::SetRequest {
        replace: vec![written("cli:/", "system hostname box")],
        update: vec![
            written("cli:/", "interface br0\n  type bridge"),
            written("cli:/", "no system hostname\nsystem hostname b"),
        ],
        ..Default::default()
    };
    request
        .update
        .push(super::harness::update("/interfaces/interface[name=eth0]/config/mtu", "1514"));
    client.set(request.clone()).await.unwrap();
    let running = "system\n  hostname b\ninterface br0\n  type bridge\n";
    assert_eq!(show_text(&mut client, RUNNING).await, running);
    let effective = show_text(&mut client, "cli:/show effective").await;
    for line in [
        "description oc # client openconfig",
        "mtu 1500 # client openconfig",
        "type bridge # client native",
    ] {
        assert!(effective.contains(line), "{line}: {effective}");
    }
    request.replace.push(written("cli:/", "system hostname twice"));
    check_refused(client.set(request).await, Code::InvalidArgument, "only one replace by CLI text");
    assert_eq!(show_text(&mut client, RUNNING).await, running);
}

// proves 1.67, 1.81, 1.83
#[tokio::test]
async fn every_bad_line_is_reported_and_nothing_is_applied() {
    let core = FakeDatastore::new();
    let mut client = client(&core).await;
    let before = replace(&mut client, "cli:/", "system hostname box").await.timestamp;
    let text = "system hostname other\ninterface eth0\n  mtu 9\n  mut 1400\ninterfce eth1\n";
    let request = gnmi::SetRequest { update: vec![written("cli:/", text)], ..Default::default() };
    let status = client.set(request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("line 3: mtu 9"), "{status}");
    let details = rpc::Status::decode(status.details()).unwrap();
    let all = rpc::BadRequest::decode(details.details[0].value.as_slice()).unwrap();
    let messages: Vec<&str> =
        all.field_violations.iter().map(|it| it.description.as_str()).collect();
    for (messages, part) in messages.iter().zip([
        "within 68..65535",
        "did you mean `mtu`?",
        "did you mean `interface`?",
    ]) {
        assert!(messages.contains(part), "{messages}");
    }
    assert_eq!(messages.len(), 3);
    assert!(before > 0);
    assert_eq!(show_text(&mut client, RUNNING).await, "system\n  hostname box\n");
}
