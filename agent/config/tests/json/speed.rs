//! How fast the largest document is read. Run by hand, optimised:
//! `cargo test -p holdfast-config --config 'profile.dev.opt-level=3' --test json -- --ignored --nocapture`

use std::fmt::Write;
use std::time::Instant;

use holdfast_config::json::{Flavour, parse};
use holdfast_config::{InstancePath, Schema};

/// Static routes in the document: 15 MB of text.
const ROUTES: u32 = 100_000;

#[test]
#[ignore = "measures, proves nothing"]
fn a_hundred_thousand_routes() {
    let schema = Schema::openconfig().unwrap();
    let text = document();
    eprintln!("resident {} MiB before", resident_mib());
    for _ in 0..3 {
        let start = Instant::now();
        let parsed =
            parse(&schema, &InstancePath::root(), text.as_bytes(), Flavour::Ietf, true, ())
                .unwrap();
        eprintln!("{} bytes in {:?}, resident {} MiB", text.len(), start.elapsed(), resident_mib());
        let start = Instant::now();
        drop(parsed);
        eprintln!("dropped in {:?}", start.elapsed());
    }
    let start = Instant::now();
    serde_json::from_str::<serde::de::IgnoredAny>(&text).unwrap();
    eprintln!("scanned only in {:?}", start.elapsed());
}

/// Memory in use, by the kernel's account; pages of 4 KiB.
fn resident_mib() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 =
        statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or_default();
    pages / 256
}

#[test]
#[ignore = "measures, proves nothing"]
fn loading_the_models() {
    for load in [Schema::openconfig, Schema::native] {
        let start = Instant::now();
        let schema = load().unwrap();
        eprintln!("{}: {} nodes in {:?}", schema.origin(), schema.nodes().len(), start.elapsed());
    }
}

fn document() -> String {
    let mut text = String::from(
        r#"{"openconfig-network-instance:network-instances":{"network-instance":[{"name":"DEFAULT","protocols":{"protocol":[{"identifier":"openconfig-policy-types:STATIC","name":"DEFAULT","static-routes":{"static":["#,
    );
    for i in 0..ROUTES {
        let prefix = format!("10.{}.{}.{}/32", i >> 16, (i >> 8) & 255, i & 255);
        let comma = if i == 0 { "" } else { "," };
        let _ = write!(
            text,
            r#"{comma}{{"prefix":"{prefix}","config":{{"prefix":"{prefix}"}},"next-hops":{{"next-hop":[{{"index":"0","config":{{"index":"0","next-hop":"192.168.0.1","metric":10}}}}]}}}}"#
        );
    }
    text + "]}}]}}]}}"
}
