//! The gallery: every fault of every rung is there, does harm, and is caught.
//!
//! Each runs in its own crate's `tests/break_its.rs`, which holds what it does to a snapshot. Here all of those are
//! read together.

use serde_json::Value;
use serving::break_its;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The faults of each rung, by its crate.
const CATALOGUE: [(&str, &[&str]); 8] = [
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
    ("gqa-mla", &["head-groups", "rotated-latent", "full-window", "outlier-scale", "evicted-sink"]),
    (
        "flash-attention",
        &["missing-rescale", "ragged-tile", "averaged-splits", "group-scale", "activation-outlier"],
    ),
    ("paged-cache", &["dangling-block", "shared-write", "dropped-at-edge", "torn-block"]),
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
fn the_catalogue_has_every_break_it_and_no_other() {
    let all = break_its::all();
    let found: BTreeSet<_> = all.iter().map(|about| (about.package, about.name)).collect();
    let names: BTreeSet<_> = all.iter().map(|about| about.name).collect();
    assert_eq!(names.len(), all.len(), "two break-its have one name");
    let rung = |(package, faults): (&'static str, &'static [&'static str])| {
        faults.iter().map(move |name| (package, *name))
    };
    let listed: BTreeSet<_> = CATALOGUE.into_iter().flat_map(rung).collect();
    assert_eq!(found, listed);
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

/// What all crates keep of their break-its, by name.
fn kept() -> BTreeMap<String, PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let files = |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten();
    let mut kept = BTreeMap::new();
    for folder in files(root.to_path_buf()).map(|entry| entry.unwrap().path()) {
        for path in files(folder.join("tests/snapshots")).map(|entry| entry.unwrap().path()) {
            let file = path.file_name().unwrap().to_str().unwrap();
            let name = file.strip_prefix("break_its__").and_then(|it| it.strip_suffix(".snap"));
            if let Some(name) = name.map(String::from) {
                let other = kept.insert(name.clone(), path);
                assert!(other.is_none(), "{name} is kept twice, once in {other:?}");
            }
        }
    }
    kept
}

#[test]
fn what_is_kept_of_break_its_is_of_those_there_are() {
    let names: BTreeSet<_> = break_its::all().iter().map(|about| about.name.to_owned()).collect();
    assert_eq!(kept().into_keys().collect::<BTreeSet<_>>(), names);
}

/// The report that a break-it's own crate keeps of it, and holds to what the code does.
fn report(path: &Path) -> Value {
    let snapshot = std::fs::read_to_string(path).unwrap();
    let (_, report) = snapshot.split_once("\n---\n").expect("a report follows the snapshot's head");
    serde_json::from_str(report).unwrap()
}

#[test]
fn every_fault_changes_tokens_and_only_its_guard_notices() {
    let kept = kept();
    for name in break_its::all().into_iter().map(|break_it| break_it.name) {
        let report = report(&kept[name]);
        assert_eq!(report["name"], name);
        let quiet = QUIET.contains(&name);
        assert_eq!(report["first_difference"].is_null(), quiet, "{name}: do tokens change?");
        let right_logits = RIGHT_LOGITS.contains(&name);
        let same_logits = report["first_logit_difference"].is_null();
        assert_eq!(same_logits, right_logits, "{name}: do logits change?");
        let said = |check: &str, side: &str| {
            // What is not kept at all would look as if nothing had been said.
            let said = report[check].get(side);
            !said.unwrap_or_else(|| panic!("{name}: its report has no {check}.{side}")).is_null()
        };
        assert!(said("guard", "on_broken") && !said("guard", "on_clean"), "{name}: its guard");
        let weaker = said("weaker_test", "on_clean") || said("weaker_test", "on_broken");
        assert!(!weaker, "{name}: the weaker test is too weak to see it");
    }
}
