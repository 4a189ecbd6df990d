//! Requests that ask for more than one request may: refused by the name of the limit, at the path.

use super::*;
use crate::limits::{EXCERPT, LEAF_LIST_ENTRIES, LIST_ENTRIES, Limit, WILDCARD_DELETES};

const SEARCH: &str = "/system/dns/config/search";

/// Checks that the last of `requests` is refused for this limit at this path, and that the others succeed.
#[track_caller]
fn check_over(limit: &'static Limit, requests: &[&str], operation: EditOperation, path: &str) {
    let (last, first) = requests.split_last().unwrap();
    let Err(errors) = after(first).edit(&edit(last)) else { panic!("it was done") };
    let error = errors.first();
    assert_eq!(error.cause, EditCause::Limit(LimitExceeded { limit }));
    assert_eq!((error.operation, error.path.as_str()), (operation, path));
    let text = error.to_string();
    assert!(text.contains(limit.name) && text.contains(&limit.figure.to_string()), "{text}");
}

/// CLI lines for `count` domains from a number on, formatted by `each`, separated by `between`.
fn domains(from: usize, count: usize, between: &str, each: impl Fn(String) -> String) -> String {
    (from..from + count).map(|at| each(format!("d{at}"))).collect::<Vec<_>>().join(between)
}

fn array(from: usize, count: usize) -> String {
    format!("[{}]", domains(from, count, ",", |it| format!("{it:?}")))
}

const MOST: usize = LEAF_LIST_ENTRIES.figure;

#[test]
fn a_leaf_list_has_no_more_entries_than_the_limit() {
    let limit = &LEAF_LIST_ENTRIES;
    let all = format!("update {SEARCH} {}", array(0, MOST));
    let one_more = format!("update {SEARCH} {}", array(MOST, 1));
    let update = EditOperation::Update(0);
    let config = "/system/dns/config";
    for (requests, operation) in [
        (vec![format!("update {SEARCH} {}", array(0, MOST + 1))], update),
        (vec![format!("replace {SEARCH} {}", array(0, MOST + 1))], EditOperation::Replace(0)),
        (vec![format!("union {SEARCH} {}", array(0, MOST + 1))], EditOperation::UnionReplace(0)),
        (vec![format!("update {config} {{\"search\":{}}}", array(0, MOST + 1))], update),
        // Present entries and additions count together.
        (vec![all.clone(), one_more.clone()], update),
        (vec![all.clone(), format!("update {config} {{\"search\":{}}}", array(MOST, 1))], update),
        (vec![format!("{all}; {one_more}")], EditOperation::Update(1)),
    ] {
        let requests: Vec<&str> = requests.iter().map(String::as_str).collect();
        check_over(limit, &requests, operation, SEARCH);
    }
    // The limit is reached, and repeating present entries is fine.
    let full = after(&[&all, &format!("update {SEARCH} {}", array(7, 1))]);
    assert_eq!(lines_view(&full, Origin::OpenConfig).len(), 1);
}

#[test]
fn values_of_proto_and_lines_of_text_are_counted_too() {
    let limit = &LEAF_LIST_ENTRIES;
    let list = |count| Scalar::List((0..count).map(|at| Scalar::Str(format!("d{at}"))).collect());
    let updates = vec![(target(SEARCH), Payload::Scalar(list(MOST + 1)))];
    let errors = empty().edit(&Edit { updates, ..Edit::default() }).unwrap_err();
    assert_eq!(errors.first().cause, EditCause::Limit(LimitExceeded { limit }));
    assert_eq!(errors.first().path, SEARCH);

    let line = |count| {
        let words = domains(0, count, " ", |it| it);
        format!("update cli: system search-domain {words}")
    };
    for request in
        [line(MOST + 1), line(100 * MOST), format!("{}\nsystem search-domain one-more", line(MOST))]
    {
        let errors = empty().edit(&edit(&request)).unwrap_err();
        assert_eq!(errors.first().cause, EditCause::Limit(LimitExceeded { limit }));
        assert!(errors.first().path.starts_with("line "), "{}", errors.first().path);
    }
    after(&[&line(MOST)]);
}

#[test]
fn entries_that_come_one_by_one_are_all_there_in_their_order() {
    const SOME: usize = 300;
    let each = domains(0, SOME, "; ", |it| format!("update {SEARCH} [{it:?}]"));
    let merged = domains(0, SOME, "; ", |it| {
        format!("update /system/dns {{\"config\":{{\"search\":[{it:?}]}}}}")
    });
    let want = format!("{SEARCH}={}", domains(0, SOME, " ", |it| it));
    for request in [each, merged] {
        assert_eq!(
            lines_view(&after(&[&request]), Origin::OpenConfig),
            std::slice::from_ref(&want)
        );
    }
    let lines = domains(0, SOME, "\n", |it| format!("system search-domain {it}"));
    let want = format!("/system/search-domain={}", domains(0, SOME, " ", |it| it));
    assert_eq!(lines_view(&after(&[&format!("update cli: {lines}")]), Origin::Native), [want]);
    // A line that removes all entries also removes those of earlier lines.
    let lines = "system search-domain a\nsystem search-domain b\nno system search-domain\n\
                 system search-domain c";
    let want = "/system/search-domain=c";
    assert_eq!(lines_view(&after(&[&format!("update cli: {lines}")]), Origin::Native), [want]);
}

/// A document with `count` interfaces from a number on.
fn interfaces(from: usize, count: usize) -> String {
    let each = |at| {
        format!(
            r#"{{"name":"d{at}","config":{{"name":"d{at}","type":"iana-if-type:softwareLoopback"}}}}"#
        )
    };
    let all: Vec<String> = (from..from + count).map(each).collect();
    format!("{{\"interface\":[{}]}}", all.join(","))
}

#[test]
fn list_entries_are_counted_in_what_changes() {
    let some = after(&[&format!("update /interfaces {}", interfaces(0, 20))]);
    assert_eq!(some.entries(), 20);
    for (request, entries) in [
        (format!("update /interfaces {}", interfaces(10, 20)), 30),
        (format!("replace /interfaces {}", interfaces(10, 5)), 5),
        ("delete /interfaces/interface[name=d1]".to_owned(), 19),
        (
            format!(
                "update {ETH1}/subinterfaces/subinterface[index=0]/ipv4/addresses/address[ip=192.0.2.1]/config/prefix-length 24"
            ),
            22,
        ),
        ("update native:/interfaces/interface[name=d1]/mtu 1400".to_owned(), 21),
        ("delete /".to_owned(), 0),
    ] {
        let new = then(&some, &request);
        assert_eq!(new.entries(), entries, "{request}");
        let scratch = Configuration::new(models().clone(), new.layers().clone());
        assert_eq!(scratch.entries(), entries, "{request}");
    }
}

const ETH1: &str = "/interfaces/interface[name=d1]";

#[test]
fn a_payload_over_the_limit_of_entries_is_read_no_further() {
    // Entries without keys, about which a parser would complain.
    let entries = "{},".repeat(LIST_ENTRIES.figure);
    let list = "/interfaces/interface";
    for (request, operation) in [
        (format!("update /interfaces {{\"interface\":[{entries}{{}}]}}"), EditOperation::Update(0)),
        (
            format!("replace / {{\"interfaces\":{{\"interface\":[{entries}{{}}]}}}}"),
            EditOperation::Replace(0),
        ),
    ] {
        check_over(&LIST_ENTRIES, &[&request], operation, list);
    }
    // Several payloads count together, and later ones are not parsed.
    let progress = ParseProgress::default();
    progress.count_entries(LIST_ENTRIES.figure - 2).unwrap();
    let schema = models().schema(Origin::OpenConfig);
    let read = |count| {
        let path = schema.resolve_write(&"/interfaces".parse().unwrap()).unwrap();
        let text = interfaces(0, count);
        json::parse_with_progress(
            schema,
            &path,
            text.as_bytes(),
            json::Flavour::Plain,
            true,
            (),
            &progress,
        )
    };
    read(2).unwrap();
    assert_eq!(
        read(1).unwrap_err().fault,
        json::JsonErrorKind::Stop(LimitExceeded { limit: &LIST_ENTRIES }.into())
    );
}

#[test]
fn cancelled_requests_end_early() {
    let some = after(&[&format!("update /interfaces {}", interfaces(0, 20))]);
    for request in [
        format!("update /interfaces {}", interfaces(20, 20)),
        "delete /interfaces".to_owned(),
        "union / {}".to_owned(),
        "update cli: interface eth0".to_owned(),
    ] {
        let edit = edit(&request);
        edit.cancel.cancel();
        let errors = some.edit(&edit).unwrap_err();
        assert_eq!(
            (errors.iter().len(), &errors.first().cause),
            (1, &EditCause::Cancelled),
            "{request}"
        );
    }
}

#[test]
fn deletes_that_look_through_lists_are_counted() {
    let delete =
        |at| format!("delete /interfaces/interface[name=*]/subinterfaces/subinterface[index={at}]");
    let all: Vec<String> = (0..=WILDCARD_DELETES.figure).map(delete).collect();
    after(&[&all[1..].join("; ")]);
    let operation = EditOperation::Delete(WILDCARD_DELETES.figure);
    let path = all.last().unwrap().strip_prefix("delete ").unwrap();
    check_over(&WILDCARD_DELETES, &[&all.join("; ")], operation, path);
}

/// Refusals repeat a part of the request to its client, whatever is wrong with it.
#[test]
fn errors_quote_at_most_an_excerpt_of_the_request() {
    let long = "x".repeat(1 << 20);
    let name = format!("/interfaces/interface[name={long}]");
    let both = |here: &str| format!("union {here} {{\"mtu\":1500}}; union {here} {{\"mtu\":1600}}");
    for request in [
        format!("update {name}/config/nonsense 1"),
        format!("update {name}/config/mtu \"abc\""),
        format!("update {name} {{\"name\":\"{long}y\"}}"),
        format!("update {name}/config/name \"y\""),
        format!("delete {name}/state"),
        format!("update /interfaces/interface[{long}=1] 1"),
        format!("update /{long} 1"),
        format!("update /system/config/hostname \"{long}\\u0001\""),
        format!("update /interfaces/interface[name=eth0]/config/mtu \"{long}\""),
        format!(
            "update /interfaces {{\"interface\":[{{\"name\":\"{long}\",\"config\":{{\"mtu\":\"y\"}}}}]}}"
        ),
        format!("update /system {{\"{long}\":1}}"),
        format!("update native:/system {{\"{long}\":1}}"),
        format!("update cli: {long}"),
        format!("update cli: system {long} 1"),
        format!("update cli: system hostname a {long}"),
        format!("update cli: interface {long} mtu y"),
        both(&format!("{name}/config")),
    ] {
        let Err(errors) = empty().edit(&edit(&request)) else { panic!("it was done") };
        let text = errors.to_string();
        let beginning = &request[..60];
        assert!(text.len() < 4 * EXCERPT, "{beginning}: {} bytes", text.len());
    }
}

/// Conflicts are each looked up in everything that was named.
#[test]
fn reported_conflicts_are_limited() {
    const MANY: usize = 500;
    let native: Vec<String> = (0..MANY)
        .map(|at| format!("update native:/interfaces/interface[name=d{at}]/mtu 1400"))
        .collect();
    let openconfig: Vec<String> = (0..MANY)
        .map(|at| format!("update /interfaces/interface[name=d{at}]/config/mtu 1600"))
        .collect();
    let request = format!("{}; {}", native.join("; "), openconfig.join("; "));
    let errors = empty().edit(&edit(&request)).unwrap_err();
    assert_eq!(errors.iter().len(), 100);
    assert!(matches!(errors.first().cause, EditCause::Conflict(_)), "{errors}");
}
