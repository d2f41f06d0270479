//! Attention over the paged cache: the same bits in whatever batch, and no byte read in vain.

use crate::paged_case::{Case, Heads, NARROW, Request, Runs, WIDE, ragged};
use cuda_kernels::check::paged::cases;

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
