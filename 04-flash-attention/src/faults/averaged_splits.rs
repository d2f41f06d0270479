//! Splits that all count the same.

use super::{TOKENS, by};
use crate::head::{Head, Tiling};
use crate::tiles::runs;
use crate::traffic::Traffic;
use crate::{flash_decoding, flash_v2};
use naive_decode::break_it::{Bench, BreakIt, Side, Trial, noise, same_logits};
use naive_decode::{Decoder, Error, Isa, Result};
use ndarray::{Array2, s};

/// Who shares the past out among themselves.
const WORKERS: usize = 4;

// ANCHOR: fault
/// Each worker answers from its part of the past, normalised, and the answers are averaged.
///
/// The sum of weights that says how much of a query's attention a part deserves is divided away before
/// anyone could use it. A part with nothing of interest counts as much as the one with the answer.
pub fn averaged_splits(head: &Head, workers: usize, traffic: &Traffic) -> Array2<f32> {
    let (queries, places) = (head.queries.nrows(), head.keys.nrows());
    let mut sums = Array2::zeros((queries, head.values.ncols()));
    let mut counts = vec![0.0f32; queries];
    for part in runs(places, places.div_ceil(workers).max(1)) {
        let within = |seen: &std::ops::Range<usize>| {
            let end = seen.end.min(part.end);
            seen.start.max(part.start).min(end)..end
        };
        let sees: Vec<_> = head.sees.iter().map(within).collect();
        let own = Head { sees: &sees, ..head.clone() };
        sums += &flash_v2(&own, Tiling { queries, keys: places }, traffic);
        for (count, seen) in counts.iter_mut().zip(&sees) {
            *count += if seen.is_empty() { 0.0 } else { 1.0 };
        }
    }
    for (query, count) in counts.into_iter().enumerate() {
        sums.slice_mut(s![query, ..]).mapv_inplace(|sum| sum / count.max(1.0));
    }
    sums
}
// ANCHOR_END: fault

/// Partial results averaged instead of merged.
pub const AVERAGED_SPLITS: BreakIt = BreakIt {
    name: "averaged-splits",
    package: "flash-attention",
    cites: &["sgl-project/sglang#40903", "sgl-project/sglang#35045"],
    symptom: "every part of the text counts the same, whether or not the answer is in it; facts get mixed up",
    guard: "one worker and four give the same logits, bit for bit",
    weaker_test: Some("where all values are equal, so is every answer"),
    run: |bench| {
        let decoder = |side| Ok(shared_out(bench, side, WORKERS));
        let guard = |side| {
            let alone = shared_out(bench, side, 1).feed(&bench.prompt)?;
            let found = shared_out(bench, side, WORKERS).feed(&bench.prompt)?;
            same_logits("logits with four workers", &found, &alone, "as with one")
        };
        let weaker = |side| equal_values(|head| method(side, WORKERS)(head, &Traffic::new()));
        Trial {
            about: &AVERAGED_SPLITS,
            tokens: TOKENS,
            decoder: &decoder,
            guard: &guard,
            weaker_test: Some(&weaker),
            recall: None,
        }
        .run_until_it_shows(bench)
    },
};

fn method(side: Side, workers: usize) -> impl Fn(&Head, &Traffic) -> Array2<f32> + Send {
    move |head, traffic| match side {
        Side::Clean => flash_decoding(head, workers, traffic),
        Side::Broken => averaged_splits(head, workers, traffic),
    }
}

fn shared_out(bench: &Bench, side: Side, workers: usize) -> Box<dyn Decoder> {
    by(&bench.model, method(side, workers))
}

/// Weights that add up to one leave a constant as it is, whatever they are.
fn equal_values(attend: impl Fn(&Head) -> Array2<f32>) -> Result<()> {
    let (places, dim, value) = (100, 8, 0.75);
    let matrix = |seed, rows| Array2::from_shape_vec((rows, dim), noise(seed, rows * dim));
    let sized = "as many numbers as the matrix has";
    let (queries, keys) = (matrix(1, 3).expect(sized), matrix(2, places).expect(sized));
    let answers = attend(&Head {
        isa: Isa::best(),
        scale: 4.0,
        cap: None,
        queries: queries.view(),
        keys: keys.view(),
        values: Array2::from_elem((places, dim), value).view(),
        sees: &[0..places, 0..places / 2, places - 3..places],
    });
    match answers.iter().find(|&&answer| (answer - value).abs() > 1e-6) {
        None => Ok(()),
        Some(answer) => {
            Err(Error::invalid("an answer", answer, format!("{value}, as every value")))
        }
    }
}
