//! The methods of the services: the role and the limit of each, and the copy of its request that may be recorded.
//!
//! [`Methods`] joins the descriptors of the protocols with the [`table`] of methods. [`Methods::payload`] copies a request field by
//! field, leaves out secrets and what does not fit, and makes a message of the same type.

mod redact;
mod rules;
mod served;
mod table;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use holdfast_proto::FILE_DESCRIPTOR_SET;
use holdfast_security::acctz::{Payload, ServiceFamily};
use prost::Message as _;
use prost::encoding::WireType;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FileDescriptorProto, FileDescriptorSet};

use self::redact::Redactor;
use self::rules::RecordingRule;
pub(crate) use self::served::{SERVED, rpcs};
pub use self::table::MethodRules;

/// Bytes of one request that are read and kept. More would let one Set fill the history, and cost time in every call.
pub const MAX_PAYLOAD: usize = 8 * 1024;

/// Every method of every service that the protocols describe.
#[derive(Debug)]
pub struct Methods {
    methods: HashMap<String, Method>,
    messages: Vec<Message>,
}

/// One method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Method {
    /// True when either side sends more than one message.
    pub streams: bool,
    rules: MethodRules,
    request: usize,
}

/// One message type: its fields by number, and the treatment of each.
#[derive(Debug, Default)]
struct Message {
    name: String,
    fields: HashMap<u32, Field>,
}

#[derive(Clone, Copy, Debug)]
enum Field {
    Message(usize),
    Number { wire: WireType, repeated: bool },
    Octets(RecordingRule),
}

impl Methods {
    /// Reads the descriptors in the binary.
    ///
    /// # Panics
    /// When the descriptors are broken, which the first test finds.
    pub fn new() -> Self {
        let sets = [
            FILE_DESCRIPTOR_SET,
            tonic_health::pb::FILE_DESCRIPTOR_SET,
            tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
            tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
        ];
        let decoded =
            |set| FileDescriptorSet::decode(set).expect("the descriptors are compiled in");
        let files: Vec<_> = sets.into_iter().flat_map(|set| decoded(set).file).collect();
        let mut reader = Reader::default();
        for file in &files {
            reader.name_messages(file);
        }
        for file in &files {
            reader.read(file);
        }
        Self { methods: reader.methods, messages: reader.messages }
    }

    /// The method of an HTTP/2 path such as `/gnmi.gNMI/Set`; `None` when no protocol has it.
    pub fn method(&self, path: &str) -> Option<&Method> {
        self.methods.get(path)
    }

    /// Rules for the method at a path, also when no protocol has it.
    pub fn rules(&self, path: &str) -> MethodRules {
        self.method(path).map_or(table::UNLISTED, |method| method.rules)
    }

    /// The family of services that a path belongs to, even if there is no such method.
    pub fn family(path: &str) -> ServiceFamily {
        let package = path.trim_start_matches('/').split(['.', '/']).next();
        match package {
            Some("gnmi") => ServiceFamily::Gnmi,
            Some("gnoi") => ServiceFamily::Gnoi,
            Some("gnsi") => ServiceFamily::Gnsi,
            _ => ServiceFamily::Other,
        }
    }

    /// Copies what may be recorded of a request. `octets` is its beginning, or all of it if `whole`.
    pub fn payload(&self, method: &Method, octets: &[u8], whole: bool) -> Payload {
        let message = &self.messages[method.request];
        let mut walk = Redactor::new(&self.messages, MAX_PAYLOAD);
        let octets = walk.copy(message, octets, whole);
        Payload { message: message.name.clone(), octets, cut: walk.cut }
    }
}

impl Default for Methods {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Default)]
struct Reader {
    methods: HashMap<String, Method>,
    messages: Vec<Message>,
    places: HashMap<String, usize>,
}

impl Reader {
    fn name_messages(&mut self, file: &FileDescriptorProto) {
        for message in &file.message_type {
            self.name_message(file.package(), message);
        }
    }

    fn name_message(&mut self, parent: &str, message: &DescriptorProto) {
        let name = format!("{parent}.{}", message.name());
        for nested in &message.nested_type {
            self.name_message(&name, nested);
        }
        self.places.insert(format!(".{name}"), self.messages.len());
        self.messages.push(Message { name, fields: HashMap::new() });
    }

    fn read(&mut self, file: &FileDescriptorProto) {
        for message in &file.message_type {
            self.read_fields(file.package(), file.package(), message);
        }
        for service in &file.service {
            for method in &service.method {
                let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                let streams = method.client_streaming() || method.server_streaming();
                let request = self.places[method.input_type()];
                let rules = MethodRules::of(&path);
                self.methods.insert(path, Method { streams, rules, request });
            }
        }
    }

    fn read_fields(&mut self, package: &str, parent: &str, message: &DescriptorProto) {
        let name = format!("{parent}.{}", message.name());
        for nested in &message.nested_type {
            self.read_fields(package, &name, nested);
        }
        let fields = message.field.iter().filter_map(|field| {
            let number = u32::try_from(field.number()).ok()?;
            let read = match field.r#type() {
                Type::Message => Field::Message(*self.places.get(field.type_name())?),
                Type::String => Field::Octets(rules::of_string(package, &name, field.name())),
                Type::Bytes => Field::Octets(rules::of_bytes(&name, field.name())),
                Type::Group => return None,
                number => {
                    let repeated = field.label() == Label::Repeated;
                    Field::Number { wire: wire_of(number), repeated }
                }
            };
            Some((number, read))
        });
        self.messages[self.places[&format!(".{name}")]].fields = fields.collect();
    }
}

/// Wire type of a number.
fn wire_of(number: Type) -> WireType {
    match number {
        Type::Fixed64 | Type::Sfixed64 | Type::Double => WireType::SixtyFourBit,
        Type::Fixed32 | Type::Sfixed32 | Type::Float => WireType::ThirtyTwoBit,
        _ => WireType::Varint,
    }
}
