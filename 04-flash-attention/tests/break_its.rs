//! Every break-it of this rung: the fault does something, the guard sees it, the weaker test does
//! not, and the report is the one that the book shows.
//!
//! After new weights: `INSTA_UPDATE=always cargo test -p flash-attention --test break_its`

use flash_attention::faults;
use naive_decode::break_it::{Bench, Check};

#[test]
fn each_fault_shows_and_is_caught() {
    let bench = Bench::embedded().unwrap();
    for about in faults::all() {
        let report = (about.run)(&bench).unwrap();
        let name = report.name;
        assert_eq!(name, about.name);
        assert!(report.first_logit_difference.is_some(), "{name} changes nothing");
        assert_eq!(report.guard.on_clean, None, "{name}: the guard refuses correct code");
        assert!(report.guard.on_broken.is_some(), "{name}: the guard does not see it");
        if let Some(Check { on_clean, on_broken, .. }) = &report.weaker_test {
            assert_eq!((on_clean, on_broken), (&None, &None), "{name}: the weaker test");
        }
        insta::assert_snapshot!(name, report.to_json());
    }
}
