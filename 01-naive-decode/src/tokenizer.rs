//! Text to tokens and back.
//!
//! A thin wrapper over the `tokenizers` crate, which reads any Hugging Face tokenizer.json. Added
//! here: errors that say what is wrong, the check that tokenizer and model belong together,
//! [`TokenStream`], which turns tokens into text as they come, and [`Disguise`], which keeps what
//! users write from being taken for special tokens.

mod disguise;
mod spelling;
mod stream;

pub use disguise::Disguise;
pub use stream::TokenStream;

use disguise::{Masked, Spelled};
use spelling::Spelling;
use std::sync::{Arc, OnceLock};
use tokenizers::processors::template::{SpecialToken, TemplateProcessing};

use crate::error::{Error, Result};
use std::path::Path;

/// Models pad their embedding beyond the tokenizer's ids so that the matrix has a round size: by
/// 0.2 % (Qwen2.5) to 2.4 % (DeepSeek-V2-Lite). A sixteenth is more than any and less than the
/// distance to another family's vocabulary.
const PADDING_AT_MOST: usize = 16;

/// A vocabulary and the rules for cutting text into its tokens.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    name: String,
    spelling: Spelling,
    /// Made when the first text has to be disguised, which is seldom.
    masked: Arc<OnceLock<Masked>>,
    /// Made when the first conversation comes.
    spelled: Arc<OnceLock<Arc<Spelled>>>,
}

impl Tokenizer {
    /// Reads the contents of a tokenizer.json; `name` is what errors call it.
    ///
    /// # Errors
    /// If the contents are not those of a tokenizer.json.
    pub fn from_bytes(name: &str, json: &[u8]) -> Result<Self> {
        let json = std::str::from_utf8(json).map_err(|e| Error::file(name, e))?;
        // The library's `from_bytes` is compiled by every crate that calls it, for up to half a minute; `parse` is compiled.
        let parsed: tokenizers::Result<tokenizers::Tokenizer> = json.parse();
        let inner = parsed.map_err(|e| match e.downcast_ref() {
            Some(e) => Error::json(name, e),
            None => Error::file(name, e),
        })?;
        Tokenizer::new(name, inner)
    }

    /// Wraps a tokenizer that was put together from something else than a tokenizer.json; `name` is
    /// what errors call it.
    ///
    /// # Errors
    /// If the tokenizer does not let go of its truncation.
    pub fn new(name: &str, mut inner: tokenizers::Tokenizer) -> Result<Self> {
        // How batches were cut and filled when somebody saved the file is no part of the vocabulary. A
        // prompt would lose its end or be filled up, in silence; transformers sets both aside as well.
        inner.with_truncation(None).map_err(|e| Error::file(name, e))?;
        inner.with_padding(None);
        let spelling = Spelling::of(&inner);
        Ok(Tokenizer {
            inner,
            name: name.into(),
            spelling,
            masked: Arc::default(),
            spelled: Arc::default(),
        })
    }

    /// The same with these tokens, and no others, before and behind a text in [`Tokenizer::encode_with_special`].
    ///
    /// # Errors
    /// If one of them is no token of the vocabulary.
    pub fn surrounded_by(mut self, beginning: Option<u32>, end: Option<u32>) -> Result<Self> {
        let mut pieces = vec!["$A"];
        let mut specials = Vec::new();
        for (name, id) in [("bos", beginning), ("eos", end)] {
            let Some(id) = id else { continue };
            let token = self.inner.id_to_token(id).ok_or_else(|| {
                let what = format!("token around every text of {}", self.name);
                Error::invalid(what, id, "a token of the vocabulary")
            })?;
            pieces.insert(if name == "bos" { 0 } else { pieces.len() }, name);
            let special = SpecialToken::new(name.into(), vec![id], vec![token]);
            specials.push(special.map_err(|e| Error::file(&self.name, e))?);
        }
        let template = TemplateProcessing::builder()
            .try_single(pieces)
            .map_err(|e| Error::file(&self.name, e))?
            .special_tokens(specials)
            .build()
            .map_err(|e| Error::file(&self.name, e))?;
        self.inner.with_post_processor(Some(template));
        Ok(self)
    }

    /// Reads a tokenizer.json.
    ///
    /// # Errors
    /// If the file cannot be read or is not a tokenizer.json.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let json =
            std::fs::read(path).map_err(|source| Error::Io { path: path.to_path_buf(), source })?;
        Self::from_bytes(&path.display().to_string(), &json)
    }

    /// How many ids there are, special tokens included: every id is below it.
    pub fn vocab_size(&self) -> usize {
        self.ids(true)
    }

    /// One past the highest id, of all tokens or of those that no `added_tokens` put in.
    fn ids(&self, with_added: bool) -> usize {
        // Not the number of entries: a vocabulary may skip ids.
        self.inner.get_vocab(with_added).into_values().max().map_or(0, |id| id as usize + 1)
    }

    /// Checks that the model with `vocab_size` rows of embeddings can be this tokenizer's.
    ///
    /// Added tokens may lie past the rows: all sizes of Gemma 3 have one tokenizer, with a token for
    /// images that the smallest, which sees none, has no row for. Text has such a token in it only if
    /// it spells it out, and a model refuses ids that it has no rows for.
    ///
    /// # Errors
    /// If an id of the vocabulary proper would have no embedding, or so many embeddings no id that this
    /// cannot be padding.
    pub fn check_vocab_size(&self, vocab_size: usize) -> Result<()> {
        let ids = self.vocab_size();
        if (self.ids(false)..=ids + ids / PADDING_AT_MOST).contains(&vocab_size) {
            return Ok(());
        }
        let what = format!("vocabulary of {}", self.name);
        let expected = format!("the model's {vocab_size}: they do not belong together");
        Err(Error::invalid(what, format!("{ids} tokens"), expected))
    }

    /// The tokens of `text` and no others.
    ///
    /// A special token written out in the text, such as `<|end|>`, becomes that token.
    ///
    /// # Errors
    /// If the tokenizer has no way to write some part of the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.encode_either_way(text, false)
    }

    /// The tokens of `text`, with those around it that the tokenizer's own rules add (Llama's
    /// beginning-of-text, for one).
    ///
    /// # Errors
    /// If the tokenizer has no way to write some part of the text.
    pub fn encode_with_special(&self, text: &str) -> Result<Vec<u32>> {
        self.encode_either_way(text, true)
    }

    fn encode_either_way(&self, text: &str, add_special: bool) -> Result<Vec<u32>> {
        let encoding = self.inner.encode_fast(text, add_special);
        Ok(encoding.map_err(|e| Error::file(&self.name, e))?.get_ids().to_vec())
    }

    /// The text of `tokens`, leaving out special ones and ids that the vocabulary lacks. Bytes that
    /// are no character become U+FFFD, as in [`String::from_utf8_lossy`].
    ///
    /// # Errors
    /// If the tokenizer's decoder cannot make text of them.
    pub fn decode(&self, tokens: &[u32]) -> Result<String> {
        TokenStream::new(self, false).all(tokens)
    }

    /// The text of `tokens`, special ones written out.
    ///
    /// # Errors
    /// If the tokenizer's decoder cannot make text of them.
    pub fn decode_with_special(&self, tokens: &[u32]) -> Result<String> {
        TokenStream::new(self, true).all(tokens)
    }

    /// The id of a token written as the vocabulary writes it: `<|endoftext|>`.
    pub fn token_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// Text of the tokens that will follow `context`, as they come.
    pub fn stream_after(&self, context: &[u32]) -> TokenStream<'_> {
        TokenStream::new(self, false).after(context)
    }

    /// As [`Tokenizer::stream_after`], special tokens written out.
    pub fn stream_with_special_after(&self, context: &[u32]) -> TokenStream<'_> {
        TokenStream::new(self, true).after(context)
    }

    /// The bytes that `token` adds within a text, which may be part of a character; of a special token,
    /// those that it is written with. None for ids that the vocabulary lacks.
    ///
    /// # Errors
    /// If the tokenizer's decoder cannot make text of the token.
    pub fn token_bytes(&self, token: u32) -> Result<Vec<u8>> {
        self.bytes(token, false)
    }

    /// The bytes that `token` adds to a text; `first` if it is the text's first.
    fn bytes(&self, token: u32, first: bool) -> Result<Vec<u8>> {
        self.spelling.bytes(&self.inner, &self.name, token, first)
    }

    /// Whether the token leaves no trace in [`Tokenizer::decode`]'s text: it is special, or no token.
    pub fn is_silent(&self, token: u32) -> bool {
        match self.inner.get_added_vocabulary().get_added_tokens_decoder().get(&token) {
            Some(added) => added.special,
            None => self.inner.id_to_token(token).is_none(),
        }
    }
}
