//! Every break-it of this rung: the fault does something, the guard sees it, the weaker test does
//! not, and the report is the one that the book shows.
//!
//! After new weights: `INSTA_UPDATE=always cargo test -p paged-cache --test break_its`

use naive_decode::break_it::{Bench, print};
use paged_cache::faults;

#[test]
fn each_fault_shows_and_is_caught() {
    let bench = Bench::embedded().unwrap();
    for about in faults::all() {
        let report = (about.run)(&bench).unwrap();
        let name = report.name;
        assert_eq!(name, about.name);
        report.check().unwrap();
        print(&report);
        insta::assert_snapshot!(name, report.to_json());
    }
}
