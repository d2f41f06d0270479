//! The sampler against exact distributions: worked out by hand, computed by a slow reference, and
//! compared with tens of thousands of draws.

use naive_decode::{Sampler, Sampling, argmax};
use proptest::prelude::*;

/// Sampling at temperature 1 with everything else off.
fn plain() -> Sampling {
    Sampling { temperature: 1.0, ..Sampling::default() }
}

fn distribution(sampling: &Sampling, logits: &[f32], context: &[u32]) -> Vec<f32> {
    Sampler::new(sampling.clone()).unwrap().distribution(logits, context).unwrap()
}

/// Logits whose softmax is exactly what is given, as far as f32 goes.
fn logits_of(probabilities: &[f64]) -> Vec<f32> {
    probabilities.iter().map(|p| p.ln() as f32).collect()
}

fn assert_close(found: &[f32], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (id, (&f, &e)) in found.iter().zip(expected).enumerate() {
        assert!((f64::from(f) - e).abs() < 1e-6, "token {id}: {found:?}, expected {expected:?}");
        assert_eq!(f == 0.0, e == 0.0, "token {id}: {found:?}, expected {expected:?}");
    }
}

// --- Each step, by hand -----------------------------------------------------------------------

#[test]
fn the_default_is_greedy_and_ties_go_to_the_lowest_id() {
    let mut sampler = Sampler::new(Sampling::default()).unwrap();
    assert_eq!(sampler.distribution(&[1.0, 3.0, 3.0, 2.0], &[]).unwrap(), [0.0, 1.0, 0.0, 0.0]);
    for _ in 0..100 {
        assert_eq!(sampler.sample(&[1.0, 3.0, 3.0, 2.0], &[]).unwrap(), 1);
    }
    assert_eq!(argmax(&[-0.0, 0.0]).unwrap(), 0);
}

#[test]
fn temperature_is_a_power_of_the_probabilities() {
    let logits = logits_of(&[0.6, 0.3, 0.1]);
    assert_close(&distribution(&plain(), &logits, &[]), &[0.6, 0.3, 0.1]);
    // T = 1/2 squares them: 0.36, 0.09, 0.01.
    let cold = Sampling { temperature: 0.5, ..plain() };
    assert_close(&distribution(&cold, &logits, &[]), &[36.0 / 46.0, 9.0 / 46.0, 1.0 / 46.0]);
    // So small a temperature that score / temperature would overflow: greedy, not NaN.
    let coldest = Sampling { temperature: 1e-44, ..plain() };
    assert_close(&distribution(&coldest, &[3e38, 2.9e38, -3e38], &[]), &[1.0, 0.0, 0.0]);
}

#[test]
fn top_k_keeps_k_and_breaks_ties_by_id() {
    let top_2 = Sampling { top_k: Some(2), ..plain() };
    let logits = logits_of(&[0.1, 0.6, 0.3]);
    assert_close(&distribution(&top_2, &logits, &[]), &[0.0, 6.0 / 9.0, 3.0 / 9.0]);
    assert_close(&distribution(&top_2, &[0.0; 4], &[]), &[0.5, 0.5, 0.0, 0.0]);
    let more_than_there_are = Sampling { top_k: Some(9), ..plain() };
    assert_close(&distribution(&more_than_there_are, &logits, &[]), &[0.1, 0.6, 0.3]);
}

#[test]
fn top_p_keeps_the_fewest_that_reach_p() {
    let logits = logits_of(&[0.1, 0.5, 0.4]);
    let top = |p| Sampling { top_p: p, ..plain() };
    assert_close(&distribution(&top(0.45), &logits, &[]), &[0.0, 1.0, 0.0]);
    assert_close(&distribution(&top(0.8), &logits, &[]), &[0.0, 5.0 / 9.0, 4.0 / 9.0]);
    assert_close(&distribution(&top(0.95), &logits, &[]), &[0.1, 0.5, 0.4]);
    assert_close(&distribution(&top(1.0), &logits, &[]), &[0.1, 0.5, 0.4]);
    // Four exact quarters: two reach 0.5, so the third, though it starts at 0.5, is out.
    assert_close(&distribution(&top(0.5), &[0.0; 4], &[]), &[0.5, 0.5, 0.0, 0.0]);
    // Never fewer than one.
    assert_close(&distribution(&top(1e-30), &logits, &[]), &[0.0, 1.0, 0.0]);
}

#[test]
fn min_p_is_relative_to_the_most_probable() {
    let logits = logits_of(&[0.5, 0.3, 0.15, 0.05]);
    let min = |p| Sampling { min_p: p, ..plain() };
    // The bar is 0.4 x 0.5 = 0.2; as an absolute bar, 0.4 would leave the first alone.
    assert_close(&distribution(&min(0.4), &logits, &[]), &[5.0 / 8.0, 3.0 / 8.0, 0.0, 0.0]);
    // Exactly at the bar stays.
    assert_close(&distribution(&min(1.0), &[0.0, 0.0], &[]), &[0.5, 0.5]);
}

#[test]
fn repetition_penalty_divides_positive_scores_and_multiplies_negative_ones() {
    let sampling = Sampling { repetition_penalty: 2.0, ..plain() };
    let sampler = Sampler::new(sampling).unwrap().with_prompt_length(2);
    // Tokens 0 and 1 stand in the prompt, 0 twice more in the answer: penalised once all the same.
    let found = sampler.distribution(&[2.0, -1.0, 0.5], &[0, 1, 0, 0]).unwrap();
    let weights = [1f64.exp(), (-2f64).exp(), 0.5f64.exp()];
    let total: f64 = weights.iter().sum();
    assert_close(&found, &weights.map(|w| w / total));
}

#[test]
fn presence_counts_once_frequency_each_time_and_neither_counts_the_prompt() {
    let sampling = Sampling { presence_penalty: 0.5, frequency_penalty: 0.25, ..plain() };
    let context = [2, 2, 0, 1, 1, 1];
    let expect = |scores: [f64; 3], sampler: Sampler| {
        let weights = scores.map(f64::exp);
        let total: f64 = weights.iter().sum();
        let found = sampler.distribution(&[1.0, 1.0, 1.0], &context).unwrap();
        assert_close(&found, &weights.map(|w| w / total));
    };
    let sampler = Sampler::new(sampling).unwrap();
    // Prompt of two tokens: 0 was generated once, 1 three times, 2 never.
    expect([1.0 - 0.75, 1.0 - 1.25, 1.0], sampler.clone().with_prompt_length(2));
    // No prompt: 2 was generated twice.
    expect([1.0 - 0.75, 1.0 - 1.25, 1.0 - 1.0], sampler);
}

#[test]
fn logit_bias_adds_and_forbids() {
    let logits = logits_of(&[0.5, 0.25, 0.25]);
    let doubled = Sampling { logit_bias: vec![(1, 2f32.ln())], ..plain() };
    assert_close(&distribution(&doubled, &logits, &[]), &[0.4, 0.4, 0.2]);
    let forbidden = vec![(0, f32::NEG_INFINITY)];
    let sampling = Sampling { logit_bias: forbidden.clone(), ..plain() };
    assert_close(&distribution(&sampling, &logits, &[]), &[0.0, 0.5, 0.5]);
    let greedy = Sampling { logit_bias: forbidden, ..Sampling::default() };
    assert_close(&distribution(&greedy, &logits, &[]), &[0.0, 1.0, 0.0]);
}

// --- Order of the steps: each pair in a case where the other order gives another answer ---------

#[test]
fn bias_comes_before_repetition_penalty() {
    // (1 + 2) / 3 = 1; the other way round 1/3 + 2.
    let sampling =
        Sampling { logit_bias: vec![(0, 2.0)], repetition_penalty: 3.0, ..Sampling::default() };
    assert_eq!(distribution(&sampling, &[1.0, 1.5], &[0]), [0.0, 1.0]);
}

#[test]
fn repetition_penalty_comes_before_presence_penalty() {
    // 3/2 - 1 = 0.5 loses to 0.75; (3 - 1)/2 = 1 would win.
    let sampling =
        Sampling { repetition_penalty: 2.0, presence_penalty: 1.0, ..Sampling::default() };
    assert_eq!(distribution(&sampling, &[3.0, 0.75], &[0]), [0.0, 1.0]);
}

#[test]
fn penalties_come_before_temperature() {
    // The penalty halves the odds of token 0; after a temperature of 1/2 it would take only as
    // much as half of that in logits.
    let sampling = Sampling { temperature: 0.5, presence_penalty: 2f32.ln(), ..plain() };
    assert_close(&distribution(&sampling, &[0.0, 0.0], &[0]), &[0.2, 0.8]);
}

#[test]
fn penalties_come_before_top_k() {
    let sampling = Sampling { top_k: Some(1), presence_penalty: 1.0, ..plain() };
    assert_eq!(distribution(&sampling, &[1.0, 0.5], &[0]), [0.0, 1.0]);
}

#[test]
fn temperature_comes_before_top_p() {
    // Squared: 0.36, 0.16, 0.04 of 0.56 = 64 %, 29 %, 7 %, so two reach 0.9. Unsquared: three.
    let sampling = Sampling { temperature: 0.5, top_p: 0.9, ..plain() };
    let logits = logits_of(&[0.6, 0.4 / 1.5, 0.2 / 1.5]);
    let found = distribution(&sampling, &logits, &[]);
    assert_eq!(found.iter().map(|p| *p > 0.0).collect::<Vec<_>>(), [true, true, false]);
}

#[test]
fn temperature_comes_before_min_p() {
    // 0.3 / 0.6 = 0.5 is over the bar of 0.4; squared, 0.25 is under it.
    let sampling = Sampling { temperature: 0.5, min_p: 0.4, ..plain() };
    assert_close(&distribution(&sampling, &logits_of(&[0.6, 0.3, 0.1]), &[]), &[1.0, 0.0, 0.0]);
}

#[test]
fn top_k_comes_before_top_p_which_counts_what_is_left() {
    // After top-2: 4/7 and 3/7, so 0.5 needs one token. Of the whole, it would need two.
    let sampling = Sampling { top_k: Some(2), top_p: 0.5, ..plain() };
    let logits = logits_of(&[0.4, 0.3, 0.2, 0.1]);
    assert_close(&distribution(&sampling, &logits, &[]), &[1.0, 0.0, 0.0, 0.0]);
}

#[test]
fn top_p_comes_before_min_p() {
    let logits = logits_of(&[0.4, 0.3, 0.1, 0.1, 0.1]);
    let sampling = Sampling { top_p: 0.55, min_p: 0.5, ..plain() };
    // 0.55 of the whole needs 0.4 + 0.3. Of what min-p would leave, 4/7 and 3/7, the first will do.
    assert_close(&distribution(&sampling, &logits, &[]), &[4.0 / 7.0, 3.0 / 7.0, 0.0, 0.0, 0.0]);
}

// --- Draws against a slow reference ------------------------------------------------------------

/// The whole pipeline again in f64, from the definitions, one token at a time.
fn reference(sampling: &Sampling, logits: &[f32], context: &[u32], prompt: usize) -> Vec<f64> {
    let mut scores: Vec<f64> = logits.iter().map(|&l| f64::from(l)).collect();
    for (token, score) in scores.iter_mut().enumerate() {
        let is_this = |t: &&u32| **t == token as u32;
        for (_, bias) in sampling.logit_bias.iter().filter(|(t, _)| *t == token as u32) {
            *score += f64::from(*bias);
        }
        if context.iter().any(|t| t == &(token as u32)) {
            let penalty = f64::from(sampling.repetition_penalty);
            *score *= if *score < 0.0 { penalty } else { 1.0 / penalty };
        }
        let times = context[prompt..].iter().filter(is_this).count() as f64;
        *score -= f64::from(sampling.presence_penalty) * times.min(1.0);
        *score -= f64::from(sampling.frequency_penalty) * times;
    }
    let mut p: Vec<f64> =
        scores.iter().map(|s| (s / f64::from(sampling.temperature)).exp()).collect();
    let rank_of = |p: &[f64], i: usize| p.iter().filter(|q| **q > p[i]).count();
    let rescale = |p: &mut Vec<f64>| {
        let total: f64 = p.iter().sum();
        p.iter_mut().for_each(|v| *v /= total);
    };
    rescale(&mut p);
    if let Some(k) = sampling.top_k {
        p = (0..p.len()).map(|i| if rank_of(&p, i) < k { p[i] } else { 0.0 }).collect();
        rescale(&mut p);
    }
    let before = |i: usize| p.iter().filter(|q| **q > p[i]).sum::<f64>();
    p = (0..p.len())
        .map(|i| if before(i) < f64::from(sampling.top_p) { p[i] } else { 0.0 })
        .collect();
    let largest = p.iter().copied().fold(0.0, f64::max);
    p.iter_mut().filter(|v| **v < f64::from(sampling.min_p) * largest).for_each(|v| *v = 0.0);
    rescale(&mut p);
    p
}

/// The probability that a chi-square variable with `2a` degrees of freedom exceeds `2x`: the
/// regularised upper incomplete gamma function Q(a, x).
fn upper_gamma(a: f64, x: f64) -> f64 {
    let scale = (a * x.ln() - x - libm::lgamma(a)).exp();
    if x < a + 1.0 {
        let (mut term, mut sum) = (1.0 / a, 1.0 / a);
        for n in 1..10_000 {
            term *= x / (a + f64::from(n));
            sum += term;
        }
        return 1.0 - sum * scale;
    }
    // Lentz's continued fraction.
    let mut b = x + 1.0 - a;
    let (mut c, mut d) = (1e300, 1.0 / b);
    let mut fraction = d;
    for n in 1..10_000 {
        let n = f64::from(n);
        let step = n * (a - n);
        b += 2.0;
        d = 1.0 / (step * d + b);
        c = b + step / c;
        fraction *= c * d;
    }
    fraction * scale
}

/// How probable counts at least this far from `expected` probabilities are, if those are true.
fn chi_square_p_value(counts: &[u32], expected: &[f64]) -> f64 {
    let draws = f64::from(counts.iter().sum::<u32>());
    let (mut statistic, mut cells) = (0.0, 0.0);
    let mut rare = (0.0, 0.0);
    for (&count, &p) in counts.iter().zip(expected) {
        if p == 0.0 && count > 0 {
            return 0.0; // impossible, and it happened
        }
        // The chi-square approximation wants at least five expected in a cell, so pool the rest.
        if p * draws < 5.0 {
            rare = (rare.0 + f64::from(count), rare.1 + p * draws);
        } else {
            statistic += (f64::from(count) - p * draws).powi(2) / (p * draws);
            cells += 1.0;
        }
    }
    if rare.1 >= 5.0 {
        statistic += (rare.0 - rare.1).powi(2) / rare.1;
        cells += 1.0;
    }
    assert!(cells > 1.0, "one cell can never be surprising");
    upper_gamma((cells - 1.0) / 2.0, statistic / 2.0)
}

#[test]
fn p_values_are_those_of_the_tables() {
    for (statistic, degrees, p) in
        [(3.841, 1.0, 0.05), (18.307, 10.0, 0.05), (29.588, 10.0, 0.001), (30.0, 40.0, 0.8752)]
    {
        let found: f64 = upper_gamma(degrees / 2.0, statistic / 2.0);
        assert!((found / p - 1.0).abs() < 2e-3, "{statistic} with {degrees}: {found}, table {p}");
    }
}

const DRAWS: usize = 40_000;
const PROMPT: usize = 3;
const CONTEXT: [u32; 12] = [4, 7, 0, 1, 1, 1, 2, 9, 9, 30, 12, 1];

/// Forty logits from about -3 to 4, in no order.
fn uneven_logits() -> Vec<f32> {
    (0..40).map(|i| 3.5 * (i as f32 * 2.399).sin() + (i % 5) as f32 * 0.2).collect()
}

/// Every mode, with a near miss: what a sampler would do that got this one step wrong.
fn modes() -> Vec<(&'static str, Sampling, Sampling)> {
    let s = plain;
    let all = Sampling {
        temperature: 0.9,
        top_k: Some(25),
        top_p: 0.97,
        min_p: 0.01,
        repetition_penalty: 1.1,
        presence_penalty: 0.2,
        frequency_penalty: 0.1,
        logit_bias: vec![(3, 1.0), (8, -1.0)],
        seed: 0,
    };
    vec![
        ("temperature 1", s(), Sampling { temperature: 1.1, ..s() }),
        ("temperature 0.7", Sampling { temperature: 0.7, ..s() }, s()),
        ("temperature 1.8", Sampling { temperature: 1.8, ..s() }, s()),
        ("top-k", Sampling { top_k: Some(8), ..s() }, Sampling { top_k: Some(9), ..s() }),
        ("top-p", Sampling { top_p: 0.8, ..s() }, Sampling { top_p: 0.85, ..s() }),
        ("min-p", Sampling { min_p: 0.1, ..s() }, Sampling { min_p: 0.05, ..s() }),
        ("repetition", Sampling { repetition_penalty: 1.3, ..s() }, s()),
        ("presence", Sampling { presence_penalty: 0.8, ..s() }, s()),
        (
            "frequency",
            Sampling { frequency_penalty: 0.5, ..s() },
            Sampling { presence_penalty: 0.5, ..s() },
        ),
        ("logit bias", Sampling { logit_bias: vec![(3, 1.5), (11, -2.0)], ..s() }, s()),
        ("all at once", all.clone(), Sampling { presence_penalty: 0.0, ..all }),
    ]
}

#[test]
fn draws_follow_the_exact_distribution_in_every_mode() {
    let logits = uneven_logits();
    for (seed, (name, sampling, near_miss)) in modes().into_iter().enumerate() {
        let exact = reference(&sampling, &logits, &CONTEXT, PROMPT);
        let seeded = Sampling { seed: seed as u64, ..sampling };
        let mut sampler = Sampler::new(seeded).unwrap().with_prompt_length(PROMPT);
        assert_close(&sampler.distribution(&logits, &CONTEXT).unwrap(), &exact);
        let mut counts = vec![0; logits.len()];
        for _ in 0..DRAWS {
            counts[sampler.sample(&logits, &CONTEXT).unwrap() as usize] += 1;
        }
        // Eleven modes: a right sampler fails one of them at 0.001 with probability 1 %, and the
        // seeds are fixed, so it failed then or never.
        let p = chi_square_p_value(&counts, &exact);
        assert!(p > 1e-3, "{name}: p = {p:e}");
        // And the test is able to tell: the near miss is refused beyond doubt.
        let wrong = reference(&near_miss, &logits, &CONTEXT, PROMPT);
        let p = chi_square_p_value(&counts, &wrong);
        assert!(p < 1e-9, "{name}: these draws would also pass for {near_miss:?}, p = {p:e}");
    }
}

#[test]
fn neighbouring_draws_and_neighbouring_seeds_are_independent() {
    let logits = logits_of(&[0.5, 0.3, 0.2]);
    let joint: Vec<f64> = (0..9).map(|i| [0.5, 0.3, 0.2][i / 3] * [0.5, 0.3, 0.2][i % 3]).collect();
    let first = |seed| {
        let mut sampler = Sampler::new(Sampling { seed, ..plain() }).unwrap();
        (sampler.sample(&logits, &[]).unwrap(), sampler.sample(&logits, &[]).unwrap())
    };
    let (mut in_sequence, mut across_seeds) = ([0u32; 9], [0u32; 9]);
    for seed in 0..DRAWS as u64 {
        let (a, b) = first(2 * seed);
        in_sequence[(3 * a + b) as usize] += 1;
        across_seeds[(3 * a + first(2 * seed + 1).0) as usize] += 1;
    }
    assert!(chi_square_p_value(&in_sequence, &joint) > 1e-3);
    assert!(chi_square_p_value(&across_seeds, &joint) > 1e-3);
}

#[test]
fn a_seed_gives_the_same_tokens_everywhere() {
    // Computed apart, from the definition of ChaCha (Bernstein 2008) with 8 rounds and the key
    // 1, 0, 0, …: another machine, or a later version of a dependency, must agree.
    let seeded = |seed| Sampler::new(Sampling { seed, ..plain() }).unwrap();
    let mut sampler = seeded(1);
    for uniform in [3_436_151_158_611_243u64, 2_656_469_188_983_456, 7_190_035_062_109_342] {
        assert_eq!(sampler.uniform(), uniform as f64 / 2f64.powi(53));
    }
    let logits: Vec<f32> = (0..40).map(|i| (i * 7 % 11) as f32 * 0.5).collect();
    let tokens = |mut sampler: Sampler| -> Vec<u32> {
        (0..12).map(|_| sampler.sample(&logits, &[]).unwrap()).collect()
    };
    assert_eq!(tokens(seeded(1)), [14, 14, 34, 36, 36, 4, 28, 32, 15, 17, 36, 8]);
    assert_ne!(tokens(seeded(2)), tokens(seeded(1)));
}

#[test]
fn one_draw_costs_one_random_number_whatever_the_mode() {
    for (name, sampling, _) in modes() {
        let mut sampled = Sampler::new(Sampling { seed: 5, ..sampling }).unwrap();
        let mut counted = sampled.clone();
        for _ in 0..3 {
            sampled.sample(&uneven_logits(), &CONTEXT).unwrap();
            counted.uniform();
        }
        assert_eq!(sampled.uniform(), counted.uniform(), "{name}");
    }
}

// --- Invariants --------------------------------------------------------------------------------

fn any_sampling() -> impl Strategy<Value = Sampling> {
    (
        0.05f32..3.0,
        proptest::option::of(1usize..60),
        0.01f32..=1.0,
        0.0f32..=1.0,
        (0.5f32..2.0, -2.0f32..2.0, -2.0f32..2.0),
        any::<u64>(),
    )
        .prop_map(|(temperature, top_k, top_p, min_p, penalties, seed)| Sampling {
            temperature,
            top_k,
            top_p,
            min_p,
            repetition_penalty: penalties.0,
            presence_penalty: penalties.1,
            frequency_penalty: penalties.2,
            logit_bias: vec![(0, -1.0)],
            seed,
        })
}

proptest! {
    #[test]
    fn whatever_the_parameters(
        sampling in any_sampling(),
        logits in proptest::collection::vec(-30.0f32..30.0, 1..50),
        picks in proptest::collection::vec(0usize..1000, 0..30),
    ) {
        let context: Vec<u32> = picks.iter().map(|p| (p % logits.len()) as u32).collect();
        let mut sampler = Sampler::new(sampling.clone()).unwrap();
        let p = sampler.distribution(&logits, &context).unwrap();

        prop_assert!(p.iter().all(|v| (0.0..=1.0).contains(v)));
        prop_assert!((p.iter().map(|v| f64::from(*v)).sum::<f64>() - 1.0).abs() < 1e-6);

        // The token that greedy decoding would take is always still there, and is the likeliest.
        let greedy = Sampler::new(Sampling { temperature: 0.0, ..sampling.clone() }).unwrap();
        let likeliest = argmax(&greedy.distribution(&logits, &context).unwrap()).unwrap();
        prop_assert!(p.iter().all(|v| *v <= p[likeliest as usize]));

        // No filter leaves more than it may, and what is left keeps its proportions.
        let support = p.iter().filter(|v| **v > 0.0).count();
        prop_assert!(sampling.top_k.is_none_or(|k| support <= k));
        let unfiltered = Sampling { top_k: None, top_p: 1.0, min_p: 0.0, ..sampling.clone() };
        let all = distribution(&unfiltered, &logits, &context);
        let kept = |keep: bool| {
            all.iter().zip(&p).filter(move |(_, v)| (**v > 0.0) == keep).map(|(a, _)| *a)
        };
        let least_kept = kept(true).fold(1.0, f32::min);
        prop_assert!(kept(false).all(|a| a <= least_kept));
        let mass: f32 = kept(true).sum();
        for (a, v) in all.iter().zip(&p).filter(|(_, v)| **v > 0.0) {
            prop_assert!((a / mass - v).abs() < 1e-5);
        }
        prop_assert!(least_kept >= sampling.min_p * all[likeliest as usize] * 0.999);
        if support > 1 && sampling.top_k.is_none() {
            prop_assert!(mass - least_kept < sampling.top_p + 1e-5, "the least was not needed");
        }

        let token = sampler.sample(&logits, &context).unwrap();
        prop_assert!(p[token as usize] > 0.0);
    }
}

// --- Bad input ---------------------------------------------------------------------------------

#[test]
fn parameters_out_of_range_are_named() {
    let nan = f32::NAN;
    let cases = [
        (Sampling { temperature: -1.0, ..plain() }, "temperature is -1"),
        (Sampling { temperature: nan, ..plain() }, "temperature is NaN"),
        (Sampling { temperature: f32::INFINITY, ..plain() }, "temperature is inf"),
        (Sampling { top_k: Some(0), ..plain() }, "top_k is 0"),
        (Sampling { top_p: 0.0, ..plain() }, "top_p is 0"),
        (Sampling { top_p: 1.5, ..plain() }, "top_p is 1.5"),
        (Sampling { top_p: nan, ..plain() }, "top_p is NaN"),
        (Sampling { min_p: -0.1, ..plain() }, "min_p is -0.1"),
        (Sampling { min_p: nan, ..plain() }, "min_p is NaN"),
        (Sampling { repetition_penalty: 0.0, ..plain() }, "repetition_penalty is 0"),
        (Sampling { repetition_penalty: nan, ..plain() }, "repetition_penalty is NaN"),
        (Sampling { presence_penalty: nan, ..plain() }, "presence_penalty is NaN"),
        (Sampling { frequency_penalty: f32::INFINITY, ..plain() }, "frequency_penalty is inf"),
        (Sampling { logit_bias: vec![(7, nan)], ..plain() }, "logit_bias of token 7 is NaN"),
    ];
    for (sampling, begins) in cases {
        let message = Sampler::new(sampling).unwrap_err().to_string();
        assert!(message.starts_with(begins), "{message}");
        assert!(message.contains("expected "), "{message}");
    }
}

#[test]
fn logits_that_leave_no_choice_are_refused_not_a_panic() {
    let refuse = |sampling: &Sampling, logits: &[f32], context: &[u32], begins: &str| {
        let mut sampler = Sampler::new(sampling.clone()).unwrap();
        let message = sampler.sample(logits, context).unwrap_err().to_string();
        assert!(message.starts_with(begins), "{message}");
    };
    let penalised = Sampling { presence_penalty: 1.0, ..plain() };
    for sampling in [Sampling::default(), plain(), penalised.clone()] {
        refuse(&sampling, &[1.0, f32::NAN, 2.0], &[], "score of token 1 is NaN");
        refuse(&sampling, &[1.0, 0.0, f32::INFINITY], &[], "score of token 2 is inf");
        refuse(&sampling, &[f32::NEG_INFINITY; 3], &[], "number of tokens that may come next is 0");
        refuse(&sampling, &[], &[], "number of tokens that may come next is 0");
    }
    refuse(&penalised, &[1.0, 2.0], &[0, 5], "a token in the context is 5");
    let biased = Sampling { logit_bias: vec![(9, 1.0)], ..plain() };
    refuse(&biased, &[1.0, 2.0], &[], "a token in the logit_bias is 9");
}
