//! The project's own `.proto` files against the facts about the public interfaces.
//!
//! The messages that `holdfast-proto` compiled are written in the shape of the fact tables (`data/facts/proto/`, one
//! file a package), then every element is compared with its row: a wrong number, a missing field and a message that
//! no public interface has all show up as one readable line.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use holdfast_proto::FILE_DESCRIPTOR_SET;
use holdfast_tests::guide;
use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto,
    FileDescriptorSet, MethodDescriptorProto, ServiceDescriptorProto,
};
use serde_json::{Map, Value, json};

/// Elements that no fact table has, each with the reason for having it.
const BEYOND_THE_FACTS: &[(&str, &str)] = &[
    ("google.rpc.BadRequest", "details of a failed Set; the tables hold google.rpc.Status only"),
    ("google.rpc.BadRequest.FieldViolation", "part of google.rpc.BadRequest"),
    ("google/rpc/error_details.proto", "the file of google.rpc.BadRequest"),
];

/// Packages of this project, which the public interface does not have.
const OUR_OWN: &[&str] =
    &["holdfast", "holdfast.faults.v1", "holdfast.maintenance.v1", "holdfast.services.v1"];

/// Parts of a fact table that are compared; its remaining keys repeat these.
const COMPARED: &[&str] = &[
    "files",
    "version_options",
    "messages",
    "message_files",
    "enums",
    "enum_files",
    "services",
    "service_files",
    "reserved",
    "extensions",
    "deprecated",
];

#[test]
fn every_message_enum_and_service_is_that_of_the_public_interface() {
    let ours = described_packages();
    let mut differences = Vec::new();
    for package in ours.keys() {
        let facts = facts_of(package);
        for part in COMPARED {
            let place = format!("{package}: {part}");
            compare(&place, &ours[package][*part], &facts[*part], &mut differences);
        }
    }
    assert!(
        differences.is_empty(),
        "{} differences:\n{}",
        differences.len(),
        differences.join("\n")
    );
}

#[test]
fn no_package_of_the_facts_is_forgotten() {
    let packages: BTreeSet<String> = fs::read_dir(facts_folder())
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert_eq!(described_packages().into_keys().collect::<BTreeSet<_>>(), packages);
}

/// Adds one line for each element that is not the same on both sides.
fn compare(place: &str, ours: &Value, facts: &Value, differences: &mut Vec<String>) {
    let ours = by_name(ours);
    let facts = by_name(facts);
    let beyond = |name: &str| BEYOND_THE_FACTS.iter().any(|(element, _)| *element == name);
    for name in ours.keys().chain(facts.keys()).collect::<BTreeSet<_>>() {
        let ours = ours.get(name);
        let facts = facts.get(name);
        if ours == facts || (facts.is_none() && beyond(name)) {
            continue;
        }
        match (ours, facts) {
            // One level deeper, so that a field is named and not only its message.
            (Some(ours @ Value::Array(_)), Some(facts @ Value::Array(_))) => {
                compare(&format!("{place}: {name}"), ours, facts, differences);
            }
            _ => differences.push(format!(
                "{place}: {name}: ours {}, facts {}",
                text(ours),
                text(facts)
            )),
        }
    }
}

fn text(value: Option<&Value>) -> String {
    value.map_or("absent".into(), Value::to_string)
}

/// A list of named things, or of names, as a map; a map as it is.
fn by_name(value: &Value) -> BTreeMap<String, Value> {
    match value {
        Value::Object(map) => map.clone().into_iter().collect(),
        Value::Array(items) => items
            .iter()
            .map(|item| match item.get("name") {
                Some(name) => (name.as_str().unwrap().to_owned(), item.clone()),
                None => (item.to_string(), Value::Bool(true)),
            })
            .collect(),
        other => panic!("neither a map nor a list: {other}"),
    }
}

fn facts_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/facts/proto")
}

// proves 5.11
#[test]
fn one_release_of_gnsi_is_served_and_the_guide_names_it() {
    let sources = fs::read_to_string(facts_folder().with_file_name("sources.tsv")).unwrap();
    let row = sources.lines().find(|line| line.starts_with("gnsi\t")).unwrap();
    let release = row.split('\t').nth(3).unwrap();
    assert!(
        guide::text().contains(&format!("gNSI `{release}`")),
        "the guide does not name {release}"
    );
    let ours = described_packages();
    let names: Vec<&str> =
        ours.keys().map(String::as_str).filter(|name| name.starts_with("gnsi.")).collect();
    let services = ["acctz", "authz", "certz", "credentialz", "pathz"];
    assert_eq!(names, services.map(|name| format!("gnsi.{name}.v1")));
    for name in names {
        let mut differences = Vec::new();
        for part in COMPARED {
            compare(name, &ours[name][*part], &facts_of(name)[*part], &mut differences);
        }
        assert!(differences.is_empty(), "{differences:#?}");
    }
}

fn facts_of(package: &str) -> Value {
    let file = facts_folder().join(format!("{package}.json"));
    let text =
        fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    serde_json::from_str(&text).unwrap()
}

/// Every public package compiled into `holdfast-proto`, in the shape of the fact tables.
fn described_packages() -> BTreeMap<String, Value> {
    let files = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap().file;
    let options = DescriptorSetOptions::decode(FILE_DESCRIPTOR_SET).unwrap().file;
    let mut packages: BTreeMap<String, PackageFacts> = BTreeMap::new();
    for (file, options) in files.iter().zip(&options) {
        let public = !OUR_OWN.contains(&file.package());
        if public && !file.package().starts_with("google.protobuf") {
            packages.entry(file.package().to_owned()).or_default().add_file(file, &options.options);
        }
    }
    packages.into_iter().map(|(name, package)| (name, package.into_facts())).collect()
}

/// File options with the two version options, which `prost_types` does not keep.
#[derive(Clone, PartialEq, Message)]
struct DescriptorSetOptions {
    #[prost(message, repeated, tag = "1")]
    file: Vec<FileDescriptorOptions>,
}

#[derive(Clone, PartialEq, Message)]
struct FileDescriptorOptions {
    #[prost(message, required, tag = "8")]
    options: FileOptions,
}

#[derive(Clone, PartialEq, Message)]
struct FileOptions {
    #[prost(string, optional, tag = "1")]
    java_package: Option<String>,
    #[prost(string, optional, tag = "8")]
    java_outer_classname: Option<String>,
    #[prost(bool, optional, tag = "10")]
    java_multiple_files: Option<bool>,
    #[prost(string, optional, tag = "11")]
    go_package: Option<String>,
    #[prost(string, optional, tag = "36")]
    objc_class_prefix: Option<String>,
    #[prost(string, optional, tag = "1001")]
    gnmi_service: Option<String>,
    #[prost(string, optional, tag = "1002")]
    gnoi_version: Option<String>,
}

impl FileOptions {
    fn version(&self) -> Option<(&'static str, &str)> {
        let gnmi = self.gnmi_service.as_deref().map(|version| ("gnmi.gnmi_service", version));
        gnmi.or(self.gnoi_version.as_deref().map(|version| ("gnoi.types.gnoi_version", version)))
    }

    fn into_facts(self) -> Value {
        let mut facts = Map::new();
        let mut keep =
            |name: &str, value: Option<Value>| value.map(|value| facts.insert(name.into(), value));
        if let Some((option, version)) = self.version() {
            keep(option, Some(version.into()));
        }
        keep("java_package", self.java_package.map(Into::into));
        keep("java_outer_classname", self.java_outer_classname.map(Into::into));
        keep("java_multiple_files", self.java_multiple_files.map(Into::into));
        keep("go_package", self.go_package.map(Into::into));
        keep("objc_class_prefix", self.objc_class_prefix.map(Into::into));
        Value::Object(facts)
    }
}

/// A fact table that is being built. Maps go from full names to rows.
#[derive(Default)]
struct PackageFacts {
    files: Map<String, Value>,
    version_options: Map<String, Value>,
    messages: Map<String, Value>,
    message_files: Map<String, Value>,
    enums: Map<String, Value>,
    enum_files: Map<String, Value>,
    services: Map<String, Value>,
    service_files: Map<String, Value>,
    reserved: Map<String, Value>,
    extensions: Vec<Value>,
    deprecated: Vec<String>,
}

impl PackageFacts {
    fn into_facts(self) -> Value {
        json!({
            "files": self.files,
            "version_options": self.version_options,
            "messages": self.messages,
            "message_files": self.message_files,
            "enums": self.enums,
            "enum_files": self.enum_files,
            "services": self.services,
            "service_files": self.service_files,
            "reserved": self.reserved,
            "extensions": self.extensions,
            "deprecated": self.deprecated,
        })
    }

    fn add_file(&mut self, file: &FileDescriptorProto, options: &FileOptions) {
        let mut imports = file.dependency.clone();
        imports.sort();
        let public: Vec<_> =
            file.public_dependency.iter().map(|index| &file.dependency[index_of(*index)]).collect();
        self.files.insert(
            file.name().into(),
            json!({
                "syntax": file.syntax(),
                "imports": imports,
                "public_imports": public,
                "options": options.clone().into_facts(),
            }),
        );
        if let Some((option, value)) = options.version() {
            self.version_options
                .insert(file.name().into(), json!({"option": option, "value": value}));
        }
        for message in &file.message_type {
            self.add_message(file, file.package(), message);
        }
        for wire_enum in &file.enum_type {
            self.add_enum(file, file.package(), wire_enum);
        }
        for service in &file.service {
            self.add_service(file, service);
        }
        self.extensions.extend(
            file.extension.iter().map(|extension| extension_facts(file.package(), extension)),
        );
    }

    fn add_message(&mut self, file: &FileDescriptorProto, parent: &str, message: &DescriptorProto) {
        let name = format!("{parent}.{}", message.name());
        let mut fields = message.field.clone();
        fields.sort_by_key(FieldDescriptorProto::number);
        for field in &fields {
            let deprecated = field.options.as_ref().is_some_and(|options| options.deprecated());
            self.note_deprecated(deprecated, format!("{name}.{}", field.name()));
        }
        self.note_deprecated(
            message.options.as_ref().is_some_and(|o| o.deprecated()),
            name.clone(),
        );

        let facts: Vec<Value> = fields.iter().map(|field| field_facts(message, field)).collect();
        self.messages.insert(name.clone(), facts.into());
        self.message_files.insert(name.clone(), file.name().into());

        // The end of a range of a message is exclusive in a descriptor, that of an enum inclusive.
        let ranges = message.reserved_range.iter().map(|range| (range.start(), range.end() - 1));
        self.add_reserved(&name, ranges.collect(), &message.reserved_name);
        for nested in &message.nested_type {
            self.add_message(file, &name, nested);
        }
        for nested in &message.enum_type {
            self.add_enum(file, &name, nested);
        }
    }

    fn add_enum(
        &mut self,
        file: &FileDescriptorProto,
        parent: &str,
        wire_enum: &EnumDescriptorProto,
    ) {
        let name = format!("{parent}.{}", wire_enum.name());
        self.note_deprecated(
            wire_enum.options.as_ref().is_some_and(|o| o.deprecated()),
            name.clone(),
        );
        for value in &wire_enum.value {
            let deprecated = value.options.as_ref().is_some_and(|options| options.deprecated());
            self.note_deprecated(deprecated, format!("{name}.{}", value.name()));
        }
        let values: Map<_, _> =
            wire_enum.value.iter().map(|v| (v.name().into(), v.number().into())).collect();
        self.enums.insert(name.clone(), values.into());
        self.enum_files.insert(name.clone(), file.name().into());
        let ranges = wire_enum.reserved_range.iter().map(|range| (range.start(), range.end()));
        self.add_reserved(&name, ranges.collect(), &wire_enum.reserved_name);
    }

    fn add_service(&mut self, file: &FileDescriptorProto, service: &ServiceDescriptorProto) {
        let name = format!("{}.{}", file.package(), service.name());
        self.note_deprecated(
            service.options.as_ref().is_some_and(|o| o.deprecated()),
            name.clone(),
        );
        for method in &service.method {
            self.note_deprecated(is_deprecated(method), format!("{name}.{}", method.name()));
        }
        let methods: Vec<_> = service.method.iter().map(method_facts).collect();
        self.services.insert(name.clone(), methods.into());
        self.service_files.insert(name, file.name().into());
    }

    fn add_reserved(&mut self, name: &str, ranges: Vec<(i32, i32)>, names: &[String]) {
        if !ranges.is_empty() || !names.is_empty() {
            self.reserved.insert(name.into(), json!({"ranges": ranges, "names": names}));
        }
    }

    fn note_deprecated(&mut self, deprecated: bool, name: String) {
        if deprecated {
            self.deprecated.push(name);
        }
    }
}

fn method_facts(method: &MethodDescriptorProto) -> Value {
    json!({
        "name": method.name(),
        "input": full_name(method.input_type()),
        "output": full_name(method.output_type()),
        "client_streaming": method.client_streaming(),
        "server_streaming": method.server_streaming(),
        "deprecated": is_deprecated(method),
    })
}

fn is_deprecated(method: &MethodDescriptorProto) -> bool {
    method.options.as_ref().is_some_and(|options| options.deprecated())
}

fn field_facts(message: &DescriptorProto, field: &FieldDescriptorProto) -> Value {
    let entry = map_entry(message, field);
    let real_oneof = field.oneof_index.filter(|_| !field.proto3_optional());
    let oneof = real_oneof.map(|index| message.oneof_decl[index_of(index)].name());
    let mut facts = json!({
        "name": field.name(),
        "number": field.number(),
        "type": type_name(field),
        "kind": match field.r#type() {
            _ if entry.is_some() => "map",
            Type::Message => "message",
            Type::Enum => "enum",
            _ => "scalar",
        },
        "label": label_name(field),
        "oneof": oneof,
        "proto3_optional": field.proto3_optional(),
        "deprecated": field.options.as_ref().is_some_and(|options| options.deprecated()),
    });
    if let Some(entry) = entry {
        facts["map"] =
            json!({"key": type_name(&entry.field[0]), "value": type_name(&entry.field[1])});
    }
    if field.json_name() != lower_camel_case(field.name()) {
        facts["json_name"] = field.json_name().into();
    }
    facts
}

fn extension_facts(package: &str, extension: &FieldDescriptorProto) -> Value {
    json!({
        "name": format!("{package}.{}", extension.name()),
        "number": extension.number(),
        "extendee": full_name(extension.extendee()),
        "type": type_name(extension),
        "label": label_name(extension),
        "proto3_optional": extension.proto3_optional(),
    })
}

fn map_entry<'a>(
    message: &'a DescriptorProto,
    field: &FieldDescriptorProto,
) -> Option<&'a DescriptorProto> {
    message.nested_type.iter().find(|nested| {
        nested.options.as_ref().is_some_and(|options| options.map_entry())
            && field.type_name().ends_with(&format!("{}.{}", message.name(), nested.name()))
    })
}

fn label_name(field: &FieldDescriptorProto) -> &'static str {
    match field.label() {
        Label::Optional => "optional",
        Label::Required => "required",
        Label::Repeated => "repeated",
    }
}

fn type_name(field: &FieldDescriptorProto) -> String {
    match field.r#type() {
        Type::Message | Type::Enum | Type::Group => full_name(field.type_name()).into(),
        scalar => scalar.as_str_name().trim_start_matches("TYPE_").to_ascii_lowercase(),
    }
}

fn full_name(name: &str) -> &str {
    name.trim_start_matches('.')
}

/// The default JSON name of a field.
fn lower_camel_case(name: &str) -> String {
    let mut camel = String::new();
    let mut after_underscore = false;
    for letter in name.chars() {
        if letter != '_' {
            camel.push(if after_underscore { letter.to_ascii_uppercase() } else { letter });
        }
        after_underscore = letter == '_';
    }
    camel
}

fn index_of(index: i32) -> usize {
    usize::try_from(index).unwrap()
}
