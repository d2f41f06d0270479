//! What is found is what would have been computed: requests over a shared pool, against naive decoding.

use naive_decode::{
    Config, Decoder, Element, Isa, LoadOptions, Model, NaiveDecoder, Pass, Span, Want, argmax,
};
use paged_cache::offload::{FileOptions, FileTier, HostTier, Tier};
use paged_cache::{Behind, BlockId, Blocks, PagedCache, Room};
use prefix_radix::{
    Chain, Evicted, HashedBlocks, Nothing, Policy, Prefix, PrefixCache, RadixTree, Salt,
    SharedPool, Statistics, Tiered,
};
use std::sync::Arc;

const VOCAB: u32 = 61;

fn model() -> Arc<Model> {
    let json = r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 16, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 24,
        "vocab_size": 61, "rms_norm_eps": 1e-5, "max_position_embeddings": 256,
        "tie_word_embeddings": true}"#;
    let config = Config::from_json("config.json", json.as_bytes()).unwrap();
    let options = LoadOptions { context: Some(256), kv_element: Element::Bf16, isa: Isa::best() };
    Arc::new(Model::random(config, 7, options).unwrap())
}

type AnyCache = Box<dyn PrefixCache>;

fn caches(block: usize) -> Vec<(&'static str, AnyCache)> {
    let chain = || Chain::new(b"test");
    vec![
        ("nothing", Box::new(Nothing::new(block))),
        ("tree", Box::new(RadixTree::new(block, chain()).unwrap())),
        ("hashed", Box::new(HashedBlocks::new(block, chain(), Policy::LeafFirst).unwrap())),
        ("hashed, LRU", Box::new(HashedBlocks::new(block, chain(), Policy::Lru).unwrap())),
    ]
}

fn pool(
    model: &Arc<Model>,
    block: usize,
    tokens: usize,
    cache: AnyCache,
    tiers: Vec<Box<dyn Tier>>,
) -> SharedPool<AnyCache> {
    let whole = Room::for_tokens(model, tokens).unwrap();
    let room = Room { block, bytes: whole.bytes, ..whole };
    let paged = PagedCache::new(model, room).unwrap();
    SharedPool::new(model.clone(), paged, Tiered::new(cache, Chain::new(b"test"), tiers)).unwrap()
}

fn naive(model: &Arc<Model>, text: &[u32]) -> Vec<f32> {
    NaiveDecoder::new(model.clone()).feed(text).unwrap()
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|logit| logit.to_bits()).collect()
}

fn text(seed: u32, length: usize) -> Vec<u32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % VOCAB
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn a_hit_at_any_offset_changes_no_bit() {
    let model = model();
    let first = text(1, 50);
    for block in [1, 4, 16] {
        for (name, cache) in caches(block) {
            let mut pool = pool(&model, block, 2000, cache, Vec::new());
            let (session, _) = pool.begin(Salt::NONE, &first).unwrap();
            pool.end(session).unwrap();
            for offset in 0..=first.len() {
                // As far as `offset` the same, then another token and a few more.
                let mut prompt = first[..offset].to_vec();
                prompt.push(first.get(offset).map_or(0, |token| (token + 1) % VOCAB));
                prompt.extend(text(offset as u32 + 9, 3));
                let (session, logits) = pool.begin(Salt::NONE, &prompt).unwrap();
                let place = format!("{name}, blocks of {block}, {offset} tokens alike");
                assert_eq!(bits(&logits), bits(&naive(&model, &prompt)), "{place}");
                if name == "tree" {
                    let full = first.len() / block * block;
                    assert!(session.found() >= offset.min(full), "{place}");
                }
                pool.check_integrity().unwrap();
                pool.end(session).unwrap();
            }
            // All of it: the last token is read in any case.
            let (session, logits) = pool.begin(Salt::NONE, &first).unwrap();
            assert!(session.found() < first.len());
            assert_eq!(bits(&logits), bits(&naive(&model, &first)), "{name}, all known");
            pool.end(session).unwrap();
        }
    }
}

/// Conversations whose turns come one after another, several at once, in a pool that is much too small to
/// remember them all.
#[test]
fn conversations_go_on_as_if_alone_however_little_is_remembered() {
    let model = model();
    for block in [4, 16] {
        for (name, cache) in caches(block) {
            let mut pool = pool(&model, block, 130, cache, Vec::new());
            let mut texts: Vec<Vec<u32>> = (0..6).map(|user| text(user % 2, 20)).collect();
            for turn in 0..4u32 {
                for (user, context) in texts.iter_mut().enumerate() {
                    context.extend(text(user as u32 * 7 + turn, 5));
                    let (mut session, mut logits) = pool.begin(Salt::NONE, context).unwrap();
                    for _ in 0..4 {
                        let place = format!("{name}, blocks of {block}, user {user}, turn {turn}");
                        assert_eq!(bits(&logits), bits(&naive(&model, context)), "{place}");
                        let token = argmax(&logits).unwrap();
                        context.push(token);
                        logits = pool.feed(&mut session, &[token]).unwrap();
                    }
                    pool.check_integrity().unwrap();
                    pool.end(session).unwrap();
                }
            }
            let statistics = pool.prefixes().cache().statistics();
            if name != "nothing" {
                assert!(statistics.evicted > 0 && statistics.found > 0, "{name}: {statistics:?}");
            }
        }
    }
}

#[test]
fn two_requests_at_once_share_what_the_first_has_read() {
    let model = model();
    let prompt = text(3, 40);
    let (name, cache) = caches(16).swap_remove(1);
    let mut pool = pool(&model, 16, 2000, cache, Vec::new());
    let (mut a, _) = pool.begin(Salt::NONE, &prompt).unwrap();
    let (mut b, _) = pool.begin(Salt::NONE, &prompt).unwrap();
    // What lies in full blocks.
    assert_eq!(b.found(), 32, "{name}");
    // They part, each in its own copy of the last block.
    let (mut of_a, mut of_b) = (prompt.clone(), prompt.clone());
    for step in 0..20u32 {
        for (session, context, token) in [(&mut a, &mut of_a, step), (&mut b, &mut of_b, 60 - step)]
        {
            context.push(token);
            let logits = pool.feed(session, &[token]).unwrap();
            assert_eq!(bits(&logits), bits(&naive(&model, context)), "step {step}");
        }
    }
    pool.check_integrity().unwrap();
    pool.end(a).unwrap();
    pool.end(b).unwrap();
}

/// A request that has read for itself what is known (it looked nothing up) shares it once it is remembered, and what it goes
/// on with stands in nobody's way.
#[test]
fn what_two_have_read_is_held_once() {
    let model = model();
    let known = text(8, 32);
    for (name, cache) in caches(4) {
        // Room for what is known and as much again, and for nothing besides.
        let mut pool = pool(&model, 4, 64, cache, Vec::new());
        let (session, _) = pool.begin(Salt::NONE, &known).unwrap();
        pool.end(session).unwrap();
        let mut session = pool.open(Salt::NONE, &known[..1]).unwrap();
        assert_eq!(session.text().len(), 0, "{name}");
        let mut context = Vec::new();
        for tokens in known.chunks(16).chain(text(9, 32).chunks(4)) {
            context.extend_from_slice(tokens);
            let logits = pool.feed(&mut session, tokens).unwrap();
            assert_eq!(bits(&logits), bits(&naive(&model, &context)), "{name}");
            pool.remember(&session).unwrap();
            pool.check_integrity().unwrap();
        }
        assert_eq!(pool.pool().blocks().used(), 16, "{name}");
        pool.end(session).unwrap();
    }
}

#[test]
fn blocks_that_windows_give_back_are_not_shared() {
    let mut model = Arc::into_inner(model()).expect("nobody else has it");
    model.blocks.iter_mut().for_each(|block| block.window = Some(8));
    let (model, prompt) = (Arc::new(model), text(2, 40));
    let whole = Room::for_tokens(&model, 128).unwrap();
    let shared = |behind| {
        let paged = PagedCache::new(&model, Room { behind, block: 4, ..whole }).unwrap();
        let tree = RadixTree::new(4, Chain::new(b"test")).unwrap();
        SharedPool::new(model.clone(), paged, Tiered::new(tree, Chain::new(b"test"), Vec::new()))
    };
    let said = shared(Behind::Freed).map(|_| ()).unwrap_err().to_string();
    assert!(
        said.starts_with("groups of layers is one with a window, expected 1 without"),
        "{said}"
    );
    let mut pool = shared(Behind::Kept).unwrap();
    for found in [0, 39] {
        let (session, logits) = pool.begin(Salt::NONE, &prompt).unwrap();
        assert_eq!(session.found(), found);
        assert_eq!(bits(&logits), bits(&naive(&model, &prompt)));
        pool.end(session).unwrap();
    }
}

#[test]
fn a_pass_is_told_as_many_tokens_as_slots() {
    let model = model();
    let prompt = text(5, 15);
    let (_, cache) = caches(16).swap_remove(1);
    let mut pool = pool(&model, 16, 200, cache, Vec::new());
    let (mut session, _) = pool.begin(Salt::NONE, &prompt).unwrap();
    pool.run(&Pass::one(Span::new(session.sequence(), 15, &[7], Want::Last))).unwrap();
    for (tokens, slots) in [(&[7][..], &[][..]), (&[], &[15])] {
        let said = pool.advance(&mut session, tokens, slots).unwrap_err().to_string();
        let expected = format!("expected {}, as many as there are tokens", tokens.len());
        let found = slots.len();
        assert_eq!(said, format!("slots of a text's next tokens is {found}, {expected}"));
    }
    assert_eq!(session.text(), prompt);
    // What is right goes on, and is the whole block that others find.
    pool.advance(&mut session, &[7], &[15]).unwrap();
    pool.end(session).unwrap();
    let text = [&prompt[..], &[7, 8]].concat();
    assert_eq!(pool.known(Salt::NONE, &text).len(), 1);
}

#[test]
fn a_text_longer_than_what_the_pool_holds_of_it_is_not_remembered() {
    let model = model();
    let (mut one, mut other) = {
        let pool = || pool(&model, 4, 200, caches(4).swap_remove(1).1, Vec::new());
        (pool(), pool())
    };
    let (session, _) = one.begin(Salt::NONE, &text(6, 20)).unwrap();
    // The other pool has a sequence of the same number.
    let (short, _) = other.begin(Salt::NONE, &text(7, 5)).unwrap();
    assert_eq!(session.sequence(), short.sequence());
    let expected = "tokens of sequence 0 in the pool is 5, expected at least the 20 of its text";
    assert_eq!(other.remember(&session).unwrap_err().to_string(), expected);
    assert_eq!(other.end(session).unwrap_err().to_string(), expected);
    assert_eq!(other.pool().open_sequences(), 1);
    assert!(other.known(Salt::NONE, &text(6, 20)).is_empty());
    other.check_integrity().unwrap();
    // A pass that was not told of leaves more than the text. What there is of that is remembered.
    other.run(&Pass::one(Span::new(short.sequence(), 5, &[1, 2, 3], Want::Last))).unwrap();
    other.end(short).unwrap();
    assert_eq!(other.known(Salt::NONE, &text(7, 5)).len(), 1);
    other.check_integrity().unwrap();
}

#[test]
fn rows_that_nobody_has_told_of_are_not_parked() {
    let model = model();
    let mut prompt = text(8, 5);
    let mut pool = pool(&model, 4, 200, caches(4).swap_remove(1).1, Vec::new());
    let mut tier = HostTier::new(1 << 14);
    let (session, _) = pool.begin(Salt::NONE, &prompt).unwrap();
    pool.run(&Pass::one(Span::new(session.sequence(), 5, &[1, 2, 3], Want::Last))).unwrap();
    let parked = pool.park(session, &mut tier).unwrap();
    assert_eq!(parked.tokens(), 5);
    let mut session = pool.unpark(&parked, &mut tier).unwrap();
    assert_eq!(session.text(), prompt);
    prompt.push(4);
    let logits = pool.feed(&mut session, &[4]).unwrap();
    assert_eq!(bits(&logits), bits(&naive(&model, &prompt)));
    pool.end(session).unwrap();
    assert_eq!(pool.pool().open_sequences(), 0);
    pool.check_integrity().unwrap();
}

#[test]
fn a_prompt_that_no_sequence_has_room_for_is_not_begun() {
    let model = model();
    let room = Room { capacity: 64, ..Room::for_tokens(&model, 200).unwrap() };
    let paged = PagedCache::new(&model, room).unwrap();
    let (_, cache) = caches(16).swap_remove(1);
    let tiered = Tiered::new(cache, Chain::new(b"test"), Vec::new());
    let mut pool = SharedPool::new(model.clone(), paged, tiered).unwrap();
    let said = pool.open(Salt::NONE, &text(9, 65)).unwrap_err().to_string();
    assert_eq!(said, "a sequence of the pool holds 64 tokens; 65 were asked for");
    assert_eq!((pool.pool().open_sequences(), pool.pool().blocks().used()), (0, 0));
    let (session, _) = pool.begin(Salt::NONE, &text(9, 64)).unwrap();
    pool.end(session).unwrap();
}

/// Names more blocks for any text than it can have.
struct Boastful;

impl PrefixCache for Boastful {
    fn block_tokens(&self) -> usize {
        4
    }

    fn longest(&mut self, _: Salt, _: &[u32], _: usize, _: &mut Blocks) -> Prefix {
        Prefix::default()
    }

    fn keep(&mut self, _: Salt, _: &[u32], _: &[BlockId], _: &mut Blocks) -> usize {
        0
    }

    fn evict(&mut self, _: usize, _: &mut Blocks, _: &mut dyn FnMut(Evicted)) -> usize {
        0
    }

    fn known(&self, _: Salt, tokens: &[u32]) -> Vec<BlockId> {
        vec![BlockId(0); tokens.len()]
    }

    fn held(&self) -> Vec<BlockId> {
        Vec::new()
    }

    fn statistics(&self) -> Statistics {
        Statistics::default()
    }

    fn check_integrity(&self, _: &Blocks) -> naive_decode::Result<()> {
        Ok(())
    }
}

#[test]
fn a_request_that_cannot_be_remembered_leaves_nothing_open() {
    let model = model();
    let mut pool = pool(&model, 4, 100, Box::new(Boastful), Vec::new());
    let said = pool.begin(Salt::NONE, &text(1, 20)).err().unwrap().to_string();
    assert!(said.starts_with("blocks for the beginning of sequence 0 is 20"), "{said}");
    assert_eq!((pool.pool().open_sequences(), pool.pool().blocks().used()), (0, 0));
    pool.check_integrity().unwrap();
}

#[test]
fn tenants_with_different_salts_share_nothing() {
    let model = model();
    let prompt = text(4, 40);
    for (name, cache) in caches(4) {
        let mut pool = pool(&model, 4, 2000, cache, Vec::new());
        for tenant in [b"a", b"b"] {
            let salt = Salt::of(tenant);
            let (session, _) = pool.begin(salt, &prompt).unwrap();
            assert_eq!(session.found(), 0, "{name}");
            pool.end(session).unwrap();
            let (session, logits) = pool.begin(salt, &prompt).unwrap();
            assert!(name == "nothing" || session.found() >= 36, "{name}");
            assert_eq!(bits(&logits), bits(&naive(&model, &prompt)));
            pool.end(session).unwrap();
        }
    }
}

#[test]
fn what_was_evicted_comes_back_from_memory_and_after_a_restart_from_a_file() {
    let model = model();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("blocks");
    let block_bytes = {
        let room = Room { block: 4, ..Room::for_tokens(&model, 64).unwrap() };
        PagedCache::new(&model, room).unwrap().layout().block_bytes()
    };
    let options = FileOptions { fingerprint: [7; 32], block_bytes, budget: 1 << 20 };
    let prompts: Vec<Vec<u32>> = (0..8).map(|user| text(user + 20, 60)).collect();
    for restart in [false, true] {
        let tiers: Vec<Box<dyn Tier>> = vec![
            Box::new(HostTier::new(1 << 14)),
            Box::new(FileTier::open(&path, &options).unwrap()),
        ];
        let tree = Box::new(RadixTree::new(4, Chain::new(b"test")).unwrap());
        // Room for two of the eight.
        let mut pool = pool(&model, 4, 140, tree, tiers);
        let mut found = Vec::new();
        for prompt in prompts.iter().chain(&prompts) {
            let (session, logits) = pool.begin(Salt::NONE, prompt).unwrap();
            assert_eq!(bits(&logits), bits(&naive(&model, prompt)));
            found.push(session.found());
            pool.check_integrity().unwrap();
            pool.end(session).unwrap();
        }
        // The second time round, and after a restart the first time too, nothing is read twice.
        assert!(found[8..].iter().all(|&found| found >= 56), "{found:?}");
        assert!(!restart || found[..6].iter().all(|&found| found >= 56), "{found:?}");
    }
}
