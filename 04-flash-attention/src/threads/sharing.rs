//! Who does which part.

use super::Pool;
use crate::kernels::MANY;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Rows for each thread from which on threads share out rows: multiplying so many takes many times as long as reading
/// the weights once more.
const ENOUGH_ROWS: usize = 48;

/// The same where weights are near: reading them once more takes next to nothing.
const ENOUGH_ROWS_NEAR: usize = 5;

/// Bytes of weights that are near, as likely as not: a thread's second cache has room for all of them beside its rows. Of
/// larger matrices each thread reads a part of its own, and what follows it while it waits.
const NEAR_WEIGHTS: usize = 256 << 10;

/// Which of `count` things thread `thread` of `threads` does: neighbours stay together, in order, and no
/// thread has more than one thing more than another.
pub fn share(count: usize, threads: usize, thread: usize) -> Range<usize> {
    count * thread / threads..count * (thread + 1) / threads
}

impl Pool {
    /// Shares out `items` in chunks of `chunk`, the last perhaps shorter: each thread's part is called once
    /// with the number of its first chunk and all of its chunks in a row.
    ///
    /// # Panics
    /// If `chunk` is zero, or a part panics.
    pub fn run_chunks<T: Send>(
        &self,
        items: &mut [T],
        chunk: usize,
        task: &(dyn Fn(usize, &mut [T]) + Sync),
    ) {
        let (count, length) = (items.len().div_ceil(chunk), items.len());
        let items = Disjoint::new(items);
        self.run(&|thread| {
            let mine = share(count, self.threads(), thread);
            let range = (mine.start * chunk).min(length)..(mine.end * chunk).min(length);
            // SAFETY: shares of different threads have no chunk in common.
            task(mine.start, unsafe { items.part(range) });
        });
    }
}

impl Pool {
    /// Shares out rows of `width` items, each thread's own in a row: `task` is called with at most `together` of them, that
    /// rounded up to a multiple of what kernels take together, and with which they are. One thread has them all
    /// where they are no more than a kernel takes together and too few to be shared out for any matrix, and where the pool
    /// is not free.
    ///
    /// # Panics
    /// If `items` are not rows of `width`, or a part panics.
    pub fn run_rows<T: Send>(
        &self,
        items: &mut [T],
        width: usize,
        together: usize,
        task: &(dyn Fn(Range<usize>, &mut [T]) + Sync),
    ) {
        assert!(width > 0 && items.len().is_multiple_of(width), "whole rows");
        let (rows, items) = (items.len() / width, Disjoint::new(items));
        self.over_rows(rows, together, &|mine| {
            // SAFETY: every row is handed out once.
            let items = unsafe { items.part(mine.start * width..mine.end * width) };
            task(mine, items);
        });
    }

    /// Hands out each of some rows once, as [`Pool::run_rows`] says.
    fn over_rows(&self, rows: usize, together: usize, task: &(dyn Fn(Range<usize>) + Sync)) {
        let together = together.next_multiple_of(MANY);
        let few = rows <= MANY && rows < self.threads() * ENOUGH_ROWS_NEAR;
        let take = |Range { start: first, end }: Range<usize>| {
            for start in (first..end).step_by(together) {
                task(start..end.min(start + together));
            }
        };
        match few || !self.is_free() {
            true => take(0..rows),
            false => self.run(&|thread| take(share(rows, self.threads(), thread))),
        }
    }

    /// Whether the rows that meet a matrix of so many bytes are so many that threads should share those out, and not its
    /// outputs. A thread that has the pool's work to do alone has all rows, and all outputs.
    pub(crate) fn shares_rows(&self, rows: usize, bytes: usize) -> bool {
        let enough = if bytes <= NEAR_WEIGHTS { ENOUGH_ROWS_NEAR } else { ENOUGH_ROWS };
        rows >= self.threads() * enough || !self.is_free()
    }

    /// As [`Pool::run_rows`], of `rows` rows that are not there before, of some matrices together: each call of `make` adds
    /// the numbers of its rows to each.
    ///
    /// # Panics
    /// If a call adds fewer or more, or a part panics.
    pub fn make_rows<const N: usize>(
        &self,
        rows: usize,
        widths: [usize; N],
        together: usize,
        make: &(dyn Fn(Range<usize>, &mut [Growing; N]) + Sync),
    ) -> [Vec<f32>; N] {
        let mut all = widths.map(|width| Vec::with_capacity(rows * width));
        let mut widths_of = widths.into_iter();
        let room = all.each_mut().map(|all: &mut Vec<f32>| {
            let width = widths_of.next().expect("as many as there are matrices");
            Disjoint::new(&mut all.spare_capacity_mut()[..rows * width])
        });
        self.over_rows(rows, together, &|mine| {
            let mut growing = std::array::from_fn(|i| {
                let own = mine.start * widths[i]..mine.end * widths[i];
                // SAFETY: every row is handed out once.
                Growing { room: unsafe { room[i].part(own) }, length: 0 }
            });
            make(mine, &mut growing);
            let full = |growing: &Growing| growing.length == growing.room.len();
            assert!(growing.iter().all(full), "all numbers of the rows");
        });
        for (all, width) in all.iter_mut().zip(widths) {
            // SAFETY: every row was handed out, and each part has been filled.
            unsafe { all.set_len(rows * width) };
        }
        all
    }

    /// Calls `task` for each of `items`, whichever thread is free taking the next one. For work that is not
    /// alike: a long text's attention beside a short one's.
    ///
    /// # Panics
    /// If a call panics.
    pub fn run_each<T: Send>(&self, items: &mut [T], task: &(dyn Fn(&mut T) + Sync)) {
        let (next, count, items) = (AtomicUsize::new(0), items.len(), Disjoint::new(items));
        self.run(&|_| {
            loop {
                let item = next.fetch_add(1, Ordering::Relaxed);
                if item >= count {
                    break;
                }
                // SAFETY: every number is handed out once.
                task(&mut unsafe { items.part(item..item + 1) }[0]);
            }
        });
    }
}

/// Room for a known number of numbers, which are added from its beginning on. What would be a slice of zeros takes as
/// long to clear as to fill.
pub struct Growing<'a> {
    room: &'a mut [MaybeUninit<f32>],
    length: usize,
}

impl Growing<'_> {
    /// Adds numbers, and gives them as they lie there.
    ///
    /// # Panics
    /// If there is no room for them.
    pub fn add(&mut self, numbers: &[f32]) -> &mut [f32] {
        let room = &mut self.room[self.length..][..numbers.len()];
        self.length += numbers.len();
        room.iter_mut().zip(numbers).for_each(|(to, &number)| _ = to.write(number));
        // SAFETY: all of them have just been written.
        unsafe { &mut *(std::ptr::from_mut(room) as *mut [f32]) }
    }
}

/// A slice that several threads write at once, each its own parts.
pub struct Disjoint<'a, T> {
    start: *mut T,
    length: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: threads reach items only through `part`, whose callers vouch that no two have the same.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    /// Wraps a slice; nobody else can reach it while this lives.
    pub fn new(slice: &'a mut [T]) -> Self {
        Disjoint { start: slice.as_mut_ptr(), length: slice.len(), slice: PhantomData }
    }

    /// Where a range of items begins, for who writes some of them only.
    ///
    /// # Panics
    /// If it reaches past the end.
    pub(crate) fn within(&self, range: Range<usize>) -> *mut T {
        assert!(range.start <= range.end && range.end <= self.length, "a part of the slice");
        self.start.wrapping_add(range.start)
    }

    /// One part.
    ///
    /// # Panics
    /// If it reaches past the end.
    ///
    /// # Safety
    /// No two parts that are alive at the same time may overlap.
    #[expect(
        clippy::mut_from_ref,
        reason = "that is what this type is for; callers keep parts apart"
    )]
    pub unsafe fn part(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.length, "a part of the slice");
        // SAFETY: inside the slice, and the caller keeps parts apart.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}
