//! What the textbook forms of attention are given: one key-value head, and the queries that share it.

use crate::traffic::Traffic;
use naive_decode::{Isa, LayerSpec, Span, Visible};
use ndarray::{Array2, Array3, ArrayView2, ArrayView3, Axis, s};
use std::ops::Range;

/// One key-value head and its queries: those of all rows and of all query heads in the group.
#[derive(Clone)]
pub struct Head<'a> {
    /// Instruction set to run on.
    pub isa: Isa,
    /// Factor on the scores, the change to base 2 in it.
    pub scale: f32,
    /// Bound that scores are bent towards, in base 2 as they are; none in nearly all models.
    pub cap: Option<f32>,
    /// `[queries, D]`
    pub queries: ArrayView2<'a, f32>,
    /// `[places, D]`
    pub keys: ArrayView2<'a, f32>,
    /// `[places, D_v]`
    pub values: ArrayView2<'a, f32>,
    /// Places that each query sees, `[queries]`.
    pub sees: &'a [Range<usize>],
}

/// Sizes of the blocks that are brought to fast memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tiling {
    /// Queries in a tile, at least one; the paper's `B_r`.
    pub queries: usize,
    /// Keys, and their values, in a tile, at least one; the paper's `B_c`.
    pub keys: usize,
}

impl Tiling {
    // ANCHOR: fitting
    /// The largest tiles of which four fit a fast memory of so many bytes: queries, keys, values and
    /// answers, each `D` wide (Dao et al. 2022, algorithm 1; `B_r` is at most `D` there too).
    ///
    /// # Panics
    /// If they are no numbers wide.
    pub fn fitting(fast_bytes: usize, dim: usize) -> Self {
        let rows = (fast_bytes / (4 * dim * size_of::<f32>())).max(1);
        Tiling { queries: rows.min(dim), keys: rows }
    }
    // ANCHOR_END: fitting
}

/// A form of attention: a head's queries → `[queries, D_v]`.
pub type Method<'a> = &'a dyn Fn(&Head, &Traffic) -> Array2<f32>;

/// Attention of a span's rows in the given form, as [`naive_decode::attend_span`] answers it:
/// `q [rows, heads, D]`, `k [slots, kv_heads, D]` and `v [slots, kv_heads, D_v]` → `[rows, heads, D_v]`.
///
/// Rows of a draft tree come one by one, each with the keys and values of its own line of slots.
///
/// # Panics
/// If the number of query heads is not a multiple of the number of key-value heads.
pub fn attend_heads(
    method: Method,
    isa: Isa,
    layer: LayerSpec,
    span: &Span,
    (q, k, v): (ArrayView3<f32>, ArrayView3<f32>, ArrayView3<f32>),
    traffic: &Traffic,
) -> Array3<f32> {
    let (heads, kv_heads) = (q.dim().1, k.dim().1);
    assert!(heads.is_multiple_of(kv_heads), "whole groups of query heads");
    let group = heads / kv_heads;
    let mut out = Array3::zeros((q.dim().0, heads, v.dim().2));
    for rows in rows_in_one_line(&span.sees) {
        let places = |sees: &Visible| sees.places(layer.window);
        let of_group = |sees| std::iter::repeat_n(places(sees), group);
        let sees: Vec<_> = span.sees[rows.clone()].iter().flat_map(of_group).collect();
        let end = sees.iter().map(|seen| seen.end).max().unwrap_or(0);
        // A plain row's places are its slots; a row of a draft tree stands alone here.
        let line: Vec<usize> = match &span.sees[rows.start] {
            sees if sees.also.is_empty() => (0..end).collect(),
            sees => (0..end).map(|place| sees.slot(place)).collect(),
        };
        for kv_head in 0..kv_heads {
            let own = s![rows.clone(), kv_head * group..(kv_head + 1) * group, ..];
            let queries = q.slice(own).as_standard_layout().into_owned();
            let queries = queries.into_shape_with_order((sees.len(), q.dim().2));
            let in_line =
                |x: ArrayView3<f32>| x.index_axis(Axis(1), kv_head).select(Axis(0), &line);
            let answers = method(
                &Head {
                    isa,
                    scale: layer.scale * std::f32::consts::LOG2_E,
                    cap: layer.score_cap.map(|cap| cap * std::f32::consts::LOG2_E),
                    queries: queries.expect("one row for each query").view(),
                    keys: in_line(k).view(),
                    values: in_line(v).view(),
                    sees: &sees,
                },
                traffic,
            );
            let answers = answers.into_shape_with_order((rows.len(), group, v.dim().2));
            out.slice_mut(own).assign(&answers.expect("one answer for each query"));
        }
    }
    out
}

/// Rows whose slots stand in one line: all plain ones together, each row of a draft tree alone.
fn rows_in_one_line(sees: &[Visible]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (row, visible) in sees.iter().enumerate() {
        match runs.last_mut() {
            Some(run) if visible.also.is_empty() && sees[row - 1].also.is_empty() => run.end += 1,
            _ => runs.push(row..row + 1),
        }
    }
    runs
}
