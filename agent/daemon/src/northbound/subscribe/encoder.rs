//! Notifications in their encoded form, written leaf by leaf.
//!
//! A message of the generated type holds each path in some ten allocations, and prost measures it once for each level
//! above it. A collector of a whole box is sent thousands of leaves, so they are written as a walk tells of them. The
//! elements of a path stay encoded for the next path, which mostly begins alike.

use bytes::Bytes;
use holdfast_config::Step;
use holdfast_config::schema::Schema;
use holdfast_proto::gnmi;
use prost::{Message, encode_length_delimiter, length_delimiter_len};

use super::super::path::to_elem;
use crate::server::SEND_BUFFER;

/// Leaves and bytes after which a notification is sent although more belongs to its instant: it waits for the client to
/// read, and HTTP/2 holds no more than [`SEND_BUFFER`] of it.
const MAX_LEAVES: usize = 512;
const MAX_OCTETS: usize = SEND_BUFFER / 4;

/// Keys of the fields that are written here, by their numbers in gnmi.proto.
const NOTIFICATION_UPDATE: u8 = key_of(4);
const NOTIFICATION_DELETE: u8 = key_of(5);
const UPDATE_PATH: u8 = key_of(1);
const PATH_ELEM: u8 = key_of(3);

/// Key of a field whose value has its length before it. Numbers below 16 take one byte.
const fn key_of(number: u8) -> u8 {
    const LENGTH_DELIMITED: u8 = 2;
    assert!(number < 16);
    number << 3 | LENGTH_DELIMITED
}

/// One notification, and the path that was written last.
#[derive(Debug, Default)]
pub(super) struct NotificationEncoder {
    message: Vec<u8>,
    timestamp: i64,
    leaves: usize,
    path: EncodedPath,
}

/// The elements of a path, as fields of a `Path`.
#[derive(Debug, Default)]
struct EncodedPath {
    elements: Vec<u8>,
    /// The steps, each with the end of its element.
    steps: Vec<(Step, usize)>,
}

impl NotificationEncoder {
    /// Takes the notification, unless it has nothing to tell.
    pub(super) fn take(&mut self) -> Option<Bytes> {
        let message = std::mem::take(&mut self.message);
        (std::mem::take(&mut self.leaves) > 0).then(|| message.into())
    }

    /// True when the notification takes one more leaf of this instant.
    pub(super) fn takes(&self, timestamp: i64) -> bool {
        let has_room = self.leaves < MAX_LEAVES && self.message.len() < MAX_OCTETS;
        self.leaves == 0 || (has_room && self.timestamp == timestamp)
    }

    /// Adds a leaf. `rest` is its update without the path.
    pub(super) fn update(&mut self, schema: &Schema, path: &[Step], rest: &gnmi::Update) {
        self.path.follow(schema, path);
        let path = &self.path.elements;
        let length = 1 + length_delimiter_len(path.len()) + path.len() + rest.encoded_len();
        put_head(&mut self.message, NOTIFICATION_UPDATE, length);
        put_head(&mut self.message, UPDATE_PATH, path.len());
        self.message.extend_from_slice(path);
        put(&mut self.message, rest);
        self.leaves += 1;
    }

    /// Adds the deletion of a node.
    pub(super) fn delete(&mut self, schema: &Schema, path: &[Step]) {
        self.path.follow(schema, path);
        put_head(&mut self.message, NOTIFICATION_DELETE, self.path.elements.len());
        self.message.extend_from_slice(&self.path.elements);
        self.leaves += 1;
    }

    /// Begins the notification, if it has nothing yet.
    pub(super) fn begin(&mut self, timestamp: i64, prefix: &gnmi::Path) {
        if self.leaves == 0 {
            let prefix = Some(prefix.clone());
            let head = gnmi::Notification { timestamp, prefix, ..gnmi::Notification::default() };
            self.message = head.encode_to_vec();
            self.timestamp = timestamp;
        }
    }
}

impl EncodedPath {
    /// Replaces the path. The elements that both begin with stay.
    fn follow(&mut self, schema: &Schema, path: &[Step]) {
        let pairs = self.steps.iter().zip(path);
        let shared = pairs.take_while(|((one, _), other)| one == *other).count();
        self.steps.truncate(shared);
        self.elements.truncate(self.steps.last().map_or(0, |(_, end)| *end));
        for step in &path[shared..] {
            let element = to_elem(schema, step);
            put_head(&mut self.elements, PATH_ELEM, element.encoded_len());
            put(&mut self.elements, &element);
            self.steps.push((step.clone(), self.elements.len()));
        }
    }
}

/// Writes what stands before the value of a field: its key and its length.
fn put_head(message: &mut Vec<u8>, key: u8, length: usize) {
    message.push(key);
    // A vector grows, so it has room for every length.
    let _ = encode_length_delimiter(length, message);
}

fn put(message: &mut Vec<u8>, fields: &impl Message) {
    // A vector grows, so it has room for every message.
    let _ = fields.encode(message);
}

#[cfg(test)]
mod tests {
    use holdfast_config::schema::Origin;
    use holdfast_config::{InstancePath, Models, Path};
    use holdfast_proto::gnmi::typed_value::Value;
    use proptest::prelude::*;

    use super::super::super::path::to_wire;
    use super::*;

    /// Paths that begin alike and differ at each level, with no key, one and two.
    const PATHS: [&str; 7] = [
        "/system/config/hostname",
        "/system/state/hostname",
        "/interfaces/interface[name=eth0]/state/mtu",
        "/interfaces/interface[name=eth0]/state/counters/in-octets",
        "/interfaces/interface[name=eth1]/state/counters/in-octets",
        "/network-instances/network-instance[name=a]/protocols/protocol[identifier=STATIC][name=b]/config/name",
        "/network-instances/network-instance[name=a]/protocols/protocol[identifier=STATIC][name=c]",
    ];

    proptest! {
        /// A client reads the same as from generated messages.
        #[test]
        fn it_reads_as_a_generated_message(
            timestamp in any::<i64>(),
            target in "[a-z]{0,3}",
            items in prop::collection::vec((0..PATHS.len(), prop::option::of((".{0,200}", 0..3_u32))), 0..20),
        ) {
            let models = Models::load().unwrap();
            let schema = models.schema(Origin::OpenConfig);
            let prefix = gnmi::Path { target, ..gnmi::Path::default() };
            let mut expected = gnmi::Notification {
                timestamp,
                prefix: Some(prefix.clone()),
                ..gnmi::Notification::default()
            };
            let mut encoder = NotificationEncoder::default();
            for (at, update) in &items {
                let path: Path = PATHS[*at].parse().unwrap();
                let InstancePath(steps) = schema.resolve_write(&path).unwrap();
                prop_assert!(encoder.takes(timestamp));
                encoder.begin(timestamp, &prefix);
                let wire = to_wire(schema, &steps);
                if let Some((text, duplicates)) = update {
                    let value = Some(Value::StringVal(text.clone()));
                    let val = Some(gnmi::TypedValue { value });
                    let rest = gnmi::Update { val, duplicates: *duplicates, ..gnmi::Update::default() };
                    encoder.update(schema, &steps, &rest);
                    expected.update.push(gnmi::Update { path: Some(wire), ..rest });
                } else {
                    encoder.delete(schema, &steps);
                    expected.delete.push(wire);
                }
            }
            let encoded = encoder.take();
            prop_assert_eq!(encoded.is_some(), !items.is_empty());
            if let Some(encoded) = encoded {
                prop_assert_eq!(gnmi::Notification::decode(encoded).unwrap(), expected);
            }
            prop_assert_eq!(encoder.take(), None, "the next one is empty");
        }
    }

    #[test]
    fn a_notification_is_full_and_is_of_one_instant() {
        let models = Models::load().unwrap();
        let schema = models.schema(Origin::OpenConfig);
        let InstancePath(steps) = schema.resolve_write(&"/system".parse().unwrap()).unwrap();
        let mut encoder = NotificationEncoder::default();
        assert!(encoder.takes(1));
        for _ in 0..MAX_LEAVES {
            assert!(encoder.takes(1));
            encoder.begin(1, &gnmi::Path::default());
            encoder.delete(schema, &steps);
            assert!(!encoder.takes(2), "another instant");
        }
        assert!(!encoder.takes(1), "as many leaves as it takes");
        encoder.take();
        assert!(encoder.takes(2));
        encoder.begin(2, &gnmi::Path::default());
        let value = Some(Value::StringVal("x".repeat(MAX_OCTETS)));
        let val = Some(gnmi::TypedValue { value });
        encoder.update(schema, &steps, &gnmi::Update { val, ..gnmi::Update::default() });
        assert!(!encoder.takes(2), "as many bytes as it takes");
    }
}
