//! The gallery: every fault of every rung is there, does harm, and is caught.
//!
//! What each does in detail is kept as a snapshot in its own crate's `tests/break_its.rs`.

use naive_decode::break_it::Bench;
use serving::break_its;
use std::collections::BTreeSet;

/// What the catalogue of real bugs asks of the rungs that exist.
const CATALOGUE: [(&str, &[&str]); 3] = [
    ("naive-decode", &["future-visible", "rope-off-by-one", "rope-restarts"]),
    (
        "kv-cache",
        &[
            "overwritten-key",
            "shifted-write",
            "first-token-missing",
            "stale-length",
            "wrong-layer",
            "wrong-head",
            "cache-not-reset",
            "cached-position-leaks",
            "mask-columns",
            "rope-offset-grows",
            "shared-cache",
        ],
    ),
    ("flash-attention", &["missing-rescale", "ragged-tile", "averaged-splits"]),
];

/// Faults that change logits and no token: what makes them worth showing.
const QUIET: [&str; 1] = ["cached-position-leaks"];

#[test]
fn every_fault_of_the_catalogue_has_a_break_it() {
    let all = break_its::all();
    let names: BTreeSet<_> = all.iter().map(|break_it| break_it.name).collect();
    assert_eq!(names.len(), all.len(), "two break-its have one name");
    for (package, faults) in CATALOGUE {
        for name in faults {
            let found = all.iter().find(|break_it| break_it.name == *name);
            assert_eq!(found.map(|break_it| break_it.package), Some(package), "{name}");
        }
    }
}

#[test]
fn every_break_it_says_where_it_was_seen_and_what_to_watch_for() {
    for break_it in break_its::all() {
        let name = break_it.name;
        assert!(!break_it.cites.is_empty(), "{name}");
        assert!(!break_it.symptom.is_empty() && !break_it.guard.is_empty(), "{name}");
        let kebab = |c: char| c.is_ascii_lowercase() || c == '-';
        assert!(name.chars().all(kebab), "{name} is not in kebab case");
    }
}

#[test]
fn every_fault_changes_tokens_and_only_its_guard_notices() {
    let bench = Bench::embedded().unwrap();
    for break_it in break_its::all() {
        let (name, report) = (break_it.name, (break_it.run)(&bench).unwrap());
        report.check().unwrap();
        let quiet = QUIET.contains(&name);
        assert_eq!(report.first_difference.is_none(), quiet, "{name}: do tokens change?");
    }
}
