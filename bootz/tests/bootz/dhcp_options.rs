//! DHCP options and the URIs in them.

use holdfast_bootz::dhcp::{self, OPTION_V4, OPTION_V6};
use holdfast_bootz::uri::ServerUri;

fn list(uris: &[&str]) -> Vec<u8> {
    let entry = |uri: &&str| {
        let length = u16::try_from(uri.len()).unwrap().to_be_bytes();
        [&length[..], uri.as_bytes()].concat()
    };
    uris.iter().flat_map(entry).collect()
}

// proves 4.3, 4.5
#[test]
fn sztp_option_lists_bootz_servers_and_ignores_other_uris() {
    assert_eq!((OPTION_V4, OPTION_V6), (143, 136));
    let rows: [(&[&str], &str, usize); 11] = [
        (&[], "", 0),
        (&["bootz://10.0.0.1:15006"], "bootz://10.0.0.1:15006", 0),
        (&["BOOTZ://boot.example.net:1/"], "bootz://boot.example.net:1", 0),
        (&["bootz://[2001:db8::1]:15006"], "bootz://[2001:db8::1]:15006", 0),
        (&["bootz://a:1", "https://sztp.example.net", "bootz://b:2"], "bootz://a:1 bootz://b:2", 1),
        (&["bootz://a:1", "bootz://a:1"], "bootz://a:1", 0),
        (&["bootz://a", "bootz://:1", "bootz://a:0", "bootz://a:65536"], "", 4),
        (&["bootz://a:1/path", "bootz://u@a:1", "bootz://a:1?q", "bootz://[::g]:1"], "", 4),
        (&["", "\u{7f}", "bootz:"], "", 3),
        (&["bootz://d[:1]:22", "bootz://a%41:1", "bootz://-a:1", "bootz://1.2.3.256:1"], "", 4),
        (&["bootz://192.0.2.1:9340", ""], "bootz://192.0.2.1:9340", 1),
    ];
    for (uris, servers, ignored) in rows {
        let offer = dhcp::read(&list(uris)).unwrap();
        let found: Vec<String> = offer.servers.iter().map(ToString::to_string).collect();
        assert_eq!(
            (found.join(" "), offer.ignored.len()),
            (servers.to_owned(), ignored),
            "{uris:?}"
        );
    }
}

#[test]
fn sztp_option_is_bounded_to_sixteen_servers() {
    let of = |make: fn(usize) -> String| {
        let uris: Vec<String> = (1..=5000).map(make).collect();
        let uris: Vec<&str> = uris.iter().map(String::as_str).collect();
        let offer = dhcp::read(&list(&uris)).unwrap();
        (offer.servers.len(), offer.ignored.len())
    };
    assert_eq!(of(|port| format!("bootz://a:{port}")), (16, 0));
    assert_eq!(of(|port| format!("https://a:{port}")), (0, 16));
    assert_eq!(of(|_| "bootz://a:1".to_owned()), (1, 0));
    assert_eq!(of(|_| String::new()), (0, 16));
    let last = dhcp::read(&list(&["bootz://z:9"; 2])).unwrap();
    assert_eq!(last.servers[0].to_string(), "bootz://z:9");
}

// proves 4.3
#[test]
fn sztp_options_are_read_with_code_and_length() {
    let long = format!("bootz://{}:1", "a.".repeat(120));
    let value = list(&["bootz://[2001:db8::1]:15006", &long]);
    let v4: Vec<u8> = (value.chunks(usize::from(u8::MAX)))
        .flat_map(|part| [&[OPTION_V4, u8::try_from(part.len()).unwrap()], part].concat())
        .collect();
    assert!(v4.len() > value.len() + 2, "it stands in two options");
    let length = u16::try_from(value.len()).unwrap();
    let v6 = [&OPTION_V6.to_be_bytes()[..], &length.to_be_bytes(), &value].concat();
    let want = dhcp::read(&value).unwrap();
    assert_eq!(want.servers.len(), 2);
    assert_eq!((dhcp::read_v4(&v4), dhcp::read_v6(&v6)), (Ok(want.clone()), Ok(want)));
    for cut in [1, 40, 259] {
        assert!(dhcp::read_v4(&v4[..cut]).is_err(), "{cut}");
    }
    assert!(dhcp::read_v6(&v6[..3]).is_err() && dhcp::read_v6(&v6[..40]).is_err());
}

// proves 4.3
#[test]
fn damaged_sztp_option_is_rejected() {
    let whole = list(&["bootz://a:1", "bootz://b:2"]);
    for end in 1..whole.len() {
        let read = dhcp::read(&whole[..end]);
        let ends_between = end == list(&["bootz://a:1"]).len();
        assert_eq!(read.is_ok(), ends_between, "{end}");
        if let Err(error) = read {
            assert!(error.to_string().contains("entry"), "{error}");
        }
    }
    assert!(dhcp::read(&[0, 1, 0xff]).unwrap_err().to_string().contains("not text"));
}

#[test]
fn server_uri_round_trips() {
    for uri in ["bootz://10.0.0.1:1", "bootz://[::1]:65535", "bootz://name.example:9"] {
        let server: ServerUri = uri.parse().unwrap();
        assert_eq!(server.to_string(), uri);
        let json = serde_json::to_string(&server).unwrap();
        assert_eq!(serde_json::from_str::<ServerUri>(&json).unwrap(), server);
    }
}
