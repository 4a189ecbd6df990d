//! Deletion of many links at once.

use std::sync::atomic::{AtomicUsize, Ordering};

use holdfast_scheduler::Operation;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkAttribute;

use super::fixture::{ManagedNetns, enter_fresh_namespaces, ip, veth};
use crate::kinds::codec::Observation;
use crate::kinds::links::LinkIndex;
use crate::kinds::{self, link};
use crate::transport::codecs::Codecs;
use crate::transport::rtnetlink::teardown::DELETION_GROUP;

/// Links of one test that were deleted as members of the group.
type Count = AtomicUsize;

fn counting(
    count: &Count,
    message: &RouteNetlinkMessage,
    flags: u16,
    time_ns: u64,
    links: &mut LinkIndex,
) -> Vec<Observation> {
    if let RouteNetlinkMessage::DelLink(link) = message
        && link.attributes.contains(&LinkAttribute::Group(DELETION_GROUP))
    {
        count.fetch_add(1, Ordering::SeqCst);
    }
    kinds::decode(message, flags, time_ns, links)
}

/// Creates `count` pairs, and returns the deletions of both ends of each.
fn pairs(net: &mut ManagedNetns, count: usize) -> Vec<Operation> {
    let ends = |n: usize| {
        let near = format!("p{n}");
        let far = format!("q{n}");
        [veth(&near, &far), veth(&far, &near)]
    };
    let links: Vec<_> = (0..count).flat_map(ends).collect();
    let created = links.iter().map(|link| net.create(link.clone())).collect();
    assert_eq!(net.run(created), vec![Ok(()); 2 * count]);
    links.into_iter().map(|link| net.delete(link)).collect()
}

#[test]
fn our_links_are_deleted_as_a_group_and_a_foreign_one_stays() {
    static COUNT: Count = Count::new(0);
    const PAIRS: usize = 600;
    enter_fresh_namespaces();
    ip("link add x0 up type veth peer name x1");
    let decode = |message: &_, flags, time_ns, links: &mut _| {
        counting(&COUNT, message, flags, time_ns, links)
    };
    let mut net = ManagedNetns::start(Codecs { decode, ..Codecs::default() }, None);
    let mut batch = pairs(&mut net, PAIRS);
    // A foreign link gets the attributes of a fresh one instead.
    batch.insert(PAIRS, net.delete(veth("x0", "x1")));
    assert_eq!(net.run(batch), vec![Ok(()); 2 * PAIRS + 1]);
    for name in ["p0", "q0", "p599", "q599"] {
        assert!(net.is_gone(&link::key(name)), "{name}");
    }
    assert_eq!(ip("-br link show type veth").lines().count(), 2);
    assert!(ip("link show x0").contains("state DOWN"));
    // Each pair is deleted by its near end.
    assert_eq!(COUNT.load(Ordering::SeqCst), PAIRS);
}

#[test]
fn a_foreign_link_in_the_deletion_group_is_not_deleted() {
    static COUNT: Count = Count::new(0);
    enter_fresh_namespaces();
    ip("link add x0 type veth peer name x1");
    let decode = |message: &_, flags, time_ns, links: &mut _| {
        counting(&COUNT, message, flags, time_ns, links)
    };
    let mut net = ManagedNetns::start(Codecs { decode, ..Codecs::default() }, None);
    let batch = pairs(&mut net, 20);
    // The link is down, so there is no notification.
    ip(&format!("link set x0 group {DELETION_GROUP}"));
    assert_eq!(net.run(batch), vec![Ok(()); 40]);
    assert_eq!(ip("-br link show type veth").lines().count(), 2);
    assert_eq!(COUNT.load(Ordering::SeqCst), 0);
    // Once it has left the group, ours are deleted together again.
    ip("link set x0 group default");
    let batch = pairs(&mut net, 20);
    assert_eq!(net.run(batch), vec![Ok(()); 40]);
    assert_eq!(
        (ip("-br link show type veth").lines().count(), COUNT.load(Ordering::SeqCst)),
        (2, 20)
    );
}
