//! Online softmax (Milakov and Gimelshein 2018) with an integer maximum.

use crate::head::Head;
use crate::tiles::{add_values, integer_maximum, weight};
use naive_decode::Partial;
use naive_decode::numerics::{LANES, join_lanes, power_of_two};
use ndarray::ArrayView2;

// ANCHOR: state
/// What a query that has seen some places of a split carries on to the next tile.
///
/// Invariant: lanes and values are what the textbook softmax over the places seen so far would have summed,
/// relative to `2^maximum`.
#[derive(Debug, Clone, PartialEq)]
pub struct Online {
    /// Largest integer part of any score so far.
    pub maximum: i32,
    /// Sums of weights; place `p` is added to lane `p mod 16`.
    pub lanes: [f32; LANES],
    /// Weighted sum of the values, `[D_v]`.
    pub values: Vec<f32>,
}
// ANCHOR_END: state

impl Online {
    /// Nothing seen yet.
    pub fn new(value_dim: usize) -> Self {
        let (maximum, lanes) = (Partial::LOWEST, [0.0; LANES]);
        Online { maximum, lanes, values: vec![0.0; value_dim] }
    }

    /// Bytes of such a state.
    pub fn bytes(value_dim: usize) -> usize {
        size_of::<i32>() + (LANES + value_dim) * size_of::<f32>()
    }

    // ANCHOR: update
    /// Takes in one tile: scores `[n]` of the places from `first` on, and their values `[n, D_v]`.
    pub fn update(&mut self, head: &Head, first: usize, scores: &[f32], values: ArrayView2<f32>) {
        let Some(maximum) = integer_maximum(scores) else {
            return; // nothing in this tile may be seen
        };
        self.move_maximum(self.maximum.max(maximum));
        self.add(head, first, scores, values);
    }

    /// Brings all sums to another maximum. The factor is a power of two, so nothing is rounded that does not become smaller
    /// than 2^-126. A weight below that is zero where the last maximum is known at once; one that was summed before may be
    /// left of, and a form that moves its maximum differs by that.
    pub fn move_maximum(&mut self, maximum: i32) {
        let factor = power_of_two(self.maximum.saturating_sub(maximum));
        self.maximum = maximum;
        self.lanes.iter_mut().chain(&mut self.values).for_each(|sum| *sum *= factor);
    }

    /// Adds a tile relative to the maximum as it is.
    pub fn add(&mut self, head: &Head, first: usize, scores: &[f32], values: ArrayView2<f32>) {
        let weights: Vec<f32> = scores.iter().map(|&s| weight(s, self.maximum)).collect();
        for (place, weight) in (first..).zip(&weights) {
            self.lanes[place % LANES] += weight;
        }
        add_values(head, &weights, values, &mut self.values);
    }
    // ANCHOR_END: update

    /// The result of the split, not normalised yet.
    pub fn partial(self) -> Partial {
        Partial { maximum: self.maximum, sum: join_lanes(&self.lanes), values: self.values }
    }
}
