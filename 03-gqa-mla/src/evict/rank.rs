//! The highest of some scores.

/// Indices of the `count` highest scores, ascending. Of equals, the later: it has had less time to
/// be looked at.
pub(super) fn highest(scores: &[f32], count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_unstable_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(b.cmp(&a)));
    order.truncate(count);
    order.sort_unstable();
    order
}

/// The last `recent` of `held` places, and of those before them the highest by score so that there
/// are `budget` in all; `None` if no more are held. A place without a score has none yet.
pub(super) fn highest_and_recent(
    held: usize,
    scores: &[f32],
    budget: usize,
    recent: usize,
) -> Option<Vec<usize>> {
    if held <= budget {
        return None;
    }
    let older = held - recent;
    let mut scores = scores[..older.min(scores.len())].to_vec();
    scores.resize(older, 0.0);
    let mut kept = highest(&scores, budget - recent);
    kept.extend(older..held);
    Some(kept)
}

/// Scores that move with their entries.
pub(super) fn follow(scores: &mut Vec<f32>, places: &[usize]) {
    *scores = places.iter().map(|&place| scores.get(place).copied().unwrap_or(0.0)).collect();
}

/// Adds to the scores in some places; there may be more places than scores so far.
pub(super) fn add(scores: &mut Vec<f32>, places: &[usize], votes: impl Iterator<Item = f32>) {
    if let Some(&last) = places.last() {
        scores.resize(scores.len().max(last + 1), 0.0);
    }
    places.iter().zip(votes).for_each(|(&place, vote)| scores[place] += vote);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_come_in_order_and_the_later_of_equals_wins() {
        assert_eq!(highest(&[1.0, 3.0, 2.0, 3.0, 1.0], 3), [1, 2, 3]);
        assert_eq!(highest(&[1.0, 1.0, 1.0], 2), [1, 2]);
        assert_eq!(highest(&[1.0], 4), [0]);
    }

    #[test]
    fn recent_places_stay_whatever_their_score() {
        assert_eq!(highest_and_recent(6, &[5.0, 1.0, 9.0, 2.0], 6, 3), None);
        assert_eq!(highest_and_recent(6, &[5.0, 1.0, 9.0, 2.0], 4, 2).unwrap(), [0, 2, 4, 5]);
        assert_eq!(highest_and_recent(3, &[], 2, 1).unwrap(), [1, 2]);
    }
}
