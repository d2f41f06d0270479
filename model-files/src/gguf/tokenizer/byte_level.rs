//! Byte-level BPE: text is cut into words, a word is its UTF-8 bytes, and pairs are merged by rank.

mod rules;

use super::Vocabulary;
use naive_decode::{Error, Result};
use rules::Rule;
use tokenizers::Tokenizer;
use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::unicode::NFC;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

/// The tokenizer without added tokens, and whether texts begin with the beginning-of-text token if
/// the file does not say.
pub(super) fn build(vocabulary: &Vocabulary) -> Result<(Tokenizer, bool)> {
    let file = vocabulary.metadata.file;
    let library = |e: tokenizers::Error| Error::file(file, format!("vocabulary: {e}"));
    let rule = Rule::named(vocabulary)?;
    let ids = vocabulary.ids();
    let key = "tokenizer.ggml.merges";
    let merges = vocabulary.metadata.texts(key)?;
    let merges = merges.ok_or_else(|| vocabulary.metadata.missing(key, "the merges of a BPE"))?;
    let merges = merges.iter().enumerate().map(|(i, merge)| {
        let pair = merge.split_once(' ').filter(|(left, right)| {
            let whole = format!("{left}{right}");
            [*left, *right, &whole].iter().all(|token| ids.contains_key(token))
        });
        let (left, right) = pair.ok_or_else(|| {
            let found = format!("\"{}\" at {i}", merge.escape_debug());
            let expected = "two tokens, a space between them, which together are a third";
            vocabulary.metadata.mismatch(key, &found, expected)
        })?;
        Ok((left.to_owned(), right.to_owned()))
    });
    let merges = merges.collect::<Result<_>>()?;
    let model = BPE::builder()
        .vocab_and_merges(super::owned(&ids), merges)
        .ignore_merges(rule.whole_words)
        .build()
        .map_err(library)?;
    let mut tokenizer = Tokenizer::new(model);
    if rule.composes {
        tokenizer.with_normalizer(Some(NFC)).map_err(library)?;
    }
    tokenizer.with_pre_tokenizer(Some(rule.pre_tokenizer().map_err(library)?));
    tokenizer.with_decoder(Some(ByteLevel::new(false, true, true)));
    Ok((tokenizer, rule.adds_beginning))
}
