//! What speculation ought to bring, from two numbers.

// ANCHOR: expected
/// Tokens of one cycle with drafts of `length` tokens, each kept with chance `acceptance` if those before it
/// are: `(1 - a^(k+1)) / (1 - a)` (Leviathan et al. 2023, equation 1).
///
/// The last of them is the target's own: the bonus, or what replaces the first token that is refused.
pub fn tokens_per_cycle(acceptance: f64, length: usize) -> f64 {
    (0..=length).map(|kept| acceptance.powi(kept as i32)).sum()
}

/// The same against plain decoding, where drafting one token takes the share `draft_cost` of a pass of the
/// target, and a wider pass takes no longer (Leviathan et al. 2023, theorem 3.8).
pub fn speed_up(acceptance: f64, length: usize, draft_cost: f64) -> f64 {
    tokens_per_cycle(acceptance, length) / (1.0 + length as f64 * draft_cost)
}

/// The draft length up to `most` with the largest [`speed_up`]; 0 if none is above 1.
pub fn best_length(acceptance: f64, draft_cost: f64, most: usize) -> usize {
    let better = |a: &usize, b: &usize| {
        let of = |length: usize| speed_up(acceptance, length, draft_cost);
        // The shorter of two that are alike.
        of(*a).total_cmp(&of(*b)).then(b.cmp(a))
    };
    (0..=most).max_by(better).unwrap_or(0)
}
// ANCHOR_END: expected

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_figures() {
        let two = |x: f64| format!("{x:.2}");
        assert_eq!(two(tokens_per_cycle(0.8, 4)), "3.36");
        assert_eq!(two(tokens_per_cycle(0.8, 5)), "3.69");
        assert_eq!(two(tokens_per_cycle(0.9, 4)), "4.10");
        assert_eq!(two(speed_up(0.8, 4, 0.11)), "2.33");
        assert_eq!(two(speed_up(0.8, 4, 0.1)), "2.40");
        assert_eq!(tokens_per_cycle(1.0, 4), 5.0);
    }

    #[test]
    fn a_poor_draft_is_to_be_short() {
        assert_eq!(best_length(0.0, 0.1, 16), 0);
        assert_eq!(best_length(0.2, 0.5, 16), 0);
        assert!(best_length(0.5, 0.1, 16) < best_length(0.9, 0.1, 16));
    }
}
