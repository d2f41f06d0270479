//! SentencePiece's BPE, as Llama 2 has it: spaces are a visible character, what no token can write
//! is written byte by byte, and pairs are merged by the score of what they make.

use super::{TOKENS, Vocabulary, kind};
use naive_decode::{Error, Result};
use std::cmp::Reverse;
use std::collections::HashMap;
use tokenizers::Tokenizer;
use tokenizers::decoders::DecoderWrapper;
use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::strip::Strip;
use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::normalizers::prepend::Prepend;
use tokenizers::normalizers::replace::Replace;

/// Longest token that is read, in bytes: every way to cut one in two is looked up, so
/// the work grows with the square of its length.
const LONGEST: usize = 1_024;

/// Most text that all pairs may have together, in bytes. There is a pair for each place where a token can be cut in two
/// others, and each pair has the whole token's text, so that a small file of long tokens could ask for any memory.
const MOST_TEXT: usize = 64 << 20;

/// What a space is written as.
const SPACE: &str = "\u{2581}";

/// The tokenizer without added tokens.
pub(super) fn build(vocabulary: &Vocabulary) -> Result<Tokenizer> {
    let metadata = vocabulary.metadata;
    let library = |e: tokenizers::Error| Error::file(metadata.file, format!("vocabulary: {e}"));
    let ids = vocabulary.ids();
    let merges = merges(vocabulary, &ids)?;
    let unknown = vocabulary.kinds.iter().position(|&kind| kind == kind::UNKNOWN);
    let mut model = BPE::builder()
        .vocab_and_merges(super::owned(&ids), merges)
        .byte_fallback(true)
        .fuse_unk(true);
    if let Some(unknown) = unknown {
        model = model.unk_token(vocabulary.tokens[unknown].into());
    }
    let mut tokenizer = Tokenizer::new(model.build().map_err(library)?);
    // A space before the first word, so that it is written as it is in the middle of a text.
    let leads = metadata.flag("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
    let mut before: Vec<NormalizerWrapper> = Vec::new();
    let mut after: Vec<DecoderWrapper> = Vec::new();
    if leads {
        before.push(Prepend::new(SPACE.into()).into());
    }
    before.push(Replace::new(" ", SPACE).map_err(library)?.into());
    after.push(Replace::new(SPACE, " ").map_err(library)?.into());
    after.extend([ByteFallback::new().into(), Fuse::new().into()]);
    if leads {
        after.push(Strip::new(' ', 1, 0).into());
    }
    let before = tokenizers::normalizers::Sequence::new(before);
    tokenizer.with_normalizer(Some(before)).map_err(library)?;
    tokenizer.with_decoder(Some(tokenizers::decoders::sequence::Sequence::new(after)));
    Ok(tokenizer)
}

/// Every way to put a token together from two, best score first. SentencePiece merges the pair that
/// makes the best-scored token; a rank by score comes to the same.
fn merges(vocabulary: &Vocabulary, ids: &HashMap<&str, u32>) -> Result<Vec<(String, String)>> {
    let key = "tokenizer.ggml.scores";
    let scores = vocabulary.metadata.floats(key)?;
    let scores =
        scores.ok_or_else(|| vocabulary.metadata.missing(key, "a score for each token"))?;
    vocabulary.check_length(key, scores.len())?;
    if let Some(at) = scores.iter().position(|score| !score.is_finite()) {
        let found = format!("{} at {at}", scores[at]);
        return Err(vocabulary.metadata.mismatch(key, &found, "finite numbers"));
    }
    if let Some(id) = vocabulary.tokens.iter().position(|token| token.len() > LONGEST) {
        let found = format!("{} bytes long at {id}", vocabulary.tokens[id].len());
        let expected = format!("tokens of at most {LONGEST} bytes");
        return Err(vocabulary.metadata.mismatch(TOKENS, &found, &expected));
    }
    let mut pairs: Vec<(f64, &str, &str)> = Vec::new();
    let mut text = 0;
    for (id, token) in vocabulary.tokens.iter().enumerate() {
        // Spaces side by side are pieces of a kind of their own in some files.
        let is_piece = match vocabulary.kinds[id] {
            kind::NORMAL => true,
            kind::USER_DEFINED => token.contains(SPACE),
            _ => false,
        };
        // Of several alike the first has the others' pairs.
        if !is_piece || ids[token] as usize != id {
            continue;
        }
        let mut splits: Vec<(u32, u32, usize)> = token
            .char_indices()
            .skip(1)
            .filter_map(|(at, _)| Some((*ids.get(&token[..at])?, *ids.get(&token[at..])?, at)))
            .collect();
        splits.sort_unstable();
        text += splits.len() * token.len();
        if text > MOST_TEXT {
            let found =
                format!("cut in two in so many places by {id} that its pairs have {text} bytes");
            let expected = format!("pairs of at most {MOST_TEXT} bytes together");
            return Err(vocabulary.metadata.mismatch(TOKENS, &found, &expected));
        }
        pairs.extend(splits.iter().map(|&(_, _, at)| (scores[id], &token[..at], &token[at..])));
    }
    // Among equal scores the longer left part first, then the longer right part: the order of
    // Hugging Face's conversion, which the published tokenizers have.
    let lengths = |left: &str, right: &str| Reverse((left.chars().count(), right.chars().count()));
    pairs.sort_by(|a, b| {
        b.0.total_cmp(&a.0).then_with(|| lengths(a.1, a.2).cmp(&lengths(b.1, b.2)))
    });
    Ok(pairs.into_iter().map(|(_, left, right)| (left.into(), right.into())).collect())
}
