//! A tokenizer out of the vocabulary that a GGUF file carries.
//!
//! The file has the tokens with a type each, and either the merges of a byte-level BPE or the
//! scores of a SentencePiece model. What it does not have is the rule that cuts text into words
//! before the merging begins: that has a name only, and the rules are known by their names.

mod byte_level;
mod sentence_piece;

use super::metadata::Metadata;
use naive_decode::{Error, Result, Tokenizer};
use std::collections::HashMap;
use tokenizers::AddedToken;
use tokenizers::models::bpe::Vocab;

/// The key of what kind of vocabulary it is.
const MODEL: &str = "tokenizer.ggml.model";

/// The key of the vocabulary.
const TOKENS: &str = "tokenizer.ggml.tokens";

/// What a token is, by the numbers of `tokenizer.ggml.token_type`.
mod kind {
    pub(super) const NORMAL: u32 = 1;
    pub(super) const UNKNOWN: u32 = 2;
    pub(super) const CONTROL: u32 = 3;
    pub(super) const USER_DEFINED: u32 = 4;
}

/// Parts of tokens that end a turn or a text.
const ENDING: [&str; 3] = ["eos", "eot", "eom"];

/// How tokens are written that end a turn or a text in the models that are read here. As in llama.cpp, the spelling
/// tells, for not every file does.
const ENDS: [&str; 8] = [
    "<|end|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<｜end▁of▁sentence｜>",
];

/// The vocabulary as the file has it.
struct Vocabulary<'a> {
    metadata: Metadata<'a>,
    /// Token `i` as it is written.
    tokens: Vec<&'a str>,
    /// What token `i` is.
    kinds: Vec<u32>,
}

/// Puts the tokenizer together.
///
/// # Errors
/// If the vocabulary is missing, malformed, or of a kind that is not known here.
pub(super) fn from_metadata(metadata: &Metadata) -> Result<Tokenizer> {
    let vocabulary = Vocabulary::read(metadata)?;
    let key = MODEL;
    let expected = "gpt2 (byte-level BPE) or llama (SentencePiece)";
    let (mut tokenizer, adds_beginning) = match metadata.text(key)? {
        Some("gpt2") => byte_level::build(&vocabulary)?,
        Some("llama") => (sentence_piece::build(&vocabulary)?, true),
        Some(other) => return Err(metadata.mismatch(key, other, expected)),
        None => return Err(metadata.missing(key, expected)),
    };
    let library = |e: tokenizers::Error| Error::file(metadata.file, format!("vocabulary: {e}"));
    tokenizer.add_tokens(vocabulary.added()?).map_err(library)?;
    let tokenizer = Tokenizer::new(&format!("{}, vocabulary", metadata.file), tokenizer)?;
    let [beginning, end] = vocabulary.surroundings(adds_beginning)?;
    tokenizer.surrounded_by(beginning, end)
}

/// The tokens that end a turn or a text: those that the file names, and those that are written so. As in llama.cpp,
/// their kind does not matter.
///
/// # Errors
/// If the vocabulary or a name is malformed.
pub(super) fn ends(metadata: &Metadata) -> Result<Vec<usize>> {
    let named = parts(metadata, &ENDING)?;
    let tokens = metadata.texts(TOKENS)?.unwrap_or_default();
    let written = tokens.iter().enumerate().filter(|(_, token)| ENDS.contains(token));
    let others = written.map(|(id, _)| id).filter(|id| !named.contains(id));
    Ok(named.iter().copied().chain(others).collect())
}

/// The tokens that the file names for these parts.
fn parts(metadata: &Metadata, names: &[&str]) -> Result<Vec<usize>> {
    let mut parts = Vec::new();
    for name in names {
        let id = metadata.integer(&format!("tokenizer.ggml.{name}_token_id"))?;
        parts.extend(id.and_then(|id| usize::try_from(id).ok()));
    }
    Ok(parts)
}

/// The ids as the `tokenizers` crate wants them.
fn owned(ids: &HashMap<&str, u32>) -> Vocab {
    ids.iter().map(|(token, &id)| ((*token).to_owned(), id)).collect()
}

impl<'a> Vocabulary<'a> {
    fn read(metadata: &Metadata<'a>) -> Result<Self> {
        let key = TOKENS;
        let tokens = metadata.texts(key)?.ok_or_else(|| metadata.missing(key, "the vocabulary"))?;
        if tokens.is_empty() || u32::try_from(tokens.len()).is_err() {
            return Err(metadata.mismatch(key, &format!("{} texts", tokens.len()), "at least one"));
        }
        let key = "tokenizer.ggml.token_type";
        let kinds = match metadata.floats(key)? {
            Some(kinds) => kinds.into_iter().map(|kind| kind as u32).collect(),
            None => vec![kind::NORMAL; tokens.len()],
        };
        let vocabulary = Vocabulary { metadata: *metadata, tokens, kinds };
        vocabulary.check_length(key, vocabulary.kinds.len())?;
        Ok(vocabulary)
    }

    /// Something that each token has one of.
    fn check_length(&self, key: &str, found: usize) -> Result<()> {
        if found == self.tokens.len() {
            return Ok(());
        }
        let expected = format!("one for each of the {} tokens", self.tokens.len());
        Err(self.metadata.mismatch(key, &format!("{found} values"), &expected))
    }

    /// Tokens by how they are written, as far as that is unambiguous: the first of several alike.
    fn ids(&self) -> HashMap<&'a str, u32> {
        let mut ids = HashMap::with_capacity(self.tokens.len());
        for (id, token) in self.tokens.iter().enumerate() {
            // The number of tokens was checked to fit.
            ids.entry(*token).or_insert(id as u32);
        }
        ids
    }

    /// Tokens that are found in text as they are written, before any rule applies.
    ///
    /// Those that end something are special, whatever kind the file says: some files call `<|im_end|>` a token like any
    /// other, and then any user could write it, and no answer would end there. One that begins something or fills
    /// up is special unless it is a piece of text: files that know of none name any token, a comma for one.
    fn added(&self) -> Result<Vec<AddedToken>> {
        let swallows = self.swallows_white_space()?;
        let ends = parts(&self.metadata, &ENDING)?;
        let others = parts(&self.metadata, &["bos", "padding"])?;
        let added = self.tokens.iter().zip(&self.kinds).enumerate();
        let added = added.filter_map(|(id, (token, &kind))| {
            let is_end = ends.contains(&id) || ENDS.contains(token);
            let special = match kind {
                kind::CONTROL | kind::UNKNOWN => true,
                kind::USER_DEFINED => is_end || others.contains(&id),
                kind::NORMAL if is_end => true,
                _ => return None,
            };
            let swallows = swallows && !["<unk>", "<s>", "<|endoftext|>"].contains(token);
            let added = || AddedToken::from(*token, special).normalized(false).rstrip(swallows);
            (!token.is_empty()).then(added)
        });
        Ok(added.collect())
    }

    /// Whether the white space behind such a token belongs to it: Phi-3's template writes `<|user|>` and a line end, and
    /// the model never saw that line end. Files do not say so; of Phi-4, which has another vocabulary, it is not true.
    fn swallows_white_space(&self) -> Result<bool> {
        let family = self.metadata.text("general.architecture")?;
        Ok(family == Some("phi3") && self.metadata.text(MODEL)? == Some("llama"))
    }

    /// The tokens that belong around every text: beginning and end, if the model wants them.
    fn surroundings(&self, adds_beginning: bool) -> Result<[Option<u32>; 2]> {
        let mut around = [None; 2];
        for (place, (name, usual)) in
            around.iter_mut().zip([("bos", adds_beginning), ("eos", false)])
        {
            let flag = self.metadata.flag(&format!("tokenizer.ggml.add_{name}_token"))?;
            if !flag.unwrap_or(usual) {
                continue;
            }
            let key = format!("tokenizer.ggml.{name}_token_id");
            let Some(id) = self.metadata.integer(&key)? else { continue };
            if id >= self.tokens.len() as u64 {
                let expected = format!("an id below the vocabulary's {}", self.tokens.len());
                return Err(self.metadata.mismatch(&key, &id.to_string(), &expected));
            }
            *place = Some(id as u32);
        }
        Ok(around)
    }
}
