//! What holds whatever the parameters.

use super::{distribution, plain};
use naive_decode::{Sampler, Sampling, argmax};
use proptest::prelude::*;

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
    fn the_likeliest_is_the_first_of_the_highest(
        scores in proptest::collection::vec(-3i8..3, 1..80),
    ) {
        let scores: Vec<f32> = scores.into_iter().map(f32::from).collect();
        let higher = |best: usize, at: usize| if scores[at] > scores[best] { at } else { best };
        let expected = (0..scores.len()).fold(0, higher);
        prop_assert_eq!(argmax(&scores).unwrap(), expected as u32);
    }

    #[test]
    fn certain_draws_need_no_distribution(
        sampling in any_sampling(),
        logits in proptest::collection::vec(-30.0f32..30.0, 1..50),
        picks in proptest::collection::vec(0usize..1000, 0..30),
    ) {
        let context: Vec<u32> = picks.iter().map(|p| (p % logits.len()) as u32).collect();
        let mut sampler = Sampler::new(Sampling { temperature: 0.0, ..sampling }).unwrap();
        let mut by_distribution = sampler.clone();
        let certain = by_distribution.distribution(&logits, &context).unwrap();
        let drawn = by_distribution.draw(&certain);
        prop_assert_eq!(sampler.sample(&logits, &context).unwrap(), drawn);
        prop_assert_eq!(sampler.uniform(), by_distribution.uniform());
    }

    #[test]
    fn penalties_are_what_counting_each_token_by_itself_gives(
        sampling in any_sampling(),
        logits in proptest::collection::vec(-30.0f32..30.0, 1..50),
        picks in proptest::collection::vec(0usize..1000, 0..30),
        prompt_length in 0usize..30,
    ) {
        let context: Vec<u32> = picks.iter().map(|p| (p % logits.len()) as u32).collect();
        let Sampling { repetition_penalty, presence_penalty, frequency_penalty, .. } = sampling;
        let only_penalties =
            Sampling { repetition_penalty, presence_penalty, frequency_penalty, ..plain() };
        let answer = &context[prompt_length.min(context.len())..];
        let penalised = |(token, &logit): (u32, &f32)| {
            let count = answer.iter().filter(|&&other| other == token).count();
            let score = match context.contains(&token) {
                false => return logit,
                true if logit > 0.0 => logit / repetition_penalty,
                true => logit * repetition_penalty,
            };
            score - if count > 0 { presence_penalty + frequency_penalty * count as f32 } else { 0.0 }
        };
        let expected: Vec<f32> = (0..).zip(&logits).map(penalised).collect();
        let sampler = Sampler::new(only_penalties).unwrap().with_prompt_length(prompt_length);
        let found = sampler.distribution(&logits, &context).unwrap();
        prop_assert_eq!(found, distribution(&plain(), &expected, &[]));
    }

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
