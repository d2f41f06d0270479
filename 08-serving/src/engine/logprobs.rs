//! How likely a token was.

use super::event::TokenEvent;
use std::cmp::Ordering;

impl TokenEvent {
    /// A token of which nothing else is asked.
    pub(super) fn alone(token: u32) -> Self {
        TokenEvent { token, logprob: None, rank: None, top: Vec::new() }
    }

    /// A token with its log-probability and those of the `top` likeliest, by logits `[vocab]`; the token alone
    /// if `top` is none.
    pub(super) fn new(token: u32, logits: &[f32], top: Option<usize>) -> Self {
        let Some(top) = top else { return TokenEvent::alone(token) };
        let total = log_total(logits);
        let logprob = |token: u32| (f64::from(logits[token as usize]) - total) as f32;
        let likeliest = likeliest(logits, top).into_iter();
        let top = likeliest.map(|token| (token, logprob(token))).collect();
        let (logprob, rank) = (Some(logprob(token)), Some(rank(logits, token)));
        TokenEvent { token, logprob, rank, top }
    }
}

/// ln of the sum of e^x over all logits.
fn log_total(logits: &[f32]) -> f64 {
    let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let above = |&x: &f32| libm::exp(f64::from(x) - f64::from(highest));
    f64::from(highest) + libm::log(logits.iter().map(above).sum())
}

/// A token's place in the order of [`likeliest`], from 1 on.
fn rank(logits: &[f32], token: u32) -> usize {
    let own = logits[token as usize];
    let comes_before = |(other, logit): (u32, &f32)| match logit.total_cmp(&own) {
        Ordering::Equal => other < token,
        order => order == Ordering::Greater,
    };
    1 + (0..).zip(logits).filter(|&one| comes_before(one)).count()
}

/// The `most` tokens with the highest logits, falling; the lower id first where they are equal.
fn likeliest(logits: &[f32], most: usize) -> Vec<u32> {
    let most = most.min(logits.len());
    let falling = |a: &u32, b: &u32| -> Ordering {
        logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b))
    };
    let mut ids: Vec<u32> = (0..logits.len() as u32).collect();
    if most < ids.len() {
        ids.select_nth_unstable_by(most, falling);
        ids.truncate(most);
    }
    ids.sort_unstable_by(falling);
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_those_of_the_softmax() {
        // Weights 1, 2, 5, 2 of 10.
        let logits = [1.0f32, 2.0, 5.0, 2.0].map(|weight| libm::logf(weight) + 30.0);
        let event = TokenEvent::new(1, &logits, Some(3));
        let near = |found: f32, probability: f64| {
            assert!((f64::from(found) - libm::log(probability)).abs() < 1e-5, "{found}");
        };
        near(event.logprob.unwrap(), 0.2);
        let tokens: Vec<u32> = event.top.iter().map(|&(token, _)| token).collect();
        assert_eq!(tokens, [2, 1, 3]);
        near(event.top[0].1, 0.5);
        for (place, &token) in tokens.iter().chain([&0]).enumerate() {
            assert_eq!(TokenEvent::new(token, &logits, Some(0)).rank, Some(place + 1));
        }
        assert_eq!(TokenEvent::new(0, &logits, Some(0)).top, []);
        assert_eq!(TokenEvent::new(0, &logits, Some(99)).top.len(), 4);
        assert_eq!(TokenEvent::new(0, &logits, None), TokenEvent::alone(0));
    }
}
