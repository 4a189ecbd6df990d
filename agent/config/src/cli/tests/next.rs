//! Words that may come next on a line.

use super::*;
use crate::cli::{NextWord, next_word};

#[test]
fn a_line_goes_on_with_words_keys_and_names_of_values() {
    let words = |line: &str| {
        let line: Vec<&str> = line.split_whitespace().collect();
        match next_word(native(), &line) {
            NextWord::Words(words) => words.join(" "),
            NextWord::Key { list, before } => {
                format!("key {} of {}", before.len() + 1, list.to_path(native()))
            }
        }
    };
    assert!(words("").split(' ').any(|word| word == "interface"), "{}", words(""));
    assert!(words("interface eth0").split(' ').any(|word| word == "mtu"));
    for (line, want) in [
        ("interface", "key 1 of /interfaces/interface"),
        ("interface eth0 ipv4 address", "key 1 of /interfaces/interface[name=eth0]/ipv4/address"),
        ("interface eth0 enabled", "true false"),
        ("interface eth0 mtu", ""),
        ("interface eth0 mtu 1400", ""),
        ("interface eth0 gremlin", ""),
        ("interface eth0 ipv4 address 10.0.0.300", ""),
        ("gremlin", ""),
    ] {
        assert_eq!(words(line), want, "{line}");
    }
    let modes = words("interface bond0 bond mode");
    assert!(modes.contains("802.3ad") && modes.contains("balance-xor"), "{modes}");
}
