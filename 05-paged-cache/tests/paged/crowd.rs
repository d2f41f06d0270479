//! Many requests through a pool that is too small for them.

use crate::world::Shelf;
use naive_decode::{
    Config, Decoder, Element, Error, Isa, LoadOptions, Model, Request, Result, Sampler, Sampling,
    Settings, generate,
};
use paged_cache::crowd::{Crowd, Outcome, Preemption};
use paged_cache::offload::{HostTier, Key, Tier};
use paged_cache::{Behind, Layout, PagedCache, Room};
use std::sync::Arc;

/// As small as a model can be and still have something to say.
fn model() -> Arc<Model> {
    let json = r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 16, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 24,
        "vocab_size": 61, "rms_norm_eps": 1e-5, "max_position_embeddings": 256,
        "tie_word_embeddings": true}"#;
    let config = Config::from_json("config.json", json.as_bytes()).unwrap();
    let options = LoadOptions { context: Some(256), kv_element: Element::Bf16, isa: Isa::best() };
    Arc::new(Model::random(config, 7, options).unwrap())
}

/// Prompts of 1 to 60 tokens and answers of 1 to 60.
fn requests(count: usize) -> Vec<Request> {
    let mut state = 12_345u32;
    let mut random = |below: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % below
    };
    let mut request = |_| {
        let prompt = (0..1 + random(60)).map(|_| random(61)).collect();
        // Token 3 ends the text, wherever it comes.
        Request { prompt, tokens: 1 + random(60) as usize, end_tokens: vec![3] }
    };
    (0..count).map(&mut request).collect()
}

/// The pool that would hold all requests at once, divided.
fn cache(model: &Model, requests: &[Request], divided: usize, block: usize) -> PagedCache {
    let (kept, behind) = (model.kv_element.into(), Behind::Kept);
    let layout = Layout::new(model, block, kept, behind).unwrap();
    let blocks = |request: &Request| layout.blocks_for(request.prompt.len() + request.tokens - 1);
    let needed: usize = requests.iter().map(blocks).sum();
    let bytes = needed / divided * layout.block_bytes();
    let room = Room { bytes, block, capacity: 256, kept, behind, rollback: 0 };
    PagedCache::new(model, room).unwrap()
}

/// What each request is answered when it is alone, on rung 02's cache.
fn alone(model: &Arc<Model>, request: &Request) -> Vec<u32> {
    let settings = Settings { capacity: 256, prefill_chunk: None, threads: None };
    let mut decoder: Box<dyn Decoder> =
        (kv_cache::CONTIGUOUS.start)(model.clone(), settings).unwrap();
    let sampler = Sampler::new(Sampling::default()).unwrap();
    let steps = generate(&mut *decoder, sampler, request.clone()).unwrap();
    steps.map(|step| step.unwrap().token).collect()
}

fn check(requests: Vec<Request>, divided: usize, block: usize, preemption: Preemption) -> Outcome {
    let model = model();
    let cache = cache(&model, &requests, divided, block);
    let crowd = Crowd::new(model.clone(), cache, requests.clone(), preemption).unwrap();
    let (outcome, cache) = crowd.run().unwrap();
    for (number, (request, output)) in requests.iter().zip(&outcome.outputs).enumerate() {
        assert_eq!(*output, alone(&model, request), "request {number}");
    }
    cache.check_integrity([]).unwrap();
    assert_eq!(cache.blocks().used(), 0, "the pool ends empty");
    outcome
}

#[test]
fn a_thousand_requests_through_a_tenth_of_their_need() {
    let outcome = check(requests(1000), 10, 16, Preemption::Recompute);
    assert!(outcome.most_at_once > 20, "{}", outcome.most_at_once);
}

#[test]
fn whoever_has_to_wait_goes_on_with_the_same_tokens() {
    for block in [1, 4, 16, 32] {
        let again = check(requests(80), 30, block, Preemption::Recompute);
        let shelf = Box::new(Shelf::default());
        let back = check(requests(80), 30, block, Preemption::Swap(shelf));
        // Or nothing has been tested.
        assert!(again.preemptions > 3, "{}", again.preemptions);
        assert_eq!(again.preemptions, back.preemptions);
        // What is brought back is not computed again.
        assert!(back.rows < again.rows, "{} rows, {} without a tier", back.rows, again.rows);
    }
}

/// A tier that takes everything and gives nothing back.
#[derive(Default)]
struct Unreadable(Shelf);

impl Tier for Unreadable {
    fn put(&mut self, key: Key, bytes: &[u8]) -> Result<()> {
        self.0.put(key, bytes)
    }

    fn get(&mut self, _: Key, _: &mut Vec<u8>) -> Result<bool> {
        Err(Error::file("a disk", "is gone"))
    }

    fn contains(&self, key: Key) -> bool {
        self.0.contains(key)
    }

    fn remove(&mut self, key: Key) -> Result<bool> {
        self.0.remove(key)
    }
}

#[test]
fn what_a_tier_fails_to_take_or_give_back_is_computed_again() {
    let again = check(requests(80), 30, 16, Preemption::Recompute);
    assert!(again.preemptions > 3, "{}", again.preemptions);
    // One is too small for any block.
    let small = Preemption::Swap(Box::new(HostTier::new(10)));
    assert_eq!(check(requests(80), 30, 16, small), again);
    let unreadable = Preemption::Swap(Box::new(Unreadable::default()));
    assert_eq!(check(requests(80), 30, 16, unreadable), again);
}
