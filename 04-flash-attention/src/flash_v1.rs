//! FlashAttention in the loop order of its first version.

use crate::head::{Head, Tiling};
use crate::online::Online;
use crate::tiles::{runs, score_tile, tiles_by_split};
use crate::traffic::{Matrix, Slow, Traffic};
use naive_decode::Partial;
use ndarray::Array2;

// ANCHOR: v1
/// Tiles of keys and values outside, tiles of queries inside (Dao et al. 2022, algorithm 1).
///
/// Keys and values are fetched once. The price is that every query's state goes out to slow memory and comes
/// back for each tile. The paper also divides by the sum of weights at each step; a division rounds, so here
/// it is left to the end.
pub fn flash_v1(head: &Head, tiling: Tiling, traffic: &Traffic) -> Array2<f32> {
    let (queries, value_dim) = (head.queries.nrows(), head.values.ncols());
    let q = Slow::given(Matrix::Queries, head.queries, traffic);
    let k = Slow::given(Matrix::Keys, head.keys, traffic);
    let v = Slow::given(Matrix::Values, head.values, traffic);
    let mut answers = Slow::room(Matrix::Answers, (queries, value_dim), traffic);
    let mut states = States::new(queries, value_dim, traffic);
    for tiles in tiles_by_split(head.keys.nrows(), tiling.keys) {
        for places in tiles {
            let (k_tile, v_tile) = (k.read_rows(places.clone()), v.read_rows(places.clone()));
            for rows in runs(queries, tiling.queries) {
                let q_tile = q.read_rows(rows.clone());
                let sees = &head.sees[rows.clone()];
                let scores = score_tile(head, q_tile.view(), sees, k_tile.view(), places.start);
                for (query, scores) in rows.zip(scores.rows()) {
                    let mut state = states.read(query);
                    let scores = scores.to_slice().expect("rows are contiguous");
                    state.update(head, places.start, scores, v_tile.view());
                    states.write(query, state);
                }
            }
        }
        states.end_split();
    }
    for query in 0..queries {
        let answer = Array2::from_shape_vec((1, value_dim), states.answer(query));
        answers.write((query, 0), answer.expect("one row").view());
    }
    answers.into_numbers()
}
// ANCHOR_END: v1

/// What all queries carry on, in slow memory.
struct States<'a> {
    value_dim: usize,
    /// Of the split at hand.
    online: Vec<Online>,
    /// Of all splits before it.
    whole: Vec<Partial>,
    traffic: &'a Traffic,
}

impl<'a> States<'a> {
    fn new(queries: usize, value_dim: usize, traffic: &'a Traffic) -> Self {
        let online = vec![Online::new(value_dim); queries];
        let whole = (0..queries).map(|_| Partial::empty(value_dim)).collect();
        States { value_dim, online, whole, traffic }
    }

    fn read(&self, query: usize) -> Online {
        self.traffic.count_read(Matrix::Running, Online::bytes(self.value_dim));
        self.online[query].clone()
    }

    fn write(&mut self, query: usize, state: Online) {
        self.traffic.count_written(Matrix::Running, Online::bytes(self.value_dim));
        self.online[query] = state;
    }

    fn whole_bytes(&self) -> usize {
        size_of::<i32>() + (1 + self.value_dim) * size_of::<f32>()
    }

    /// Joins the split's results to those before it, and begins another.
    fn end_split(&mut self) {
        for query in 0..self.online.len() {
            let part = self.read(query).partial();
            self.traffic.count_read(Matrix::Running, self.whole_bytes());
            self.whole[query].join(&part);
            self.traffic.count_written(Matrix::Running, self.whole_bytes());
            self.online[query] = Online::new(self.value_dim);
        }
    }

    /// One query's values over its sum of weights.
    fn answer(&self, query: usize) -> Vec<f32> {
        self.traffic.count_read(Matrix::Running, self.whole_bytes());
        self.whole[query].finish().collect()
    }
}
