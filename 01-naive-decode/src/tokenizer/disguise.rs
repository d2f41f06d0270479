//! What users write stays text.
//!
//! A tokenizer takes `<|end|>`, written out, for the token that ends a turn. In a chat template's
//! own text that is the point. In a user's message it would let the user speak as the system. But
//! both come as one text: a template is a program, which trims, cuts and joins what it is given.
//!
//! So the first letter of each special token that a message spells out is replaced by a stand-in,
//! a letter that is found nowhere in the messages, before the template runs. Whatever special
//! tokens the text then has are the template's own, unless the template has put one together: of
//! `<|e/think nd|>` it may take the middle out. Whether it has, a second run shows, in which every
//! mark that a special token begins with has a stand-in, so that it could not.
//!
//! Each special token is then written in a way that nobody else writes, for a copy of the tokenizer
//! that knows special tokens by that way only; the stand-ins become the letters that they stood for;
//! and the copy encodes the whole text at once, so that all rules of the tokenizer (spaces at the
//! start, words across the seams) apply as ever.

use super::Tokenizer;
use crate::error::{Error, Result};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;
use tokenizers::{AddedToken, OffsetReferential, OffsetType};

/// Unicode's last code point, which is no character and never will be. Between two of these stands
/// the id of a special token, for the copy of the tokenizer.
const MARK: char = '\u{10FFFF}';

/// Where stand-ins are looked for: letters that Unicode leaves to private use.
const STAND_INS: std::ops::RangeInclusive<char> = '\u{100000}'..='\u{10FFFD}';

/// Stand-ins for the first letters of special tokens. Made by [`Tokenizer::disguise`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disguise {
    spelled: Arc<Spelled>,
    /// A letter, and what stands for it.
    stand_ins: Vec<(char, char)>,
    is_needed: bool,
}

/// Special tokens as they are written, to be looked for in texts: a vocabulary may have thousands.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Spelled {
    /// In order, so that those that begin alike stand together.
    spellings: Vec<String>,
    /// Their first letters, and which of them begin so.
    letters: Vec<(char, Range<usize>)>,
}

/// A tokenizer that knows special tokens only as an id between two [`MARK`]s.
#[derive(Debug)]
pub(super) struct Masked {
    inner: tokenizers::Tokenizer,
    /// Its ids of special tokens → the tokenizer's own.
    ids: HashMap<u32, u32>,
}

impl Tokenizer {
    /// What it takes to keep `texts` from being read as special tokens; none if they spell out none and
    /// have no mark that one begins with: then they are safe as they are.
    ///
    /// # Errors
    /// If the texts leave no letter to stand in for others.
    pub fn disguise<'t>(
        &self,
        texts: impl Iterator<Item = &'t str> + Clone,
    ) -> Result<Option<Disguise>> {
        let spelled = self.spelled.get_or_init(|| Arc::new(Spelled::new(self)));
        let is_safe = |text: &str| {
            spelled.starts(text).next().is_none()
                // Some are found in other spellings too: in wide letters, for one.
                && self.special_in(text).is_empty()
        };
        let is_needed = !texts.clone().all(is_safe);
        let has_mark = |text: &str| {
            text.chars().any(|letter| is_mark(letter) && spelled.that_begin(letter).is_some())
        };
        if !is_needed && !texts.clone().any(has_mark) {
            return Ok(None);
        }
        let letters = &spelled.letters;
        let used: BTreeSet<char> =
            texts.flat_map(str::chars).filter(|letter| STAND_INS.contains(letter)).collect();
        let stand_ins: Vec<(char, char)> = letters
            .iter()
            .map(|(letter, _)| *letter)
            .zip(STAND_INS.filter(|letter| !used.contains(letter)))
            .collect();
        if stand_ins.len() < letters.len() {
            let expected = format!("some of {STAND_INS:?} left unused");
            return Err(Error::invalid("text of a conversation", "all of Unicode", expected));
        }
        Ok(Some(Disguise { spelled: spelled.clone(), stand_ins, is_needed }))
    }

    /// Whether a template has put special tokens together of what went through [`Disguise::hide`], or of
    /// what did not have to. `without` is what it makes of the same where all went through
    /// [`Disguise::hide_all`].
    pub fn puts_together(&self, text: &str, without: &str, disguise: &Disguise) -> bool {
        let in_text = self.special_in(text).into_iter();
        // What is spelled otherwise than the vocabulary has it is never taken for a token of a disguised text.
        let is_found = |&(start, end, _, written): &(usize, usize, u32, &str)| {
            !disguise.is_needed || text[start..end].contains(written)
        };
        let found = in_text.filter(is_found).map(|(_, _, id, _)| id);
        let own = self.special_in(without).into_iter();
        let own = own.filter(|&(start, end, _, written)| without[start..end].contains(written));
        !found.eq(own.map(|(_, _, id, _)| id))
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
    /// Whether the texts that it was made for spell out a special token, or begin one at their end.
    pub fn is_needed(&self) -> bool {
        self.is_needed
    }

    /// `text` with a stand-in for the first letter of each special token that it spells out, or
    /// begins at its end.
    pub fn hide(&self, text: &str) -> String {
        let mut starts = self.spelled.starts(text).peekable();
        let hide = |(at, letter)| match starts.next_if_eq(&at) {
            Some(_) => self.stand_in(letter),
            None => letter,
        };
        text.char_indices().map(hide).collect()
    }

    /// `text` with a stand-in for each mark that a special token begins with, wherever it stands.
    pub fn hide_all(&self, text: &str) -> String {
        let hide = |letter| if is_mark(letter) { self.stand_in(letter) } else { letter };
        text.chars().map(hide).collect()
    }

    fn stand_in(&self, letter: char) -> char {
        let stands = self.stand_ins.iter().find(|(known, _)| *known == letter);
        stands.map_or(letter, |(_, stand_in)| *stand_in)
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

impl Spelled {
    fn new(tokenizer: &Tokenizer) -> Self {
        let contents = tokenizer.special().map(|(_, token)| token.content.clone());
        let spellings: BTreeSet<String> = contents.filter(|content| !content.is_empty()).collect();
        let spellings: Vec<String> = spellings.into_iter().collect();
        let mut letters: Vec<(char, Range<usize>)> = Vec::new();
        for (place, spelling) in spellings.iter().enumerate() {
            let letter = spelling.chars().next().expect("a spelling that is not empty");
            match letters.last_mut() {
                Some((last, range)) if *last == letter => range.end += 1,
                _ => letters.push((letter, place..place + 1)),
            }
        }
        Spelled { spellings, letters }
    }

    /// The spellings that begin with a letter.
    fn that_begin(&self, letter: char) -> Option<&[String]> {
        let (_, range) = self.letters.iter().find(|(first, _)| *first == letter)?;
        Some(&self.spellings[range.clone()])
    }

    /// Where `text` spells out a special token, or begins to at its end (white space after it aside: templates
    /// take that away), so that what follows could complete it.
    fn starts<'t>(&'t self, text: &'t str) -> impl Iterator<Item = usize> + 't {
        let trimmed = text.trim_end().len();
        let at = text.char_indices().filter(move |&(at, letter)| {
            let alike = self.that_begin(letter);
            alike.is_some_and(|alike| {
                begins(alike, letter.len_utf8(), &text.as_bytes()[at..], trimmed.saturating_sub(at))
            })
        });
        at.map(|(at, _)| at)
    }
}

/// Whether a letter is no part of words: those of names and roles, which templates go by, stay as they are.
fn is_mark(letter: char) -> bool {
    !letter.is_alphanumeric()
}

/// Whether one of the spellings, whose first `known` bytes are those of `rest`, goes on as `rest` does to its own end, or to the
/// end of `rest`, or to where white space ends it.
fn begins(mut alike: &[String], known: usize, rest: &[u8], trimmed: usize) -> bool {
    for (place, byte) in rest.iter().enumerate().skip(known) {
        // Those that are at their end stand first.
        if place == trimmed || alike[0].len() == place {
            return true;
        }
        let byte = Some(byte);
        let first = alike.partition_point(|spelling| spelling.as_bytes().get(place) < byte);
        let last = alike.partition_point(|spelling| spelling.as_bytes().get(place) <= byte);
        alike = &alike[first..last];
        if alike.is_empty() {
            return false;
        }
    }
    true
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
