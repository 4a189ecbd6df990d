//! Set: the answer, and the configuration afterwards.

use holdfast_core::Datastore;
use holdfast_proto::gnmi::typed_value;
use holdfast_proto::gnmi::update_result::Operation;
use holdfast_proto::{gnmi, gnmi_ext};

use super::fake_datastore::FakeDatastore;
use super::harness::{Client, client, get_request, path, set, set_request, text, update, value};

// proves 1.63, 1.64, 1.69, 1.70, 1.71, 1.76, 1.77
#[tokio::test]
async fn operations_have_their_order_and_meaning() {
    let eth0 = "/interfaces/interface[name=eth0]/config";
    // first Set, second Set, path, its value (empty: absent)
    let rows = [
        (
            "",
            format!(r#"update {eth0}/description "a"; delete {eth0}/description"#),
            "description",
            r#""a""#,
        ),
        (
            "",
            format!(r#"update {eth0}/description "a"; replace {eth0}/description "b""#),
            "description",
            r#""a""#,
        ),
        (
            "",
            format!(r#"update {eth0}/description "a"; update {eth0}/description "b""#),
            "description",
            r#""b""#,
        ),
        (
            "",
            format!(r#"replace {eth0}/description "a"; replace {eth0}/description "b""#),
            "description",
            r#""b""#,
        ),
        (r#""a""#, format!(r#"update {eth0} {{"mtu":1514}}"#), "description", r#""a""#),
        (
            r#""a""#,
            format!(r#"replace {eth0} {{"name":"eth0","mtu":1514}}"#),
            "description",
            "nothing",
        ),
        (
            r#""a""#,
            format!(
                r#"update {eth0}/enabled false; replace {eth0} {{"name":"eth0"}}; delete {eth0}/enabled"#
            ),
            "enabled",
            "false",
        ),
        (r#""a""#, format!("delete {eth0}/description"), "description", "nothing"),
        (
            r#""a""#,
            "delete /interfaces/interface[name=*]/config/description".into(),
            "description",
            "nothing",
        ),
        (r#""a""#, "delete /interfaces/interface[name=eth9]".into(), "description", r#""a""#),
        (
            r#""a""#,
            r#"replace /interfaces {"interface":[{"name":"eth1","config":{"name":"eth1"}}]}"#
                .into(),
            "name",
            "nothing",
        ),
        (
            r#""a""#,
            r#"update /interfaces {"interface":[{"name":"eth1","config":{"name":"eth1"}}]}"#.into(),
            "name",
            r#""eth0""#,
        ),
    ];
    for (first, second, leaf, want) in rows {
        let mut client = client(&FakeDatastore::new()).await;
        if !first.is_empty() {
            set(&mut client, &format!("update {eth0}/description {first}")).await;
        }
        set(&mut client, &second).await;
        assert_eq!(read(&mut client, &format!("{eth0}/{leaf}")).await, want, "{second}");
    }
}

// proves 1.72
#[tokio::test]
async fn an_update_joins_a_leaf_list_and_a_replace_takes_its_place() {
    let search = "/system/dns/config/search";
    let mut client = client(&FakeDatastore::new()).await;
    for (operation, want) in [
        (format!(r#"update {search} ["b.net","a.net"]"#), r#"["b.net","a.net"]"#),
        (format!(r#"update {search} ["c.net","a.net"]"#), r#"["b.net","a.net","c.net"]"#),
        (
            r#"update /system/dns/config {"search":["d.net"]}"#.to_owned(),
            r#"["b.net","a.net","c.net","d.net"]"#,
        ),
        (format!(r#"replace {search} ["c.net","e.net"]"#), r#"["c.net","e.net"]"#),
        (r#"replace /system/dns/config {"search":["f.net"]}"#.to_owned(), r#"["f.net"]"#),
    ] {
        set(&mut client, &operation).await;
        assert_eq!(read(&mut client, search).await, want, "{operation}");
    }
    let text = |text: &str| gnmi::TypedValue {
        value: Some(typed_value::Value::StringVal(text.to_owned())),
    };
    let element = vec![text("g.net"), text("f.net")];
    let list = typed_value::Value::LeaflistVal(gnmi::ScalarArray { element });
    let update = gnmi::Update {
        path: Some(path(search)),
        val: Some(gnmi::TypedValue { value: Some(list) }),
        ..Default::default()
    };
    let request = gnmi::SetRequest { update: vec![update], ..Default::default() };
    client.set(request).await.unwrap();
    assert_eq!(read(&mut client, search).await, r#"["f.net","g.net"]"#);
    set(&mut client, &format!("delete {search}")).await;
    assert_eq!(read(&mut client, search).await, "nothing");
}

// proves 1.21, 1.27, 1.66
#[tokio::test]
async fn each_operation_has_its_result_in_the_order_of_the_request() {
    let core = FakeDatastore::new();
    let mut client = client(&core).await;
    let operations = r#"update /config/domain-name "b"; delete /config/motd-banner; replace /config/hostname "box"; update /config/login-banner "hi"; delete /config/login-banner"#;
    let prefix = gnmi::Path { target: "box".into(), ..path("/system") };
    let request = gnmi::SetRequest { prefix: Some(prefix), ..set_request(operations) };
    let answer = client.set(request).await.unwrap().into_inner();
    let results: Vec<_> =
        answer.response.iter().map(|it| (it.op(), text(it.path.as_ref()))).collect();
    let want = [
        (Operation::Delete, "/config/motd-banner"),
        (Operation::Delete, "/config/login-banner"),
        (Operation::Replace, "/config/hostname"),
        (Operation::Update, "/config/domain-name"),
        (Operation::Update, "/config/login-banner"),
    ];
    assert_eq!(results, want.map(|(op, path)| (op, path.to_owned())));
    let prefix = answer.prefix.unwrap();
    assert_eq!(
        (text(Some(&prefix)).as_str(), prefix.origin.as_str(), prefix.target.as_str()),
        ("/system", "openconfig", "box")
    );
    assert_eq!(answer.timestamp.cast_unsigned(), core.revision().time_ns);
}

// proves 1.16, 1.65
#[tokio::test]
async fn an_empty_request_and_an_unknown_extension_are_fine() {
    let core = FakeDatastore::new();
    let mut client = client(&core).await;
    let answer = client.set(gnmi::SetRequest::default()).await.unwrap().into_inner();
    assert!(answer.response.is_empty() && answer.timestamp > 0);
    assert_eq!(core.revision().number, 0);
    let registered =
        gnmi_ext::RegisteredExtension { id: 999, msg: b"what is this".to_vec().into() };
    let unknown =
        gnmi_ext::Extension { ext: Some(gnmi_ext::extension::Ext::RegisteredExt(registered)) };
    let request = gnmi::SetRequest {
        extension: vec![unknown, gnmi_ext::Extension::default()],
        ..set_request(r#"update /system/config/hostname "box""#)
    };
    client.set(request).await.unwrap();
    assert_eq!(read(&mut client, "/system/config/hostname").await, r#""box""#);
}

// proves 1.84
#[tokio::test]
async fn origins_are_written_apart_and_together() {
    let mut client = client(&FakeDatastore::new()).await;
    let native = "holdfast_native:/interfaces/interface[name=eth0]/ipv4/forwarding";
    let operations = format!(r#"update {native} true; update /system/config/hostname "box""#);
    let answer = set(&mut client, &operations).await;
    let origins: Vec<_> =
        answer.response.iter().map(|it| it.path.as_ref().unwrap().origin.as_str()).collect();
    assert_eq!(origins, ["holdfast_native", "openconfig"]);
    set(&mut client, r#"replace / {"openconfig-system:system":{"config":{"hostname":"other"}}}"#)
        .await;
    assert_eq!(read(&mut client, native).await, "true");
    assert_eq!(read(&mut client, "/system/config/hostname").await, r#""other""#);
}

#[tokio::test]
async fn scalars_and_old_forms_are_taken() {
    let mtu = "/interfaces/interface[name=eth0]/config/mtu";
    let val = |value| Some(gnmi::TypedValue { value: Some(value) });
    #[expect(deprecated, reason = "that is what it is about")]
    let rows = [
        gnmi::Update { val: val(typed_value::Value::UintVal(1514)), ..update(mtu, "") },
        gnmi::Update { val: val(typed_value::Value::IntVal(1514)), ..update(mtu, "") },
        gnmi::Update {
            val: val(typed_value::Value::JsonVal(b"1514".to_vec().into())),
            ..update(mtu, "")
        },
        gnmi::Update {
            val: None,
            value: Some(gnmi::Value {
                value: b"1514".to_vec().into(),
                r#type: gnmi::Encoding::JsonIetf as i32,
            }),
            ..update(mtu, "")
        },
    ];
    for row in rows {
        let mut client = client(&FakeDatastore::new()).await;
        let request = gnmi::SetRequest { update: vec![row.clone()], ..Default::default() };
        match client.set(request).await {
            Ok(_) => assert_eq!(read(&mut client, mtu).await, "1514", "{row:?}"),
            Err(status) => panic!("{row:?}: {status:?}"),
        }
    }
}

// proves 1.17
#[tokio::test]
async fn messages_of_more_than_ten_megabytes_are_taken_and_too_large_ones_refused() {
    let mut client = client(&FakeDatastore::new()).await;
    let banner = |megabytes: usize| {
        let text = "x".repeat(megabytes * 1024 * 1024);
        set_request(&format!(r#"update /system/config/motd-banner "{text}""#))
    };
    client.set(banner(12)).await.unwrap();
    assert!(read(&mut client, "/system/config/motd-banner").await.len() > 12 * 1024 * 1024);
    let mut wide = client.clone().max_encoding_message_size(usize::MAX);
    let status = wide.set(banner(65)).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{status:?}");
}

// proves 1.62
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_get_sees_all_of_a_set_or_nothing() {
    let core = FakeDatastore::new();
    let mut writer = client(&core).await;
    let mut reader = client(&core).await;
    set(&mut writer, r#"update /system/config {"hostname":"n0","domain-name":"n0"}"#).await;
    let writing = tokio::spawn(async move {
        for i in 1..200 {
            let name = format!("n{}", i);
            set(&mut writer, &format!(
                r#"update /system/config {{"hostname":"{name}"}}; update /system/config {{"domain-name":"{name}"}}"#
            ))
            .await;
        }
    });
    while !writing.is_finished() {
        let paths = ["/system/config/hostname", "/system/config/domain-name"];
        let answer = reader.get(get_request(&paths)).await.unwrap().into_inner();
        let [one, other] = answer.notification.as_slice() else { panic!("{answer:?}") };
        assert_eq!(value(one.update[0].val.as_ref()), value(other.update[0].val.as_ref()));
    }
    writing.await.unwrap();
}

// proves 1.60
#[tokio::test]
async fn a_get_of_the_root_can_be_sent_back_in_a_replace() {
    let core = FakeDatastore::new();
    let mut client = client(&core).await;
    let operations = r#"update /system/config/hostname "box"; update /interfaces {"interface":[{"name":"eth0","config":{"name":"eth0","mtu":1514},"subinterfaces":{"subinterface":[{"index":0,"openconfig-if-ip:ipv4":{"addresses":{"address":[{"ip":"10.0.0.1","config":{"ip":"10.0.0.1","prefix-length":24}}]}}}]}}]}; update /network-instances/network-instance[name=DEFAULT]/protocols/protocol[identifier=STATIC][name=static] {"static-routes":{"static":[{"prefix":"10.9.0.0/16","config":{"prefix":"10.9.0.0/16"},"next-hops":{"next-hop":[{"index":"a","config":{"index":"a","next-hop":"10.0.0.2"}}]}}]}}"#;
    set(&mut client, operations).await;
    core.state("/interfaces/interface[name=eth0]/state/oper-status", "UP");
    // State without configuration.
    core.state("/interfaces/interface[name=eth7]/state/oper-status", "UP");
    core.state("/interfaces/interface[name=lo]/subinterfaces/subinterface[index=0]/openconfig-if-ip:ipv4/addresses/address[ip=127.0.0.1]/state/prefix-length", "8");
    for encoding in [gnmi::Encoding::Json, gnmi::Encoding::JsonIetf] {
        let request = gnmi::GetRequest {
            r#type: gnmi::get_request::DataType::Config as i32,
            encoding: encoding as i32,
            ..get_request(&["/"])
        };
        let answer = client.get(request.clone()).await.unwrap().into_inner();
        let root = answer.notification[0].update[0].clone();
        let before = core.revision();
        let back = gnmi::SetRequest { replace: vec![root.clone()], ..Default::default() };
        client.set(back).await.unwrap();
        assert!(before.openconfig == core.revision().openconfig, "nothing changed");
        let again = client.get(request).await.unwrap().into_inner();
        assert_eq!(again.notification[0].update[0].val, root.val);
    }
}

// proves 1.88
#[tokio::test]
async fn a_change_is_the_same_from_the_root_from_its_container_and_at_its_leaf() {
    let rows = [
        r#"update / {"openconfig-interfaces:interfaces":{"interface":[{"name":"eth0","config":{"description":"b"}}]}}"#,
        r#"update /interfaces {"interface":[{"name":"eth0","config":{"description":"b"}}]}"#,
        r#"update /interfaces/interface[name=eth0] {"config":{"description":"b"}}"#,
        r#"update /interfaces/interface[name=eth0]/config {"description":"b"}"#,
        r#"update /interfaces/interface[name=eth0]/config/description "b""#,
        r#"replace /interfaces/interface[name=eth0]/config {"name":"eth0","description":"b","mtu":1514}"#,
        r#"replace /interfaces {"interface":[{"name":"eth0","config":{"name":"eth0","description":"b","mtu":1514}}]}"#,
    ];
    let mut all = Vec::new();
    for row in rows {
        let mut client = client(&FakeDatastore::new()).await;
        set(&mut client, r#"update /interfaces/interface[name=eth0]/config {"name":"eth0","description":"a","mtu":1514}"#).await;
        set(&mut client, row).await;
        all.push(read(&mut client, "/interfaces").await);
    }
    assert!(all[0].contains(r#""description":"b""#), "{}", all[0]);
    for (row, interfaces) in rows.iter().zip(&all) {
        assert_eq!(interfaces, &all[0], "{row}");
    }
}

// proves 1.67
#[tokio::test]
async fn one_bad_operation_of_either_origin_undoes_all() {
    let core = FakeDatastore::new();
    let mut client = client(&core).await;
    set(&mut client, r#"update /system/config/hostname "before""#).await;
    let before = core.revision();
    let request = set_request(
        r#"update /system/config/hostname "after"; update holdfast_native:/interfaces/interface[name=eth0]/ipv4/forwarding true; update holdfast_native:/interfaces/interface[name=eth0]/mtu "wide""#,
    );
    client.set(request).await.unwrap_err();
    assert_eq!(core.revision().number, before.number);
    assert_eq!(read(&mut client, "/system/config/hostname").await, r#""before""#);
}

async fn read(client: &mut Client, path: &str) -> String {
    match client.get(get_request(&[path])).await {
        Ok(answer) => value(answer.into_inner().notification[0].update[0].val.as_ref()),
        Err(status) if status.code() == tonic::Code::NotFound => "nothing".into(),
        Err(status) => panic!("{path}: {status:?}"),
    }
}
