//! A pass as the kernels want it: small arrays, brought to the device in one copy.

use crate::forward::{FEW_QUERIES, FEW_ROWS};
use crate::graphs::StepSize;
use cuda_kernels::Address;
use cuda_kernels::attention::Batch;
use cuda_kernels::cache::BLOCK_TOKENS;
use naive_decode::{Error, Pass, Result, Span, Visible};
use paged_cache::PagedCache;
use std::ops::Range;

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
    /// `[wanted]` in u64, all 0: where the likeliest tokens are noted.
    pub(crate) likeliest: Address,
    /// Requests that attention takes with the kernels for few rows; theirs are the first rows.
    pub(crate) few: Option<Batch>,
    /// The others.
    pub(crate) many: Option<Batch>,
}

impl Staged {
    /// A pass of so many rows of one sequence that is nowhere: every address is 0.
    pub(crate) fn nowhere(rows: usize) -> Self {
        let batch = Batch {
            tables: 0,
            lengths: 0,
            query_starts: 0,
            ancestors: None,
            requests: 1,
            table_width: rows.div_ceil(BLOCK_TOKENS),
            most_queries: rows,
            most_keys: rows,
        };
        let (few, many) = if rows <= FEW_ROWS { (Some(batch), None) } else { (None, Some(batch)) };
        Staged { rows, tokens: 0, positions: 0, slots: 0, wanted: 0, likeliest: 0, few, many }
    }
}

/// Bytes that a pass of so many rows can need, whatever its spans: see [`stage`].
pub(crate) fn most_bytes(rows: usize, capacity: usize) -> usize {
    let tables = rows * capacity.div_ceil(BLOCK_TOKENS) * 4;
    // Each row may be a request of its own: its length and where it starts, and where those of each kind end.
    rows * (4 + 4 + 8 + 8 + 4 + 8) + tables + (2 * rows + 2) * 4 + 12 * 16
}

/// The arrays of a pass whose blocks have been taken, as they will lie from `base` on. Requests of few rows come first,
/// whatever the order of the spans. A step is filled up to `size` with rows that write nothing and see nothing, so that all
/// steps of a size have their arrays in the same places.
pub(crate) fn stage(
    staging: &mut Staging,
    base: Address,
    pass: &Pass,
    cache: &PagedCache,
    size: Option<StepSize>,
) -> Result<Staged> {
    let (requests, few) = requests(pass, cache)?;
    let spans = || requests.iter().map(|request| request.span);
    let mut tokens: Vec<u32> = spans().flat_map(|span| span.tokens.iter().copied()).collect();
    let positions = spans().flat_map(|span| span.positions.iter().map(|&p| p as i32));
    let mut positions: Vec<i32> = positions.collect();
    let mut slots: Vec<i64> = requests.iter().flat_map(Request::slots).collect();
    let mut wanted = wanted(pass, &requests);
    let mut ancestors = Vec::with_capacity(slots.len());
    for span in spans() {
        ancestors.extend(marks(span)?);
    }
    let has_trees = ancestors.iter().any(|&marks| marks != 0);
    if let Some(StepSize { rows, .. }) = size {
        tokens.resize(rows, 0);
        positions.resize(rows, 0);
        slots.resize(rows, NOWHERE);
        wanted.resize(rows, 0);
    }

    let place = |offset: u64| base + offset;
    let (few, many) = requests.split_at(few);
    let first = few.iter().map(|request| request.span.rows()).sum();
    let mut staged = Staged {
        rows: tokens.len(),
        tokens: place(staging.add(&tokens)),
        positions: place(staging.add(&positions)),
        slots: place(staging.add(&slots)),
        wanted: place(staging.add(&wanted)),
        likeliest: place(staging.add(&vec![0u64; wanted.len()])),
        few: None,
        many: None,
    };
    let ancestors = has_trees.then(|| place(staging.add(&ancestors)));
    staged.few = batch(staging, base, few, 0, ancestors, size);
    staged.many = batch(staging, base, many, first, ancestors, None);
    Ok(staged)
}

/// A span with rows, the rows of the pass that are its own, and the blocks of its sequence.
struct Request<'a> {
    span: &'a Span,
    rows: Range<usize>,
    blocks: Vec<i32>,
}

impl Request<'_> {
    /// Where its rows' keys and values go.
    fn slots(&self) -> impl Iterator<Item = i64> {
        (self.span.start..self.span.end()).map(|slot| {
            let block = i64::from(self.blocks[slot / BLOCK_TOKENS]);
            block * BLOCK_TOKENS as i64 + (slot % BLOCK_TOKENS) as i64
        })
    }
}

/// A pass's requests in the order of the device's rows, and how many of the first attention takes with the kernels for few
/// rows: all, or in a pass of many rows those of few rows each, as far as there is memory for them.
fn requests<'a>(pass: &'a Pass, cache: &PagedCache) -> Result<(Vec<Request<'a>>, usize)> {
    // A span without rows is no request of the kernels'.
    let spans = pass.spans_with_rows().filter(|(_, rows)| !rows.is_empty());
    let mut requests = Vec::new();
    for (span, rows) in spans {
        // A pool elsewhere has one group of layers: all of them.
        let table = &cache.tables(span.sequence)?.groups[0];
        let blocks = (0..span.end().div_ceil(BLOCK_TOKENS)).map(|place| table.block(place));
        let blocks = blocks.map(|block| block.expect("the cache has made room").0 as i32).collect();
        requests.push(Request { span, rows, blocks });
    }
    if pass.rows() <= FEW_ROWS {
        let few = requests.len();
        return Ok((requests, few));
    }
    requests.sort_by_key(|request| request.span.rows());
    let mut rows = 0;
    let few = requests.iter().take_while(|request| {
        rows += request.span.rows();
        request.span.rows() <= FEW_QUERIES && rows <= FEW_ROWS
    });
    let few = few.count();
    Ok((requests, few))
}

/// Which rows of the device's the caller wants, in the caller's order.
fn wanted(pass: &Pass, requests: &[Request]) -> Vec<u32> {
    let mut place = vec![0; pass.rows()];
    let rows = requests.iter().flat_map(|request| request.rows.clone());
    for (on_device, row) in rows.enumerate() {
        place[row] = on_device as u32;
    }
    pass.wanted().into_iter().map(|row| place[row]).collect()
}

/// Requests that attention takes together, the first of whose rows is number `first`; none if there are none. A step's are
/// filled up with requests of one row that see nothing.
fn batch(
    staging: &mut Staging,
    base: Address,
    of: &[Request],
    first: usize,
    ancestors: Option<Address>,
    size: Option<StepSize>,
) -> Option<Batch> {
    let spans = || of.iter().map(|request| request.span);
    let most_keys = size.map_or(spans().map(Span::end).max()?, |size| size.keys);
    let requests = size.map_or(of.len(), |size| size.rows);
    let table_width = most_keys.div_ceil(BLOCK_TOKENS);
    let mut tables = vec![0; requests * table_width];
    for (to, request) in tables.chunks_mut(table_width).zip(of) {
        to[..request.blocks.len()].copy_from_slice(&request.blocks);
    }
    let mut lengths: Vec<i32> = spans().map(|span| span.end() as i32).collect();
    let mut starts = vec![first as i32];
    for span in spans() {
        starts.push(starts[starts.len() - 1] + span.rows() as i32);
    }
    lengths.resize(requests, 0);
    starts.extend(starts.len() as i32..=requests as i32);
    Some(Batch {
        tables: base + staging.add(&tables),
        lengths: base + staging.add(&lengths),
        query_starts: base + staging.add(&starts),
        ancestors,
        requests,
        table_width,
        most_queries: spans().map(Span::rows).max()?,
        most_keys,
    })
}

/// The slot of a row that is nobody's: its key and value are not written.
const NOWHERE: i64 = -1;

/// For each row of a span which of the span's own rows it sees, as bits; 0 for all rows if each sees all up to itself.
///
/// Marks hide slots and move none. So a row has the bits that its tokens have alone where what it sees stands in line, as all of
/// a chain does; a row of a tree that sees across another branch's slots has them up to rounding.
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
