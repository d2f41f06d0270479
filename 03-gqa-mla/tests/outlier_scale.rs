//! One INT8 scale for a tensor with an outlier channel: it shows, it is caught, the weaker test is blind.

use gqa_mla::faults::{self, OUTLIER_SCALE, with_outlier};
use gqa_mla::quality::{Judge, Material, full};
use gqa_mla::quantized::methods;
use naive_decode::break_it::{Bench, Check};
use naive_decode::{Decoder, NaiveDecoder};
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
fn explore() {
    let bench = Bench::embedded().unwrap();
    for factor in [1.0, 8.0, 32.0, 64.0, 256.0] {
        let model = with_outlier(factor).unwrap();
        let mut material = Material::embedded(&bench.tokenizer).unwrap();
        material.texts.truncate(1);
        material.quizzes.truncate(3);
        let judge = Judge::new(&model, material).unwrap();
        for m in methods() {
            let q = judge.judge(&m.make).unwrap();
            println!(
                "{factor} {}: kl {:.4} ppl {:.3} same {:.3} recall {:.2}",
                m.name,
                q.divergence(),
                q.perplexity(),
                q.agreement(),
                q.recall()
            );
        }
    }
    let _ = full;
}
