//! Seam: who does what no matrix does, and is the same for many things.

use rayon::prelude::*;
use std::sync::OnceLock;

/// Threads to share out such work.
pub trait Crew: Send + Sync {
    /// How many they are.
    fn threads(&self) -> usize;

    /// Calls `work` once for each number below `count`; whoever is free takes the next.
    fn each(&self, count: usize, work: &(dyn Fn(usize) + Sync));

    /// Calls `work` once for each row of `rows`, `width` numbers, with the number of the row.
    ///
    /// # Panics
    /// If `rows` are not rows of `width`.
    fn rows(&self, rows: &mut [f32], width: usize, work: &(dyn Fn(usize, &mut [f32]) + Sync));
}

impl dyn Crew + '_ {
    /// What `make` makes of each number below `count`, in order.
    pub fn made<T: Send + Sync>(&self, count: usize, make: impl Fn(usize) -> T + Sync) -> Vec<T> {
        let made = Vec::from_iter((0..count).map(|_| OnceLock::new()));
        self.each(count, &|number| _ = made[number].get_or_init(|| make(number)));
        made.into_iter().map(|made| made.into_inner().expect("each was called")).collect()
    }
}

/// Rayon's threads.
pub struct RayonCrew;

/// Rows that a thread takes at a time: of fewer, handing them out takes longer than they do.
const ROWS_AT_ONCE: usize = 16;

impl Crew for RayonCrew {
    fn threads(&self) -> usize {
        rayon::current_num_threads()
    }

    fn each(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        match count {
            1 => work(0),
            _ => (0..count).into_par_iter().for_each(work),
        }
    }

    fn rows(&self, rows: &mut [f32], width: usize, work: &(dyn Fn(usize, &mut [f32]) + Sync)) {
        assert!(width > 0 && rows.len().is_multiple_of(width), "whole rows");
        let work = |(row, numbers): (usize, &mut [f32])| work(row, numbers);
        match rows.len() / width <= ROWS_AT_ONCE {
            true => rows.chunks_exact_mut(width).enumerate().for_each(work),
            false => {
                let rows = rows.par_chunks_exact_mut(width).enumerate();
                rows.with_min_len(ROWS_AT_ONCE).for_each(work);
            }
        }
    }
}
