//! TurboQuant (Zandieh et al. 2025, arXiv 2504.19874): rotate at random, then code each number by itself.
//!
//! Whatever a vector was, after a random rotation its numbers are spread as those of a random vector of
//! its length: no channel is an outlier any more, and the best codebook is known before any data is
//! seen. So nothing is calibrated, and nothing is kept beside the codes but the length.
//!
//! The paper's 2.5 and 3.5 bits come from giving some channels one bit more (section 4.3). It takes
//! outlier channels for that, found beforehand (32 of 128 at 3 bits and 96 at 2, which is in fact 2.25
//! bits), and rotates the two sets apart. Here nothing is found beforehand: all channels are rotated
//! together, after which none is special, and half of the rotated ones get the extra bit. That makes
//! 2.5 and 3.5 exactly.

use super::codebook::Codebook;
use super::codec::Codec;
use super::random::{normal, orthogonal};
use super::{bits, shared};
use naive_decode::{DenseLinear, Error, Isa, Linear, Result};
use ndarray::{Array2, ArrayView2};

/// TurboQuant for the least mean squared error (algorithm 1).
///
/// Layout: the vector's length in half precision, then a code for each rotated number.
pub struct TurboMse {
    rotation: Rotation,
    /// `[D]`: bits of each rotated number's code.
    widths: Vec<usize>,
    /// By bits.
    books: Vec<Option<Codebook>>,
}

struct Rotation {
    /// Row-major `[D][D]`.
    matrix: Vec<f64>,
    forth: DenseLinear,
    back: DenseLinear,
}

impl Rotation {
    fn new(seed: u64, dim: usize, isa: Isa) -> Result<Self> {
        let matrix = orthogonal(seed, dim);
        let transposed = (0..dim * dim).map(|i| matrix[i % dim * dim + i / dim]);
        let forth = dense(matrix.iter().copied(), dim, isa)?;
        let back = dense(transposed, dim, isa)?;
        Ok(Rotation { matrix, forth, back })
    }
}

/// A matrix of rows `dim` wide.
fn dense(matrix: impl Iterator<Item = f64>, dim: usize, isa: Isa) -> Result<DenseLinear> {
    let matrix: Vec<f32> = matrix.map(|x| x as f32).collect();
    DenseLinear::new(&matrix, matrix.len() / dim, dim, isa)
}

impl TurboMse {
    /// For vectors of `dim` numbers. After the rotation, the first `channels` numbers of each part get
    /// its bits: `[(16, 3), (16, 2)]` is 2.5 bits for 32 numbers.
    ///
    /// # Errors
    /// If the parts do not add up to `dim`, or one has not between 1 and 8 bits, or `dim` is below 3.
    pub fn new(dim: usize, parts: &[(usize, usize)], seed: u64, isa: Isa) -> Result<Self> {
        let channels: usize = parts.iter().map(|part| part.0).sum();
        if channels != dim {
            return Err(Error::invalid(
                "channels in all parts",
                channels,
                format!("{dim}, the width"),
            ));
        }
        let mut books = vec![None; 9];
        for &(_, bits) in parts {
            let book = Codebook::lloyd_max(dim, bits)?;
            books[bits] = Some(book);
        }
        let widths = parts.iter().flat_map(|&(channels, bits)| std::iter::repeat_n(bits, channels));
        let rotation = Rotation::new(seed, dim, isa)?;
        Ok(TurboMse { rotation, widths: widths.collect(), books })
    }

    fn book(&self, bits: usize) -> &Codebook {
        self.books[bits].as_ref().expect("a codebook for every width in use")
    }

    /// Bits of all codes of a vector.
    fn code_bits(&self) -> usize {
        self.widths.iter().sum()
    }

    /// Writes length and codes; returns what of the vector, taken as of length 1, they leave out.
    fn encode_rest(&self, row: &[f32], bytes: &mut [u8]) -> Vec<f32> {
        let length = length(row);
        shared::put(bytes, 0, shared::nearest(length));
        let codes = &mut bytes[shared::BYTES..];
        codes.fill(0);
        let mut at = 0;
        let mut rest = Vec::with_capacity(row.len());
        for (&x, &width) in row.iter().zip(&self.widths) {
            let unit = if length > 0.0 { x / length } else { 0.0 };
            let book = self.book(width);
            let code = book.nearest(unit);
            bits::put(codes, at, width, code);
            rest.push(unit - book.centroids()[code as usize]);
            at += width;
        }
        rest
    }
}

fn length(row: &[f32]) -> f32 {
    row.iter().map(|x| x * x).sum::<f32>().sqrt()
}

impl Codec for TurboMse {
    fn bytes(&self) -> usize {
        shared::BYTES + self.code_bits().div_ceil(8)
    }

    fn turn(&self, rows: Array2<f32>) -> Array2<f32> {
        self.rotation.forth.apply(rows.view())
    }

    fn turn_back(&self, sums: Array2<f32>) -> Array2<f32> {
        self.rotation.back.apply(sums.view())
    }

    fn encode(&self, rows: &[f32], tile: &mut [u8]) {
        self.encode_rest(rows, tile);
    }

    // ANCHOR: turbo
    fn numbers(&self, tile: &[u8], _token: usize, numbers: &mut [f32]) -> f32 {
        let codes = &tile[shared::BYTES..];
        let mut at = 0;
        for (number, &width) in numbers.iter_mut().zip(&self.widths) {
            *number = self.book(width).centroids()[bits::get(codes, at, width) as usize];
            at += width;
        }
        shared::get(tile, 0)
    }
    // ANCHOR_END: turbo
}

/// TurboQuant for inner products (algorithm 2): the codes of [`TurboMse`] with one bit less, and for
/// what they leave out the quantised Johnson-Lindenstrauss transform (QJL, Zandieh et al. 2024, arXiv
/// 2406.03482): only the signs of D random projections, and its length.
///
/// The best codebook makes vectors too short, and with them every score; the signs put back what is
/// missing, on average exactly (theorem 2). The price is their noise.
///
/// Layout: as [`TurboMse`], then the length of the rest in half precision, then D signs.
pub struct TurboProduct {
    codes: TurboMse,
    /// `S`, row-major `[D][D]`, independent normal numbers: what the rest is projected with.
    sketch: DenseLinear,
    /// `D → 2 D`: the query rotated, and then projected.
    queries: DenseLinear,
}

impl TurboProduct {
    /// As [`TurboMse::new`]; one bit of each part is the sign.
    ///
    /// # Errors
    /// As [`TurboMse::new`], and if a part has only one bit: it has none left for a code.
    pub fn new(dim: usize, parts: &[(usize, usize)], seed: u64, isa: Isa) -> Result<Self> {
        if let Some((_, bits)) = parts.iter().find(|(_, bits)| *bits < 2) {
            return Err(Error::invalid("bits with a sign among them", bits, "at least 2"));
        }
        let less: Vec<_> = parts.iter().map(|&(channels, bits)| (channels, bits - 1)).collect();
        let codes = TurboMse::new(dim, &less, seed, isa)?;
        // Another stream of random numbers than the rotation's.
        let sketch = normal(!seed, dim * dim);
        let rotation = &codes.rotation.matrix;
        let both = (0..dim * dim).map(|i| -> f64 {
            (0..dim).map(|k| sketch[i / dim * dim + k] * rotation[k * dim + i % dim]).sum()
        });
        let queries = dense(rotation.iter().copied().chain(both), dim, isa)?;
        Ok(TurboProduct { sketch: dense(sketch.into_iter(), dim, isa)?, queries, codes })
    }
}

impl Codec for TurboProduct {
    fn bytes(&self) -> usize {
        self.codes.bytes() + shared::BYTES + self.codes.widths.len().div_ceil(8)
    }

    fn turn(&self, rows: Array2<f32>) -> Array2<f32> {
        self.codes.turn(rows)
    }

    fn turn_queries(&self, queries: Array2<f32>) -> Array2<f32> {
        self.queries.apply(queries.view())
    }

    fn turn_back(&self, sums: Array2<f32>) -> Array2<f32> {
        self.codes.turn_back(sums)
    }

    fn encode(&self, rows: &[f32], tile: &mut [u8]) {
        let (codes, signs) = tile.split_at_mut(self.codes.bytes());
        let rest = self.codes.encode_rest(rows, codes);
        shared::put(signs, 0, shared::nearest(length(&rest)));
        let signs = &mut signs[shared::BYTES..];
        signs.fill(0);
        let rest = ArrayView2::from_shape((1, rest.len()), &rest).expect("one row");
        for (i, &x) in self.sketch.apply(rest).iter().enumerate() {
            bits::put(signs, i, 1, u8::from(x >= 0.0));
        }
    }

    // ANCHOR: product
    /// `[2 D]`: the codes' numbers, and then the signs with what each is worth: `γ · √(π/2) / D`, γ the
    /// length of the rest.
    fn numbers(&self, tile: &[u8], token: usize, numbers: &mut [f32]) -> f32 {
        let (codes, signs) = tile.split_at(self.codes.bytes());
        let (front, back) = numbers.split_at_mut(self.codes.widths.len());
        let factor = self.codes.numbers(codes, token, front);
        let root = std::f32::consts::FRAC_PI_2.sqrt();
        let worth = shared::get(signs, 0) * root / back.len() as f32;
        let signs = &signs[shared::BYTES..];
        for (i, number) in back.iter_mut().enumerate() {
            *number = if bits::get(signs, i, 1) == 1 { worth } else { -worth };
        }
        factor
    }
    // ANCHOR_END: product
}
