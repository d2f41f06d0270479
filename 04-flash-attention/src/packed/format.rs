//! What a weight may be stored as.

use super::encode::{self, INT8_SCALE, int8_scale};
use super::linear::check;
use crate::kernels::activations::{GROUP, largest_bits};
use crate::kernels::digits::MOST_INPUTS;
use crate::kernels::float_panels::Eighth;
use half::{bf16, f16};
use naive_decode::{Error, Result};
use rayon::prelude::*;
use std::borrow::Cow;
use std::ops::Range;

/// Blocks that are looked at together, by one thread.
const BLOCKS_AT_ONCE: usize = 4096;

// ANCHOR: format
/// How weights are stored, in rows and in panels alike. Integer formats but `Int8` are those of ggml's GGUF
/// files, so such a file's weights are taken as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// 32-bit floats.
    F32,
    /// 16-bit floats of IEEE 754.
    F16,
    /// 16-bit floats with the exponent of f32.
    Bf16,
    /// The same, and activations are rounded to it, for the instructions for BF16 that some processors have. Sums come
    /// about otherwise than in all other formats of floats.
    Bf16Fast,
    /// FP8: E4M3, a byte each, and a 16-bit scale below 256 for every 32; 8.5 bits a weight.
    Fp8,
    /// INT8: a byte each, and one 32-bit scale for a row; 8 bits a weight. Activations have fifteen bits, and one scale for a
    /// row, too.
    Int8,
    /// INT8: a byte each, and a 16-bit scale for every 32; 8.5 bits a weight.
    Q8_0,
    /// INT4: four bits each, and a 16-bit scale for every 32; 4.5 bits a weight.
    Q4_0,
    /// INT4 as above, and a smallest weight besides; 5 bits a weight.
    Q4_1,
}
// ANCHOR_END: format

impl Format {
    /// Every format, widest first.
    pub const ALL: [Format; 9] = [
        Format::F32,
        Format::Bf16,
        Format::Bf16Fast,
        Format::F16,
        Format::Fp8,
        Format::Q8_0,
        Format::Int8,
        Format::Q4_1,
        Format::Q4_0,
    ];

    /// Name as people write it.
    pub fn name(self) -> &'static str {
        match self {
            Format::F32 => "f32",
            Format::F16 => "f16",
            Format::Bf16 => "bf16",
            Format::Bf16Fast => "bf16-fast",
            Format::Fp8 => "fp8",
            Format::Int8 => "int8",
            Format::Q8_0 => "q8_0",
            Format::Q4_0 => "q4_0",
            Format::Q4_1 => "q4_1",
        }
    }

    /// Whether sums are in another order than the one that all rungs keep.
    pub fn is_fast(self) -> bool {
        self == Format::Bf16Fast
    }

    /// Bytes that a row begins with, before its first block.
    const fn head(self) -> usize {
        match self {
            Format::Int8 => INT8_SCALE,
            _ => 0,
        }
    }

    /// Inputs of a block, and its bytes. A row is a whole number of blocks.
    pub(super) const fn block(self) -> (usize, usize) {
        match self {
            Format::F32 => (1, 4),
            Format::F16 | Format::Bf16 | Format::Bf16Fast => (1, 2),
            Format::Int8 => (1, 1),
            Format::Fp8 | Format::Q8_0 => (GROUP, 2 + GROUP),
            Format::Q4_0 => (GROUP, 2 + GROUP / 2),
            Format::Q4_1 => (GROUP, 4 + GROUP / 2),
        }
    }

    /// Bytes of a row of so many inputs.
    pub fn row_bytes(self, inputs: usize) -> usize {
        let (numbers, bytes) = self.block();
        self.head() + inputs.div_ceil(numbers) * bytes
    }

    /// Checks that sums of so many products do not overflow.
    ///
    /// # Errors
    /// If they may: those of whole rows are kept in 32 bits.
    pub(super) fn check_inputs(self, inputs: usize) -> Result<()> {
        if self == Format::Int8 && inputs > MOST_INPUTS {
            let what = format!("inputs of a {} matrix", self.name());
            return Err(Error::invalid(what, inputs, format!("at most {MOST_INPUTS}")));
        }
        Ok(())
    }

    /// Checks that no weight, in rows of `inputs`, is infinite or none, or larger than this format can have it.
    ///
    /// # Errors
    /// If one is.
    pub(super) fn check_weights(self, weights: &[f32], inputs: usize) -> Result<()> {
        // From halfway to what would be the next number on, a weight is rounded to infinity. So is a scale, of which the
        // largest weight of a group is so many; any weight may be the smallest of its group, which is kept as it is.
        let halves = |steps: f32| (steps * 65_520.0, range(steps * f16::MAX.to_f32()));
        let (end, range) = match self {
            Format::F16 | Format::Q4_1 => halves(1.0),
            Format::Q4_0 => halves(8.0),
            Format::Q8_0 => halves(127.0),
            // Scales are smaller, in steps of an eighth. From halfway on one is rounded to what it must not be.
            Format::Fp8 => {
                let scales = |below: f32| 448.0 * (Eighth::SCALES_END - below);
                (scales(0.0625), range(scales(0.125)))
            }
            Format::Bf16 | Format::Bf16Fast => {
                (f32::from_bits(0x7f7f_8000), range(bf16::MAX.to_f32()))
            }
            // 127 of its 127th, which is rounded, are more.
            Format::Int8 => (f32::MAX, range(f32::MAX.next_down())),
            Format::F32 => (f32::INFINITY, "finite".into()),
        };
        let is_odd = |weight: &f32| weight.is_nan() || weight.abs() >= end;
        // Bits without the sign are in the order of sizes, and those of a NaN come last.
        let has_odd = |row: &[f32]| largest_bits(row) >= end.to_bits();
        let Some(row) = weights.par_chunks(inputs.max(1)).position_first(has_odd) else {
            return Ok(());
        };
        let at = weights[row * inputs..].iter().position(is_odd).expect("the row has one");
        let what = format!("weight {at} of row {row} of a {} matrix", self.name());
        Err(Error::invalid(what, weights[row * inputs + at], range))
    }

    /// Stores one row; what is missing of its last block is zeros.
    pub(super) fn encode(self, row: &[f32], to: &mut [u8]) {
        match self {
            Format::F32 => each(row, to, f32::to_le_bytes),
            Format::F16 => each(row, to, |w| f16::from_f32(w).to_le_bytes()),
            Format::Bf16 | Format::Bf16Fast => each(row, to, |w| bf16::from_f32(w).to_le_bytes()),
            Format::Fp8 => blocks(row, to, encode::fp8),
            Format::Int8 => encode::int8(row, to),
            Format::Q8_0 => blocks(row, to, encode::q8_0),
            Format::Q4_0 => blocks(row, to, encode::q4_0),
            Format::Q4_1 => blocks(row, to, encode::q4_1),
        }
    }

    /// The numbers that a stored row stands for.
    pub(super) fn decode(self, row: &[u8], to: &mut [f32]) {
        match self {
            Format::F32 => back(row, to, f32::from_le_bytes),
            Format::F16 => back(row, to, |b| f16::from_le_bytes(b).to_f32()),
            Format::Bf16 | Format::Bf16Fast => back(row, to, |b| bf16::from_le_bytes(b).to_f32()),
            Format::Fp8 => blocks_back(row, to, encode::from_fp8),
            Format::Int8 => encode::from_int8(row, to),
            Format::Q8_0 => blocks_back(row, to, encode::from_q8_0),
            Format::Q4_0 => blocks_back(row, to, encode::from_q4_0),
            Format::Q4_1 => blocks_back(row, to, encode::from_q4_1),
        }
    }
}

impl std::str::FromStr for Format {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Format::ALL.into_iter().find(|format| format.name() == name).ok_or_else(|| {
            let names = Format::ALL.map(Format::name).join(", ");
            Error::invalid("weight format", name, format!("one of {names}"))
        })
    }
}

fn range(largest: f32) -> String {
    format!("from -{largest:e} to {largest:e}")
}

fn each<const N: usize>(row: &[f32], to: &mut [u8], code: impl Fn(f32) -> [u8; N]) {
    to.as_chunks_mut().0.iter_mut().zip(row).for_each(|(to, &weight)| *to = code(weight));
}

fn back<const N: usize>(row: &[u8], to: &mut [f32], number: impl Fn([u8; N]) -> f32) {
    to.iter_mut().zip(row.as_chunks().0).for_each(|(to, &bytes)| *to = number(bytes));
}

fn blocks<const N: usize>(row: &[f32], to: &mut [u8], code: impl Fn(&[f32; GROUP]) -> [u8; N]) {
    let (whole, last) = row.as_chunks::<GROUP>();
    let (blocks, _) = to.as_chunks_mut();
    blocks.iter_mut().zip(whole).for_each(|(to, weights)| *to = code(weights));
    if !last.is_empty() {
        let mut weights = [0.0; GROUP];
        weights[..last.len()].copy_from_slice(last);
        blocks[whole.len()] = code(&weights);
    }
}

fn blocks_back<const N: usize>(
    row: &[u8],
    to: &mut [f32],
    numbers: impl Fn(&[u8; N]) -> [f32; GROUP],
) {
    for (to, block) in to.chunks_mut(GROUP).zip(row.as_chunks().0) {
        to.copy_from_slice(&numbers(block)[..to.len()]);
    }
}

/// A matrix as rows of a format, one for each output.
#[derive(Debug, Clone)]
pub struct Rows<'a> {
    /// Whether a file has them so.
    pub(crate) as_stored: bool,
    /// What the bytes are.
    pub(crate) format: Format,
    /// Rows.
    pub(crate) outputs: usize,
    /// Weights of a row.
    pub(crate) inputs: usize,
    /// `[outputs]` rows of [`Format::row_bytes`].
    pub(crate) bytes: Cow<'a, [u8]>,
}

impl<'a> Rows<'a> {
    /// Some of the rows.
    pub(super) fn part(self, rows: Range<usize>) -> Self {
        let each = self.format.row_bytes(self.inputs);
        let own = rows.start * each..rows.end * each;
        let bytes = match self.bytes {
            Cow::Borrowed(bytes) => Cow::Borrowed(&bytes[own]),
            Cow::Owned(bytes) => Cow::Owned(bytes[own].to_vec()),
        };
        Rows { outputs: rows.len(), bytes, ..self }
    }

    /// Rows as some file stores them.
    ///
    /// # Errors
    /// If the bytes are not `outputs` rows of whole blocks, a number is infinite or none, a scale is too large for the
    /// format, or rows are too long for it.
    pub fn stored(
        format: Format,
        outputs: usize,
        inputs: usize,
        bytes: impl Into<Cow<'a, [u8]>>,
    ) -> Result<Self> {
        let bytes = bytes.into();
        let block = format.block().0;
        if outputs == 0 || inputs == 0 || !inputs.is_multiple_of(block) {
            let what = format!("shape of a {} matrix", format.name());
            let found = format!("{outputs} outputs x {inputs} inputs");
            let expected = format!("some outputs, and inputs in whole blocks of {block}");
            return Err(Error::invalid(what, found, expected));
        }
        format.check_inputs(inputs)?;
        let expected = outputs.checked_mul(format.row_bytes(inputs));
        if expected != Some(bytes.len()) {
            let what = format!("bytes of a {} matrix", format.name());
            let expected = expected.map_or("more than there can be".into(), |it| it.to_string());
            let expected = format!("{expected} for {outputs} outputs x {inputs} inputs");
            return Err(Error::invalid(what, bytes.len(), expected));
        }
        let rows = Rows { as_stored: true, format, outputs, inputs, bytes };
        let Some(odd) = rows.first_odd() else { return Ok(rows) };
        let (what, expected) = match odd.is_finite() {
            true => ("scale", format!("less than {} in size", Eighth::SCALES_END)),
            false => ("number", "finite".into()),
        };
        Err(Error::invalid(format!("a {what} of a {} matrix", format.name()), odd, expected))
    }

    /// The same rows, which a file has in another format.
    pub fn converted(self) -> Self {
        Rows { as_stored: false, ..self }
    }

    /// Rows of a row-major `[outputs][inputs]` matrix of floats.
    ///
    /// # Errors
    /// As [`Rows::stored`], and if the format cannot hold a weight.
    pub fn encoded(
        format: Format,
        weights: &[f32],
        outputs: usize,
        inputs: usize,
    ) -> Result<Rows<'static>> {
        check(format, weights, outputs, inputs)?;
        let row_bytes = format.row_bytes(inputs);
        let mut bytes = vec![0; weights.len() / inputs.max(1) * row_bytes];
        for (row, to) in weights.chunks(inputs.max(1)).zip(bytes.chunks_exact_mut(row_bytes.max(1)))
        {
            format.encode(row, to);
        }
        Rows::stored(format, outputs, inputs, bytes)
    }

    /// `[outputs]` rows of [`Format::row_bytes`].
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The first number, or scale of numbers, that is infinite or none, or a scale that is too large for FP8.
    fn first_odd(&self) -> Option<f32> {
        /// `number` of the first block that `is_odd`.
        fn first<const N: usize>(
            bytes: &[u8],
            is_odd: impl Fn(&[u8; N]) -> bool + Sync,
            number: impl Fn(&[u8; N]) -> f32,
        ) -> Option<f32> {
            // To the end of a stretch even if one is odd: many blocks are then looked at together.
            let has_odd = |blocks: &&[_]| blocks.iter().fold(false, |odd, it| odd | is_odd(it));
            let blocks = bytes.as_chunks().0.par_chunks(BLOCKS_AT_ONCE).find_first(has_odd)?;
            blocks.iter().find(|block| is_odd(block)).map(number)
        }
        let half = |low, high| f16::from_le_bytes([low, high]);
        let scale = |block: &[u8]| half(block[0], block[1]);
        let bytes = &self.bytes;
        match self.format {
            Format::F32 => {
                let number = |b: &[u8; 4]| f32::from_le_bytes(*b);
                first(bytes, |b| !number(b).is_finite(), number)
            }
            Format::F16 => first(bytes, |b: &[u8; 2]| !scale(b).is_finite(), |b| scale(b).to_f32()),
            Format::Bf16 | Format::Bf16Fast => {
                let number = |b: &[u8; 2]| bf16::from_le_bytes(*b);
                first(bytes, |b| !number(b).is_finite(), |b| number(b).to_f32())
            }
            // E4M3 has no infinity, and one code of each sign that is no number.
            Format::Fp8 => {
                let number = |b: &[u8; 34]| match b[2..].iter().any(|c| c & 0x7f == 0x7f) {
                    true => f32::NAN,
                    false => scale(b).to_f32(),
                };
                let is_odd = |scale: f32| scale.is_nan() || scale.abs() >= Eighth::SCALES_END;
                first(bytes, |b| is_odd(number(b)), number)
            }
            Format::Int8 => {
                let rows = bytes.chunks_exact(self.format.row_bytes(self.inputs));
                rows.map(int8_scale).find(|scale| !scale.is_finite())
            }
            Format::Q8_0 => {
                first(bytes, |b: &[u8; 34]| !scale(b).is_finite(), |b| scale(b).to_f32())
            }
            Format::Q4_0 => {
                first(bytes, |b: &[u8; 18]| !scale(b).is_finite(), |b| scale(b).to_f32())
            }
            Format::Q4_1 => {
                let both = |b: &[u8; 20]| [scale(b), half(b[2], b[3])];
                let is_odd = |b: &[u8; 20]| both(b).iter().any(|half| !half.is_finite());
                // Not finite if either of the two is not.
                first(bytes, is_odd, |b| both(b).iter().map(|half| half.to_f32().abs()).sum())
            }
        }
    }
}
