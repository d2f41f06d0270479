//! Windows, rings and shared layers.

use super::{bits, feed, naive, text};
use embedded_models::HYBRID;
use gqa_mla::hybrid::{self, HybridConfig};
use gqa_mla::{HybridCache, Room};
use kv_cache::{ContiguousStore, KvCache, KvShape, Place, Store, forward_store};
use naive_decode::{LoadOptions, Model, Visible};
use std::sync::{Arc, Mutex};

/// A small model with these windows, no layer sharing.
pub(super) fn windowed(windows: &[Option<usize>]) -> Model {
    sharing(windows, &vec![None; windows.len()])
}

/// The same in which some layers read an earlier one's keys and values.
pub(super) fn sharing(windows: &[Option<usize>], shares: &[Option<usize>]) -> Model {
    let json = format!(
        r#"{{"architectures": ["HybridForCausalLM"], "hidden_size": 24, "num_hidden_layers": {},
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
            "intermediate_size": 32, "vocab_size": 40, "rms_norm_eps": 1e-5,
            "max_position_embeddings": 1024}}"#,
        windows.len()
    );
    let config = HybridConfig::from_json("config.json", json.as_bytes()).unwrap();
    let config = HybridConfig { windows: windows.to_vec(), shares: shares.to_vec(), ..config };
    hybrid::random(config, 7, LoadOptions::default()).unwrap()
}

fn rings(model: &Model, capacity: usize) -> HybridCache {
    HybridCache::new(model, Room { capacity, sequences: 1, spare: 0 }).unwrap()
}

#[test]
fn six_windows_of_64_reach_379_tokens_and_no_further() {
    let last = 511;
    let first = (0..6).fold(last, |row, _| Visible::until(row + 1).places(Some(64)).start);
    let reach = last - first + 1;
    assert_eq!(reach, 379);

    // Two windows of four reach seven: the sixth token back counts, the seventh does not.
    let model = windowed(&[Some(4), Some(4)]);
    let last_row = |changed: Option<usize>| {
        let mut tokens = text(20);
        if let Some(slot) = changed {
            tokens[slot] = (tokens[slot] + 1) % 40;
        }
        naive(&model, &tokens).row(19).to_vec()
    };
    assert_eq!(last_row(Some(12)), last_row(None));
    assert_ne!(last_row(Some(13)), last_row(None));
}

/// A store that notes where it was written.
struct Noting {
    store: ContiguousStore,
    written: Arc<Mutex<Vec<usize>>>,
}

impl Store for Noting {
    forward_store!(store: shape sequences capacity key value truncate allocated_bytes);

    fn write(&mut self, place: Place, key: &[f32], value: &[f32]) {
        self.written.lock().unwrap().push(place.slot);
        self.store.write(place, key, value);
    }
}

#[test]
fn where_token_200_lies() {
    let model = windowed(&[Some(64)]);
    let written = Arc::new(Mutex::new(Vec::new()));
    let room = Room { capacity: 400, sequences: 1, spare: 0 };
    let mut cache = HybridCache::over(&model, room, |_, shape, places| {
        let store = ContiguousStore::new(shape, places, 1)?;
        Ok(Noting { store, written: written.clone() })
    })
    .unwrap();
    feed(&model, &mut cache, 0, &text(200));
    written.lock().unwrap().clear();
    feed(&model, &mut cache, 200, &[1]);
    assert_eq!(*written.lock().unwrap(), [8, 8], "once for each of two heads");
}

#[test]
fn what_one_global_layer_in_six_keeps() {
    let share = |model: &Model, tokens: usize| {
        let everything = KvShape::of(model).bytes(tokens, 1);
        rings(model, tokens).allocated_bytes() as f64 / everything as f64
    };
    let one_in_six = windowed(&[[Some(1_024); 5].as_slice(), &[None]].concat());
    let kept = |tokens| share(&one_in_six, tokens);
    assert_eq!((1000.0 * kept(32_768)).round() / 10.0, 19.3);
    assert_eq!(kept(1_024), 1.0);
    // The embedded one at 512 tokens: two rings of 64, two full layers, two that share.
    let options = LoadOptions::default();
    let embedded = hybrid::embedded(HYBRID.name, HYBRID.config, HYBRID.weights, options).unwrap();
    assert_eq!(share(&embedded, 512), 0.375);
}

#[test]
fn a_ring_is_masked_attention_bit_for_bit() {
    let model = windowed(&[Some(16), None, Some(16)]);
    let tokens = text(70);
    // In chunks longer than the window, and in single steps.
    for chunk in [1, 5, 40, 70] {
        let mut cache = rings(&model, 70);
        let mut last = Vec::new();
        for (i, tokens) in tokens.chunks(chunk).enumerate() {
            let logits = feed(&model, &mut cache, i * chunk, tokens);
            last = logits.row(logits.nrows() - 1).iter().map(|v| v.to_bits()).collect();
        }
        let ring = last;
        let masked = &bits(&naive(&model, &tokens))[69 * 40..];
        assert_eq!(ring, masked);
    }
}
