//! Forms that answers are held to, compiled once.
//!
//! llguidance makes a parser of a schema, an expression or a grammar, and says before each token which tokens may
//! come next. All of its work has limits, so no schema can hold up the server: one that is too much is refused
//! when it comes, and an answer whose next step is too much fails by itself.

use crate::api::formats::Form;
use crate::engine::{Constraint, TokenSet};
use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use naive_decode::{Error, Result, Tokenizer};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};

/// Compiled forms that are kept: those used last.
const KEPT: usize = 32;

/// States of a lexer, at most; each takes a kilobyte or two.
const MOST_LEXER_STATES: usize = 20_000;

/// Compiles forms and keeps the last ones.
pub struct Grammars {
    factory: ParserFactory,
    end_tokens: Arc<[u32]>,
    kept: Mutex<VecDeque<(Form, Matcher)>>,
}

impl Grammars {
    /// For a vocabulary. Ids are below `vocabulary`, which may be more than the tokenizer has.
    ///
    /// # Errors
    /// If the vocabulary cannot be prepared.
    pub fn new(tokenizer: &Tokenizer, vocabulary: usize, end_tokens: &[u32]) -> Result<Self> {
        let word = |token: u32| -> Vec<u8> {
            let bytes = tokenizer.token_bytes(token).unwrap_or_default();
            match tokenizer.is_silent(token) && !bytes.is_empty() {
                // What is written so is no text for a grammar.
                true => [&[TokTrie::SPECIAL_TOKEN_MARKER], &bytes[..]].concat(),
                false => bytes,
            }
        };
        let words: Vec<Vec<u8>> = (0..vocabulary as u32).map(word).collect();
        let first_end = end_tokens.first().copied().unwrap_or(0);
        let trie = TokTrie::from(&TokRxInfo::new(vocabulary as u32, first_end), &words);
        let environment: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let mut factory = ParserFactory::new_simple(&environment).map_err(refusal)?;
        factory.quiet();
        let limits = factory.limits_mut();
        limits.max_lexer_states = MOST_LEXER_STATES;
        limits.precompute_large_lexemes = false;
        limits.verbose_errors = false;
        Ok(Grammars { factory, end_tokens: end_tokens.into(), kept: Mutex::default() })
    }

    /// Holds one answer to a form.
    ///
    /// # Errors
    /// If the form is none that can be compiled, or is too large.
    pub fn constraint(&self, form: &Form) -> Result<GrammarConstraint> {
        if self.end_tokens.is_empty() {
            let expected = "a model with an end token, for an answer that is complete to end";
            return Err(Error::invalid("the model's end tokens", "none", expected));
        }
        let mut matcher = match self.take(form) {
            Some(kept) => kept,
            None => self.compile(form)?,
        };
        let mine = matcher.deep_clone();
        if let Some(problem) = matcher.get_error() {
            return Err(refusal(problem));
        }
        matcher.invalidate_bias_cache();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back((form.clone(), matcher));
        if kept.len() > KEPT {
            kept.pop_front();
        }
        Ok(GrammarConstraint { matcher: mine, end_tokens: self.end_tokens.clone() })
    }

    /// How many compiled forms are kept.
    pub fn kept(&self) -> usize {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// A compiled form, if it is kept; whoever takes it puts it back as the last one used.
    fn take(&self, form: &Form) -> Option<Matcher> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|(known, _)| known == form)?;
        kept.remove(at).map(|(_, matcher)| matcher)
    }

    fn compile(&self, form: &Form) -> Result<Matcher> {
        let grammars = match form {
            Form::Around { lark, forms } => {
                let inner = forms.iter().enumerate().map(|(i, form)| {
                    Ok(GrammarWithLexer { name: Some(format!("form{i}")), ..grammar(form)? })
                });
                let outer = GrammarWithLexer::from_lark(lark.clone());
                std::iter::once(Ok(outer)).chain(inner).collect::<Result<_>>()?
            }
            form => vec![grammar(form)?],
        };
        let grammar = TopLevelGrammar { grammars, max_tokens: None };
        let mut matcher = Matcher::new(self.factory.create_parser(grammar));
        if let Some(problem) = matcher.get_error() {
            return Err(refusal(problem));
        }
        // What nothing can begin shows here: a form that only leads back to itself, for one.
        matcher.compute_mask_or_eos().map_err(refusal)?;
        Ok(matcher)
    }
}

/// One form that has no others in it.
fn grammar(form: &Form) -> Result<GrammarWithLexer> {
    Ok(match form {
        Form::Schema { text, is_strict } => {
            let mut schema: Value = serde_json::from_str(text).map_err(refusal)?;
            if let Value::Object(fields) = &mut schema {
                let options = json!({
                    // Small models write white space without end where they may.
                    "whitespace_pattern": " ?",
                    // An answer that conforms to two of several ways is taken too.
                    "coerce_one_of": true,
                    // What is not understood is passed over.
                    "lenient": !is_strict,
                });
                fields.entry("x-guidance").or_insert(options);
            }
            GrammarWithLexer::from_json_schema(schema)
        }
        Form::Regex(text) => GrammarWithLexer::from_regex(text),
        Form::Lark(text) => GrammarWithLexer::from_lark(text.clone()),
        Form::Around { .. } => return Err(refusal("one in another that is in another")),
    })
}

fn refusal(problem: impl Display) -> Error {
    let found = format!("none that can be compiled ({problem})");
    let expected = "a JSON schema, a regular expression or a grammar in Lark's notation";
    Error::invalid("the form of the answer", found, expected)
}

/// It was compiled, and is too much to follow at some token.
fn lost(problem: impl Display) -> Error {
    let found = format!("too much to follow here ({problem})");
    Error::invalid("the form of the answer", found, "one with fewer ways to go on")
}

/// Holds one answer to a form.
pub struct GrammarConstraint {
    matcher: Matcher,
    end_tokens: Arc<[u32]>,
}

impl Constraint for GrammarConstraint {
    fn mask(&mut self) -> Result<Option<TokenSet>> {
        let mask = self.matcher.compute_mask_or_eos().map_err(lost)?;
        let ends = self.end_tokens.iter().any(|&token| mask.is_allowed(token));
        let mut set = TokenSet::from_words(mask.as_slice().to_vec());
        if ends {
            // Where one may end the answer, the others may.
            self.end_tokens.iter().for_each(|&token| set.insert(token));
        }
        Ok(Some(set))
    }

    fn accept(&mut self, token: u32) -> Result<()> {
        match self.end_tokens.contains(&token) {
            true => Ok(()),
            false => self.matcher.consume_token(token).map_err(lost),
        }
    }
}
