//! Each kind has one complete row.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast_scheduler::SharedValue;
use holdfast_security::credentialz::Digest;

use super::reading::Read;
use super::*;
use crate::pre_image;
use crate::values::*;

#[test]
fn every_kind_has_one_complete_row() {
    let registry = registry();
    assert_eq!(registry.iter().count(), KINDS.len());
    for row in KINDS.iter() {
        let same = |other: &&KindRow| other.id == row.id || other.name == row.name;
        assert_eq!(KINDS.iter().filter(same).count(), 1, "{}", row.name);
        let descriptor = registry.descriptor(row.id).unwrap();
        assert_eq!((descriptor.kind(), descriptor.name()), (row.id, row.name));
        let is_carried_out = match descriptor.effect() {
            Effect::Operation(transport) => transport != TransportId::NONE,
            Effect::Property => false,
        };
        assert_eq!(row.encode.is_some(), is_carried_out, "{}", row.name);
    }
    let read = KINDS.iter().filter_map(|row| match row.read {
        Read::Kernel { class, .. } => Some(class),
        Read::Never | Read::Files => None,
    });
    assert!(read.clone().all(|class| CLASSES.contains(&class)));
    assert!(CLASSES.iter().all(|class| read.clone().any(|it| it == *class)));
    let tags = KINDS.iter().filter_map(|row| Some(row.pre_image?.tag));
    let distinct: BTreeSet<&str> = tags.clone().collect();
    assert_eq!(distinct.len(), tags.count(), "tags of rows in the database");
}

/// Observed values that are not ours, of every kind that is read and has operations.
fn foreign_values() -> Vec<(KindId, SharedValue)> {
    let link = "eth0";
    let ip = "192.0.2.1".parse().unwrap();
    let facts = Some(AddressFacts { ours: false, origin: AddressOrigin::Static, status: None });
    let master = LinkMaster { link: link.into(), master: None, kind: None, on_our_link: false };
    let mtu =
        LinkMtu { link: link.into(), mtu: None, device: None, limit: None, on_our_link: false };
    let state = NeighborState::Permanent;
    let neighbor_facts = Some(NeighborFacts { ours: false, state });
    let foreign = Some(Box::new(ForeignRoute { protocol: 3, message: Vec::new() }));
    let prefix = "0.0.0.0/0".parse().unwrap();
    let route = KernelRoute::new(MAIN_TABLE, prefix, 0, RouteTarget::Blackhole);
    let digest = Digest::of(b"hash");
    let mut values: Vec<(KindId, SharedValue)> = vec![
        (LINK, Arc::new(Link::new(link, LinkKind::Physical))),
        (LINK_MASTER, Arc::new(master)),
        (LINK_MTU, Arc::new(mtu)),
        (LINK_ADMIN, Arc::new(LinkAdmin { link: link.into(), below: None, on_our_link: false })),
        (LACP, Arc::new(Lacp::new("bond0"))),
        (ADDRESS, Arc::new(Address { facts, ..Address::new(link, ip, 24) })),
        (NEIGHBOR, Arc::new(Neighbor { link: link.into(), ip, mac: None, facts: neighbor_facts })),
        (ROUTE, Arc::new(KernelRoute { foreign, ..route })),
        (HOSTNAME, Arc::new(Hostname { name: "box".into() })),
        (TEXT_FILE, Arc::new(TextFile { path: "etc/motd".into(), content: Content::Absent })),
        (CREDENTIAL_FILE, Arc::new(CredentialFile { path: "key".into(), digest, mode: 0o600 })),
        (
            SSH_SERVER,
            Arc::new(SshServer { text: String::new(), files: Vec::new(), programs: Vec::new() }),
        ),
        (PASSWORD, Arc::new(Password { account: "alice".into(), digest })),
    ];
    for (sysctl, family) in LinkSysctl::of_families() {
        let files = vec![1; sysctl.row().files.len()];
        let setting = LinkSetting::new(sysctl, link, family, &files);
        values.push((link_setting::kind_of(sysctl), Arc::new(setting)));
    }
    values
}

#[test]
fn what_is_restored_has_a_form_in_the_database() {
    let registry = registry();
    let values = foreign_values();
    let tried: BTreeSet<KindId> = values.iter().map(|(kind, _)| *kind).collect();
    let is_tried = |row: &&KindRow| row.encode.is_some() && !matches!(row.read, Read::Never);
    assert_eq!(tried, KINDS.iter().filter(is_tried).map(|row| row.id).collect());
    for (kind, observed) in values {
        let row = row_of(kind).unwrap();
        let restored = registry.descriptor(kind).unwrap().restore(&*observed);
        let stored = restored.as_ref().and_then(|value| pre_image::to_bytes(&**value));
        assert_eq!(restored.is_some(), stored.is_some(), "{}", row.name);
        assert_eq!(restored.is_some(), row.pre_image.is_some(), "{}", row.name);
    }
}
