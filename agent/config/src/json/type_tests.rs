//! Every type of YANG, whether our models use it yet or not.

use std::sync::Arc;

use super::*;
use crate::instance::InstancePath;
use crate::schema::Schema;
use crate::tree::NodeRef;

const MODULES: &[(&str, &str)] = &[("all-types", include_str!("all-types.yang"))];

#[test]
fn values_are_read_and_printed_in_both_flavours() {
    // leaf, JSON_IETF, JSON
    for (leaf, ietf, plain) in [
        ("int8", "-128", "-128"),
        ("int64", "\"-9223372036854775808\"", "-9223372036854775808"),
        ("uint64", "\"18446744073709551615\"", "18446744073709551615"),
        ("decimal64", "\"-0.25\"", "-0.25"),
        ("decimal64", "\"3.0\"", "3.0"),
        ("binary", "\"YWJj\"", "\"YWJj\""),
        ("bits", "\"a c\"", "\"a c\""),
        ("empty", "[null]", "[null]"),
        ("boolean", "true", "true"),
        ("enumeration", "\"two\"", "\"two\""),
        ("identityref", "\"all-types:one\"", "\"one\""),
        ("union", "7", "7"),
        ("union", "\"8\"", "8"),
        ("union", "\"x\"", "\"x\""),
        ("union", "true", "true"),
        ("reference", "7", "7"),
        ("sorted", "[1,2]", "[1,2]"),
        ("ordered", "[\"b\",\"a\"]", "[\"b\",\"a\"]"),
        ("presence", "{}", "{}"),
    ] {
        check(Flavour::Ietf, leaf, ietf, ietf);
        check(Flavour::Plain, leaf, plain, plain);
    }
}

#[test]
fn other_writings_become_canonical() {
    check(Flavour::Plain, "decimal64", "3", "3.0");
    check(Flavour::Plain, "decimal64", "\"2.50\"", "2.5");
    check(Flavour::Ietf, "decimal64", "\"-0.0\"", "\"0.0\"");
    check(Flavour::Plain, "int8", "1e1", "10");
    check(Flavour::Ietf, "int8", "1.0", "1");
    check(Flavour::Plain, "uint64", "\"7\"", "7");
    check(Flavour::Ietf, "identityref", "\"one\"", "\"all-types:one\"");
    check(Flavour::Ietf, "bits", "\"c a\"", "\"a c\"");
    check(Flavour::Ietf, "sorted", "[2,1]", "[1,2]");
    check(Flavour::Ietf, "sorted", "[]", "");
}

#[test]
fn values_of_other_types_are_refused() {
    for (leaf, text, want) in [
        ("int8", "128", "`128` is not an int8 within -128..127"),
        ("int8", "1.5", "`1.5` is not an int8 within -128..127"),
        (
            "int64",
            "5",
            "`5` is not an int64 within -9223372036854775808..9223372036854775807 as RFC 7951 writes it: as a string",
        ),
        (
            "decimal64",
            "\"0.125\"",
            "`0.125` is not a decimal with at most 2 fraction digits in its range",
        ),
        (
            "decimal64",
            "1.5",
            "`1.5` is not a decimal with at most 2 fraction digits in its range as RFC 7951 writes it: as a string",
        ),
        (
            "decimal64",
            "\"200\"",
            "`200.0` is not a decimal with at most 2 fraction digits in its range",
        ),
        ("binary", "\"YWJjZA==\"", "`4 bytes` is not binary of the right length"),
        ("binary", "\"-\"", "`-` is not binary of the right length"),
        ("bits", "\"a x\"", "`a x` is not a set of a, b, c"),
        ("bits", "\"a a\"", "`a a` is not a set of a, b, c"),
        ("empty", "true", "`true` is not empty"),
        ("empty", "[]", "one value is expected here"),
        ("boolean", "\"true\"", "`true` is not true or false"),
        ("enumeration", "\"three\"", "`three` is not one of one, two"),
        ("enumeration", "1", "`1` is not one of one, two"),
        ("unlike", "\"xa\"", "`xa` is not a string unlike `x.*`"),
        ("sorted", "[1,1]", "`1` is there twice"),
        ("ordered", "[\"a\",\"a\"]", "`a` is there twice"),
        ("sorted", "1", "an array of values is expected here"),
    ] {
        check(Flavour::Ietf, leaf, text, &format!("`/top/{leaf}`: {want}"));
    }
}

#[test]
fn choices_and_presence_are_known() {
    let schema = schema();
    let node = |name: &str| schema.node(schema.find(&format!("/top/{name}")).unwrap());
    assert_eq!(node("left").choice, Some(("side".into(), "left".into())));
    assert_eq!(node("right").choice, Some(("side".into(), "on-the-right".into())));
    assert_eq!(node("presence").kind, crate::schema::NodeKind::Container { presence: true });
    assert_eq!(
        schema.leaf(schema.find("/top/defaults").unwrap()).default.as_ref().unwrap().to_string(),
        "1 2"
    );
}

fn schema() -> Schema {
    Schema::from_text(MODULES).unwrap()
}

/// One member of the container that holds all of them.
#[track_caller]
fn check(flavour: Flavour, leaf: &str, text: &str, want: &str) {
    let schema = schema();
    let top = if flavour == Flavour::Ietf { "all-types:top" } else { "top" };
    let whole = |member: &str| format!("{{\"{top}\":{{\"{leaf}\":{member}}}}}");
    let got = match parse(&schema, &InstancePath::root(), whole(text).as_bytes(), flavour, true, ())
    {
        Ok(Document { content: DocumentContent::Branch(branch), .. }) => {
            let branch = Arc::new(branch);
            let out = print(&schema, schema.root(), NodeRef::Branch(&branch), flavour, &|_| true);
            String::from_utf8(out.unwrap_or_default()).unwrap()
        }
        Ok(_) => panic!("the root is a branch"),
        Err(error) => error.to_string(),
    };
    let want =
        if want.is_empty() || want.starts_with("`/") { want.to_owned() } else { whole(want) };
    assert_eq!(got, want);
}
