//! The parts of the box: chassis, processors, system, ports, disks, sensors and fans.

use std::collections::BTreeMap;
use std::path::Path;

use holdfast_config::instance::Keys;
use holdfast_config::schema::{NodeId, Schema};
use holdfast_config::tree::{List, ListEntry as _, Tree};
use holdfast_config::{InstancePath, MissingNode, Name, Value};
use holdfast_core::{CoreHandle, Datastore as _, ServiceState};
use holdfast_telemetry::LeafVersion;
use smol_str::SmolStr;
use tokio_util::task::AbortOnDropHandle;

use super::KernelFolders;
use super::sensors::{self, Measured};
use super::sysfs::{entries, text};

/// Name of the part that all others belong to.
const CHASSIS: &str = "chassis";

/// The parts, each with its leaves.
#[derive(Debug)]
pub(crate) struct Components {
    nodes: PortNodes,
    fixed: ServiceState,
}

/// Nodes by which ports are found and shown.
#[derive(Debug)]
struct PortNodes {
    interfaces: NodeId,
    interface: NodeId,
    state: NodeId,
    link_type: NodeId,
    admin_status: NodeId,
    /// Leaves of a part, of one without a name.
    name: InstancePath,
    part_type: InstancePath,
    parent: InstancePath,
    oper_status: InstancePath,
    /// Leaf of a link that names its port.
    hardware_port: InstancePath,
}

/// Path of a leaf of a part.
pub(super) fn component(
    native: &Schema,
    name: &str,
    leaf: &str,
) -> Result<InstancePath, MissingNode> {
    let entry = ("component", &[("name", name)][..]);
    native.instance_path(&[("components", &[][..]), entry, ("state", &[]), (leaf, &[])])
}

/// A part and what is known of it.
struct Part {
    name: String,
    kind: &'static str,
    leaves: Vec<(&'static str, Option<String>)>,
}

impl Components {
    /// Looks at the hardware. `version` is that of the software that runs, `started_ns` when the kernel was started.
    ///
    /// # Errors
    /// When the native model lacks a node, which the first test finds.
    pub(crate) fn find(
        native: &Schema,
        folders: &KernelFolders,
        version: &str,
        started_ns: Option<u64>,
    ) -> Result<Self, MissingNode> {
        let mut parts = vec![chassis(folders), system(folders, version)];
        parts.extend(processors(folders));
        parts.extend(disks(folders));
        parts.extend(sensors::find(folders).into_iter().map(|sensor| Part {
            name: sensor.name,
            kind: match sensor.measured {
                Measured::Temperature => "SENSOR",
                Measured::FanSpeed => "FAN",
            },
            leaves: vec![("description", Some(sensor.description))],
        }));
        let mut fixed = ServiceState::new();
        for Part { name, kind, leaves } in parts {
            let leaf = |leaf: &str| component(native, &name, leaf);
            let text = |text: &str| Some(Value::Str(text.into()));
            fixed.push((leaf("name")?, text(&name)));
            fixed.push((leaf("type")?, Some(Value::Enum(Name::constant(kind)))));
            fixed.push((leaf("oper-status")?, Some(Value::Enum(Name::constant("ACTIVE")))));
            if name != CHASSIS {
                fixed.push((leaf("parent")?, text(CHASSIS)));
            }
            for (name, value) in leaves {
                if let Some(value) = value.filter(|it| !it.is_empty()) {
                    fixed.push((leaf(name)?, text(&value)));
                }
            }
        }
        if let Some(started) = started_ns {
            fixed.push((component(native, "os", "last-reboot-time")?, Some(Value::Uint(started))));
        }
        Ok(Self { nodes: PortNodes::find(native)?, fixed })
    }

    /// Publishes the parts, and each port for as long as its link is there, until the handle is dropped.
    pub(crate) async fn follow(self, core: CoreHandle) -> AbortOnDropHandle<()> {
        let Self { nodes, fixed } = self;
        core.show_state(fixed).await;
        let mut revisions = core.watch();
        let mut seen = List::default();
        AbortOnDropHandle::new(tokio::spawn(async move {
            loop {
                let now = nodes.links(&revisions.borrow_and_update().native);
                let leaves = nodes.changed(&seen, &now);
                seen = now;
                if !leaves.is_empty() {
                    core.show_state(leaves).await;
                }
                if revisions.changed().await.is_err() {
                    return;
                }
            }
        }))
    }
}

impl PortNodes {
    fn find(native: &Schema) -> Result<Self, MissingNode> {
        let interface = ("interface", &[("name", "any")][..]);
        let of_link = |leaf| {
            native.instance_path(&[("interfaces", &[][..]), interface, ("state", &[]), (leaf, &[])])
        };
        let status = of_link("admin-status")?;
        let link_type = of_link("type")?;
        let leaf = |name: &str| component(native, "any", name);
        Ok(Self {
            interfaces: status.0[0].node,
            interface: status.0[1].node,
            state: status.0[2].node,
            admin_status: status.0[3].node,
            link_type: link_type.0[3].node,
            name: leaf("name")?,
            part_type: leaf("type")?,
            parent: leaf("parent")?,
            oper_status: leaf("oper-status")?,
            hardware_port: of_link("hardware-port")?,
        })
    }

    fn links(&self, tree: &Tree<LeafVersion>) -> List<LeafVersion> {
        let container = tree.root().container(self.interfaces);
        container.and_then(|it| it.list(self.interface)).cloned().unwrap_or_default()
    }

    /// The leaves of ports that differ.
    fn changed(&self, before: &List<LeafVersion>, now: &List<LeafVersion>) -> ServiceState {
        let mut leaves = ServiceState::new();
        for difference in List::differences(before, now) {
            let status = self.port_status(now, difference.keys);
            if status == self.port_status(before, difference.keys) {
                continue;
            }
            let Some(Value::Str(name)) = difference.keys.first() else { continue };
            let is_there = status.is_some();
            let text = |text: SmolStr| is_there.then_some(Value::Str(text));
            let word = |word: &'static str| is_there.then(|| Value::Enum(Name::constant(word)));
            for (leaf, value) in [
                (&self.name, text(name.clone())),
                (&self.part_type, word("PORT")),
                (&self.parent, text(SmolStr::new_static(CHASSIS))),
                (&self.oper_status, status.and_then(word)),
                (&self.hardware_port, text(name.clone())),
            ] {
                leaves.push((leaf.clone().with_last_key(Value::Str(name.clone())), value));
            }
        }
        leaves
    }

    /// The status of a port; `None` for a link that is not one.
    fn port_status(&self, links: &List<LeafVersion>, keys: &Keys) -> Option<&'static str> {
        let entry = links.get(keys)?.branch().into_shared();
        let state = entry.container(self.state)?;
        match state.value(self.link_type)? {
            Value::Enum(word) if word.as_str() == "physical" => {}
            _ => return None,
        }
        match state.value(self.admin_status) {
            Some(Value::Enum(word)) if word.as_str() == "DOWN" => Some("DISABLED"),
            _ => Some("ACTIVE"),
        }
    }
}

/// The box as its firmware describes it.
fn chassis(folders: &KernelFolders) -> Part {
    let dmi = folders.sys.join("class/dmi/id");
    let read = |file: &str| text(&dmi.join(file));
    // Boards without DMI say what they are in the device tree; its texts end with a zero byte.
    let model = text(&folders.sys.join("firmware/devicetree/base/model"));
    let model = model.map(|it| it.trim_end_matches('\0').to_owned());
    Part {
        name: CHASSIS.to_owned(),
        kind: "CHASSIS",
        leaves: vec![
            ("description", read("product_name").or(model)),
            ("mfg-name", read("sys_vendor")),
            ("part-no", read("product_sku")),
            ("serial-no", read("product_serial")),
            ("hardware-version", read("product_version")),
            ("firmware-version", read("bios_version")),
        ],
    }
}

/// The operating system. Its version is that of the agent, which is what an installation over gNOI replaces.
fn system(folders: &KernelFolders, version: &str) -> Part {
    let release = text(&folders.etc.join("os-release")).unwrap_or_default();
    let pretty = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let pretty = pretty.map(|it| it.trim_matches('"').to_owned());
    let kernel = text(&folders.proc.join("sys/kernel/osrelease")).map(|it| format!("Linux {it}"));
    let description: Vec<String> = [pretty, kernel].into_iter().flatten().collect();
    Part {
        name: "os".to_owned(),
        kind: "OPERATING_SYSTEM",
        leaves: vec![
            ("description", Some(description.join(", "))),
            ("software-version", Some(version.to_owned())),
        ],
    }
}

/// The processor packages, by the models that the kernel has read from them.
fn processors(folders: &KernelFolders) -> Vec<Part> {
    let cpuinfo = text(&folders.proc.join("cpuinfo")).unwrap_or_default();
    let mut packages: BTreeMap<u32, Part> = BTreeMap::new();
    for processor in cpuinfo.split("\n\n") {
        let field = |name: &str| {
            processor.lines().find_map(|line| {
                let (field, value) = line.split_once(':')?;
                (field.trim() == name).then(|| value.trim().to_owned())
            })
        };
        if field("processor").is_none() {
            continue;
        }
        // Where the kernel tells of no packages there is one.
        let id = field("physical id").and_then(|id| id.parse().ok()).unwrap_or(0);
        packages.entry(id).or_insert_with(|| Part {
            name: format!("cpu{id}"),
            kind: "CPU",
            leaves: vec![("description", field("model name")), ("mfg-name", field("vendor_id"))],
        });
    }
    packages.into_values().collect()
}

/// The disks. Block devices that are not hardware have no `device`.
fn disks(folders: &KernelFolders) -> Vec<Part> {
    let devices = entries(&folders.sys.join("block")).into_iter();
    let disks = devices.filter(|(_, folder)| folder.join("device").exists());
    disks.map(|(name, folder)| disk(name, &folder.join("device"))).collect()
}

fn disk(name: String, device: &Path) -> Part {
    let read = |file: &str| text(&device.join(file));
    Part {
        name,
        kind: "STORAGE",
        leaves: vec![
            ("description", read("model")),
            ("mfg-name", read("vendor")),
            ("serial-no", read("serial")),
            ("firmware-version", read("firmware_rev").or_else(|| read("rev"))),
        ],
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    #[test]
    fn parts_are_what_the_kernel_tells_of_them() {
        let root = TempDir::new().unwrap();
        for (file, content) in [
            ("sys/class/dmi/id/product_name", "R210\n"),
            ("sys/class/dmi/id/sys_vendor", "Example\n"),
            ("sys/class/dmi/id/product_serial", "To Be Filled By O.E.M.\n"),
            ("sys/block/sda/device/model", "SSD 1\n"),
            ("sys/block/loop0/size", "0\n"),
            ("etc/os-release", "NAME=x\nPRETTY_NAME=\"Debian 12\"\n"),
            ("proc/sys/kernel/osrelease", "6.1.0\n"),
            (
                "proc/cpuinfo",
                "processor\t: 0\nvendor_id\t: Maker\nmodel name\t: M1\nphysical id\t: 0\n\n\
                 processor\t: 1\nvendor_id\t: Maker\nmodel name\t: M1\nphysical id\t: 0\n",
            ),
        ] {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let folder = |name: &str| root.path().join(name);
        let folders =
            KernelFolders { sys: folder("sys"), proc: folder("proc"), etc: folder("etc") };
        let native = Schema::native().unwrap();
        let components = Components::find(&native, &folders, "1.2.3", Some(7)).unwrap();
        let shown: Vec<String> = components
            .fixed
            .iter()
            .map(|(path, value)| {
                let path = path.to_path(&native).to_string();
                let path = path.strip_prefix("/components/component").unwrap().to_owned();
                format!("{path} {}", value.as_ref().unwrap())
            })
            .filter(|line| !line.contains("/name ") && !line.contains("/oper-status "))
            .collect();
        assert_eq!(
            shown,
            [
                "[name=chassis]/state/type CHASSIS",
                "[name=chassis]/state/description R210",
                "[name=chassis]/state/mfg-name Example",
                "[name=os]/state/type OPERATING_SYSTEM",
                "[name=os]/state/parent chassis",
                "[name=os]/state/description Debian 12, Linux 6.1.0",
                "[name=os]/state/software-version 1.2.3",
                "[name=cpu0]/state/type CPU",
                "[name=cpu0]/state/parent chassis",
                "[name=cpu0]/state/description M1",
                "[name=cpu0]/state/mfg-name Maker",
                "[name=sda]/state/type STORAGE",
                "[name=sda]/state/parent chassis",
                "[name=sda]/state/description SSD 1",
                "[name=os]/state/last-reboot-time 7",
            ]
        );
    }
}
