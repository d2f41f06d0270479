//! Every break-it of this rung: the fault does something, the guard sees it, the weaker test does
//! not, and the report is the one that the book shows.
//!
//! After new weights: `INSTA_UPDATE=always cargo test -p kv-cache --test break_its`

use kv_cache::faults;
use naive_decode::break_it::{Bench, Recall, print};

#[test]
fn each_fault_shows_and_is_caught() {
    let bench = Bench::embedded().unwrap();
    for about in faults::all() {
        let report = (about.run)(&bench).unwrap();
        let name = report.name;
        assert_eq!(name, about.name);
        report.check().unwrap();
        print(&report);
        if let Some(Recall { hit, others, .. }) = &report.recall {
            assert!(4 * hit.broken <= hit.clean, "{name}: the fact that was hit is still known");
            assert!(10 * others.broken >= 9 * others.clean, "{name}: other facts are gone as well");
        }
        insta::assert_snapshot!(name, report.to_json());
    }
}
