//! The names model: both ways of running it agree to the last bit, and it is the model trained.

use embedded_models::NAMES;
use naive_decode::{Error, Lists, MicroGpt};
use proptest::prelude::*;
use safetensors::{Dtype, serialize, tensor::TensorView};

/// What the recipe noted after training.
const RESULTS: &[u8] = include_bytes!("../../models/weights/names/results.json");

fn names_model() -> MicroGpt {
    MicroGpt::from_bytes(NAMES.config, NAMES.weights).unwrap()
}

/// A name as the model sees it: the beginning token and the letters, cut to the block.
fn tokens_of(model: &MicroGpt, name: &str) -> Vec<u32> {
    let mut tokens = vec![model.config().bos_token_id];
    tokens.extend(model.config().encode(name).unwrap());
    tokens.truncate(model.config().block_size);
    tokens
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|l| l.to_bits()).collect()
}

/// Steps through `tokens` with lists, comparing with a fresh forward pass at every length.
fn assert_lists_change_no_bit(model: &MicroGpt, tokens: &[u32]) {
    let (mut keys, mut values) = (model.empty_lists(), model.empty_lists());
    for (position, &token) in tokens.iter().enumerate() {
        let cached = model.step(token, position, &mut keys, &mut values).unwrap();
        let naive = model.forward(&tokens[..=position]).unwrap();
        assert_eq!(bits(&cached), bits(&naive), "{tokens:?} at position {position}");
    }
    assert!(keys.iter().chain(&values).all(|list| list.len() == tokens.len()));
}

#[test]
fn lists_change_no_bit_over_many_names() {
    let model = names_model();
    for name in embedded_models::names::iter().step_by(5) {
        assert_lists_change_no_bit(&model, &tokens_of(&model, name));
    }
}

/// A model of any shape with weights from a fixed sequence: the trained one has a single layer,
/// which would hide a mix-up of layers.
fn made_up(n_layer: usize, n_head: usize, head_dim: usize) -> MicroGpt {
    let (d, vocab, block) = (n_head * head_dim, 6, 9);
    let config = format!(
        r#"{{"n_embd": {d}, "n_layer": {n_layer}, "n_head": {n_head}, "block_size": {block},
            "vocab_size": {vocab}, "characters": "abcde", "bos_token_id": 5,
            "rms_norm_eps": 1e-5}}"#
    );
    let weights = made_up_weights(n_layer, d, vocab, block).leak();
    MicroGpt::from_bytes(config.as_bytes(), weights).unwrap()
}

fn made_up_weights(n_layer: usize, d: usize, vocab: usize, block: usize) -> Vec<u8> {
    let mut shapes = vec![
        ("wte".to_string(), vec![vocab, d]),
        ("wpe".to_string(), vec![block, d]),
        ("lm_head".to_string(), vec![vocab, d]),
    ];
    for i in 0..n_layer {
        for name in ["attn_wq", "attn_wk", "attn_wv", "attn_wo"] {
            shapes.push((format!("layer{i}.{name}"), vec![d, d]));
        }
        shapes.push((format!("layer{i}.mlp_fc1"), vec![4 * d, d]));
        shapes.push((format!("layer{i}.mlp_fc2"), vec![d, 4 * d]));
    }
    let mut state = 7u32;
    let mut number = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 8) as f32 / 8_388_608.0 - 1.0).to_le_bytes()
    };
    let data: Vec<(String, Vec<usize>, Vec<u8>)> = shapes
        .into_iter()
        .map(|(name, shape)| {
            let bytes = (0..shape[0] * shape[1]).flat_map(|_| number()).collect();
            (name, shape, bytes)
        })
        .collect();
    let views = data.iter().map(|(name, shape, bytes)| {
        (name, TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap())
    });
    serialize(views, None).unwrap()
}

proptest! {
    #[test]
    fn lists_change_no_bit_in_models_of_any_shape(
        n_layer in 1usize..4,
        n_head in 1usize..4,
        head_dim in 1usize..6,
        tokens in proptest::collection::vec(0u32..6, 1..=9),
    ) {
        assert_lists_change_no_bit(&made_up(n_layer, n_head, head_dim), &tokens);
    }
}

/// Surprise of the model at `token`, in nats.
fn nats(logits: &[f32], token: u32) -> f64 {
    let total: f64 = logits.iter().map(|l| f64::from(*l).exp()).sum();
    total.ln() - f64::from(logits[token as usize])
}

#[test]
fn it_is_as_surprised_as_pytorch_was_after_training() {
    let model = names_model();
    let (mut sum, mut count) = (0.0, 0);
    for name in embedded_models::names::iter() {
        let mut tokens = tokens_of(&model, name);
        let (mut keys, mut values) = (model.empty_lists(), model.empty_lists());
        tokens.push(model.config().bos_token_id);
        for (position, pair) in tokens.windows(2).enumerate() {
            let logits = model.step(pair[0], position, &mut keys, &mut values).unwrap();
            sum += nats(&logits, pair[1]);
            count += 1;
        }
    }
    // The recipe wrote down what PyTorch found for the two parts of the list. Their mean by names
    // is off the mean by letters by little; leaving out a norm, a head or a residual is not.
    let report: serde_json::Value = serde_json::from_slice(RESULTS).unwrap();
    let number = |at: &str| report.pointer(at).and_then(|v| v.as_f64()).unwrap();
    let (training, held_out) = (number("/names/training"), number("/names/held_out"));
    let expected = (training * number("/training_nats") + held_out * number("/held_out_nats"))
        / (training + held_out);
    let found = sum / f64::from(count);
    assert!((found - expected).abs() < 2e-3, "{found} nats a letter, PyTorch had {expected}");
}

#[test]
fn attention_reads_the_lists() {
    let model = names_model();
    let run = |spoil: &dyn Fn(&mut Lists)| {
        let (mut keys, mut values) = (model.empty_lists(), model.empty_lists());
        let tokens = tokens_of(&model, "marian");
        let mut logits = Vec::new();
        for (position, &token) in tokens.iter().enumerate() {
            if position == tokens.len() - 1 {
                spoil(&mut keys);
            }
            logits = model.step(token, position, &mut keys, &mut values).unwrap();
        }
        logits
    };
    let clean = run(&|_| ());
    assert_eq!(bits(&clean), bits(&run(&|_| ())));
    assert_ne!(clean, run(&|keys| keys[0][2].fill(0.0)), "attention does not read the list");
}

#[test]
fn letters_and_tokens_go_both_ways() {
    let model = names_model();
    let config = model.config();
    assert_eq!(config.encode("abz"), Some(vec![0, 1, 25]));
    assert_eq!(config.encode("ab7"), None);
    assert_eq!(config.letter(25), Some('z'));
    assert_eq!(config.letter(config.bos_token_id), None);
}

// --- Bad input ---------------------------------------------------------------------------------

#[test]
fn inputs_out_of_range_are_refused() {
    let model = names_model();
    let message = |result: Result<Vec<f32>, Error>| result.unwrap_err().to_string();
    assert_eq!(message(model.forward(&[])), "prompt is empty, expected a token");
    assert_eq!(message(model.forward(&[27])), "token is 27, expected an id below 27");
    assert_eq!(
        message(model.forward(&[0; 17])),
        "the names model's block holds 16 tokens; 17 were asked for"
    );
    let (mut keys, mut values) = (model.empty_lists(), model.empty_lists());
    assert_eq!(
        message(model.step(0, 3, &mut keys, &mut values)),
        "length of the key-value lists is [0], expected [3]: every earlier position, in every layer"
    );
    assert!(model.step(27, 0, &mut keys, &mut values).is_err());
    assert!(keys[0].is_empty(), "a refused token must not be remembered");
    assert!(message(model.step(0, 0, &mut keys, &mut Vec::new())).contains("lists is []"));
}

#[test]
fn bad_files_are_refused_by_name() {
    let config = String::from_utf8(NAMES.config.to_vec()).unwrap();
    let refused = |config: &str, weights: &'static [u8]| {
        MicroGpt::from_bytes(config.as_bytes(), weights).unwrap_err().to_string()
    };
    let cases = [
        ("\"n_embd\": 16", "\"n_embd\": 18", "n_embd is 18, expected a multiple of n_head = 4"),
        ("\"n_embd\": 16", "\"n_embd\": 20", "tensor `layer0.attn_wq` has shape [16, 16]"),
        ("\"n_layer\": 1", "\"n_layer\": 0", "n_layer is 0, expected from 1"),
        ("\"n_layer\": 1", "\"n_layer\": 2", "tensor `layer1.attn_wq` is missing"),
        ("\"n_head\": 4", "\"n_head\": 0", "n_head is 0"),
        ("\"block_size\": 16", "\"block_size\": 32", "`wpe` has shape [16, 16], expected [32, 16]"),
        ("\"vocab_size\": 27", "\"vocab_size\": 26", "vocab_size is 26, expected 27"),
        ("\"bos_token_id\": 26", "\"bos_token_id\": 0", "bos_token_id is 0, expected 26"),
        ("\"n_embd\": 16,", "", "missing field `n_embd`"),
        (
            "\"n_embd\": 16",
            "\"n_embd\": \"x\"",
            "n_embd: invalid type: string \"x\", expected a whole",
        ),
        ("1e-05", "0.0", "rms_norm_eps is 0, expected a positive number"),
        ("1e-05", "-1e-05", "rms_norm_eps is -0.00001, expected a positive number"),
    ];
    for (from, to, words) in cases {
        let changed = config.replace(from, to);
        assert_ne!(changed, config, "{from}");
        let message = refused(&changed, NAMES.weights);
        assert!(message.contains(words) && message.contains("names model"), "{message}");
    }
    for cut in [0, 7, 100, NAMES.weights.len() - 1] {
        assert!(refused(&config, &NAMES.weights[..cut]).contains("weights of the names model"));
    }
    let one_tensor = |dtype, bytes: Vec<u8>| {
        let tensor = TensorView::new(dtype, vec![16, 16], &bytes).unwrap();
        serialize([("layer0.attn_wq", tensor)], None).unwrap().leak() as &'static [u8]
    };
    let whole = one_tensor(Dtype::I32, vec![0; 1024]);
    assert!(refused(&config, whole).contains("`layer0.attn_wq` has type I32, expected F32"));
    let infinite = one_tensor(Dtype::F32, f32::INFINITY.to_le_bytes().repeat(256));
    assert!(
        refused(&config, infinite).contains("`layer0.attn_wq` holds inf at 0, expected finite")
    );
}
