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
    for _ in 0..3 {
        let start = Instant::now();
        let parsed =
            parse(&schema, &InstancePath::root(), text.as_bytes(), Flavour::Ietf, true, ())
                .unwrap();
        eprintln!("{} octets in {:?}", text.len(), start.elapsed());
        let start = Instant::now();
        drop(parsed);
        eprintln!("dropped in {:?}", start.elapsed());
    }
    let start = Instant::now();
    serde_json::from_str::<serde::de::IgnoredAny>(&text).unwrap();
    eprintln!("scanned only in {:?}", start.elapsed());
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
