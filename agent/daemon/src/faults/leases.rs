//! Conditions of leases that have ended without another one.

use holdfast_base::now_ns;
use holdfast_faults::{Condition, Input, Report, Resource, Source};
use ipnet::IpNet;
use smol_str::{SmolStr, format_smolstr};
use tokio::sync::mpsc;

use super::level::ToldLevel;
use crate::dhcp::{LeaseFamily, LostAddresses, LostLeases};

/// Follows leases until nobody takes the reports.
pub(super) async fn follow(leases: LostLeases, inputs: mpsc::Sender<Input>) {
    let mut lost = leases.follow();
    let mut level = ToldLevel::new(Source::Leases, inputs);
    loop {
        let reports = reports(&lost.borrow_and_update(), now_ns());
        if level.tell(reports).await.is_err() {
            return;
        }
        // The leases live as long as this.
        if lost.changed().await.is_err() {
            return;
        }
    }
}

fn reports(lost: &LostAddresses, now_ns: u64) -> Vec<Report> {
    let report = |((port, family), address): (&(SmolStr, LeaseFamily), &IpNet)| {
        let condition = Condition::new("lease-lost", Resource::Interface(port.clone()));
        let text = format_smolstr!(
            "the lease of {address} on {port} has ended, and no server has granted another one"
        );
        Report::holding(condition.qualified(family.name()), text, now_ns)
    };
    lost.iter().map(report).collect()
}
