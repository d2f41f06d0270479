//! Weights meet values that are the beginnings of keys, where they lie in the keys' tiles.
//!
//! A tile's lanes are places, and places must be added in order: one lane after another, which no register can
//! do. So registers go the other way here. Their lanes are *queries*, of which latent attention has many for its
//! one key-value head, and each number of the tile meets the weights of sixteen of them.

use super::element::Widened;
use naive_decode::Isa;
use naive_decode::kernels::{Kernel, Vector};
use naive_decode::numerics::LANES;

/// Columns whose sums are in registers together: enough chains to fill the wait of each.
const COLUMNS: usize = 8;

/// Room that is kept from one tile to the next.
#[derive(Default)]
pub(super) struct Room {
    /// `[D_v][16 places]`: the tile, widened.
    wide: Vec<[f32; LANES]>,
    /// `[queries / 16][D_v][16 queries]`
    sums: Vec<[f32; LANES]>,
}

impl Room {
    /// Begins the sums of so many queries over values of so many columns.
    pub(super) fn begin(&mut self, queries: usize, columns: usize) {
        self.wide.resize(columns, [0.0; LANES]);
        self.sums.clear();
        self.sums.resize(queries.div_ceil(LANES) * columns, [0.0; LANES]);
    }

    /// Adds the values in a tile's first `places` lanes; `tile` is `[D_v][16 places]`, and the weight of
    /// place `p` for query `q` is `weights[q * row + first + p]`.
    pub(super) fn add<E: Widened>(
        &mut self,
        isa: Isa,
        (weights, row, first): (&[f32], usize, usize),
        places: usize,
        tile: &[[E; LANES]],
    ) {
        isa.run(Widen { tile, wide: &mut self.wide });
        let groups = weights.chunks(LANES * row);
        for (weights, sums) in groups.zip(self.sums.chunks_exact_mut(tile.len())) {
            // [places][16 queries]
            let mut panel = [[0.0; LANES]; LANES];
            for (lane, weights) in weights.chunks_exact(row).enumerate() {
                let weights = &weights[first..first + places];
                panel.iter_mut().zip(weights).for_each(|(lanes, &weight)| lanes[lane] = weight);
            }
            isa.run(AddColumns { values: &self.wide, weights: &panel[..places], sums });
        }
    }

    /// One query's sum, `[D_v]`.
    pub(super) fn sum(&self, query: usize) -> impl Iterator<Item = f32> {
        let columns = self.wide.len();
        let sums = &self.sums[query / LANES * columns..][..columns];
        sums.iter().map(move |lanes| lanes[query % LANES])
    }
}

/// `wide = tile`, number by number.
struct Widen<'a, E> {
    tile: &'a [[E; LANES]],
    wide: &'a mut [[f32; LANES]],
}

impl<E: Widened> Kernel for Widen<'_, E> {
    type Result = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        for (narrow, wide) in self.tile.iter().zip(self.wide) {
            for first in (0..LANES).step_by(V::WIDTH) {
                // SAFETY: the caller vouches for the instruction set; both have LANES numbers.
                unsafe { E::load::<V>(&narrow[first..]).store(&mut wide[first..]) };
            }
        }
    }
}

/// `sums[d][q] += Σ_p values[d][p] · weights[p][q]`, one chain per sum, ascending `p`.
struct AddColumns<'a> {
    values: &'a [[f32; LANES]],
    weights: &'a [[f32; LANES]],
    sums: &'a mut [[f32; LANES]],
}

impl Kernel for AddColumns<'_> {
    type Result = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let (values, rest) = self.values.as_chunks::<COLUMNS>();
        let (sums, rest_sums) = self.sums.as_chunks_mut::<COLUMNS>();
        for (values, sums) in values.iter().zip(sums) {
            // SAFETY: the caller vouches for the instruction set.
            unsafe { add_columns::<V, COLUMNS>(values, self.weights, sums) };
        }
        for (values, sums) in rest.iter().zip(rest_sums) {
            let (values, sums) = (std::array::from_ref(values), std::array::from_mut(sums));
            // SAFETY: as above.
            unsafe { add_columns::<V, 1>(values, self.weights, sums) };
        }
    }
}

/// # Safety
/// The instruction set of `V` must be present.
#[inline(always)]
unsafe fn add_columns<V: Vector, const C: usize>(
    values: &[[f32; LANES]; C],
    weights: &[[f32; LANES]],
    sums: &mut [[f32; LANES]; C],
) {
    for first in (0..LANES).step_by(V::WIDTH) {
        // SAFETY: the caller vouches for the instruction set; every row has LANES numbers.
        unsafe {
            let mut registers = [V::splat(0.0); C];
            for c in 0..C {
                registers[c] = V::load(&sums[c][first..]);
            }
            for (place, weights) in weights.iter().enumerate().take(LANES) {
                let weights = V::load(&weights[first..]);
                for c in 0..C {
                    registers[c] = registers[c].add_product(V::splat(values[c][place]), weights);
                }
            }
            for c in 0..C {
                registers[c].store(&mut sums[c][first..]);
            }
        }
    }
}
