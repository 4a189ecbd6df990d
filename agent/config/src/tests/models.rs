//! Models that grow while a configuration is in force.

use super::stack::{PORTS_DISABLED, factory};
use super::*;
use crate::schema::YangModule;

const MODULE: &str = r#"module things { yang-version 1.1; namespace "urn:things"; prefix t;
    import holdfast { prefix hf; }
    organization "us"; revision 2026-11-23 { description "First."; }
    augment "/hf:interfaces/hf:interface" { leaf colour { type string; default "red"; } }
    container things { list thing { key name; leaf name { type string; }
        leaf size { type uint32; default 7; } leaf note { type string; } } } }"#;

fn grown() -> Arc<Models> {
    let module = YangModule { name: "things".into(), text: MODULE.into() };
    Arc::new(models().with_modules(Origin::Native, &[module]).unwrap())
}

#[test]
fn a_configuration_takes_later_models() {
    let start =
        then(&factory(PORTS_DISABLED), "update /interfaces/interface[name=eth1]/config/mtu 1500");
    let later = start.with_models(grown());
    assert!(later.layers().is_same(start.layers()));
    let scratch = Configuration::new(later.shared_models().clone(), start.layers().clone());
    assert_eq!(later.effective(), scratch.effective());
    for origin in [Origin::OpenConfig, Origin::Native] {
        assert_eq!(later.config_view(origin), scratch.config_view(origin));
    }
    let system = |it: &Configuration| {
        let path = models().native.resolve_write(&"/system".parse().unwrap()).unwrap();
        it.effective().find_branch(&path.0).unwrap()
    };
    assert!(Arc::ptr_eq(&system(&start), &system(&later)), "what is equal is the same memory");
    let edited = later.edit(&edit("update native:/things/thing[name=a]/note \"n\"")).unwrap();
    let lines = lines(&later.models().native, edited.effective(), |_| "");
    let new: Vec<&String> =
        lines.iter().filter(|line| line.contains("thing") || line.contains("colour")).collect();
    assert_eq!(
        new,
        [
            "/interfaces/interface[name=eth0]/colour=red",
            "/interfaces/interface[name=eth1]/colour=red",
            "/things/thing[name=a]/size=7",
            "/things/thing[name=a]/note=n",
        ]
    );
    assert!(start.edit(&edit("update native:/things/thing[name=a]/note \"n\"")).is_err());
}

/// Rows of an earlier version are read with a later one, and the other way around except for new nodes.
#[test]
fn rows_outlast_a_change_of_models() {
    let start = then(&factory(PORTS_DISABLED), "update /system/config/hostname \"box\"");
    let later = start.with_models(grown());
    let rows = |it: &Configuration| layer_rows_diff(it.models(), &Layers::new(), it.layers());
    assert_eq!(rows(&start), rows(&later));
    let edited = later.edit(&edit("update native:/things/thing[name=a]/note \"n\"")).unwrap();
    let read = |models: &Models, it: &Configuration| {
        let mut reader = LayersReader::new(models);
        for row in rows(it) {
            reader.row(&row.key, &row.value.unwrap()).unwrap();
        }
        reader.finish().unwrap().0
    };
    assert_eq!(read(later.models(), &edited), *edited.layers());
    assert_eq!(read(start.models(), &edited), *start.layers());
}

/// A change of models has everything as its footprint, and yet is not lost beside another change.
#[test]
fn a_change_of_models_is_rebased() {
    let base = then(&factory(PORTS_DISABLED), "update /system/config/hostname \"box\"");
    let later = base.with_models(grown());
    let edited = then(&base, "update native:/interfaces/interface[name=b]/mtu 1400");
    for rebased in [later.rebased(&base, &edited), edited.rebased(&base, &later)] {
        assert!(Arc::ptr_eq(rebased.shared_models(), later.shared_models()));
        let scratch = Configuration::new(later.shared_models().clone(), edited.layers().clone());
        assert_eq!(rebased.layers(), scratch.layers());
        assert_eq!(rebased.effective(), scratch.effective());
    }
    assert!(later.rebased(&base, &base).is_same(&later));
    let footprint = Footprint::of(&base, &later, &EditScope::default());
    assert!(!footprint.keeps_clear_of(&Footprint::of(&base, &base, &EditScope::default())));
}
