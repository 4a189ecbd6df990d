//! Walks of one of many instances that change nothing, without an agent: as a whole, and by its conditions alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use holdfast_config::edit::{Edit, EditTarget, Payload};
use holdfast_config::schema::Origin;
use holdfast_config::services::{Applied, BoxState, Surroundings, Touched};
use holdfast_config::{ClaimKey, Configuration, Layers, Models, PathPattern, ServiceTag, Value};
use holdfast_services::{PackageFiles, ServiceTypes};

use super::services::{MODULE, OUTLINE, TEMPLATE};
use super::{Table, percentile, yardstick};

const SERVICE: &str = "staged-route";

/// A box whose links are all up, and that has all objects.
#[derive(Debug)]
struct UpBox;

impl BoxState for UpBox {
    fn leaves(&self, _: Origin, _: &PathPattern) -> Vec<Value> {
        vec![Value::Str("UP".into())]
    }

    fn applied(&self, _: &ClaimKey) -> Applied {
        Applied::Done
    }
}

/// Measures walks of one of `instances` instances, each with a route.
pub(super) fn rows(table: &mut Table, instances: u32, walks: u32) -> Result<()> {
    let configuration = settled(instances)?;
    let tag: ServiceTag = format!("{SERVICE}[name='i0']").parse().map_err(|it| anyhow!("{it}"))?;
    let whole = Surroundings { due: BTreeSet::from([tag.clone()]), ..surroundings() };
    let mut outcome = configuration.trial(&whole);
    ensure!(outcome.is_empty() && outcome.work.rendered == 1, "{outcome:?}");
    let conditions = Arc::new(outcome.conditions.remove(&tag).context("nothing has failed")?);
    let places = conditions.gates.keys().cloned().collect();
    let touched = BTreeMap::from([(tag, Touched { conditions, places, has_moved: true })]);
    let alone = Surroundings { touched, ..surroundings() };
    let outcome = configuration.trial(&alone);
    ensure!(outcome.unchanged.len() == 1 && outcome.work.rendered == 0, "{outcome:?}");
    let [whole, alone] = [whole, alone].map(|it| trials(&configuration, &it, walks));
    for percent in [50, 99] {
        let walk = percentile(&whole, percent);
        let judged = percentile(&alone, percent);
        let what = format!("a walk that changes nothing, one of {instances}, p{percent}");
        table.time(&what, walk, "its conditions alone", judged, None);
    }
    Ok(())
}

/// Times of trials, sorted.
fn trials(configuration: &Configuration, surroundings: &Surroundings, count: u32) -> Vec<Duration> {
    let timed = |_| {
        let started = Instant::now();
        drop(configuration.trial(surroundings));
        started.elapsed()
    };
    let mut times: Vec<_> = (0..count).map(timed).collect();
    times.sort();
    times
}

fn surroundings() -> Surroundings {
    let state: Option<Arc<dyn BoxState>> = Some(Arc::new(UpBox));
    Surroundings { state, now_ns: 1, is_lenient: true, ..Surroundings::default() }
}

/// A box with instances that are ready.
fn settled(instances: u32) -> Result<Configuration> {
    let outline = OUTLINE.replace("TYPE", SERVICE);
    let module = MODULE.replace("TYPE", SERVICE);
    let file = |(path, text): (&str, &str)| (path.into(), text.as_bytes().into());
    let files = [
        ("service.toml", &*outline),
        ("staged-route@2026-11-24.yang", &*module),
        ("templates/route.cli", TEMPLATE),
    ];
    let files = PackageFiles::new(files.into_iter().map(file))?;
    let mut types = ServiceTypes::new(Arc::new(Models::load()?));
    types.add(&files)?;
    let mut edit = Edit::default();
    for number in 0..instances {
        let path = format!("/services/{SERVICE}[name=i{number}]").parse()?;
        let prefix = format!("{}/32", yardstick::destination(number));
        let text = serde_json::json!({"port": "eth0", "prefix": prefix, "via": "192.0.2.4"});
        let text = text.to_string().into_bytes().into();
        let payload = Payload::Json { text, ietf: true };
        edit.updates.push((EditTarget { origin: Origin::Native, path }, payload));
    }
    let before = Configuration::new(Arc::clone(types.models()), Layers::new());
    let before = before.with_services(Some(Arc::new(types))).with_surroundings(surroundings());
    let made = before.edit(&edit).map_err(|errors| anyhow!("{errors}"))?;
    let due = made.instances().into_iter().collect();
    made.with_surroundings(Surroundings { due, ..surroundings() })
        .walked()
        .map_err(|errors| anyhow!("{errors}"))
}
