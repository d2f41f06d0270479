//! Attention over the paged cache: right, the same bits whichever kernel and whatever batch, and no byte read in vain.

use crate::numbers::{HALF_ULP, assert_near, from_bf16};
use crate::paged_case::{Case, Heads, Ran, Request};

const NARROW: Heads = Heads { heads: 4, kv_heads: 2, head_dim: 64 };
/// Three queries to a kv head: tiles of 16 and of 64 rows end inside of a token.
const WIDE: Heads = Heads { heads: 3, kv_heads: 1, head_dim: 128 };

/// Ragged lengths: a first token, a decoding step, pieces of prompts at and beside the edges of blocks, tiles and splits.
fn ragged() -> Vec<Request> {
    vec![
        Request::text(1, 1),
        Request::text(300, 1),
        Request::text(70, 70),
        Request::text(256, 3),
        Request::text(321, 40),
        Request::text(65, 2),
    ]
}

/// Trees behind texts: one with two branches, one whose nodes cross the edge of a split.
fn trees() -> Vec<Request> {
    let branches = [None, Some(0), Some(0), Some(1), Some(2), Some(2), None, Some(6)];
    vec![
        Request::tree(40, &branches),
        Request::text(90, 3),
        Request::tree(260, &branches),
        Request::tree(9, &[None]),
    ]
}

fn cases() -> Vec<(&'static str, Case)> {
    let mut cases = Vec::new();
    for (name, requests) in [("ragged", ragged()), ("trees", trees())] {
        for heads in [NARROW, WIDE] {
            for int8 in [false, true] {
                let seed = (cases.len() + 1) as u64;
                cases.push((name, Case::new(heads, &requests, int8, seed)));
            }
        }
    }
    cases
}

/// Each weight w is rounded to bf16, and they are divided by the sum of the rounded ones. So an output is off by the sum of
/// w * rounding * (v - output), at most half an ulp of the values' mean distance from their mean, which is below what the
/// largest is: 2, or 2.54 from bytes. Scores in f32 add less than a tenth; then the output is rounded.
const BOUND: f64 = 2.54 * HALF_ULP * 1.1;

fn assert_right(what: &str, case: &Case, ran: &Ran) {
    for (request, out) in ran.out.iter().enumerate() {
        let right = case.right(request);
        let found: Vec<f32> = out.iter().copied().map(from_bf16).collect();
        let bound = |i: usize| BOUND + right[i].abs() * HALF_ULP;
        assert_near(&format!("{what}, request {request}"), &found, &right, bound);
    }
}

#[test]
fn outputs_are_right() {
    for (name, case) in cases() {
        assert_right(&format!("{name}: prefill"), &case, &case.prefill());
        assert_right(&format!("{name}: decode"), &case, &case.decode());
    }
}

#[test]
fn prefill_and_decode_give_the_same_bits() {
    for (name, case) in cases() {
        let (prefill, decode) = (case.prefill().out, case.decode().out);
        assert!(prefill == decode, "{name}");
    }
}

#[test]
fn a_request_has_the_same_bits_alone_and_among_others() {
    for heads in [NARROW, WIDE] {
        let case = Case::new(heads, &ragged(), false, 20);
        let together = case.prefill().out;
        for request in [0, 1, 4] {
            let alone = case.only(&[request]);
            assert!(alone.prefill().out[0] == together[request], "prefill of request {request}");
            assert!(alone.decode().out[0] == together[request], "decode of request {request}");
        }
    }
}

#[test]
fn a_prompt_has_the_same_bits_in_one_piece_and_in_several() {
    let case = Case::new(NARROW, &[Request::text(290, 100)], false, 21);
    let whole = &case.prefill().out[0];
    let mut pieces = Vec::new();
    for (from, to) in [(0, 33), (33, 34), (34, 100)] {
        let piece = case.piece(0, from, to);
        let out = if to - from == 1 { piece.decode().out } else { piece.prefill().out };
        pieces.extend_from_slice(&out[0]);
    }
    assert!(pieces == *whole);
}

#[test]
fn banks_do_not_conflict() {
    for (name, case) in cases() {
        assert_eq!(case.prefill().counts.bank_conflicts(), 0, "{name}: prefill");
        assert_eq!(case.decode().counts.bank_conflicts(), 0, "{name}: decode");
    }
}

#[test]
fn keys_and_values_are_read_once_for_all_heads_of_a_group() {
    let Heads { heads, kv_heads, head_dim } = NARROW;
    for keys in [64, 256, 260] {
        let case = Case::new(NARROW, &[Request::text(keys, 1)], false, 22);
        let row = head_dim * 2 / 32;
        let keys_and_values = 2 * keys * kv_heads * row;
        // A warp copies 16 sectors at a time, all of one block, which it looks up first.
        let tables = keys_and_values / 16;
        // What each block of threads reads beside: its queries; and each of its warps the length and two starts.
        let queries = heads / kv_heads * row;
        let beside = |blocks: usize| blocks * (queries + 4 * 3);
        let sectors = |blocks| (keys_and_values + tables + beside(blocks)) as u64;
        let splits = keys.div_ceil(256);
        let (prefill, decode) = (case.prefill().counts, case.decode().counts);
        assert_eq!(prefill.global_load_sectors, sectors(kv_heads), "prefill, {keys} keys");
        assert_eq!(decode.global_load_sectors, sectors(kv_heads * splits), "decode, {keys} keys");
        // Outputs are written in whole sectors, decode's in f32. With each goes a pair of highest score and sum, where a
        // sector holds four; a warp's first two rows are stored together.
        assert_eq!(prefill.global_store_sectors, (heads * row) as u64);
        let (parts, states) = (heads * splits * head_dim * 4 / 32, kv_heads * splits);
        assert_eq!(decode.global_store_sectors, (parts + states) as u64, "{keys} keys");
    }
}
