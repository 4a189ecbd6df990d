//! The persistent record, in files of its own so that a person on the console can read and remove them.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use holdfast_bootz::client::{BootstrapRecord, Parameters, Telemetry};
use holdfast_store::{BOOTZ_FOLDER, StoreError, create_private_folder, write_private_file};
use serde::de::DeserializeOwned;

use super::BootzError;

/// File of the bootstrap in progress, which exists only while there is one.
const PARAMETERS: &str = "parameters.json";
/// File of the telemetry.
const TELEMETRY: &str = "telemetry.json";

/// Folder of the files, created when missing.
pub(super) fn folder(state: &Path) -> Result<PathBuf, StoreError> {
    let folder = state.join(BOOTZ_FOLDER);
    create_private_folder(&folder)?;
    Ok(folder)
}

pub(super) fn read(folder: &Path) -> Result<BootstrapRecord, BootzError> {
    Ok(BootstrapRecord {
        parameters: read_file::<Parameters>(&folder.join(PARAMETERS))?,
        telemetry: read_file::<Telemetry>(&folder.join(TELEMETRY))?.unwrap_or_default(),
    })
}

/// Writes the telemetry first: while the parameters exist, the work continues after a restart and updates the
/// telemetry again.
pub(super) fn write(folder: &Path, record: &BootstrapRecord) -> Result<(), StoreError> {
    let text = |json: serde_json::Result<Vec<u8>>| json.expect("text and numbers can be written");
    write_private_file(&folder.join(TELEMETRY), &text(serde_json::to_vec(&record.telemetry)))?;
    let path = folder.join(PARAMETERS);
    match &record.parameters {
        Some(parameters) => write_private_file(&path, &text(serde_json::to_vec(parameters))),
        None => match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(StoreError::File { action: "remove", path, source })
            }
            _ => Ok(()),
        },
    }
}

fn read_file<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, BootzError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(BootzError::File { path: path.to_owned(), source }),
    };
    let read = serde_json::from_slice(&text);
    read.map(Some).map_err(|source| BootzError::Record { path: path.to_owned(), source })
}
