//! What the model promises whoever runs it, whatever attention it is given.

use naive_decode::{
    Attention, Config, CpuExecutor, Element, Executor, Isa, KeyValues, LayerSpec, LoadOptions,
    Logits, Model, NaiveAttention, Pass, SPLIT, Span, Visible, Want, attend_span, dense,
};
use ndarray::{Array2, Array3, ArrayView1, ArrayView3, s};
use proptest::prelude::*;
use std::sync::{Arc, LazyLock};

const VOCAB: u32 = 50;

static MODEL: LazyLock<Model> = LazyLock::new(|| random(config(false), Element::F32));

fn config(tied: bool) -> Config {
    let json = format!(
        r#"{{"architectures": ["LlamaForCausalLM"], "hidden_size": 32, "num_hidden_layers": 3,
            "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8,
            "intermediate_size": 40, "vocab_size": {VOCAB}, "rms_norm_eps": 1e-5,
            "max_position_embeddings": 64, "tie_word_embeddings": {tied}}}"#
    );
    Config::from_json("config.json", json.as_bytes()).unwrap()
}

fn random(config: Config, kv_element: Element) -> Model {
    Model::random(config, 5, LoadOptions { kv_element, ..LoadOptions::default() }).unwrap()
}

fn text(length: usize) -> Vec<u32> {
    (0..length as u32).map(|i| (i * i + 11 * i + 3) % VOCAB).collect()
}

fn run(model: &Model, pass: &Pass) -> Logits {
    model.forward(pass, &mut NaiveAttention::new(model.isa)).unwrap()
}

fn run_all(model: &Model, tokens: &[u32]) -> Logits {
    run(model, &Pass::one(Span::new(0, 0, tokens, Want::All)))
}

/// Equality of bits: `==` on floats would let -0.0 pass for 0.0.
fn same(a: &Logits, b: &Logits) -> bool {
    a.dim() == b.dim() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

// --- What a row can know -----------------------------------------------------------------------

#[test]
fn nothing_depends_on_a_later_token() {
    // This is why keys and values can be kept at all: what comes later does not change them.
    let original = run_all(&MODEL, &text(40));
    for changed in [1, 17, 39] {
        let mut tokens = text(40);
        tokens[changed] = (tokens[changed] + 1) % VOCAB;
        let other = run_all(&MODEL, &tokens);
        let before = |logits: &Logits| logits.slice(s![..changed, ..]).to_owned();
        assert!(same(&before(&original), &before(&other)), "token {changed} reached back");
        for row in changed..40 {
            assert_ne!(original.row(row), other.row(row), "row {row} never saw token {changed}");
        }
    }
}

#[test]
fn a_pass_gives_the_logits_that_it_wants() {
    let pass = |want| Pass::one(Span::new(0, 0, &text(9), want));
    let all = run(&MODEL, &pass(Want::All));
    assert_eq!(all.dim(), (9, VOCAB as usize));
    assert!(same(&run(&MODEL, &pass(Want::Last)), &all.slice(s![8.., ..]).to_owned()));
    assert_eq!(run(&MODEL, &pass(Want::Nothing)).dim(), (0, VOCAB as usize));
    assert_eq!(run(&MODEL, &Pass::default()).dim(), (0, VOCAB as usize));
}

#[test]
fn hidden_states_are_what_the_head_is_given() {
    let text = text(11);
    let spans = vec![
        Span::new(0, 0, &text, Want::All),
        Span::new(1, 0, &text[..5], Want::Nothing),
        Span::new(2, 0, &text[3..], Want::Last),
    ];
    let pass = Pass { spans };
    let model = Arc::new(random(config(true), Element::F32));
    let executor = || -> Box<dyn Executor> {
        let attention = NaiveAttention::new(model.isa);
        Box::new(CpuExecutor { model: model.clone(), attention })
    };
    let logits = executor().execute(&pass).unwrap();
    let hidden = executor().hidden(&pass).unwrap();
    assert_eq!(hidden.dim(), (12, 32));
    assert!(same(&executor().head(hidden.view()).unwrap(), &logits));
    // Rows do not see each other.
    let last = hidden.slice(s![11.., ..]);
    assert!(same(&executor().head(last).unwrap(), &logits.slice(s![11.., ..]).to_owned()));
}

#[test]
fn positions_are_where_the_span_says() {
    // RoPE knows distances alone: moving a whole text moves no logit by more than rounding.
    let span = Span::new(0, 0, &text(20), Want::All);
    let moved = Span { positions: (30..50).collect(), ..span.clone() };
    let spread = Span { positions: (0..40).step_by(2).collect(), ..span.clone() };
    let [span, moved, spread] = [span, moved, spread].map(|span| run(&MODEL, &Pass::one(span)));
    let apart = |a: &Logits, b: &Logits| (a - b).mapv(f32::abs).fold(0.0f32, |m, &v| m.max(v));
    assert!(apart(&span, &moved) < 1e-4, "{}", apart(&span, &moved));
    assert!(apart(&span, &spread) > 1e-2, "{}", apart(&span, &spread));
}

// --- Passes that make no sense -----------------------------------------------------------------

#[test]
fn malformed_passes_are_refused_in_words() {
    let span = || Span::new(2, 0, &[1, 2, 3], Want::Last);
    let sees =
        |row: Visible| Span { sees: vec![Visible::until(1), Visible::until(2), row], ..span() };
    let backwards = std::ops::Range { start: 2, end: 1 };
    for (span, words) in [
        (Span { tokens: vec![1, 2, VOCAB], ..span() }, "token is 50, expected an id below"),
        (Span { positions: vec![0], ..span() }, "positions of a span is 1, expected one for each"),
        (Span { sees: vec![], ..span() }, "visible slots of a span is 0, expected one for each"),
        (sees(Visible::until(4)), "visible slots of a row is 4, expected slots below 3"),
        (sees(Visible { range: 0..1, also: vec![usize::MAX] }), "expected slots below 3"),
        (sees(Visible { range: 0..1, also: vec![2, 1] }), "expected slots in ascending order"),
        (sees(Visible { range: 0..2, also: vec![1] }), "expected slots in ascending order"),
        (sees(Visible { range: backwards, also: vec![] }), "expected slots in ascending order"),
        (Span { positions: vec![0, 1, 64], ..span() }, "context holds 64 tokens; 65 were asked"),
        (Span { positions: vec![0, 1, usize::MAX], ..span() }, "context holds 64 tokens; "),
        (Span { start: 5, ..span() }, "start of sequence 2 is 5, expected 0"),
        (Span { start: usize::MAX, ..span() }, "start of sequence 2 is "),
    ] {
        let pass = Pass::one(span);
        let error = MODEL.forward(&pass, &mut NaiveAttention::new(MODEL.isa)).unwrap_err();
        assert!(error.to_string().contains(words), "`{error}` lacks `{words}`");
    }
}

/// Counts the calls that reach it.
#[derive(Default)]
struct Untouched(usize);

impl Attention for Untouched {
    fn begin(&mut self, _: &Pass) -> naive_decode::Result<()> {
        self.0 += 1;
        Ok(())
    }
    fn attend(
        &mut self,
        _: LayerSpec,
        _: &Pass,
        q: ArrayView3<f32>,
        _: ArrayView3<f32>,
        _: ArrayView3<f32>,
    ) -> naive_decode::Result<Array3<f32>> {
        self.0 += 1;
        Ok(q.to_owned())
    }
    fn commit(&mut self, _: &Pass) {
        self.0 += 1;
    }
}

#[test]
fn attention_hears_nothing_of_a_refused_pass() {
    let mut attention = Untouched::default();
    let mut run = |tokens: &[u32]| {
        let _ = MODEL.forward(&Pass::one(Span::new(0, 0, tokens, Want::Last)), &mut attention);
        std::mem::take(&mut attention.0)
    };
    assert_eq!(run(&[1, VOCAB]), 0);
    assert_eq!(run(&text(65)), 0);
    assert_eq!(run(&text(3)), 1 + 3 + 1);
}

// --- What a model is made of -------------------------------------------------------------------

#[test]
fn bytes_are_those_of_its_matrices_and_norms() {
    let matrix = |inputs: usize, outputs: usize| 4 * inputs * outputs.next_multiple_of(16);
    // Queries, keys, values and back; gate, up and down.
    let block = matrix(32, 48) + 2 * matrix(32, 16) + matrix(48, 32);
    let block = block + 2 * matrix(32, 40) + matrix(40, 32);
    let norms = 4 * 7 * 32;
    assert_eq!(MODEL.weight_bytes(), 3 * block + norms + matrix(32, 50));
    assert_eq!(MODEL.kv_bytes_per_token(), 2 * 3 * 2 * 8 * 4);
    assert_eq!(random(config(false), Element::Bf16).kv_bytes_per_token(), 2 * 3 * 2 * 8 * 2);
}

#[test]
fn a_tied_head_is_the_embedding_table() {
    let tied = random(config(true), Element::F32);
    let untied = Model::assemble(
        config(false),
        LoadOptions::default(),
        &|name, shape| {
            let all: Vec<usize> = (0..50).collect();
            let of = |model: &Model| model.embedding.rows(&all).into_raw_vec_and_offset().0;
            Ok(match name {
                "model.embed_tokens.weight" | "lm_head.weight" => of(&tied),
                // Any values will do, the same in both.
                _ => vec![0.1; shape.iter().product()],
            })
        },
        &dense(Isa::best()),
    )
    .unwrap();
    let rows = Array2::from_shape_fn((3, 32), |(i, j)| ((i * 32 + j) as f32).sin());
    assert!(same(&tied.head.apply(rows.view()), &untied.head.apply(rows.view())));
    assert!(!same(&MODEL.head.apply(rows.view()), &untied.head.apply(rows.view())));
}

#[test]
fn rounding_keys_and_values_is_felt_and_slight() {
    let [exact, f16, bf16] = [Element::F32, Element::F16, Element::Bf16]
        .map(|element| run_all(&random(config(false), element), &text(30)));
    let apart = |a: &Logits| (a - &exact).mapv(f32::abs).fold(0.0f32, |m, &v| m.max(v));
    // Three bits of significand fewer, eight times the error.
    assert!(apart(&f16) > 0.0 && apart(&f16) < apart(&bf16) && apart(&bf16) < 0.1);
}

// --- Attention against its definition ----------------------------------------------------------

struct Rows {
    k: Array3<f32>,
    v: Array3<f32>,
}

impl KeyValues for Rows {
    fn kv_heads(&self) -> usize {
        self.k.dim().1
    }
    fn key(&self, kv_head: usize, slot: usize, copy: &mut [f32]) {
        copy.copy_from_slice(self.k.slice(s![slot, kv_head, ..]).as_slice().unwrap());
    }
    fn value(&self, kv_head: usize, slot: usize, copy: &mut [f32]) {
        copy.copy_from_slice(self.v.slice(s![slot, kv_head, ..]).as_slice().unwrap());
    }
}

/// Softmax attention of one query over a list of slots, in double precision; values `D_v` wide.
fn exact(q: &[f64], keys: &[Vec<f64>], values: &[Vec<f64>], scale: f64, width: usize) -> Vec<f64> {
    if values.is_empty() {
        return vec![0.0; width];
    }
    let dot = |k: &Vec<f64>| q.iter().zip(k).map(|(q, k)| q * k).sum::<f64>() * scale;
    let scores: Vec<f64> = keys.iter().map(dot).collect();
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|s| (s - most).exp()).collect();
    let total: f64 = weights.iter().sum();
    let mixed = |d: usize| weights.iter().zip(values).map(|(w, v)| w * v[d]).sum::<f64>() / total;
    (0..width).map(mixed).collect()
}

/// Sizes of one attention, and where its random numbers start.
#[derive(Debug, Clone, Copy)]
struct Case {
    slots: usize,
    rows: usize,
    group: usize,
    kv_heads: usize,
    key_dim: usize,
    value_dim: usize,
    loudness: f32,
    window: Option<usize>,
    seed: u32,
}

impl Case {
    fn check(self) {
        let Case { slots, rows, group, kv_heads, key_dim, value_dim, loudness, window, seed } =
            self;
        let mut state = seed | 1;
        let mut number = || {
            // Xorshift (Marsaglia 2003), in [-1, 1).
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        let mut array = |dim| Array3::<f32>::zeros(dim).map(|_| number());
        let heads = group * kv_heads;
        let q = array((rows, heads, key_dim)) * loudness;
        let k = array((slots, kv_heads, key_dim));
        let source = Rows { k, v: array((slots, kv_heads, value_dim)) };
        // Each row sees a run of its own; every third then skips from slot to slot. Every fifth run is empty.
        let see = |row: usize| {
            let end = 1 + (row * 37 + seed as usize) % slots;
            let also = if row % 3 == 2 { (end..slots).step_by(3).collect() } else { vec![] };
            let start = if row % 5 == 4 { end } else { (row % 2).min(end - 1) };
            Visible { range: start..end, also }
        };
        let span = Span {
            sees: (0..rows).map(see).collect(),
            ..Span::new(0, slots, &vec![0; rows], Want::Nothing)
        };
        let scale = 1.0 / (key_dim as f32).sqrt();
        let layer = LayerSpec { index: 0, kv_layer: 0, window, scale, score_cap: None };
        let mut out = Array3::zeros((rows, heads, value_dim));
        attend_span(Isa::best(), layer, &span, q.view(), &source, out.view_mut());

        let wide = |row: ArrayView1<f32>| row.iter().map(|&v| v as f64).collect::<Vec<f64>>();
        for (row, sees) in span.sees.iter().enumerate() {
            let mut visible: Vec<usize> = (0..slots).filter(|&slot| sees.contains(slot)).collect();
            let hidden = visible.len().saturating_sub(window.unwrap_or(slots));
            visible.drain(..hidden);
            for head in 0..heads {
                let of = |from: &Array3<f32>| -> Vec<Vec<f64>> {
                    let at = |&slot| wide(from.slice(s![slot, head / group, ..]));
                    visible.iter().map(at).collect()
                };
                let query = wide(q.slice(s![row, head, ..]));
                let (keys, values) = (of(&source.k), of(&source.v));
                let expected = exact(&query, &keys, &values, scale as f64, value_dim);
                for (found, expected) in out.slice(s![row, head, ..]).iter().zip(expected) {
                    // Values lie in [-1, 1), so this is a share of the largest.
                    let difference = (*found as f64 - expected).abs();
                    assert!(difference < 2e-5, "{found} for {expected}: {self:?}");
                }
            }
        }
    }
}

#[test]
fn scores_count_however_low_they_are() {
    // The last is below the lowest integer that a maximum can be.
    for score in [-1e3, -1e9, -2e9, -1e12] {
        // Past a split, of which the second has one place.
        for slots in [2, SPLIT + 1] {
            let v = Array3::from_shape_fn((slots, 1, 1), |(slot, ..)| 1.0 + (slot % 2) as f32);
            let average = v.mean().unwrap();
            let source = Rows { k: Array3::from_elem((slots, 1, 1), score), v };
            let q = Array3::ones((1, 1, 1));
            let span = Span::new(0, slots - 1, &[0], Want::Nothing);
            let layer =
                LayerSpec { index: 0, kv_layer: 0, window: None, scale: 1.0, score_cap: None };
            let mut out = Array3::zeros((1, 1, 1));
            attend_span(Isa::best(), layer, &span, q.view(), &source, out.view_mut());
            assert!((out[(0, 0, 0)] - average).abs() < 1e-5, "{score}, {slots}: {out}");
        }
    }
}

#[test]
fn a_row_that_sees_nothing_is_answered_with_zeros_wherever_it_stands() {
    let source = Rows { k: Array3::ones((600, 1, 1)), v: Array3::ones((600, 1, 1)) };
    let q = Array3::ones((1, 1, 1));
    // The first and the last slot of a tile, and of a split.
    for slot in [0, 1, 15, 16, SPLIT - 1, SPLIT, SPLIT + 16] {
        for (sees, window) in [
            (Visible { range: slot..slot, also: vec![] }, None),
            (Visible::until(slot), Some(0)),
            (Visible { range: 0..slot, also: vec![slot + 2] }, Some(0)),
        ] {
            let case = format!("{sees:?}, window {window:?}");
            let span = Span { sees: vec![sees], ..Span::new(0, slot, &[0], Want::Nothing) };
            let layer = LayerSpec { index: 0, kv_layer: 0, window, scale: 1.0, score_cap: None };
            let mut out = Array3::ones((1, 1, 1));
            attend_span(Isa::best(), layer, &span, q.view(), &source, out.view_mut());
            assert_eq!(out[(0, 0, 0)], 0.0, "{case}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Any shape, values of another width than keys, any set of visible slots, any window.
    #[test]
    fn attention_is_what_the_paper_says(
        (slots, rows, group, kv_heads) in (1usize..600, 1usize..20, 1usize..5, 1usize..3),
        (key_dim, value_dim) in (1usize..40, 1usize..40),
        loudness in 0.1f32..30.0,
        window in prop_oneof![Just(None), Just(Some(0)), (1usize..700).prop_map(Some)],
        seed in any::<u32>(),
    ) {
        let case =
            Case { slots, rows, group, kv_heads, key_dim, value_dim, loudness, window, seed };
        case.check();
    }
}
