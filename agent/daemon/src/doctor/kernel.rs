//! Checks of the kernel, from attempts in a network namespace of their own.

use holdfast_platform::kernel_trial::{KernelFeature, KernelTrial};
use nix::sys::utsname::uname;

use super::{Finding, Subject, Verdict};

pub(super) fn kinds(subject: &Subject) -> Vec<Finding> {
    let links = subject.report().map(|report| &report.links);
    let is_configured = |kind: &str| links.is_some_and(|it| it.values().any(|of| of == kind));
    judge(subject, |trial| match trial.feature {
        KernelFeature::Kind(kind) if is_configured(kind) => Some(Verdict::Failure),
        KernelFeature::Kind(_) => Some(Verdict::Warning),
        _ => None,
    })
}

pub(super) fn parameters(subject: &Subject) -> Vec<Finding> {
    judge(subject, |trial| {
        matches!(trial.feature, KernelFeature::Parameter(..)).then_some(Verdict::Warning)
    })
}

pub(super) fn ipv6(subject: &Subject) -> Vec<Finding> {
    judge(subject, |trial| (trial.feature == KernelFeature::Ipv6).then_some(Verdict::Warning))
}

pub(super) fn address_protocol(subject: &Subject) -> Vec<Finding> {
    judge(subject, |trial| {
        (trial.feature == KernelFeature::AddressProtocol).then_some(Verdict::Failure)
    })
}

pub(super) fn variables(subject: &Subject) -> Vec<Finding> {
    judge(subject, |trial| (trial.feature == KernelFeature::Variables).then_some(Verdict::Warning))
}

pub(super) fn receive_buffer(subject: &Subject) -> Vec<Finding> {
    judge(subject, |trial| {
        (trial.feature == KernelFeature::ReceiveBuffer).then_some(Verdict::Warning)
    })
}

/// Findings about the attempts for which `weight` says how bad it is when they fail.
fn judge(subject: &Subject, weight: impl Fn(&KernelTrial) -> Option<Verdict>) -> Vec<Finding> {
    let trials = match &subject.trials {
        None => return Finding::skipped("not tried, because of --quick"),
        Some(Err(reason)) => {
            let untried = Finding::new(Verdict::Unknown, reason);
            return vec![untried.with_advice("run `holdfast doctor` as root")];
        }
        Some(Ok(trials)) => trials,
    };
    let tried: Vec<_> = trials.iter().filter_map(|it| Some((it, weight(it)?))).collect();
    if tried.is_empty() {
        return Finding::unknown("not tried: the kernel makes no link to try it on");
    }
    let refused = tried.iter().filter_map(|(trial, weight)| {
        let reason = trial.refusal.as_ref()?;
        let text = format!("the kernel has no {}: {reason}", trial.feature);
        let finding = Finding::new(*weight, text);
        Some(match trial.feature {
            KernelFeature::Kind(kind) => {
                let advice =
                    format!("`modprobe rtnl-link-{kind}`, or a kernel that has this kind of link");
                finding.with_advice(advice)
            }
            _ => finding,
        })
    });
    let refused: Vec<Finding> = refused.collect();
    if !refused.is_empty() {
        return refused;
    }
    Finding::good(match &tried[..] {
        [(only, _)] => only.feature.to_string(),
        all if matches!(all[0].0.feature, KernelFeature::Kind(_)) => {
            let release = uname().map(|it| it.release().to_string_lossy().into_owned());
            let release = release.unwrap_or_default();
            format!("{release}, all {} kinds of links", all.len())
        }
        all => format!("all {} parameters of links", all.len()),
    })
}
