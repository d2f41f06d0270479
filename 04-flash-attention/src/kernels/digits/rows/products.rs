//! A handful of rows meets codes: scores of keys, and sums of values.

#![expect(clippy::needless_range_loop, reason = "registers are counted, not walked through")]

use super::super::super::activations::STEP;
use super::super::super::float_panels::OUTPUTS;
use super::super::super::{Kernel, Lanes, prefetch_far};
use super::super::{Digits, STEP_BYTES, STEPS};
use super::{Code, Meeting, OutputTile, Row, TILE_STEPS};

/// Tiles ahead that are asked for of memory: a tile of codes is done with in fewer cycles than memory takes to send one.
const AHEAD: usize = 8;

/// `R` rows in digits.
pub(super) struct Handful<'a, const R: usize> {
    pub(super) blocks: &'a [Digits<R>],
    /// Steps of a row; those that its last block has beyond them are zeros.
    pub(super) steps: usize,
    pub(super) rows: [Row; R],
}

/// Sums of `R` rows, for `C` registers of outputs.
type Sums<V, const R: usize, const C: usize> =
    [[<<V as Lanes>::Numbers as Meeting<V>>::Sums; C]; R];

impl<const R: usize> Handful<'_, R> {
    /// Sums of no products yet.
    ///
    /// # Safety
    /// The instructions of `V` are there, as in all that follows.
    #[inline(always)]
    unsafe fn begin<V: Lanes, const C: usize>(&self) -> Sums<V, R, C> {
        // SAFETY: the caller vouches for them.
        unsafe {
            let mut sums = [[V::Numbers::begin([0; 2]); C]; R];
            for r in 0..R {
                sums[r] = [V::Numbers::begin(self.rows[r].starts); C];
            }
            sums
        }
    }

    // ANCHOR: meet_codes
    /// Adds the products of one step of a block with codes. What will be read later lies at `coming`.
    ///
    /// # Safety
    /// 64 bytes lie at each of `codes`.
    #[inline(always)]
    unsafe fn add<V: Lanes, const C: usize>(
        sums: &mut Sums<V, R, C>,
        (block, step): (&Digits<R>, usize),
        codes: [*const u8; C],
        coming: Option<[*const u8; C]>,
    ) {
        // SAFETY: the caller vouches for the codes and the instructions.
        unsafe {
            let mut loaded = [V::Numbers::codes(codes[0]); C];
            for c in 1..C {
                loaded[c] = V::Numbers::codes(codes[c]);
            }
            if let Some(coming) = coming {
                coming.iter().for_each(|it| prefetch_far(*it));
            }
            for r in 0..R {
                let x = [block[0][r][step], block[1][r][step]];
                for c in 0..C {
                    sums[r][c] = V::Numbers::add(sums[r][c], loaded[c], x);
                }
            }
        }
    }

    /// A sum of row `r`, times its scale and `by`.
    ///
    /// # Safety
    /// As above.
    #[inline(always)]
    unsafe fn join<V: Lanes, const C: usize>(
        &self,
        sums: &Sums<V, R, C>,
        (r, c): (usize, usize),
        by: f32,
    ) -> V {
        // SAFETY: as above.
        unsafe { V::Numbers::end(sums[r][c]).times(V::splat(self.rows[r].scale * by)) }
    }
    // ANCHOR_END: meet_codes
}

/// Registers of outputs that `R` rows meet together: with two sums for each, or two registers, what there is room for, or what
/// hides how long one product takes.
const fn beside<V: Lanes>(rows: usize) -> usize {
    match (V::REGISTERS, rows) {
        (1, ..=3) => 4,
        (1, 4) => 2,
        _ => 1,
    }
}

/// What `R` rows make of some registers of outputs.
trait Registers<const R: usize> {
    /// `C` of them from `first` on.
    ///
    /// # Safety
    /// The instructions of `V` are there, and as many registers.
    unsafe fn some<V: Lanes, const C: usize>(&mut self, first: usize);

    /// All of them.
    ///
    /// # Safety
    /// As above.
    #[inline(always)]
    unsafe fn all<V: Lanes>(&mut self, count: usize) {
        let (beside, mut first) = (const { beside::<V>(R) }, 0);
        // SAFETY: the caller vouches for both.
        unsafe {
            while beside == 4 && first + 4 <= count {
                self.some::<V, 4>(first);
                first += 4;
            }
            while beside >= 2 && first + 2 <= count {
                self.some::<V, 2>(first);
                first += 2;
            }
            while first < count {
                self.some::<V, 1>(first);
                first += 1;
            }
        }
    }
}

pub(super) struct Meet<'a, const R: usize> {
    pub(super) rows: Handful<'a, R>,
    pub(super) tiles: &'a [OutputTile<'a>],
    pub(super) after: Option<&'a [&'a [Code]]>,
    pub(super) by: f32,
    /// `[R][tiles]`
    pub(super) to: &'a mut [[f32; OUTPUTS]],
}

impl<const R: usize> Kernel for Meet<'_, R> {
    #[inline(always)]
    unsafe fn run<V: Lanes>(mut self) {
        let count = self.tiles.len();
        // SAFETY: passed on.
        unsafe { self.all::<V>(count) }
    }
}

impl<const R: usize> Meet<'_, R> {
    /// Where a tile lies; past the last, what is read after it.
    #[inline(always)]
    fn at(&self, tile: usize, after: &[&[Code]]) -> *const u8 {
        match self.tiles.get(tile) {
            Some(tile) => tile.as_ptr().cast(),
            None => {
                after.get(tile - self.tiles.len()).map_or(std::ptr::null(), |it| it.as_ptr().cast())
            }
        }
    }
}

impl<const R: usize> Registers<R> for Meet<'_, R> {
    #[inline(always)]
    unsafe fn some<V: Lanes, const C: usize>(&mut self, first: usize) {
        let mut codes = [self.tiles[first].as_ptr().cast(); C];
        let mut coming = self.after.map(|_| [std::ptr::null(); C]);
        for c in 0..C {
            codes[c] = self.tiles[first + c].as_ptr().cast();
            if let (Some(coming), Some(after)) = (&mut coming, self.after) {
                coming[c] = self.at(first + c + AHEAD, after);
            }
        }
        // SAFETY: `meet` checked how long tiles are; the caller vouches for the instructions.
        unsafe {
            let mut sums = self.rows.begin::<V, C>();
            for (i, block) in self.rows.blocks.iter().enumerate() {
                let (steps, skipped) =
                    (STEPS.min(self.rows.steps - i * STEPS), i * STEPS * STEP_BYTES);
                for step in 0..steps {
                    let at = skipped + step * STEP_BYTES;
                    let codes = codes.map(|codes: *const u8| codes.add(at));
                    let coming = coming.map(|coming| coming.map(|it| it.wrapping_add(at)));
                    Handful::add::<V, C>(&mut sums, (block, step), codes, coming);
                }
            }
            for r in 0..R {
                for c in 0..C {
                    let to = &mut self.to[r * self.tiles.len() + first + c];
                    self.rows.join::<V, C>(&sums, (r, c), self.by).store(to.as_mut_ptr());
                }
            }
        }
    }
}

pub(super) struct Add<'a, const R: usize> {
    pub(super) rows: Handful<'a, R>,
    /// `[tiles][4][width][4]`
    pub(super) tiles: &'a [&'a [Code]],
    pub(super) width: usize,
    pub(super) asks: bool,
    /// `[R][width]`
    pub(super) to: &'a mut [f32],
}

impl<const R: usize> Kernel for Add<'_, R> {
    #[inline(always)]
    unsafe fn run<V: Lanes>(mut self) {
        let count = self.width / OUTPUTS;
        // SAFETY: passed on.
        unsafe { self.all::<V>(count) }
    }
}

impl<const R: usize> Registers<R> for Add<'_, R> {
    #[inline(always)]
    unsafe fn some<V: Lanes, const C: usize>(&mut self, first: usize) {
        let stride = STEP * self.width;
        // SAFETY: `add` checked how long tiles are; the caller vouches for the instructions.
        unsafe {
            let mut sums = self.rows.begin::<V, C>();
            // Not known to a compiler, which would take a tile's steps at once, and has no registers for all they multiply.
            let steps = std::hint::black_box(TILE_STEPS);
            for (i, tile) in self.tiles.iter().enumerate() {
                let (block, first_step) = (i * TILE_STEPS / STEPS, i * TILE_STEPS % STEPS);
                let block = &self.rows.blocks[block];
                let coming = self.asks.then(|| {
                    let tile = self.tiles.get(i + AHEAD);
                    tile.map_or(std::ptr::null(), |it| it.as_ptr().cast::<u8>())
                });
                for step in 0..steps {
                    let at = |c: usize| step * stride + (first + c) * STEP_BYTES;
                    let codes = tile.as_ptr().cast::<u8>();
                    let codes = std::array::from_fn(|c| codes.wrapping_add(at(c)));
                    let coming =
                        coming.map(|coming| std::array::from_fn(|c| coming.wrapping_add(at(c))));
                    Handful::add::<V, C>(&mut sums, (block, first_step + step), codes, coming);
                }
            }
            for r in 0..R {
                for c in 0..C {
                    let to = &mut self.to[r * self.width + (first + c) * OUTPUTS..][..OUTPUTS];
                    self.rows.join::<V, C>(&sums, (r, c), 1.0).store(to.as_mut_ptr());
                }
            }
        }
    }
}
