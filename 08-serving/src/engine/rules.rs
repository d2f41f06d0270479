//! Tokens that a request does not want, whatever the model makes of them.

use super::request::TokenSet;
use naive_decode::{Error, Result};

/// What is said where no token is left to choose.
const LEFT: &str = "number of tokens that the request lets come next";

/// What a request allows and forbids. Answers to one prompt share it.
///
/// It says of a text alone what may follow it. So a guess is judged as any token is, and whoever gave up its place goes on as
/// before. Together with the form of an answer, a token must be allowed by both, but for the end of one that is whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// The only tokens that may be written, end tokens included; none if all may.
    pub allowed: Option<TokenSet>,
    /// Words that are not to be written, each as its tokens, at least one: the last of them does not follow the others.
    pub forbidden: Vec<Vec<u32>>,
}

impl Rules {
    /// Leaves no score to tokens that may not follow `written`, what has been generated so far; by scores `[vocab]`.
    pub(super) fn apply(&self, scores: &mut [f32], written: &[u32]) {
        if let Some(allowed) = &self.allowed {
            allowed.keep(scores);
        }
        for word in &self.forbidden {
            // A word may not be half in the prompt: that was not written here.
            if let Some((&last, before)) = word.split_last()
                && written.ends_with(before)
            {
                scores[last as usize] = f32::NEG_INFINITY;
            }
        }
    }

    /// Whether an answer failed because its request leaves no token to choose.
    pub fn are_to_blame(problem: &Error) -> bool {
        matches!(problem, Error::Invalid { what, .. } if what == LEFT)
    }
}

/// Whether rules have left no token, by scores `[vocab]`.
pub(super) fn is_nothing_left(scores: &[f32]) -> bool {
    scores.iter().all(|&score| score == f32::NEG_INFINITY)
}

/// Checks that rules have left a token, by scores `[vocab]`.
///
/// # Errors
/// If they have not.
pub(super) fn check_left(scores: &[f32]) -> Result<()> {
    match is_nothing_left(scores) {
        false => Ok(()),
        true => {
            let expected = "at least one that is allowed, is not the end of a forbidden word, and goes with the form of \
                            the answer, if it has one";
            Err(Error::invalid(LEFT, 0, expected))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tokens of ten that may follow.
    fn left(rules: &Rules, written: &[u32]) -> Vec<u32> {
        let mut scores = [0.0; 10];
        rules.apply(&mut scores, written);
        (0..10).filter(|&token| scores[token as usize] == 0.0).collect()
    }

    #[test]
    fn the_last_token_of_a_word_does_not_follow_the_others() {
        let forbidden = vec![vec![3], vec![1, 2], vec![1, 1, 4]];
        let rules = Rules { forbidden, ..Rules::default() };
        assert_eq!(left(&rules, &[]), [0, 1, 2, 4, 5, 6, 7, 8, 9]);
        assert_eq!(left(&rules, &[5, 1]), [0, 1, 4, 5, 6, 7, 8, 9]);
        assert_eq!(left(&rules, &[1, 5]), [0, 1, 2, 4, 5, 6, 7, 8, 9]);
        assert_eq!(left(&rules, &[1, 1]), [0, 1, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn what_is_allowed_may_be_forbidden_all_the_same() {
        let mut allowed = TokenSet::none(10);
        [2, 3].into_iter().for_each(|token| allowed.insert(token));
        let rules = Rules { allowed: Some(allowed), forbidden: vec![vec![3, 2], vec![2, 2]] };
        assert_eq!(left(&rules, &[]), [2, 3]);
        assert_eq!(left(&rules, &[3]), [3]);
        assert!(check_left(&[f32::NEG_INFINITY, -1.0]).is_ok());
        let problem = check_left(&[f32::NEG_INFINITY; 3]).unwrap_err();
        assert!(Rules::are_to_blame(&problem), "{problem}");
    }
}
