//! Requests of a batch: their lengths, and what each of their queries sees.

use crate::attention::Batch;
use crate::check::{Bench, Problem};

/// One request: so many keys, the last few of which have their queries in the batch.
#[derive(Clone)]
pub struct Request {
    /// Keys.
    pub keys: usize,
    /// The last of them that have queries.
    pub queries: usize,
    /// For each query the one before it in the tree; none for a chain of text.
    pub parents: Option<Vec<Option<usize>>>,
}

impl Request {
    /// A text of so many keys.
    pub fn text(keys: usize, queries: usize) -> Self {
        Request { keys, queries, parents: None }
    }

    /// The same with a tree at its end.
    pub fn tree(keys: usize, parents: &[Option<usize>]) -> Self {
        Request { keys, queries: parents.len(), parents: Some(parents.to_vec()) }
    }

    /// Bit j: the query sees node j. 0 for text.
    fn ancestors(&self, query: usize) -> u64 {
        let Some(parents) = &self.parents else { return 0 };
        let mut seen = 1 << query;
        let mut at = query;
        while let Some(parent) = parents[at] {
            seen |= 1 << parent;
            at = parent;
        }
        seen
    }

    /// Whether a query sees a key.
    pub fn sees(&self, query: usize, key: usize) -> bool {
        let before = self.keys - self.queries;
        match &self.parents {
            None => key <= before + query,
            Some(_) => key < before || self.ancestors(query) >> (key - before) & 1 == 1,
        }
    }
}

/// Tables, lengths and starts of requests.
///
/// # Errors
/// If the device has too little memory.
pub fn upload_batch(
    gpu: &mut Bench,
    requests: &[Request],
    tables: &[Vec<i32>],
) -> Result<Batch, Problem> {
    // What lies behind a request's blocks in its row of the table is no block.
    let table_width = tables.iter().map(Vec::len).max().unwrap_or(0) + 1;
    let padded: Vec<i32> = tables
        .iter()
        .flat_map(|table| {
            let unused = std::iter::repeat_n(i32::MAX, table_width - table.len());
            table.iter().copied().chain(unused)
        })
        .collect();
    let lengths: Vec<i32> = requests.iter().map(|r| r.keys as i32).collect();
    let mut starts = vec![0];
    for request in requests {
        starts.push(starts[starts.len() - 1] + request.queries as i32);
    }
    let ancestors: Vec<u64> =
        requests.iter().flat_map(|r| (0..r.queries).map(|query| r.ancestors(query))).collect();
    let has_trees = requests.iter().any(|r| r.parents.is_some());
    let ancestors = if has_trees { Some(gpu.upload(&ancestors)?) } else { None };
    Ok(Batch {
        tables: gpu.upload(&padded)?,
        lengths: gpu.upload(&lengths)?,
        query_starts: gpu.upload(&starts)?,
        ancestors,
        requests: requests.len(),
        table_width,
        most_queries: requests.iter().map(|r| r.queries).max().unwrap_or(0),
        most_keys: requests.iter().map(|r| r.keys).max().unwrap_or(0),
    })
}
