//! The evicted sink shows, is caught, and hides from the weaker test.

use gqa_mla::faults;
use naive_decode::break_it::{Bench, Check};

#[test]
fn the_evicted_sink_shows_and_is_caught() {
    let bench = Bench::embedded().unwrap();
    let report = (faults::EVICTED_SINK.run)(&bench).unwrap();
    assert!(report.first_difference.is_some(), "no token changes");
    assert!(report.first_logit_difference.is_some());
    assert_eq!(report.guard.on_clean, None);
    let said = report.guard.on_broken.unwrap();
    assert!(said.contains("layer 0, head 0") && said.contains("the sinks"), "{said}");
    let Some(Check { on_clean, on_broken, .. }) = report.weaker_test else {
        panic!("there is one")
    };
    assert_eq!((on_clean, on_broken), (None, None));
    assert!(faults::all().iter().any(|fault| fault.name == report.name));
}
