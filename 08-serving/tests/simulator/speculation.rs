//! Guesses in a run against rung 07's formulas.

use crate::world::{alike, deployment, mixed};
use serving::simulator::{Deployment, Speculation, simulate};
use speculative::expected::{speed_up, tokens_per_cycle};

/// One stream on a card that memory holds up, so that wider passes take no longer.
fn one_stream(speculation: Speculation) -> Deployment {
    Deployment { speculation, ..deployment("llama-3-8b", "h100", 1) }
}

#[test]
fn one_stream_is_as_much_faster_as_the_formula_says() {
    let plain = simulate(&one_stream(Speculation::NONE), &alike(1, 16, 20_000)).unwrap();
    for (draft, acceptance, cost) in [(4, 0.8, 0.0), (4, 0.8, 0.11), (4, 0.9, 0.0), (2, 0.6, 0.05)]
    {
        let speculation = Speculation { draft, acceptance, cost };
        let outcome = simulate(&one_stream(speculation), &alike(1, 16, 20_000)).unwrap();
        let per_pass = outcome.generated_tokens as f64 / outcome.passes as f64;
        let expected = tokens_per_cycle(acceptance, draft);
        assert!(
            (per_pass / expected - 1.0).abs() < 0.05,
            "{per_pass} and {expected} tokens a pass"
        );
        let faster = plain.seconds / outcome.seconds;
        let expected = speed_up(acceptance, draft, cost);
        assert!((faster / expected - 1.0).abs() < 0.05, "{faster} and {expected} times");
        assert_eq!(outcome.generated_tokens, plain.generated_tokens);
    }
}

#[test]
fn guesses_that_always_come_true_bring_one_more_than_there_are() {
    let speculation = Speculation { draft: 3, acceptance: 1.0, cost: 0.0 };
    let outcome = simulate(&one_stream(speculation), &alike(1, 16, 4001)).unwrap();
    assert_eq!(outcome.accepted_tokens, outcome.drafted_tokens);
    // The prompt's pass gives one token; then four at a time, but for the first few, while nothing is known of
    // how long wider passes take.
    assert!((1000..1040).contains(&outcome.passes), "{} passes", outcome.passes);
}

#[test]
fn guesses_that_never_come_true_cost_next_to_nothing() {
    let bad = Speculation { draft: 4, acceptance: 0.0, cost: 0.0 };
    let plain = simulate(&one_stream(Speculation::NONE), &mixed(20, None)).unwrap();
    let outcome = simulate(&one_stream(bad), &mixed(20, None)).unwrap();
    assert_eq!(outcome.accepted_tokens, 0);
    assert!(outcome.seconds < 1.02 * plain.seconds, "{} and {}", outcome.seconds, plain.seconds);
}

#[test]
fn the_formula_of_the_bounds_is_rung_07s() {
    let speculation = Speculation { draft: 4, acceptance: 0.8, cost: 0.11 };
    let bounds = one_stream(speculation).bounds(100, 100).unwrap();
    assert_eq!(bounds.tokens_per_step, tokens_per_cycle(0.8, 4));
    assert_eq!(bounds.speculative_speed_up, speed_up(0.8, 4, 0.11));
    let plain = one_stream(Speculation::NONE).bounds(100, 100).unwrap();
    let faster = bounds.decode[0].tokens_per_second / plain.decode[0].tokens_per_second;
    assert!((faster / speed_up(0.8, 4, 0.11) - 1.0).abs() < 0.01, "{faster}");
}
