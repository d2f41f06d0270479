//! One INT8 scale for a tensor with an outlier channel: it shows, it is caught, the weaker test is blind.

use gqa_mla::faults::{self, OUTLIER_SCALE, with_outlier};
use gqa_mla::quantized::methods;
use naive_decode::break_it::{Bench, Check};
use naive_decode::{Decoder, Model, NaiveDecoder, Pass, Span, Want};
use std::sync::Arc;

#[test]
fn the_fault_shows_and_is_caught() {
    let bench = Bench::embedded().unwrap();
    assert!(faults::all().iter().any(|about| about.name == OUTLIER_SCALE.name));
    let report = (OUTLIER_SCALE.run)(&bench).unwrap();
    assert!(report.first_difference.is_some(), "no token changes");
    assert_eq!(report.guard.on_clean, None, "the guard refuses correct code");
    assert!(report.guard.on_broken.is_some(), "the guard does not see it");
    let Some(Check { on_clean, on_broken, .. }) = &report.weaker_test else {
        panic!("a weaker test")
    };
    assert_eq!((on_clean, on_broken), (&None, &None), "the weaker test");
}

#[test]
fn an_outlier_changes_no_bit_in_full_precision() {
    let bench = Bench::embedded().unwrap();
    let expected = bench.naive_logits(&bench.prompt).unwrap();
    let model = Arc::new(with_outlier(64.0).unwrap());
    assert_eq!(NaiveDecoder::new(model).feed(&bench.prompt).unwrap(), expected);
}

#[test]
fn ranges_by_channel_do_not_notice_an_outlier_at_all() {
    // Each key channel has a zero point and a scale of its own; both, and nothing else, grow with it.
    let bench = Bench::embedded().unwrap();
    let kivi = methods().into_iter().find(|method| method.name == "KIVI 2 bits").unwrap();
    let logits = |model: &Model| {
        let mut cache = (kivi.make)(model, model.context(), 1).unwrap();
        let pass = Pass::one(Span::new(0, 0, &bench.prompt, Want::All));
        model.forward(&pass, &mut *cache).unwrap()
    };
    assert!(bench.prompt.len() > 64, "more than a window");
    assert_eq!(logits(&with_outlier(64.0).unwrap()), logits(&bench.model));
}
