//! From the checkpoint's order of rows to ours.

/// Puts the rotary rows of a matrix in the order in which [`naive_decode::Rope`] turns them.
///
/// DeepSeek's checkpoints keep the two rows of a pair side by side, `(2j, 2j + 1)`; RoPE here turns
/// `(j, j + rope / 2)`. Queries and keys are reordered alike, and a dot product does not ask for
/// order.
///
/// `weights` is `[blocks][before + rope][inputs]`; the `before` rows of each block stay where they
/// are.
pub(super) fn pairs_to_halves(
    weights: &[f32],
    before: usize,
    rope: usize,
    inputs: usize,
) -> Vec<f32> {
    let row = |block: &[f32], row: usize| block[row * inputs..][..inputs].to_vec();
    let place = |i: usize| match i.checked_sub(before) {
        None => i,
        Some(j) if j < rope / 2 => before + 2 * j,
        Some(j) => before + 2 * (j - rope / 2) + 1,
    };
    weights
        .chunks_exact((before + rope) * inputs)
        .flat_map(|block| (0..before + rope).flat_map(move |i| row(block, place(i))))
        .collect()
}

/// The transpose of a row-major `[rows][columns]` matrix.
pub(super) fn transposed(matrix: &[f32], columns: usize) -> Vec<f32> {
    (0..columns).flat_map(|i| matrix[i..].iter().step_by(columns).copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_side_by_side_become_halves() {
        // Two blocks of one plain row and four rotary ones, two numbers a row.
        let rows: Vec<f32> = (0..20).map(|i| i as f32).collect();
        let first = [0.0, 1.0, 2.0, 3.0, 6.0, 7.0, 4.0, 5.0, 8.0, 9.0];
        let expected: Vec<f32> = first.iter().copied().chain(first.map(|v| v + 10.0)).collect();
        assert_eq!(pairs_to_halves(&rows, 1, 4, 2), expected);
    }

    #[test]
    fn a_transpose_swaps_rows_and_columns() {
        assert_eq!(transposed(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 3), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    }
}
