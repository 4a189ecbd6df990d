//! The unit that limits of connections and of logins count.

use std::net::{IpAddr, Ipv6Addr};

/// The source of a connection: an IPv4 address, or the /64 that one IPv6 host can pick its addresses from.
pub fn source_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_an_address_or_a_64() {
        for (address, want) in [
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ] {
            assert_eq!(source_of(address.parse().unwrap()), want.parse::<IpAddr>().unwrap());
        }
    }
}
