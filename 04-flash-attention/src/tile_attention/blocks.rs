//! Queries by the handful: as many as a kernel keeps in registers together.

use naive_decode::Isa;
use naive_decode::kernels::{Kernel, Vector};
use naive_decode::numerics::LANES;

/// Runs `$code` with the constant `$R` equal to `$rows`, the size of a [`Block`], and how many registers share
/// each of a query's numbers: `$WIDE` where registers are wide and many, `$NARROW` pairs of them elsewhere, and
/// `$PAIRED` in the fast mode, which has two sums for each.
///
/// A chain of multiply-adds waits for its own last result. Eight or more side by side fill the wait, and more share loads
/// better; a query alone waits for memory. Of AVX2's sixteen registers twelve can be sums, as some are loaded meanwhile.
macro_rules! on_rows {
    ($rows:expr, |$R:ident, $WIDE:ident, $NARROW:ident, $PAIRED:ident| $code:expr) => {
        match $rows {
            8 => on_rows!(@ $code, $R = 8, $WIDE = 2, $NARROW = 1, $PAIRED = 1),
            6 => on_rows!(@ $code, $R = 6, $WIDE = 2, $NARROW = 1, $PAIRED = 1),
            4 => on_rows!(@ $code, $R = 4, $WIDE = 4, $NARROW = 1, $PAIRED = 2),
            3 => on_rows!(@ $code, $R = 3, $WIDE = 4, $NARROW = 2, $PAIRED = 2),
            2 => on_rows!(@ $code, $R = 2, $WIDE = 4, $NARROW = 2, $PAIRED = 4),
            1 => on_rows!(@ $code, $R = 1, $WIDE = 4, $NARROW = 4, $PAIRED = 4),
            rows => unreachable!("no block has {rows} queries"),
        }
    };
    (@ $code:expr, $($name:ident = $value:literal),*) => {{
        $(const $name: usize = $value;)*
        $code
    }};
}

/// Most queries to a block: as many as registers have room for, of which AVX2 has sixteen and others twice as many.
pub(super) fn most_together(isa: Isa) -> usize {
    isa.run(MostTogether)
}

struct MostTogether;

impl Kernel for MostTogether {
    type Result = usize;

    #[inline(always)]
    unsafe fn run<V: Vector>(self) -> usize {
        const { most::<V>() }
    }
}

/// As [`most_together`], where the kind of register is known.
pub(super) const fn most<V: Vector>() -> usize {
    if V::WIDTH == LANES / 2 { 6 } else { 8 }
}

/// Some neighbouring queries that a kernel takes at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// First of them.
    pub(super) first: usize,
    /// How many: 8, 6, 4, 3, 2 or 1.
    pub(super) rows: usize,
}

/// Shares out so many queries: blocks of `most`, then of as many as are left, by four, three, two and one.
pub(super) fn blocks(queries: usize, most: usize) -> impl Iterator<Item = Block> {
    let mut first = 0;
    std::iter::from_fn(move || {
        let rows = [most, 4, 3, 2, 1].into_iter().find(|&rows| rows <= queries - first)?;
        first += rows;
        Some(Block { first: first - rows, rows })
    })
}

/// Appends the block's queries to `packed`, `[D][R]`.
pub(super) fn pack<'a>(block: Block, query: impl Fn(usize) -> &'a [f32], packed: &mut Vec<f32>) {
    on_rows!(block.rows, |R, _WIDE, _NARROW, _PAIRED| {
        let queries: [_; R] = std::array::from_fn(|r| query(block.first + r));
        let (start, length) = (packed.len(), queries[0].len());
        let queries = queries.map(|query: &[f32]| &query[..length]);
        packed.resize(start + R * length, 0.0);
        let (columns, _) = packed[start..].as_chunks_mut::<R>();
        for (d, column) in columns.iter_mut().enumerate() {
            for r in 0..R {
                column[r] = queries[r][d];
            }
        }
    });
}

pub(super) use on_rows;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_all_queries_in_order() {
        for most in [4, 6, 8] {
            for queries in 0..40 {
                let mut next = 0;
                for block in blocks(queries, most) {
                    assert_eq!(block.first, next);
                    next += block.rows;
                }
                assert_eq!(next, queries);
            }
        }
        let rows =
            |queries, most| blocks(queries, most).map(|block| block.rows).collect::<Vec<_>>();
        assert_eq!(rows(9, 8), [8, 1]);
        assert_eq!(rows(9, 6), [6, 3]);
        assert_eq!(rows(8, 6), [6, 2]);
        assert_eq!(rows(7, 8), [4, 3]);
        assert_eq!(rows(3, 8), [3]);
    }
}
