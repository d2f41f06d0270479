//! Draws against a slow reference.

use super::chi_square::p_value;
use super::{assert_close, logits_of, plain};
use naive_decode::{Sampler, Sampling};

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
        let p = p_value(&counts, &exact);
        assert!(p > 1e-3, "{name}: p = {p:e}");
        // And the test is able to tell: the near miss is refused beyond doubt.
        let wrong = reference(&near_miss, &logits, &CONTEXT, PROMPT);
        let p = p_value(&counts, &wrong);
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
    assert!(p_value(&in_sequence, &joint) > 1e-3);
    assert!(p_value(&across_seeds, &joint) > 1e-3);
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
