//! A pool, for what is done beside matrices.

use super::Pool;
use naive_decode::Crew;
use std::sync::Arc;

/// A pool's threads.
pub(crate) struct PoolCrew(pub(crate) Arc<Pool>);

/// Rows that a thread takes together: their numbers stay near.
const ROWS_TOGETHER: usize = 96;

impl Crew for PoolCrew {
    fn threads(&self) -> usize {
        self.0.threads()
    }

    fn each(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        match count {
            // Alone it may have all threads.
            1 => work(0),
            _ => self.0.run_each(&mut Vec::from_iter(0..count), &|&mut number| work(number)),
        }
    }

    fn rows(&self, rows: &mut [f32], width: usize, work: &(dyn Fn(usize, &mut [f32]) + Sync)) {
        self.0.run_rows(rows, width, ROWS_TOGETHER, &|mine, rows| {
            mine.zip(rows.chunks_exact_mut(width)).for_each(|(row, numbers)| work(row, numbers));
        });
    }
}
