//! What users write stays text.
//!
//! A tokenizer takes `<|end|>`, written out, for the token that ends a turn. In a chat template's
//! own text that is the point. In a user's message it would let the user speak as the system. But
//! both come as one text: a template is a program, which trims, cuts and joins what it is given.
//!
//! So the first letter of each special token that a message spells out is replaced by a stand-in,
//! a letter that is found nowhere in the messages, before the template runs. Whatever special
//! tokens the text then has are the template's own. Each of those is written in a way that nobody
//! else writes, for a copy of the tokenizer that knows special tokens by that way only; the
//! stand-ins become the letters that they stood for; and the copy encodes the whole text at once,
//! so that all rules of the tokenizer (spaces at the start, words across the seams) apply as ever.

use super::Tokenizer;
use crate::error::{Error, Result};
use std::collections::{BTreeSet, HashMap};
use tokenizers::{AddedToken, OffsetReferential, OffsetType};

/// Unicode's last code point, which is no character and never will be. Between two of these stands
/// the id of a special token, for the copy of the tokenizer.
const MARK: char = '\u{10FFFF}';

/// Where stand-ins are looked for: letters that Unicode leaves to private use.
const STAND_INS: std::ops::RangeInclusive<char> = '\u{100000}'..='\u{10FFFD}';

/// Stand-ins for the first letters of special tokens. Made by [`Tokenizer::disguise`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disguise {
    /// Special tokens as they are written.
    spellings: Vec<String>,
    /// A letter, and what stands for it.
    stand_ins: Vec<(char, char)>,
}

/// A tokenizer that knows special tokens only as an id between two [`MARK`]s.
#[derive(Debug)]
pub(super) struct Masked {
    inner: tokenizers::Tokenizer,
    /// Its ids of special tokens → the tokenizer's own.
    ids: HashMap<u32, u32>,
}

impl Tokenizer {
    /// What it takes to keep `texts` from being read as special tokens; none if they spell out no
    /// special token, nor begin one at their end: then they are safe as they are.
    ///
    /// # Errors
    /// If the texts leave no letter to stand in for others.
    pub fn disguise<'t>(
        &self,
        texts: impl Iterator<Item = &'t str> + Clone,
    ) -> Result<Option<Disguise>> {
        let spellings: BTreeSet<&str> =
            self.special().map(|(_, token)| token.content.as_str()).collect();
        let is_safe = |text: &str| {
            spellings.iter().all(|spelling| starts(text, spelling).is_empty())
                // Some are found in other spellings too: in wide letters, for one.
                && self.special_in(text).is_empty()
        };
        if texts.clone().all(is_safe) {
            return Ok(None);
        }
        let letters: BTreeSet<char> = spellings.iter().filter_map(|s| s.chars().next()).collect();
        let used: BTreeSet<char> =
            texts.flat_map(str::chars).filter(|letter| STAND_INS.contains(letter)).collect();
        let stand_ins: Vec<(char, char)> = letters
            .iter()
            .copied()
            .zip(STAND_INS.filter(|letter| !used.contains(letter)))
            .collect();
        if stand_ins.len() < letters.len() {
            let expected = format!("some of {STAND_INS:?} left unused");
            return Err(Error::invalid("text of a conversation", "all of Unicode", expected));
        }
        let spellings = spellings.into_iter().map(str::to_owned).collect();
        Ok(Some(Disguise { spellings, stand_ins }))
    }

    /// The tokens of `text` and no others, as [`Tokenizer::encode`]; parts of it that went through
    /// [`Disguise::hide`] are text, whatever they spell out.
    ///
    /// # Errors
    /// If the tokenizer has no way to write some part of the text, or if the text has U+10FFFF in it,
    /// which is no character.
    pub fn encode_disguised(&self, text: &str, disguise: &Disguise) -> Result<Vec<u32>> {
        if text.contains(MARK) {
            return Err(Error::invalid("text of a conversation", "with U+10FFFF", "characters"));
        }
        let masked = match self.masked.get() {
            Some(masked) => masked,
            None => {
                let made = Masked::new(self)?;
                self.masked.get_or_init(|| made)
            }
        };
        let mut marked = String::with_capacity(text.len());
        let mut done = 0;
        for (start, end, id, written) in self.special_in(text) {
            // White space around a token may belong to it; the mark's own rules see to that. What
            // is spelled otherwise is from a message: templates write what the vocabulary has.
            let Some(at) = text[start..end].find(written) else { continue };
            marked += &disguise.reveal(&text[done..start + at]);
            marked += &mark(id);
            done = start + at + written.len();
        }
        marked += &disguise.reveal(&text[done..]);
        let encoding = masked.inner.encode_fast(marked, false);
        let encoding = encoding.map_err(|e| Error::file(&self.name, e))?;
        let own = |id: &u32| masked.ids.get(id).copied().unwrap_or(*id);
        Ok(encoding.get_ids().iter().map(own).collect())
    }

    /// The special tokens that the tokenizer sees in `text`: first byte, byte after the last, id, and
    /// how the vocabulary writes it.
    fn special_in(&self, text: &str) -> Vec<(usize, usize, u32, &str)> {
        let vocabulary = self.inner.get_added_vocabulary();
        let added = vocabulary.get_added_tokens_decoder();
        let pieces = vocabulary.extract_and_normalize(self.inner.get_normalizer(), text);
        let pieces = pieces.get_splits(OffsetReferential::Original, OffsetType::Byte);
        let found = pieces.into_iter().filter_map(|(_, (start, end), tokens)| {
            let id = tokens.as_ref()?.first()?.id;
            let token = added.get(&id).filter(|token| token.special)?;
            Some((start, end, id, token.content.as_str()))
        });
        found.collect()
    }

    /// Every special token.
    fn special(&self) -> impl Iterator<Item = (u32, &AddedToken)> {
        let added = self.inner.get_added_vocabulary().get_added_tokens_decoder();
        added.iter().filter(|(_, token)| token.special).map(|(&id, token)| (id, token))
    }
}

impl Disguise {
    /// `text` with a stand-in for the first letter of each special token that it spells out, or
    /// begins at its end.
    pub fn hide(&self, text: &str) -> String {
        let mut at: Vec<usize> =
            self.spellings.iter().flat_map(|spelling| starts(text, spelling)).collect();
        at.sort_unstable();
        let mut hidden = String::with_capacity(text.len() + 4 * at.len());
        for (i, letter) in text.char_indices() {
            let stand_in = self.stand_ins.iter().find(|(known, _)| *known == letter);
            match stand_in.filter(|_| at.binary_search(&i).is_ok()) {
                Some((_, stand_in)) => hidden.push(*stand_in),
                None => hidden.push(letter),
            }
        }
        hidden
    }

    /// `text` as it was before [`Disguise::hide`].
    fn reveal(&self, text: &str) -> String {
        let letter = |letter: char| {
            let stood = self.stand_ins.iter().find(|(_, stand_in)| *stand_in == letter);
            stood.map_or(letter, |(letter, _)| *letter)
        };
        text.chars().map(letter).collect()
    }
}

/// Where `text` spells out `special`, or begins to at its end (white space after it aside: templates
/// take that away), so that what follows could complete it.
fn starts(text: &str, special: &str) -> Vec<usize> {
    let Some(first) = special.chars().next() else { return Vec::new() };
    let trimmed = text.trim_end();
    let at = text.match_indices(first).map(|(at, _)| at).filter(|&at| {
        let rest = &text[at..];
        let ends_in_it = at < trimmed.len() && special.starts_with(&trimmed[at..]);
        rest.starts_with(special) || special.starts_with(rest) || ends_in_it
    });
    at.collect()
}

/// How the copy of the tokenizer knows a special token.
fn mark(id: u32) -> String {
    format!("{MARK}{id}{MARK}")
}

impl Masked {
    fn new(tokenizer: &Tokenizer) -> Result<Self> {
        let mut inner = tokenizer.inner.clone();
        inner.set_encode_special_tokens(true);
        let refuse = |e: tokenizers::Error| Error::file(&tokenizer.name, e);
        let marks = tokenizer.special().map(|(id, token)| AddedToken {
            content: mark(id),
            special: false,
            ..token.clone()
        });
        inner.add_tokens(marks).map_err(refuse)?;
        let mut ids = HashMap::new();
        for (id, _) in tokenizer.special() {
            let masked = inner.token_to_id(&mark(id)).filter(|masked| {
                // The library counts entries, and a vocabulary may skip ids.
                tokenizer.inner.id_to_token(*masked).is_none()
            });
            let masked = masked.ok_or_else(|| {
                let problem = format!("special token {id} cannot be told from others");
                Error::file(&tokenizer.name, problem)
            })?;
            ids.insert(masked, id);
        }
        Ok(Masked { inner, ids })
    }
}
