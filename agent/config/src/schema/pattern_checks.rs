//! Hand-written checks for the most common patterns, which avoid running the regular expression.
//!
//! A check may reject a text that its pattern matches, but never accept one that it does not match.

use std::net::{Ipv4Addr, Ipv6Addr};

type PatternCheck = fn(&str) -> bool;

/// Pattern of dotted decimal IPv4 addresses in openconfig-inet-types.
const OCTETS: &str = r"([0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5])(\.([0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5])){3}";
/// Beginning of the IPv6 patterns in openconfig-inet-types.
const GROUPS: &str = r"(([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}|([0-9a-fA-F]{1,4}:){1,7}:|";

/// The check for a pattern, if there is one.
pub(super) fn quick_check(xsd: &str) -> Option<PatternCheck> {
    if xsd == OCTETS {
        return Some(is_ipv4);
    }
    if xsd.strip_prefix(OCTETS) == Some("/([0-9]|[12][0-9]|3[0-2])") {
        return Some(is_ipv4_prefix);
    }
    if !xsd.starts_with(GROUPS) || xsd.contains('%') {
        return None;
    }
    Some(if xsd.contains('/') { is_ipv6_prefix } else { is_ipv6 })
}

fn is_ipv4(text: &str) -> bool {
    text.parse::<Ipv4Addr>().is_ok()
}

fn is_ipv4_prefix(text: &str) -> bool {
    text.split_once('/').is_some_and(|(address, length)| is_ipv4(address) && is_length(length, 32))
}

/// Checks an IPv6 address. The patterns do not allow a dotted tail.
fn is_ipv6(text: &str) -> bool {
    !text.contains('.') && text.parse::<Ipv6Addr>().is_ok()
}

fn is_ipv6_prefix(text: &str) -> bool {
    text.split_once('/').is_some_and(|(address, length)| is_ipv6(address) && is_length(length, 128))
}

/// Checks a decimal number up to `most`, without sign or leading zeros.
fn is_length(text: &str, most: u8) -> bool {
    let plain = text == "0" || (text.starts_with(|c: char| c.is_ascii_digit() && c != '0'));
    plain && text.parse::<u8>().is_ok_and(|length| length <= most)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use proptest::prelude::*;

    use super::super::types::{BuiltinType, Pattern};
    use super::super::{Schema, types};

    #[test]
    fn the_common_patterns_have_checks() {
        let checked: usize = patterns().len();
        assert_eq!(checked, 4, "IPv4 and IPv6, addresses and prefixes");
    }

    proptest! {
        #[test]
        fn no_check_accepts_what_its_pattern_refuses(text in texts()) {
            for pattern in patterns() {
                let quick = pattern.quick.unwrap();
                prop_assert!(!quick(&text) || pattern.regex.is_match(&text), "{pattern:?} on {text:?}");
            }
        }
    }

    fn texts() -> impl Strategy<Value = String> {
        let group = prop_oneof![Just(0_u16), any::<u16>()];
        let address =
            proptest::array::uniform8(group).prop_map(|groups| Ipv6Addr::from(groups).to_string());
        let loose = "[0-9a-fA-F]{0,5}(:{1,2}[0-9a-fA-F]{0,5}){0,8}";
        let octets = "[0-2]?[0-9]?[0-9](\\.[0-2]?[0-9]?[0-9]){3}";
        let text = prop_oneof![address, loose, octets];
        (text, "(/[0-9]{0,3})?").prop_map(|(text, length)| text + &length)
    }

    /// Patterns of the profile that have a check, without duplicates.
    fn patterns() -> Vec<Pattern> {
        fn collect(ty: &types::Type, into: &mut Vec<Pattern>) {
            match &ty.base {
                BuiltinType::Str { patterns, .. } => {
                    for pattern in patterns.iter().filter(|p| p.quick.is_some()) {
                        if !into.iter().any(|p| p.xsd == pattern.xsd) {
                            into.push(pattern.clone());
                        }
                    }
                }
                BuiltinType::Union(members) => members.iter().for_each(|m| collect(m, into)),
                _ => {}
            }
        }
        thread_local! { static FOUND: Vec<Pattern> = {
            let mut found = Vec::new();
            Schema::openconfig().unwrap().nodes().iter().filter_map(|n| n.leaf.as_ref()).for_each(|l| collect(&l.ty, &mut found));
            found
        } }
        FOUND.with(Clone::clone)
    }
}
