//! Queries by the handful: as many as a kernel keeps in registers together.

/// Runs `$code` with the constant `$R` equal to `$rows`, the size of a [`Block`], and how many registers share
/// each of a query's numbers: `$WIDE` where registers are wide and many, else `$NARROW`.
///
/// A chain of multiply-adds waits for its own last result. Queries times registers make four chains or more,
/// mostly eight, which fill the wait; wide registers are also many, and sixteen chains share loads better.
macro_rules! on_rows {
    ($rows:expr, |$R:ident, $WIDE:ident, $NARROW:ident| $code:expr) => {
        match $rows {
            8 => on_rows!(@ $R = 8, $WIDE = 2, $NARROW = 1, $code),
            4 => on_rows!(@ $R = 4, $WIDE = 4, $NARROW = 2, $code),
            3 => on_rows!(@ $R = 3, $WIDE = 4, $NARROW = 2, $code),
            2 => on_rows!(@ $R = 2, $WIDE = 4, $NARROW = 4, $code),
            1 => on_rows!(@ $R = 1, $WIDE = 4, $NARROW = 4, $code),
            rows => unreachable!("no block has {rows} queries"),
        }
    };
    (@ $R:ident = $r:literal, $WIDE:ident = $w:literal, $NARROW:ident = $n:literal, $code:expr) => {{
        const $R: usize = $r;
        const $WIDE: usize = $w;
        const $NARROW: usize = $n;
        $code
    }};
}

/// Some neighbouring queries that a kernel takes at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// First of them.
    pub(super) first: usize,
    /// How many: 8, 4, 3, 2 or 1.
    pub(super) rows: usize,
}

/// Shares out so many queries, the largest blocks first.
pub(super) fn blocks(queries: usize) -> impl Iterator<Item = Block> {
    let mut first = 0;
    std::iter::from_fn(move || {
        let rows = [8, 4, 3, 2, 1].into_iter().find(|&rows| rows <= queries - first)?;
        first += rows;
        Some(Block { first: first - rows, rows })
    })
}

/// Appends the block's queries to `packed`, `[D][R]`.
pub(super) fn pack<'a>(block: Block, query: impl Fn(usize) -> &'a [f32], packed: &mut Vec<f32>) {
    on_rows!(block.rows, |R, _WIDE, _NARROW| {
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
        for queries in 0..40 {
            let mut next = 0;
            for block in blocks(queries) {
                assert_eq!(block.first, next);
                next += block.rows;
            }
            assert_eq!(next, queries);
        }
        assert_eq!(blocks(9).map(|block| block.rows).collect::<Vec<_>>(), [8, 1]);
        assert_eq!(blocks(3).map(|block| block.rows).collect::<Vec<_>>(), [3]);
    }
}
