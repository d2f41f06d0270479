//! A pass as the kernels want it: small arrays, brought to the device in one copy.

use crate::graphs::StepSize;
use cuda_kernels::Address;
use cuda_kernels::attention::Batch;
use cuda_kernels::cache::BLOCK_TOKENS;
use naive_decode::{Error, Pass, Result, Span, Visible};
use paged_cache::PagedCache;

/// Arrays one after the other, each at a multiple of 16 bytes.
#[derive(Default)]
pub(crate) struct Staging {
    pub(crate) bytes: Vec<u8>,
}

impl Staging {
    /// Adds an array; how far from the start it begins.
    fn add<T: bytemuck::Pod>(&mut self, numbers: &[T]) -> u64 {
        let offset = self.bytes.len() as u64;
        self.bytes.extend_from_slice(bytemuck::cast_slice(numbers));
        self.bytes.resize(self.bytes.len().next_multiple_of(16), 0);
        offset
    }
}

/// Where a pass's arrays are, and how large what they describe is.
pub(crate) struct Staged {
    pub(crate) rows: usize,
    /// `[rows]` in u32.
    pub(crate) tokens: Address,
    /// `[rows]` in i32.
    pub(crate) positions: Address,
    /// `[rows]` in i64.
    pub(crate) slots: Address,
    /// `[wanted]` in u32.
    pub(crate) wanted: Address,
    pub(crate) batch: Batch,
}

/// Bytes that a pass of so many rows can need, whatever its spans: see [`stage`].
pub(crate) fn most_bytes(rows: usize, capacity: usize) -> usize {
    let tables = rows * capacity.div_ceil(BLOCK_TOKENS) * 4;
    rows * (4 + 4 + 8 + 8 + 4) + tables + (2 * rows + 1) * 4 + 8 * 16
}

/// The arrays of a pass whose blocks have been taken, as they will lie from `base` on. A step is filled up to `size` with
/// rows that write nothing and see nothing, so that all steps of a size have their arrays in the same places.
pub(crate) fn stage(
    staging: &mut Staging,
    base: Address,
    pass: &Pass,
    cache: &PagedCache,
    size: Option<StepSize>,
) -> Result<Staged> {
    // A span without rows is no request of the kernels'.
    let spans: Vec<&Span> = pass.spans.iter().filter(|span| span.rows() > 0).collect();
    let mut tokens: Vec<u32> = spans.iter().flat_map(|span| span.tokens.iter().copied()).collect();
    let mut positions: Vec<i32> = pass.positions().into_iter().map(|p| p as i32).collect();
    let mut slots = Vec::with_capacity(tokens.len());
    let most_keys = spans.iter().map(|span| span.end()).max().unwrap_or(0);
    let most_keys = size.map_or(most_keys, |size| size.keys);
    let table_width = most_keys.div_ceil(BLOCK_TOKENS);
    let requests = size.map_or(spans.len(), |size| size.rows);
    let mut tables = vec![0i32; requests * table_width];
    for (to, span) in tables.chunks_mut(table_width.max(1)).zip(&spans) {
        // A pool elsewhere has one group of layers: all of them.
        let table = &cache.tables(span.sequence)?.groups[0];
        let blocks = (0..span.end().div_ceil(BLOCK_TOKENS)).map(|place| table.block(place));
        for (to, block) in to.iter_mut().zip(blocks) {
            *to = block.expect("the cache has made room").0 as i32;
        }
        slots.extend((span.start..span.end()).map(|slot| {
            i64::from(to[slot / BLOCK_TOKENS]) * BLOCK_TOKENS as i64 + (slot % BLOCK_TOKENS) as i64
        }));
    }
    let mut wanted: Vec<u32> = pass.wanted().into_iter().map(|row| row as u32).collect();
    let mut lengths: Vec<i32> = spans.iter().map(|span| span.end() as i32).collect();
    let starts = spans.iter().scan(0, |start, span| {
        *start += span.rows() as i32;
        Some(*start)
    });
    let mut starts: Vec<i32> = std::iter::once(0).chain(starts).collect();
    let mut ancestors = Vec::with_capacity(slots.len());
    for span in &spans {
        ancestors.extend(marks(span)?);
    }
    let has_trees = ancestors.iter().any(|&marks| marks != 0);
    if let Some(StepSize { rows, .. }) = size {
        tokens.resize(rows, 0);
        positions.resize(rows, 0);
        slots.resize(rows, NOWHERE);
        wanted.resize(rows, 0);
        lengths.resize(rows, 0);
        starts.extend(starts.len() as i32..=rows as i32);
    }

    let place = |offset: u64| base + offset;
    Ok(Staged {
        rows: tokens.len(),
        tokens: place(staging.add(&tokens)),
        positions: place(staging.add(&positions)),
        slots: place(staging.add(&slots)),
        wanted: place(staging.add(&wanted)),
        batch: Batch {
            tables: place(staging.add(&tables)),
            lengths: place(staging.add(&lengths)),
            query_starts: place(staging.add(&starts)),
            ancestors: has_trees.then(|| place(staging.add(&ancestors))),
            requests,
            table_width,
            most_queries: spans.iter().map(|span| span.rows()).max().unwrap_or(0),
            most_keys,
        },
    })
}

/// The slot of a row that is nobody's: its key and value are not written.
const NOWHERE: i64 = -1;

/// For each row of a span which of the span's own rows it sees, as bits; 0 for all rows if each sees all up to itself.
fn marks(span: &Span) -> Result<Vec<u64>> {
    // What is seen counts, not how it is written down: a recorded step has no place for marks.
    let is_causal = |(slot, sees): (usize, &Visible)| {
        let is_whole = sees.range.start == 0 && sees.end() == slot + 1;
        is_whole && (sees.range.end..=slot).all(|slot| sees.contains(slot))
    };
    if (span.start..).zip(&span.sees).all(is_causal) {
        return Ok(vec![0; span.rows()]);
    }
    let refused = |what: &str, found: String, expected: &str| {
        Err(Error::invalid(
            format!("{what} of sequence {} on CUDA", span.sequence),
            found,
            expected,
        ))
    };
    if span.rows() > 64 {
        return refused("rows of a tree", span.rows().to_string(), "at most 64");
    }
    let mut all = Vec::with_capacity(span.rows());
    for (row, sees) in span.sees.iter().enumerate() {
        let own = span.start + row;
        let is_whole = sees.range.start == 0 && sees.range.end >= span.start && sees.contains(own);
        if !is_whole || sees.end() > span.end() {
            let expected = "all slots before the span, some of it, and its own";
            return refused("what a row sees", format!("{sees:?}"), expected);
        }
        let marks = (0..span.rows()).filter(|&node| sees.contains(span.start + node));
        all.push(marks.fold(0, |marks, node| marks | 1 << node));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use naive_decode::Want;

    #[test]
    fn trees_become_bits_and_windows_are_refused() {
        let mut span = Span::new(0, 5, &[1, 2, 3], Want::All);
        assert_eq!(marks(&span).unwrap(), [0, 0, 0]);
        span.sees[2] = Visible { range: 0..6, also: vec![6, 7] };
        assert_eq!(marks(&span).unwrap(), [0, 0, 0], "all up to itself, said otherwise");
        // Nodes 1 and 2 both follow node 0.
        span.sees[2] = Visible { range: 0..6, also: vec![7] };
        assert_eq!(marks(&span).unwrap(), [0b001, 0b011, 0b101]);
        span.sees[2] = Visible { range: 2..6, also: vec![7] };
        assert!(marks(&span).unwrap_err().to_string().starts_with("what a row sees of sequence 0"));
        span.sees[2] = Visible { range: 0..4, also: vec![7] };
        assert!(marks(&span).is_err());
        let mut long = Span::new(0, 0, &[0; 65], Want::All);
        long.sees[64] = Visible { range: 0..63, also: vec![64] };
        assert!(marks(&long).unwrap_err().to_string().contains("65, expected at most 64"));
    }
}
