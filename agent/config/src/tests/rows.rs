//! Conversion of layers to rows and back.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::model::some_request;
use super::*;
use crate::rows::RowSplit;

fn all_rows(layers: &Layers) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let rows = layer_rows_diff(models(), &Layers::new(), layers);
    rows.into_iter().map(|row| (row.key, row.value.unwrap())).collect()
}

#[test]
fn one_row_for_each_entry() {
    let requests = [
        "update native:/system {\"hostname\":\"a\",\"domain-name\":\"b\"}",
        "update /interfaces/interface[name=eth0]/subinterfaces/subinterface[index=0]/ipv4/addresses/address[ip=10.0.0.1]\
         /config/prefix-length 24",
    ];
    // The system, an interface, its subinterface, its address.
    assert_eq!(all_rows(after(&requests).layers()).len(), 4);
}

#[test]
fn annotation_and_switches_are_kept() {
    let mut layers = Layers::new();
    layers.annotation = Some("AAAA".into());
    layers.off = LayerSet::of(LayerKey::BOOT_NATIVE);
    let (read, unknown) = Layers::from_rows(models(), all_rows(&layers)).unwrap();
    assert_eq!((read, unknown), (layers, 0));
}

#[test]
fn broken_rows_fail_and_unknown_rows_are_counted() {
    let read = |key: &[u8], value: &[u8]| {
        Layers::from_rows(models(), [(key.to_vec(), value.to_vec())]).map(|(_, unknown)| unknown)
    };
    assert_eq!(read(&[200, 1, 2, 3, 4], &[0]), Ok(1), "no such layer");
    assert_eq!(read(&[5, 1, 2, 3, 4], &[0]), Ok(1), "no such list");
    assert_eq!(read(&[5, 1], &[0]).unwrap_err().reason, "the row ends too early");
    let rows = all_rows(after(&["update native:/system/hostname \"a\""]).layers());
    let (key, value) = rows.first_key_value().unwrap();
    assert_eq!(
        read(key, &value[..value.len() - 1]).unwrap_err().to_string(),
        "cannot read the stored row 05811c9dc5: the row ends too early"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// After any requests, the rows written so far are those of the layers, and restore them.
    #[test]
    fn rows_follow_the_layers(requests in prop::collection::vec(some_request(), 1..8)) {
        let mut configuration = empty();
        let mut stored: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for request in requests {
            let Ok(new) = configuration.edit(&edit(&request)) else { continue };
            for row in layer_rows_diff(models(), configuration.layers(), new.layers()) {
                match row.value {
                    Some(value) => drop(stored.insert(row.key, value)),
                    None => prop_assert!(stored.remove(&row.key).is_some()),
                }
            }
            configuration = new;
            prop_assert_eq!(&stored, &all_rows(configuration.layers()));
        }
        for sample in stored.keys() {
            let Some(split) = RowSplit::of_sample([sample.as_slice()].into_iter()) else { continue };
            let [first, second] = [false, true].map(|is_second| {
                let rows = stored.clone().into_iter();
                let side = rows.filter(|(key, _)| split.is_second(key) == is_second);
                Layers::from_rows(models(), side).unwrap().0
            });
            prop_assert_eq!(&first.joined(&second), configuration.layers());
        }
        let descending: Vec<_> = stored.clone().into_iter().rev().collect();
        for rows in [stored.into_iter().collect(), descending] {
            let (read, unknown) = Layers::from_rows(models(), rows).unwrap();
            prop_assert_eq!(&read, configuration.layers());
            prop_assert_eq!(unknown, 0);
        }
    }
}
