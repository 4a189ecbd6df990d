//! The origin of the command line: texts in and out, and what it is not for.

use holdfast_proto::gnmi::typed_value::Value as Wire;
use holdfast_proto::gnmi::{self, Encoding, TypedValue};
use tonic::{Code, Status};

use super::fake::Fake;
use super::harness::Subscription;
use super::harness::{Client, client, list, path, set, subscribe, text};

const ASCII: Encoding = Encoding::Ascii;

fn asked(paths: &[&str], encoding: Encoding) -> gnmi::GetRequest {
    gnmi::GetRequest {
        path: paths.iter().map(|it| path(it)).collect(),
        encoding: encoding as i32,
        ..Default::default()
    }
}

async fn shown(client: &mut Client, command: &str) -> String {
    let request = asked(&[command], ASCII);
    let mut answer = client.get(request).await.unwrap().into_inner().notification;
    let update = answer[0].update.pop().unwrap();
    match update.val.unwrap().value.unwrap() {
        Wire::AsciiVal(text) => text,
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
    let core = Fake::new();
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
        assert_eq!(shown(&mut client, command).await, running, "{command}");
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
    assert_eq!(shown(&mut client, "cli:/show effective").await, effective);
    assert_eq!(shown(&mut client, "cli:/show factory").await, "");

    let mut request = asked(&["/show factory", "/show effective"], ASCII);
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
async fn what_is_no_show_command_is_refused_with_those_that_are() {
    let mut client = client(&Fake::new()).await;
    for command in
        ["cli:/show version", "cli:/", "cli:/running-config", "cli:/show interfaces/interface"]
    {
        let answer = client.get(asked(&[command], ASCII)).await;
        check_refused(answer, Code::Unimplemented, "`show running-config` is what clients set");
    }
    let keyed = client.get(asked(&["cli:/show[name=x]"], ASCII)).await;
    check_refused(keyed, Code::InvalidArgument, "a command has no keys");
    for encoding in [Encoding::Json, Encoding::JsonIetf, Encoding::Proto, Encoding::Bytes] {
        let answer = client.get(asked(&["cli:/show factory"], encoding)).await;
        check_refused(answer, Code::Unimplemented, "is answered in encoding ASCII");
    }
    for origin in ["", "openconfig:", "holdfast_native:"] {
        let answer = client.get(asked(&[&format!("{origin}/interfaces")], ASCII)).await;
        check_refused(answer, Code::Unimplemented, "encoding ASCII is unsupported here");
    }
    let mixed = client.get(asked(&["cli:/show factory", "/system"], ASCII)).await;
    check_refused(mixed, Code::InvalidArgument, "a Get has one encoding");
    let state = gnmi::get_request::DataType::State as i32;
    let answer = client
        .get(gnmi::GetRequest { r#type: state, ..asked(&["cli:/show factory"], ASCII) })
        .await;
    check_refused(answer, Code::InvalidArgument, "a command says what it shows");
}

// proves 1.42
#[tokio::test]
async fn texts_are_not_subscribed_to() {
    let mut client = client(&Fake::new()).await;
    for mode in [gnmi::subscription_list::Mode::Once, gnmi::subscription_list::Mode::Stream] {
        let request = subscribe(list(mode, &["target cli:/show/factory"]));
        let mut subscription = Subscription::open(&mut client, request).await;
        assert_eq!(subscription.next().await, "Unimplemented");
    }
}

fn ascii(text: &str) -> Option<TypedValue> {
    Some(TypedValue { value: Some(Wire::AsciiVal(text.into())) })
}

// proves 1.42, 2.53
#[tokio::test]
async fn what_is_no_text_is_not_written() {
    let mut client = client(&Fake::new()).await;
    let delete = gnmi::SetRequest { delete: vec![path("cli:/")], ..Default::default() };
    check_refused(client.set(delete).await, Code::InvalidArgument, "write `no`");
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
