//! Sensors and fans, as hwmon shows them.

use std::path::PathBuf;

use holdfast_config::schema::Schema;
use holdfast_config::{InstancePath, MissingNode, NodeId, Value};
use holdfast_core::PolledState;
use holdfast_telemetry::PolledReading;

use super::components::component;
use super::sysfs::{entries, number, text};
use super::{KernelFolders, Shared};

/// Quantity that a sensor measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measured {
    Temperature,
    FanSpeed,
}

/// A sensor or fan.
#[derive(Clone, Debug)]
pub(super) struct Sensor {
    /// `hwmon0/temp1`.
    pub(super) name: String,
    /// Name of the chip, with the label of the sensor where it has one.
    pub(super) description: String,
    pub(super) measured: Measured,
    input: PathBuf,
}

/// Finds the sensors of the box.
pub(super) fn find(folders: &KernelFolders) -> Vec<Sensor> {
    let mut found = Vec::new();
    for (chip, folder) in entries(&folders.sys.join("class/hwmon")) {
        let chip_name = text(&folder.join("name")).unwrap_or_default();
        for (file, input) in entries(&folder) {
            let Some(sensor) = file.strip_suffix("_input") else { continue };
            let measured = match sensor.trim_end_matches(|it: char| it.is_ascii_digit()) {
                "temp" => Measured::Temperature,
                "fan" => Measured::FanSpeed,
                _ => continue,
            };
            let label = text(&folder.join(format!("{sensor}_label")));
            let words = [Some(chip_name.clone()), label];
            let words: Vec<String> =
                words.into_iter().flatten().filter(|it| !it.is_empty()).collect();
            found.push(Sensor {
                name: format!("{chip}/{sensor}"),
                description: words.join(" "),
                measured,
                input,
            });
        }
    }
    found
}

/// Present values of the sensors, read when somebody asks.
#[derive(Debug)]
pub(crate) struct Sensors {
    sensors: Vec<(Sensor, InstancePath)>,
    last: Shared<Vec<(InstancePath, Value)>>,
}

impl Sensors {
    /// # Errors
    /// When the native model lacks a leaf, which the first test finds.
    pub(crate) fn new(native: &Schema, folders: &KernelFolders) -> Result<Self, MissingNode> {
        let sensors = find(folders).into_iter().map(|sensor| {
            let leaf = match sensor.measured {
                Measured::Temperature => "temperature",
                Measured::FanSpeed => "speed",
            };
            let path = component(native, &sensor.name, leaf)?;
            Ok((sensor, path))
        });
        Ok(Self { sensors: sensors.collect::<Result<_, _>>()?, last: Shared::default() })
    }
}

impl Sensor {
    /// The present value; `None` where the sensor does not answer.
    fn read(&self) -> Option<Value> {
        let number = number(&self.input)?;
        Some(match self.measured {
            // In thousandths of a degree; the leaf has tenths.
            Measured::Temperature => Value::Decimal { digits: number / 100, scale: 1 },
            Measured::FanSpeed => Value::Uint(u64::try_from(number).ok()?),
        })
    }
}

impl Sensors {
    fn leaves(&self) -> Vec<(InstancePath, Value)> {
        self.last.get(|_| {
            let read =
                |(sensor, path): &(Sensor, InstancePath)| Some((path.clone(), sensor.read()?));
            self.sensors.iter().filter_map(read).collect()
        })
    }
}

#[tonic::async_trait]
impl PolledState for Sensors {
    fn nodes(&self) -> Vec<NodeId> {
        self.sensors.iter().filter_map(|(_, path)| path.leaf()).collect()
    }

    async fn read(&self) -> PolledReading {
        self.leaves().into()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    #[test]
    fn sensors_and_fans_are_read() {
        let sys = TempDir::new().unwrap();
        let chip = sys.path().join("class/hwmon/hwmon0");
        fs::create_dir_all(&chip).unwrap();
        for (file, content) in [
            ("name", "coretemp\n"),
            ("temp1_input", "45250\n"),
            ("temp1_label", "Package id 0\n"),
            ("fan2_input", "3200\n"),
            ("in0_input", "12000\n"),
        ] {
            fs::write(chip.join(file), content).unwrap();
        }
        let folders = KernelFolders { sys: sys.path().into(), ..KernelFolders::default() };
        let native = Schema::native().unwrap();
        let sensors = Sensors::new(&native, &folders).unwrap();
        let leaves: Vec<(String, String)> = sensors
            .leaves()
            .into_iter()
            .map(|(path, value)| (path.to_path(&native).to_string(), value.to_string()))
            .collect();
        let leaf =
            |name: &str, leaf: &str| format!("/components/component[name={name}]/state/{leaf}");
        assert_eq!(
            leaves,
            [
                (leaf("hwmon0/fan2", "speed"), "3200".to_owned()),
                (leaf("hwmon0/temp1", "temperature"), "45.2".to_owned()),
            ]
        );
        assert_eq!(find(&folders)[1].description, "coretemp Package id 0");
    }
}
