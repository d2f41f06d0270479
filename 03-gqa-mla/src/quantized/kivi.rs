//! KIVI (Liu et al. 2024, arXiv 2402.02750): keys by channel, values by token.
//!
//! Keys have channels that are large for every token; values do not. So keys are quantised along
//! tokens, each channel with a range of its own, and a large channel costs only itself. Values are
//! quantised token by token: attention adds up few of them, and an error should stay with its token
//! (section 3.1). A range per channel needs several tokens at once, so the latest tokens wait in full
//! precision until there are enough, and the values' latest stay so as well (section 3.2).

use super::codec::Codec;
use super::scheme::{Recent, Scheme};
use super::{bits, shared};
use half::f16;
use kv_cache::KvShape;
use naive_decode::{Error, Result};

/// KIVI's choices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kivi {
    /// Bits of a code: 2 or 4.
    pub bits: usize,
    /// Numbers that share a range: tokens of one key channel, or channels of one token's value. 32 in
    /// the paper.
    pub group: usize,
    /// Tokens kept in full precision, a multiple of `group`; 128 in the paper.
    pub residual: usize,
    /// Tokens that can always be rolled back from the longest a sequence has been. Their full-precision rows are kept for
    /// that long.
    pub rollback: usize,
}

impl Kivi {
    /// As in the paper, but for the residual window: a quarter of the paper's, since the embedded
    /// models' contexts are a quarter of a paper's.
    pub fn new(bits: usize) -> Self {
        Kivi { bits, group: 32, residual: 32, rollback: 32 }
    }

    /// The codecs, and what stays in full precision.
    ///
    /// A row that is the `n`th of its sequence sees the first `n - n % residual` keys as codes and the
    /// first `n - residual` values; the others, itself among them, it sees as they are. These are
    /// the sizes after the appends of algorithm 1's decoding. The paper's prefill attends to full
    /// precision throughout, which would make answers depend on how a prompt is cut; here every row is
    /// treated as decoding treats it.
    ///
    /// # Errors
    /// Bits that KIVI does not have, a group that does not divide the residual window or the width of a
    /// value, or rows of codes that do not fill whole bytes.
    pub fn scheme(self, shape: KvShape) -> Result<Scheme> {
        let Kivi { bits, group, residual, rollback } = self;
        let refuse = |what: &str, found: usize, expected: &str| {
            Err(Error::invalid(format!("KIVI's {what}"), found, expected))
        };
        if bits != 2 && bits != 4 {
            return refuse("bits", bits, "2 or 4");
        }
        if group == 0 || !shape.value_dim.is_multiple_of(group) {
            let expected = format!("a divisor of the value width, {}", shape.value_dim);
            return refuse("group", group, &expected);
        }
        if residual == 0 || !residual.is_multiple_of(group) {
            return refuse(
                "residual window",
                residual,
                &format!("a multiple of the group, {group}"),
            );
        }
        for dim in [shape.key_dim, shape.value_dim] {
            if !(dim * bits).is_multiple_of(8) {
                return refuse("head width", dim, &format!("whole bytes of {bits}-bit codes"));
            }
        }
        Ok(Scheme {
            keys: Box::new(KiviKeys { bits, group, tokens: residual, dim: shape.key_dim }),
            values: Box::new(KiviValues { bits, group, dim: shape.value_dim }),
            recent: Recent { keys: 0, values: residual, rollback },
        })
    }
}

/// `x ≈ zero + scale · code`, asymmetric quantisation as in the paper's section 2.
#[derive(Clone, Copy)]
struct Range {
    zero: f16,
    scale: f16,
}

impl Range {
    // ANCHOR: range
    /// The range of some numbers, in `2^bits` steps.
    fn of(numbers: impl Iterator<Item = f32> + Clone, bits: usize) -> Self {
        let lowest = numbers.clone().fold(f32::INFINITY, f32::min);
        let highest = numbers.fold(f32::NEG_INFINITY, f32::max);
        let zero = shared::at_most(lowest);
        // Divided one by one: the difference of two finite numbers need not be finite.
        let steps = ((1 << bits) - 1) as f32;
        let scale = shared::at_least(highest / steps - zero.to_f32() / steps);
        Range { zero, scale }
    }

    fn code(self, x: f32, bits: usize) -> u8 {
        let scale = self.scale.to_f32();
        let steps = if scale > 0.0 { (x - self.zero.to_f32()) / scale } else { 0.0 };
        steps.round_ties_even().clamp(0.0, ((1 << bits) - 1) as f32) as u8
    }
    // ANCHOR_END: range

    fn put(self, bytes: &mut [u8], i: usize) {
        shared::put(bytes, 2 * i, self.zero);
        shared::put(bytes, 2 * i + 1, self.scale);
    }

    /// `(zero, scale)`
    #[inline]
    fn get(bytes: &[u8], i: usize) -> (f32, f32) {
        (shared::get(bytes, 2 * i), shared::get(bytes, 2 * i + 1))
    }
}

/// Bytes of a [`Range`].
const RANGE: usize = 2 * shared::BYTES;

/// Keys of one head in tiles of a whole residual window, a range for each channel of every `group`
/// tokens.
///
/// Layout: ranges `[tokens / group][D]`, then codes `[tokens][D]`.
pub struct KiviKeys {
    bits: usize,
    group: usize,
    tokens: usize,
    dim: usize,
}

impl KiviKeys {
    fn ranges(&self) -> usize {
        self.tokens / self.group * self.dim
    }
}

impl Codec for KiviKeys {
    fn tokens(&self) -> usize {
        self.tokens
    }

    fn bytes(&self) -> usize {
        self.ranges() * RANGE + self.tokens * self.dim * self.bits / 8
    }

    fn encode(&self, rows: &[f32], tile: &mut [u8]) {
        let (ranges, codes) = tile.split_at_mut(self.ranges() * RANGE);
        codes.fill(0);
        for (g, rows) in rows.chunks_exact(self.group * self.dim).enumerate() {
            for channel in 0..self.dim {
                let numbers = rows.iter().copied().skip(channel).step_by(self.dim);
                let range = Range::of(numbers.clone(), self.bits);
                range.put(ranges, g * self.dim + channel);
                for (token, x) in (g * self.group..).zip(numbers) {
                    let at = (token * self.dim + channel) * self.bits;
                    bits::put(codes, at, self.bits, range.code(x, self.bits));
                }
            }
        }
    }

    fn numbers(&self, tile: &[u8], token: usize, numbers: &mut [f32]) -> f32 {
        let (ranges, codes) = tile.split_at(self.ranges() * RANGE);
        let first = token / self.group * self.dim;
        for (channel, number) in numbers.iter_mut().enumerate() {
            let (zero, scale) = Range::get(ranges, first + channel);
            let code = bits::get(codes, (token * self.dim + channel) * self.bits, self.bits);
            *number = zero + scale * f32::from(code);
        }
        1.0
    }
}

/// One value, a range for every `group` channels.
///
/// Layout: ranges `[D / group]`, then codes `[D]`.
pub struct KiviValues {
    bits: usize,
    group: usize,
    dim: usize,
}

impl Codec for KiviValues {
    fn bytes(&self) -> usize {
        self.dim / self.group * RANGE + self.dim * self.bits / 8
    }

    fn encode(&self, rows: &[f32], tile: &mut [u8]) {
        let (ranges, codes) = tile.split_at_mut(self.dim / self.group * RANGE);
        codes.fill(0);
        for (g, numbers) in rows.chunks_exact(self.group).enumerate() {
            let range = Range::of(numbers.iter().copied(), self.bits);
            range.put(ranges, g);
            for (channel, &x) in (g * self.group..).zip(numbers) {
                bits::put(codes, channel * self.bits, self.bits, range.code(x, self.bits));
            }
        }
    }

    fn numbers(&self, tile: &[u8], _token: usize, numbers: &mut [f32]) -> f32 {
        let (ranges, codes) = tile.split_at(self.dim / self.group * RANGE);
        for (g, numbers) in numbers.chunks_exact_mut(self.group).enumerate() {
            let (zero, scale) = Range::get(ranges, g);
            for (channel, number) in (g * self.group..).zip(numbers) {
                let code = bits::get(codes, channel * self.bits, self.bits);
                *number = zero + scale * f32::from(code);
            }
        }
        1.0
    }
}
