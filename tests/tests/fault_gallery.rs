//! The gallery: every fault of every rung is there, does harm, and is caught.
//!
//! Each runs in its own crate's `tests/break_its.rs`, which holds what it does to a snapshot. Here all of those are
//! read together.

use serde_json::Value;
use serving::break_its;
use std::collections::BTreeSet;
use std::path::Path;

/// What the catalogue of real bugs asks of the rungs that exist.
const CATALOGUE: [(&str, &[&str]); 7] = [
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
    ("paged-cache", &["dangling-block", "shared-write", "dropped-at-edge"]),
    (
        "prefix-radix",
        &[
            "whole-prompt-hit",
            "still-filling",
            "weak-hash",
            "evicted-live",
            "preempted-hit",
            "moved-text",
        ],
    ),
    (
        "speculative",
        &["rejected-kept", "wrong-branch", "seen-siblings", "lost-bonus", "no-residual"],
    ),
    (
        "serving",
        &["slot-handed-on", "blocks-kept", "lost-sampler", "split-character", "split-stop"],
    ),
];

/// Faults that change logits and no token: what makes them worth showing.
const QUIET: [&str; 1] = ["cached-position-leaks"];

/// Faults that leave every logit right, and choose or serve wrongly.
const RIGHT_LOGITS: [&str; 4] = ["blocks-kept", "lost-sampler", "split-character", "split-stop"];

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

/// The report that a break-it's own crate keeps of it, and holds to what the code does.
fn kept_report(name: &str) -> Value {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let folders = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    let file = format!("tests/snapshots/break_its__{name}.snap");
    let found: Vec<_> = folders.map(|folder| folder.join(&file)).filter(|f| f.exists()).collect();
    let [path] = &found[..] else { panic!("{name} is kept in {found:?}, expected one file") };
    let snapshot = std::fs::read_to_string(path).unwrap();
    let (_, report) = snapshot.split_once("\n---\n").expect("a report follows the snapshot's head");
    serde_json::from_str(report).unwrap()
}

#[test]
fn every_fault_changes_tokens_and_only_its_guard_notices() {
    for name in break_its::all().into_iter().map(|break_it| break_it.name) {
        let report = kept_report(name);
        assert_eq!(report["name"], name);
        let quiet = QUIET.contains(&name);
        assert_eq!(report["first_difference"].is_null(), quiet, "{name}: do tokens change?");
        let right_logits = RIGHT_LOGITS.contains(&name);
        let same_logits = report["first_logit_difference"].is_null();
        assert_eq!(same_logits, right_logits, "{name}: do logits change?");
        let said = |check: &str, side: &str| !report[check][side].is_null();
        assert!(said("guard", "on_broken") && !said("guard", "on_clean"), "{name}: its guard");
        let weaker = said("weaker_test", "on_clean") || said("weaker_test", "on_broken");
        assert!(!weaker, "{name}: the weaker test is too weak to see it");
    }
}
