//! Conditions of what does the work of services: packages that were not loaded, and handlers that are gone.

use std::time::Duration;

use holdfast_base::now_ns;
use holdfast_core::{CoreHandle, Datastore};
use holdfast_faults::{Condition, Input, Report, Resource, Source};
use smol_str::format_smolstr;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::level::ToldLevel;
use crate::services::{Handlers, RefusedPackage};

/// Pause between two looks at the types that are loaded: one that was refused may have been installed again.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);

/// Follows packages and handlers until nobody takes the reports.
pub(super) async fn follow(
    core: CoreHandle,
    handlers: Handlers,
    refused: Vec<RefusedPackage>,
    inputs: mpsc::Sender<Input>,
) {
    let mut served = handlers.watch_served();
    let mut level = ToldLevel::new(Source::Services, inputs);
    loop {
        served.borrow_and_update();
        let now_ns = now_ns();
        let mut reports: Vec<Report> = refused
            .iter()
            .filter(|package| !is_loaded(&core, &package.name))
            .map(|package| package_report(package, now_ns))
            .collect();
        reports.extend(handlers.lost().into_iter().map(|(service, handler)| {
            let lost = Condition::new("handler-lost", Resource::Agent).qualified(&service);
            let text = format_smolstr!(
                "the handler `{handler}` is gone, and nobody does its work for `{service}`"
            );
            Report::holding(lost, text, now_ns)
        }));
        if level.tell(reports).await.is_err() {
            return;
        }
        // The registry of handlers lives as long as this.
        tokio::select! {
            _ = served.changed() => {}
            () = sleep(LOOK_INTERVAL) => {}
        }
    }
}

fn package_report(package: &RefusedPackage, now_ns: u64) -> Report {
    let RefusedPackage { name, reason } = package;
    let invalid = Condition::new("package-invalid", Resource::Agent).qualified(name);
    // A reason may have many lines, and an alarm has one.
    let reason = reason.lines().next().unwrap_or_default();
    let text = format_smolstr!("the package `{name}` was not loaded at the start: {reason}");
    Report::holding(invalid, text, now_ns)
}

/// True when a package of a type is loaded.
fn is_loaded(core: &CoreHandle, name: &str) -> bool {
    let path = format!("/service-state/type[name={name}]").parse();
    let models = core.models();
    let place = path.ok().and_then(|path| models.native.resolve_write(&path).ok());
    place.is_some_and(|place| core.revision().native.contains(&place))
}
