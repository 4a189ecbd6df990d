//! Addresses of the box to which somebody is logged in over SSH, as the kernel lists its connections.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use holdfast_base::ErrorChain;
use holdfast_platform::netns::{Netns, NetnsError};
use tracing::warn;

/// Port of SSH. A server on another port is not known here.
const SSH_PORT: u16 = 22;
/// State of an open connection in the tables of the kernel (TCP_ESTABLISHED).
const ESTABLISHED: &str = "01";
/// The tables of both families. They are those of the network namespace of the thread that reads them.
const TABLES: [&str; 2] = ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"];

/// Lists the addresses in this network namespace to which SSH connections are open. A table that cannot be read is logged, and
/// counts as empty.
pub(crate) async fn addresses(netns: &Arc<Netns>) -> BTreeSet<IpAddr> {
    let read = netns.run("ssh-logins", || TABLES.map(fs::read_to_string)).await;
    match read.unwrap_or_else(|source| Err(NetnsError::Thread { source })) {
        Ok(tables) => {
            // A kernel without a family has no table of it.
            let tables = tables.into_iter().flatten();
            tables.flat_map(|table| logins(&table).collect::<Vec<_>>()).collect()
        }
        Err(error) => {
            warn!(error = %ErrorChain(&error), "cannot list SSH connections: the guard of fences does not know them");
            BTreeSet::new()
        }
    }
}

/// The local addresses of SSH connections in a table.
fn logins(table: &str) -> impl Iterator<Item = IpAddr> {
    table.lines().skip(1).filter_map(|line| {
        // `sl  local_address rem_address   st ...`
        let words: Vec<&str> = line.split_whitespace().take(4).collect();
        let [_, local, _, state] = words[..] else { return None };
        let (address, port) = local.split_once(':')?;
        let is_login = state == ESTABLISHED && u16::from_str_radix(port, 16) == Ok(SSH_PORT);
        is_login.then(|| address_of(address))?
    })
}

/// An address as the kernel prints it: words of 32 bits, each a number in the byte order of the machine.
fn address_of(text: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let digits = text.get(at * 8..at * 8 + 8)?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    if text.len() == 8 {
        return Some(Ipv4Addr::from(word(0)?).into());
    }
    let words = [word(0)?, word(1)?, word(2)?, word(3)?];
    let mut bytes = [0; 16];
    for (place, byte) in bytes.iter_mut().zip(words.iter().flatten()) {
        *place = *byte;
    }
    Some(IpAddr::from(Ipv6Addr::from(bytes)).to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tables of a machine with the byte order of x86.
    const V4: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1
   1: 0101000A:0016 0201000A:C350 01 00000000:00000000 02:00000000 00000000     0        0 2 1
   2: 0101000A:C351 0201000A:0016 01 00000000:00000000 02:00000000 00000000     0        0 3 1
   3: 0102000A:0016 0202000A:C350 06 00000000:00000000 02:00000000 00000000     0        0 4 1
";
    const V6: &str = "\
  sl  local_address                         remote_address                        st tx_queue rx_queue
   0: B80D0120000000000000000001000000:0016 B80D0120000000000000000002000000:C350 01 0:0 0:0
   1: 0000000000000000FFFF00000101000A:0016 0000000000000000FFFF00000201000A:C352 01 0:0 0:0
   2: 0000000000000000FFFF0000:0016 x:C352 01 0:0 0:0
";

    #[test]
    #[cfg(target_endian = "little")]
    fn only_open_connections_to_the_server_count() {
        let found = |table| logins(table).map(|it| it.to_string()).collect::<Vec<_>>();
        assert_eq!(found(V4), ["10.0.1.1"]);
        assert_eq!(found(V6), ["2001:db8::1", "10.0.1.1"]);
        assert_eq!(found(""), [""; 0]);
    }
}
