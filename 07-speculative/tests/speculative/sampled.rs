//! Sampled text has the target's distribution, over several tokens together.

use naive_decode::{Sampler, Sampling};
use speculative::accept;
use speculative::faults::resample_from_target;
use speculative::small_world::{BOUND, DRAFTS, distance, write};

fn samplings() -> Vec<Sampling> {
    let base = Sampling { temperature: 1.0, seed: 5, ..Sampling::default() };
    vec![
        base.clone(),
        Sampling { temperature: 0.5, ..base.clone() },
        Sampling { temperature: 2.0, top_k: Some(3), ..base.clone() },
        Sampling { top_p: 0.8, ..base.clone() },
        Sampling { presence_penalty: 0.8, repetition_penalty: 1.4, ..base },
    ]
}

#[test]
fn joint_distributions_are_the_targets() {
    for sampling in samplings() {
        for draft in DRAFTS {
            let found = distance(accept, draft, &sampling).unwrap();
            assert!(found < BOUND, "{found}: {draft:?}, {sampling:?}");
        }
    }
}

#[test]
fn without_the_residual_the_distribution_is_another() {
    let sampling = Sampling { temperature: 1.0, seed: 5, ..Sampling::default() };
    for draft in DRAFTS {
        let found = distance(resample_from_target, draft, &sampling).unwrap();
        assert!(found > 5.0 * BOUND, "{found}: {draft:?}");
    }
    // And greedy text shows nothing of it.
    let greedy = Sampling::default();
    for draft in DRAFTS {
        let text = |rule| write(rule, draft, &mut Sampler::new(greedy.clone()).unwrap()).unwrap();
        assert_eq!(text(resample_from_target), text(accept));
    }
}
