//! Tokens drawn as the CPU's sampler draws them: top-k, then top-p of what stays, then up the ids.

use super::numbers::Random;
use super::{Bench, Buffer, Problem, same};
use crate::Launch;
use crate::sampling::Sample;

/// Scores, and how a token is to be drawn from them.
#[derive(Clone)]
pub struct Row {
    /// One for each token.
    pub scores: Vec<f32>,
    /// 0 for the likeliest.
    pub temperature: f32,
    /// 0 for all.
    pub top_k: u32,
    /// 1 for all.
    pub top_p: f32,
    /// A number drawn from all that there are.
    pub draw: u64,
}

/// The launch for these rows, and where the tokens go.
///
/// # Errors
/// If the device has too little memory.
pub fn place(gpu: &mut Bench, rows: &[Row]) -> Result<(Launch, Buffer<u32>), Problem> {
    let tokens = gpu.alloc::<u32>(rows.len())?;
    let scores: Vec<f32> = rows.iter().flat_map(|row| row.scores.clone()).collect();
    let of = |part: fn(&Row) -> f32| rows.iter().map(part).collect::<Vec<f32>>();
    let (temperatures, top_ps) = (of(|row| row.temperature), of(|row| row.top_p));
    let top_ks: Vec<u32> = rows.iter().map(|row| row.top_k).collect();
    let draws: Vec<u64> = rows.iter().map(|row| row.draw).collect();
    let launch = Sample {
        tokens: tokens.address(),
        scores: gpu.upload(&scores)?,
        temperatures: gpu.upload(&temperatures)?,
        top_ks: gpu.upload(&top_ks)?,
        top_ps: gpu.upload(&top_ps)?,
        draws: gpu.upload(&draws)?,
        rows: rows.len(),
        vocabulary: rows.first().map_or(0, |row| row.scores.len()),
    };
    Ok((launch.launch()?, tokens))
}

fn sample(gpu: &mut Bench, rows: &[Row]) -> Result<Vec<u32>, Problem> {
    let (launch, tokens) = place(gpu, rows)?;
    gpu.run([&launch])?;
    gpu.download(tokens)
}

/// The kernel's weights are whole numbers, 2^40 the largest; here they are in f64.
fn right(row: &Row) -> u32 {
    let scores = &row.scores;
    let highest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut ids: Vec<usize> = (0..scores.len()).collect();
    // -0 is 0 here as in the kernel.
    let score = |id: usize| scores[id] + 0.0;
    ids.sort_by(|&a, &b| score(b).total_cmp(&score(a)).then(a.cmp(&b)));
    if row.temperature == 0.0 {
        return ids[0] as u32;
    }
    let weight = |id: usize| (f64::from(scores[id] - highest) / f64::from(row.temperature)).exp();
    if row.top_k > 0 {
        ids.truncate(row.top_k as usize);
    }
    let enough = f64::from(row.top_p) * ids.iter().map(|&id| weight(id)).sum::<f64>();
    let mut before = 0.0;
    ids.retain(|&id| {
        let stays = row.top_p >= 1.0 || before < enough;
        before += weight(id);
        stays
    });
    ids.sort_unstable();
    let total: f64 = ids.iter().map(|&id| weight(id)).sum();
    let share = row.draw as f64 / 2f64.powi(64) * total;
    let mut passed = 0.0;
    let drawn = ids.iter().copied().find(|&id| {
        passed += weight(id);
        passed > share
    });
    drawn.unwrap_or(ids[ids.len() - 1]) as u32
}

/// All kinds of rows, with ties at every edge.
pub fn rows(vocabulary: usize) -> Vec<Row> {
    let mut random = Random(vocabulary as u64);
    let mut rows = Vec::new();
    for temperature in [0.0, 0.7, 1.0, 3.0] {
        for top_k in [0, 1, 5, 50, vocabulary as u32, vocabulary as u32 + 1] {
            for top_p in [1.0, 0.9, 0.3, 1e-6] {
                // Few different scores, so that there are ties at every edge; every third row has many.
                let coarse = rows.len() % 3 != 0;
                let mut scores = random.bf16s(vocabulary, 4.0);
                if coarse {
                    scores.iter_mut().for_each(|score| *score = score.round());
                }
                rows.push(Row { scores, temperature, top_k, top_p, draw: random.next() });
            }
        }
    }
    rows
}

/// Sampling in all its ways.
///
/// # Errors
/// Names what is wrong.
pub(super) fn check(gpu: &mut Bench) -> Result<(), Problem> {
    sorted(gpu)?;
    edges(gpu)?;
    refused(gpu)?;
    alone(gpu)
}

/// Tokens are those that a sort would give.
fn sorted(gpu: &mut Bench) -> Result<(), Problem> {
    for vocabulary in [1, 100, 1000] {
        let rows = rows(vocabulary);
        let right: Vec<u32> = rows.iter().map(right).collect();
        same("sample", &sample(gpu, &rows)?, &right)?;
    }
    Ok(())
}

/// The first and the last draw give the first and the last token that stays.
fn edges(gpu: &mut Bench) -> Result<(), Problem> {
    let scores = vec![0.0, -1.0, 2.0, 2.0, 1.0, 2.0, f32::NEG_INFINITY, -0.0];
    let row = Row { scores, temperature: 1.0, top_k: 0, top_p: 1.0, draw: 0 };
    let last = u64::MAX;
    let cases = [
        (row.clone(), 0),
        (Row { draw: last, ..row.clone() }, 7),
        (Row { top_k: 2, ..row.clone() }, 2),
        (Row { top_k: 2, draw: last, ..row.clone() }, 3), // of three equal ones the last is out
        (Row { top_k: 4, draw: last, ..row.clone() }, 5),
        (Row { top_k: 5, ..row.clone() }, 0), // 0 and -0 are equal; the lower id stays
        (Row { top_k: 5, draw: last, ..row.clone() }, 5),
        (Row { top_p: 0.5, draw: last, ..row.clone() }, 3),
        (Row { top_p: 1e-9, draw: last, ..row.clone() }, 2),
        (Row { temperature: 0.0, draw: last, ..row.clone() }, 2),
    ];
    let (rows, right): (Vec<Row>, Vec<u32>) = cases.into_iter().unzip();
    same("sample, at the edges", &sample(gpu, &rows)?, &right)?;
    Ok(())
}

/// What is no score is refused.
fn refused(gpu: &mut Bench) -> Result<(), Problem> {
    let row = Row { scores: vec![0.0; 40], temperature: 1.0, top_k: 0, top_p: 0.9, draw: 1 << 63 };
    let with = |score: f32| {
        let mut row = row.clone();
        row.scores[33] = score;
        row
    };
    let nothing = Row { scores: vec![f32::NEG_INFINITY; 40], ..row.clone() };
    let found =
        sample(gpu, &[with(f32::NAN), with(f32::INFINITY), nothing, with(f32::NEG_INFINITY)])?;
    same("sample, of what is no score", &found[..3], &[u32::MAX; 3])?;
    same("sample, with a score that is minus infinity", &[found[3] < 40], &[true])?;
    Ok(())
}

/// A row draws the same token alone and among others.
fn alone(gpu: &mut Bench) -> Result<(), Problem> {
    let rows = rows(300);
    let together = sample(gpu, &rows)?;
    for i in [3, 40, 95] {
        same("sample, alone", &sample(gpu, &rows[i..i + 1])?, &together[i..i + 1])?;
    }
    Ok(())
}
