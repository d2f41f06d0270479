//! Windows, QK norm and sharing, held against their definitions.

use super::{bits, config, naive, random, text};
use gqa_mla::hybrid;
use naive_decode::numerics::rms_norm;
use naive_decode::{Element, LoadOptions, Rope, dense, random_tensors};
use ndarray::Array2;
use std::cell::RefCell;

#[test]
fn queries_and_keys_are_normed_head_by_head_and_then_turned() {
    let model = random(&[None], &[None], 64, Element::F32);
    let tensors = random_tensors(7);
    let tensor = |part: &str, shape: &[usize]| {
        tensors(&format!("model.layers.0.self_attn.{part}.weight"), shape).unwrap()
    };
    let x = Array2::from_shape_fn((3, 24), |(row, i)| ((row * 24 + i) as f32 * 0.7).sin());
    let positions = [0, 5, 63];
    let made = model.blocks[0].projection.project(x.view(), &positions, &model.rope).unwrap();
    let kv = made.kv.unwrap();
    let rope = Rope::new(10_000.0, 8, 64);
    for (found, part, norm, heads) in
        [(&made.q, "q_proj", "q_norm", 4), (&kv.k, "k_proj", "k_norm", 2)]
    {
        assert_eq!(found.dim(), (3, heads, 8));
        let (matrix, weight) = (tensor(part, &[heads * 8, 24]), tensor(norm, &[8]));
        for ((row, head, i), found) in found.indexed_iter() {
            let dot = |output: usize| {
                let weights = &matrix[output * 24..][..24];
                weights.iter().zip(x.row(row)).fold(0.0, |sum: f32, (w, x)| x.mul_add(*w, sum))
            };
            let plain: Vec<f32> = (head * 8..head * 8 + 8).map(dot).collect();
            let mut expected = rms_norm(&plain, &weight, 1e-5);
            rope.rotate(&mut expected, positions[row]).unwrap();
            assert_eq!(found.to_bits(), expected[i].to_bits(), "{part} {row} {head} {i}");
        }
    }
    // Values are neither.
    let matrix = tensor("v_proj", &[16, 24]);
    let expected = matrix[..24].iter().zip(x.row(2)).fold(0.0, |s: f32, (w, x)| x.mul_add(*w, s));
    assert_eq!(kv.v[(2, 0, 0)].to_bits(), expected.to_bits());
}

#[test]
fn a_window_sees_so_many_tokens_and_itself_is_one() {
    // In one layer the last row's answer hangs on the tokens in its window and on no other.
    for window in [1, 2, 15, 16, 17, 30] {
        let model = random(&[Some(window)], &[None], 64, Element::F32);
        let tokens = text(40);
        let before = naive(&model, &tokens);
        for changed in [0, 39 - window.min(39), 40 - window, 39] {
            let mut other = tokens.clone();
            other[changed] = (other[changed] + 1) % 40;
            let same = bits(&naive(&model, &other), 39) == bits(&before, 39);
            assert_eq!(same, changed + window < 40, "window {window}, token {changed} changed");
        }
    }
}

#[test]
fn a_window_that_nothing_fills_is_none() {
    let wide = random(&[Some(40), None], &[None; 2], 64, Element::Bf16);
    let full = random(&[None; 2], &[None; 2], 64, Element::Bf16);
    assert_eq!(naive(&wide, &text(40)), naive(&full, &text(40)));
    assert_ne!(naive(&wide, &text(41)).row(40), naive(&full, &text(41)).row(40));
}

#[test]
fn a_layer_that_shares_asks_for_no_tensor_that_it_does_not_need_and_makes_no_keys() {
    let asked = RefCell::new(Vec::new());
    let tensors = random_tensors(7);
    let record = |name: &str, shape: &[usize]| {
        asked.borrow_mut().push(name.to_owned());
        tensors(name, shape)
    };
    let options = LoadOptions::default();
    let config = config(&[Some(4), Some(4), None], &[None, Some(0), None], 64);
    let model = hybrid::assemble(config, options, &record, &dense(options.isa)).unwrap();
    let of_layer = |layer: usize| {
        let start = format!("model.layers.{layer}.self_attn.");
        let asked = asked.borrow();
        let mut parts: Vec<String> =
            asked.iter().filter_map(|name| name.strip_prefix(&start)).map(str::to_owned).collect();
        parts.sort();
        parts
    };
    let sharing = ["o_proj.weight", "q_norm.weight", "q_proj.weight"];
    let own = ["k_norm.weight", "k_proj.weight", "v_proj.weight"];
    assert_eq!(of_layer(1), sharing);
    let mut all = [sharing, own].concat();
    all.sort();
    assert_eq!(of_layer(0), all);
    assert_eq!(of_layer(2), all);
    assert!(model.blocks[1].projection.kv().is_none());
    // Two layers of three keep 2 heads of 8 numbers twice.
    assert_eq!(model.kv_bytes_per_token(), 2 * 2 * (8 + 8) * 4);
    // A model that shares is not one whose layer has the same keys by chance.
    let apart = random(&[Some(4), Some(4), None], &[None; 3], 64, Element::F32);
    assert_ne!(naive(&model, &text(9)), naive(&apart, &text(9)));
}
