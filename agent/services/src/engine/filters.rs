//! Filters on addresses: `ip`, `prefixlen`, `network`, `netmask` and `host(n)`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use minijinja::{Environment, Error, ErrorKind};

pub(super) fn add(environment: &mut Environment<'_>) {
    environment.add_filter("ip", |text: String| Ok::<_, Error>(prefix(&text)?.addr().to_string()));
    environment.add_filter("prefixlen", |text: String| Ok::<_, Error>(prefix(&text)?.prefix_len()));
    environment
        .add_filter("network", |text: String| Ok::<_, Error>(prefix(&text)?.trunc().to_string()));
    environment
        .add_filter("netmask", |text: String| Ok::<_, Error>(prefix(&text)?.netmask().to_string()));
    environment.add_filter("host", host);
}

/// An address with its length; one without has that of its family.
fn prefix(text: &str) -> Result<IpNet, Error> {
    let parsed = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    parsed
        .map_err(|_| wrong(format!("`{text}` is neither an address nor an address with a length")))
}

/// The `number`th address of a network, counted from 0; from its end for negative numbers.
fn host(text: String, number: i64) -> Result<String, Error> {
    let net = prefix(&text)?.trunc();
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    };
    let first = bits(net.network());
    let last = bits(net.broadcast());
    let distance = u128::from(number.unsigned_abs());
    let address = match number < 0 {
        false => first.checked_add(distance).filter(|address| *address <= last),
        // -1 is the last one.
        true => (last - first >= distance - 1).then(|| last - (distance - 1)),
    };
    let address =
        address.ok_or_else(|| wrong(format!("`{net}` has no address number {number}")))?;
    Ok(match net {
        IpNet::V4(_) => Ipv4Addr::from(u32::try_from(address).unwrap_or(u32::MAX)).to_string(),
        IpNet::V6(_) => Ipv6Addr::from(address).to_string(),
    })
}

fn wrong(reason: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason)
}

#[cfg(test)]
mod tests {
    use minijinja::Value;

    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        let mut environment = Environment::new();
        add(&mut environment);
        for (expression, want) in [
            ("'10.1.2.3/24' | ip", "10.1.2.3"),
            ("'10.1.2.3/24' | prefixlen", "24"),
            ("'10.1.2.3/24' | network", "10.1.2.0/24"),
            ("'10.1.2.3/24' | netmask", "255.255.255.0"),
            ("'10.1.2.3/24' | host(1)", "10.1.2.1"),
            ("'10.1.2.3/24' | host(-1)", "10.1.2.255"),
            ("'10.1.2.3/24' | host(255)", "10.1.2.255"),
            ("'10.1.2.3/24' | host(-256)", "10.1.2.0"),
            ("'10.1.2.3' | prefixlen", "32"),
            ("'2001:db8::9/64' | ip", "2001:db8::9"),
            ("'2001:db8::9/64' | network", "2001:db8::/64"),
            ("'2001:db8::9/64' | host(16)", "2001:db8::10"),
            ("'::/0' | host(-1)", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ] {
            let value = environment.compile_expression(expression).and_then(|it| it.eval(()));
            assert_eq!(value.unwrap().to_string(), want, "{expression}");
        }
    }

    #[test]
    fn text_that_is_no_address_fails_with_that_text() {
        let mut environment = Environment::new();
        add(&mut environment);
        for (expression, reason) in [
            ("'eth0' | ip", "`eth0` is neither an address"),
            ("'10.0.0.1/33' | prefixlen", "`10.0.0.1/33` is neither an address"),
            ("'10.0.0.0/24' | host(256)", "`10.0.0.0/24` has no address number 256"),
            ("'10.0.0.0/24' | host(-257)", "has no address number -257"),
        ] {
            let value =
                environment.compile_expression(expression).and_then(|it| it.eval(Value::UNDEFINED));
            assert!(value.unwrap_err().to_string().contains(reason), "{expression}");
        }
    }
}
