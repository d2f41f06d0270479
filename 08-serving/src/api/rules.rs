//! Tokens and words that an answer is not to have, as the engine takes them.

use super::{ApiError, Generation, MOST_BAD_WORD_BYTES, MOST_BAD_WORDS, at_most, known};
use crate::engine::{Rules, TokenSet};
use naive_decode::Tokenizer;

impl Generation {
    /// What `allowed_token_ids` and `bad_words` come to; none if neither asks for anything. `vocabulary`: ids are below it.
    ///
    /// # Errors
    /// 400: too many of either, a list that allows nothing, ids that the vocabulary lacks, or a word that says nothing.
    pub fn rules(
        &self,
        tokenizer: &Tokenizer,
        vocabulary: usize,
    ) -> Result<Option<Rules>, ApiError> {
        let allowed = self.allowed_tokens(vocabulary)?;
        let forbidden = self.forbidden_words(tokenizer)?;
        let rules = Rules { allowed, forbidden };
        Ok((rules != Rules::default()).then_some(rules))
    }

    /// The parameter that leaves fewer tokens to choose, for whoever has none left.
    pub fn rules_param(&self) -> &'static str {
        match self.bad_words.as_deref() {
            None | Some([]) => "allowed_token_ids",
            Some(_) => "bad_words",
        }
    }

    fn allowed_tokens(&self, vocabulary: usize) -> Result<Option<TokenSet>, ApiError> {
        const PARAM: &str = "allowed_token_ids";
        let Some(tokens) = &self.allowed_token_ids else { return Ok(None) };
        if tokens.is_empty() {
            return Err(ApiError::value(PARAM, "empty", "at least one token"));
        }
        // All but a few may be asked for, so what bounds it is the vocabulary.
        at_most(PARAM, tokens.len(), vocabulary, "tokens")?;
        known(PARAM, tokens, vocabulary)?;
        let mut allowed = TokenSet::none(vocabulary);
        tokens.iter().for_each(|&token| allowed.insert(token));
        Ok(Some(allowed))
    }

    /// Words as their tokens: as a text may begin with them, and as they stand after a space, where that is written in other
    /// tokens.
    fn forbidden_words(&self, tokenizer: &Tokenizer) -> Result<Vec<Vec<u32>>, ApiError> {
        const PARAM: &str = "bad_words";
        let words = self.bad_words.as_deref().unwrap_or_default();
        at_most(PARAM, words.len(), MOST_BAD_WORDS, "words")?;
        if let Some(word) = words.iter().find(|word| word.len() > MOST_BAD_WORD_BYTES) {
            let found = format!("a list with a word of {} bytes", word.len());
            let expected = format!("words of at most {MOST_BAD_WORD_BYTES}");
            return Err(ApiError::value(PARAM, found, &expected));
        }
        let encode = |text: &str| {
            let tokens = tokenizer.encode(text);
            tokens.map_err(|problem| ApiError::caused_by(PARAM, &problem))
        };
        let mut forbidden = Vec::new();
        for word in words {
            let bare = word.trim_start();
            let first = encode(bare)?;
            if first.is_empty() {
                let found = format!("a list with {word:?} in it");
                let expected = "words with a character that is no white space";
                return Err(ApiError::value(PARAM, found, expected));
            }
            let inside = encode(&format!(" {bare}"))?;
            // Where the space is a token by itself, the word after it is the one that is forbidden already.
            if !inside.ends_with(&first) {
                forbidden.push(inside);
            }
            forbidden.push(first);
        }
        Ok(forbidden)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use embedded_models::TARGET;
    use model_files::ModelFiles;

    #[test]
    fn a_word_is_forbidden_at_the_beginning_and_after_a_space() {
        let tokenizer = ModelFiles::embedded(&TARGET).unwrap().tokenizer;
        let encode = |text: &str| tokenizer.encode(text).unwrap();
        let forbidden = |word: &str| {
            let bad_words = Some(vec![word.to_owned()]);
            let generation = Generation { bad_words, ..Generation::default() };
            generation.rules(&tokenizer, 2048).unwrap().unwrap().forbidden
        };
        let [bare, inside] = ["lantern", " lantern"].map(encode);
        assert!(!inside.ends_with(&bare));
        for word in ["lantern", " lantern"] {
            assert_eq!(forbidden(word), [inside.clone(), bare.clone()]);
        }
        // A space before this is a token by itself: what follows it is forbidden wherever it stands.
        let [bare, inside] = ["é", " é"].map(encode);
        assert!(inside.ends_with(&bare) && inside.len() > bare.len());
        assert_eq!(forbidden("é"), [bare]);
    }

    #[test]
    fn who_asks_for_nothing_has_no_rules() {
        let tokenizer = ModelFiles::embedded(&TARGET).unwrap().tokenizer;
        let rules = |generation: Generation| generation.rules(&tokenizer, 2048).unwrap();
        assert_eq!(rules(Generation::default()), None);
        assert_eq!(rules(Generation { bad_words: Some(vec![]), ..Generation::default() }), None);
        let allowed_token_ids = Some(vec![2047, 3, 3]);
        let rules = rules(Generation { allowed_token_ids, ..Generation::default() }).unwrap();
        let allowed = rules.allowed.unwrap();
        assert_eq!(
            (0..5_000).filter(|&token| allowed.contains(token)).collect::<Vec<_>>(),
            [3, 2047]
        );
    }
}
