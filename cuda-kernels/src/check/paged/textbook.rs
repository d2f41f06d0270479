//! Attention by the textbook.

/// The softmax of one query's scores, and the values weighed by it, in f64.
pub fn textbook<'a>(
    query: &[f32],
    keys_and_values: impl Iterator<Item = (&'a [f32], &'a [f32])>,
    scale: f32,
) -> Vec<f64> {
    let (scores, values): (Vec<f64>, Vec<&[f32]>) = keys_and_values
        .map(|(key, value)| {
            let dot = query.iter().zip(key).map(|(&q, &k)| f64::from(q) * f64::from(k));
            (dot.sum::<f64>() * f64::from(scale), value)
        })
        .unzip();
    let highest = scores.iter().copied().fold(f64::MIN, f64::max);
    let weights: Vec<f64> = scores.iter().map(|score| (score - highest).exp()).collect();
    let sum: f64 = weights.iter().sum();
    let mut out = vec![0.0; values[0].len()];
    for (weight, value) in weights.iter().zip(values) {
        for (out, &v) in out.iter_mut().zip(value) {
            *out += weight / sum * f64::from(v);
        }
    }
    out
}
