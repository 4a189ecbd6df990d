//! Texts and their statements; texts and their errors.

use super::*;

#[track_caller]
fn check(schema: &Schema, text: &str, want: &[&str]) {
    let statements = parse(schema, text).unwrap_or_else(|errors| panic!("{text}\n{errors:#?}"));
    assert_eq!(statement_lines(schema, &statements), want, "{text}");
}

#[track_caller]
fn refused(schema: &Schema, text: &str, want: &[&str]) {
    let errors = parse(schema, text).expect_err(text);
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(errors, want, "{text}");
}

// proves 1.40, 2.60
#[test]
fn blocks_and_single_lines_say_the_same() {
    let blocks = "\
! a comment, and an empty line

interface eth0
  mtu 1400            # bytes
  ipv4
    address 10.0.0.1
      prefix-length 24
  enabled false
system
  hostname box
no interface eth9
";
    let want = [
        "3 +/interfaces/interface[name=eth0]",
        "4 /interfaces/interface[name=eth0]/mtu=1400",
        "6 +/interfaces/interface[name=eth0]/ipv4/address[ip=10.0.0.1]",
        "7 /interfaces/interface[name=eth0]/ipv4/address[ip=10.0.0.1]/prefix-length=24",
        "8 /interfaces/interface[name=eth0]/enabled=false",
        "10 /system/hostname=box",
        "11 -/interfaces/interface[name=eth9]",
    ];
    check(native(), blocks, &want);
    check(native(), &blocks.replace('\n', "\r\n").replace("  ", "\t"), &want);
    let indented: String = blocks.lines().map(|line| format!("   {line}\n")).collect();
    check(native(), &indented, &want);
    check(
        native(),
        "interface eth0 ipv4 address 10.0.0.1 prefix-length 24",
        &["1 /interfaces/interface[name=eth0]/ipv4/address[ip=10.0.0.1]/prefix-length=24"],
    );
    check(
        native(),
        "interface eth0\n  no mtu\n  no ipv4 address 10.0.0.1\nno interfaces\nno system hostname",
        &[
            "1 +/interfaces/interface[name=eth0]",
            "2 -/interfaces/interface[name=eth0]/mtu",
            "3 -/interfaces/interface[name=eth0]/ipv4/address[ip=10.0.0.1]",
            "4 -/interfaces",
            "5 -/system/hostname",
        ],
    );
    check(
        native(),
        "interface eth1\n  hold-time\n    down 300\n  penalty max-suppress 60000",
        &[
            "1 +/interfaces/interface[name=eth1]",
            "3 /interfaces/interface[name=eth1]/hold-time/down=300",
            "4 /interfaces/interface[name=eth1]/penalty/max-suppress=60000",
        ],
    );
    // The list of `interfaces` has the word alone; another list of that name is said with its container.
    check(
        native(),
        "lacp interface bond0\n  interval FAST\nno lacp interface bond1",
        &[
            "1 +/lacp/interface[name=bond0]",
            "2 /lacp/interface[name=bond0]/interval=FAST",
            "3 -/lacp/interface[name=bond1]",
        ],
    );
    check(native(), "", &[]);
    check(native(), "# nothing\n!\n", &[]);
}

#[test]
fn words_stand_in_quotes_where_they_must() {
    let at = "1 /interfaces/interface[name=e]/description";
    for (word, value) in [
        ("uplink", "uplink"),
        (r#""to the core""#, "to the core"),
        (r#""""#, ""),
        ("#1", "#1"),
        ("!1", "!1"),
        (r##""#" # a comment"##, "#"),
        (r#""a\tb\nc\r\"\\""#, "a\tb\nc\r\"\\"),
        ("no", "no"),
        ("caf\u{e9}", "caf\u{e9}"),
    ] {
        check(native(), &format!("interface e description {word}"), &[&format!("{at}={value}")]);
    }
    for (word, reason) in [
        ("a\"b\"", "`\"` in a word that does not begin with a quote: put all of it into quotes"),
        ("a\\b", "`\\` in a word that does not begin with a quote: put all of it into quotes"),
        ("\"a", "a quote is not closed on its line; a line break inside is written \\n"),
        ("\"a\\", "nothing follows the last backslash"),
        ("\"a\\x\"", "`\\x` is not an escape: use one of \\n, \\r, \\t, \\\" and \\\\"),
        ("\"a\"b", "a blank is missing after a closing quote"),
        (
            "to the core",
            "`description`: one value is expected: leave out `the`, or put text with blanks into quotes",
        ),
        ("", "`description`: the value is missing: a string of 0..255 characters"),
    ] {
        let line = format!("interface e description {word}").trim_end().to_owned();
        refused(native(), &line, &[&format!("line 1: `{line}`: {reason}")]);
    }
}

#[test]
fn every_type_and_shape_has_a_text() {
    check(
        odd(),
        "zoo\n  tag b a \"c d\"\n  floor 3 -1 2\ncage north 7\n  animal cat\n  locked\n  either\n  days \"tue mon\"\n  \
         scrap AQI=\n  weight 1.50\ncage north 7 either 5\ncage north 7 either x\nno cage north 7 locked\nzoo tag\n\
         odd:no odd:no x\ndoors gate g open true\ngate height 3\nno doors\n",
        &[
            "1 +/zoo",
            "2 /zoo/tag=a b c d",
            "3 /zoo/floor=3 -1 2",
            "4 +/cages/cage[house=north][number=7]",
            "5 /cages/cage[house=north][number=7]/animal=cat",
            "6 /cages/cage[house=north][number=7]/locked=",
            "7 /cages/cage[house=north][number=7]/either=",
            "8 /cages/cage[house=north][number=7]/days=mon tue",
            "9 /cages/cage[house=north][number=7]/scrap=AQI=",
            "10 /cages/cage[house=north][number=7]/weight=1.5",
            "11 /cages/cage[house=north][number=7]/either=5",
            "12 /cages/cage[house=north][number=7]/either=x",
            "13 -/cages/cage[house=north][number=7]/locked",
            "14 /zoo/tag=",
            "15 /no/no=x",
            "16 /doors/gate[name=g]/open=true",
            "17 /gate/height=3",
            "18 -/doors",
        ],
    );
}

#[test]
fn every_bad_line_is_named_with_what_is_right_there() {
    let root = "valid here: `system`, `reconciliation`, `fault-management`, `maintenance`, `interface NAME`, `lacp`, `network-instance NAME`";
    refused(
        native(),
        "system hostname a b\ninterfce eth0\n  mtu 1\n  nonsense\ninterface eth0\n  mtu 67\n  ipv4 address\n  \
         ipv4 address 10.0.0.300\n  ipv4 state\n  name eth0\nbogus\nno\nno system hostname box\n",
        &[
            "line 1: `system hostname a b`: `hostname`: one value is expected: leave out `b`, or put text with blanks into quotes",
            &format!(
                "line 2: `interfce eth0`: unknown word `interfce`: did you mean `interface`? {root}"
            ),
            "line 6: `mtu 67`: `mtu`: `67` is not a uint32 within 68..65535",
            "line 7: `ipv4 address`: a key is missing: `address IP`",
            &format!(
                "line 8: `ipv4 address 10.0.0.300`: `ip` of `address`: {}",
                native()
                    .leaf(native().find("/interfaces/interface/ipv4/address/ip").unwrap())
                    .ty
                    .parse_text("10.0.0.300")
                    .unwrap_err()
            ),
            "line 9: `ipv4 state`: unknown word `state`: valid here: `enabled VALUE`, `mtu VALUE`, `forwarding VALUE`, `proxy-arp VALUE`, `urpf`, `address IP`, `neighbor IP`",
            "line 10: `name eth0`: `name` is a key, which follows the name of its list",
            &format!("line 11: `bogus`: unknown word `bogus`: {root}"),
            &format!("line 12: `no`: `no` needs an object: {root}"),
            "line 13: `no system hostname box`: `no hostname` takes no value: leave out `box`",
        ],
    );
    let below = "valid here: `type VALUE`, `enabled VALUE`";
    let errors = parse(native(), "interface eth0 state\ninterface eth0 mut 9").unwrap_err();
    assert_eq!(errors[0].reason, "`state` is state, which cannot be written");
    assert!(errors[1].reason.contains(below) && errors[1].reason.contains("did you mean `mtu`?"));
    let errors = parse(native(), "interface eth0\nmtu 1400").unwrap_err();
    let hint = "to belong to the line above, it must be indented deeper";
    assert!(errors[0].reason.ends_with(hint), "{}", errors[0]);
    let errors = parse(native(), &"x\n".repeat(1000)).unwrap_err();
    assert_eq!(errors.len(), 100, "an answer has room for so many");
}

#[test]
fn indentation_must_fit() {
    refused(
        native(),
        "system\n  hostname box\n    domain-name x\n interface eth0\n   mtu x\n  interface eth1\nsystem bogus x\nno system\n  hostname y",
        &[
            "line 3: `domain-name x`: no line may be indented below the value of `hostname`",
            "line 4: `interface eth0`: the indentation fits no block above",
            "line 7: `system bogus x`: unknown word `bogus`: valid here: `hostname VALUE`, `domain-name VALUE`, \
             `search-domain VALUE...`, `login-banner VALUE`, `motd-banner VALUE`, `user USERNAME`, `grpc-server NAME`",
            "line 9: `hostname y`: no line may be indented below a line with `no`",
        ],
    );
    refused(
        native(),
        "  system\nsystem hostname box",
        &["line 2: `system hostname box`: the indentation fits no block above"],
    );
}

/// A reader is told what is meant, and not by which expression it is checked.
#[test]
fn addresses_and_names_are_refused_in_words() {
    for (text, reason) in [
        ("interface eth0 ipv4 address 10.0.0.300", "`10.0.0.300` is not an IPv4 address"),
        ("interface eth0 ipv6 address 10.0.0.1", "`10.0.0.1` is not an IPv6 address"),
        ("interface eth0 mac-address here", "`here` is not a MAC address"),
        (
            "network-instance DEFAULT static a route 10.0.0.0",
            "`10.0.0.0` is not an IP prefix, such as 192.0.2.0/24",
        ),
    ] {
        let errors = parse(native(), text).expect_err(text);
        assert!(errors[0].reason.contains(reason), "{text}: {}", errors[0].reason);
    }
}

/// Many clients show nothing but the message of a refusal.
#[test]
fn a_refusal_has_all_lines_that_cannot_be_read() {
    let error = |number: usize| crate::EditError {
        operation: crate::EditOperation::Update(0),
        path: format!("line {number}"),
        cause: crate::EditCause::BadValue("no".to_owned()),
    };
    let text =
        |count| crate::EditErrors::from((1..=count).map(error).collect::<Vec<_>>()).to_string();
    let one = |number: usize| format!("cannot update `line {number}`: no");
    assert_eq!(text(1), one(1));
    assert_eq!(text(3), [1, 2, 3].map(one).join("; "));
    assert!(text(40).ends_with("`line 16`: no (and 24 more)"), "{}", text(40));
}
