//! Sampled text has the target's distribution, over several tokens together.

use naive_decode::{
    Config, Decoder, LoadOptions, Model, NaiveDecoder, Request, Result, Sampler, Sampling,
};
use speculative::faults::resample_from_target;
use speculative::proposers::{Ahead, DraftModel};
use speculative::small_world::{BOUND, DRAFTS, LENGTH, chi_square, distance, write};
use speculative::{Depth, Proposer, Speculation, accept, with_room_for_trees};
use std::sync::Arc;

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

/// Two small layers and four tokens.
fn speaker(seed: u64) -> Arc<Model> {
    let json =
        br#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 8, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "intermediate_size": 8,
        "vocab_size": 4, "rms_norm_eps": 1e-5, "max_position_embeddings": 16,
        "tie_word_embeddings": false}"#;
    let config = Config::from_json("config.json", json).unwrap();
    Arc::new(Model::random(config, seed, LoadOptions::default()).unwrap())
}

/// The same of whole models: trees of a draft model, and chains drafted ahead, through cache, loop and rule. The chains are of one
/// token in texts that go on behind those that are counted: so the second of them has often been drafted ahead.
#[test]
fn texts_of_models_are_distributed_as_the_targets() {
    // These two seldom agree, so that second children are often tried.
    let (target, draft) = (speaker(1), speaker(5));
    let draft_model = || DraftModel::new(draft.clone(), &target).unwrap();
    let branching = || Ok(draft_model().with_widths(&[2, 2]).unwrap());
    let ahead = || Ahead::new(draft_model());
    let sampling = Sampling { temperature: 1.0, ..Sampling::default() };
    let alone = Sampler::new(sampling.clone()).unwrap();
    let law =
        |text: &[u32]| alone.distribution(&NaiveDecoder::new(target.clone()).feed(text)?, text);
    let written = |seed: u64| Sampler::new(Sampling { seed, ..sampling.clone() });
    let mut seed = 0;
    let trees = || {
        seed += 1;
        Ok(text_of(&target, branching()?, written(seed)?, Depth::Fixed(2), LENGTH)?.0)
    };
    let found = chi_square(4_000, trees, law).unwrap();
    assert!(found < BOUND, "{found}: trees");
    let mut used = 0;
    let chains = || {
        seed += 1;
        let (text, ahead) =
            text_of(&target, ahead()?, written(seed)?, Depth::Fixed(1), LENGTH + 2)?;
        used += ahead.count().used;
        Ok(text)
    };
    let found = chi_square(4_000, chains, law).unwrap();
    assert!(found < BOUND, "{found}: chains drafted ahead");
    assert!(used > 400, "{used} of 4,000 texts had drafts that were made ahead");
}

/// The first tokens of a text of so many, and what proposed for it.
fn text_of<P: Proposer>(
    target: &Arc<Model>,
    proposer: P,
    sampler: Sampler,
    depth: Depth,
    tokens: usize,
) -> Result<(Vec<u32>, P)> {
    let request = Request { prompt: vec![0], tokens, end_tokens: vec![] };
    let cache = with_room_for_trees(target, target.context())?;
    let mut text = Speculation::new(target.clone(), cache, proposer, sampler, depth, request)?;
    while text.advance()?.is_some() {}
    Ok((text.context()[1..=LENGTH].to_vec(), text.proposer))
}
