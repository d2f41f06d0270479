//! What bytes a token stands for, wherever in a text it is.
//!
//! A token is part of a text, not a text: one emoji can be four tokens, none of which is a
//! character. So tokens are turned into bytes, bytes are put together, and only then are they read
//! as UTF-8 (by [`TokenStream`](super::TokenStream)).

use crate::error::{Error, Result};
use tokenizers::{DecoderWrapper, Tokenizer};

/// How a tokenizer's vocabulary spells bytes.
#[derive(Debug, Clone)]
pub(super) enum Spelling {
    /// As letters, one for each byte: GPT-2's way, and of most that came after it.
    Letters,
    /// As text, which the decoder turns into other text: a visible space into a space, for one.
    /// A byte that is no character by itself is a token `<0xE2>`, if `bytes`.
    Text {
        /// Whether there are tokens for bytes.
        bytes: bool,
        /// An ordinary token and its text. Decoders treat a text's first token as no other
        /// (SentencePiece takes its space away), so all but the first are decoded after this one.
        anchor: Option<(u32, String)>,
    },
}

impl Spelling {
    /// The way of this tokenizer, seen from its decoder.
    pub(super) fn of(tokenizer: &Tokenizer) -> Self {
        let decoder = tokenizer.get_decoder();
        let steps = match decoder {
            Some(DecoderWrapper::Sequence(sequence)) => sequence.get_decoders(),
            Some(one) => std::slice::from_ref(one),
            None => &[],
        };
        if steps.iter().any(|step| matches!(step, DecoderWrapper::ByteLevel(_))) {
            return Spelling::Letters;
        }
        let bytes = steps.iter().any(|step| matches!(step, DecoderWrapper::ByteFallback(_)));
        let ids = 0..tokenizer.get_vocab_size(true) as u32;
        let mut anchors = ids.filter_map(|id| {
            let written = tokenizer.id_to_token(id)?;
            let is_word = written.bytes().all(|byte| byte.is_ascii_alphanumeric());
            let text = tokenizer.decode(&[id], true).ok()?;
            (is_word && text == written).then_some((id, text))
        });
        Spelling::Text { bytes, anchor: anchors.next() }
    }

    /// The bytes that `token` adds to a text; `first` if it is the text's first. None for ids that
    /// the vocabulary lacks.
    ///
    /// # Errors
    /// If the decoder cannot make text of the token.
    pub(super) fn bytes(
        &self,
        tokenizer: &Tokenizer,
        name: &str,
        token: u32,
        first: bool,
    ) -> Result<Vec<u8>> {
        let Some(written) = tokenizer.id_to_token(token) else { return Ok(Vec::new()) };
        let decode =
            |tokens: &[u32]| tokenizer.decode(tokens, false).map_err(|e| Error::file(name, e));
        match self {
            Spelling::Letters => {
                // Added tokens are written as they are, not in letters, of which they may have some all the same.
                let is_added = tokenizer.get_added_vocabulary().simple_id_to_token(token).is_some();
                let bytes: Option<Vec<u8>> = written.chars().map(byte_of).collect();
                Ok(bytes.filter(|_| !is_added).unwrap_or_else(|| written.into_bytes()))
            }
            Spelling::Text { bytes, anchor } => {
                let byte = if *bytes { fallback(&written) } else { None };
                match (byte, anchor) {
                    // Part of a character, which no decoder can say.
                    (Some(byte @ 0x80..), _) => Ok(vec![byte]),
                    (_, Some((anchor, before))) if !first => {
                        let text = decode(&[*anchor, token])?;
                        Ok(text.strip_prefix(before).unwrap_or(&text).as_bytes().to_vec())
                    }
                    _ => decode(&[token]).map(String::into_bytes),
                }
            }
        }
    }
}

/// The byte that a token such as `<0xE2>` stands for.
fn fallback(written: &str) -> Option<u8> {
    let digits = written.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok())?
}

/// The byte that GPT-2's alphabet writes as `letter`: printable bytes are themselves, the other 68
/// are the letters from 256 on, in order.
fn byte_of(letter: char) -> Option<u8> {
    let code = u32::from(letter);
    let byte = match code {
        33..=126 | 161..=172 | 174..=255 => code,
        256..=288 => code - 256,
        289..=322 => code - 289 + 127,
        323 => 173,
        _ => return None,
    };
    u8::try_from(byte).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokenizers::pre_tokenizers::byte_level::ByteLevel;

    #[test]
    fn every_byte_has_a_letter_and_every_letter_a_byte() {
        let alphabet = ByteLevel::alphabet();
        let mut bytes: Vec<u8> = alphabet.iter().map(|&letter| byte_of(letter).unwrap()).collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
        for other in [' ', '\n', '\u{7f}', '\u{a0}', '\u{ad}', '\u{144}', '▁', '好'] {
            assert_eq!(byte_of(other), None, "{other:?}");
        }
    }

    #[test]
    fn an_added_token_is_what_is_written_also_where_that_is_a_letter_of_the_alphabet() {
        // As DeepSeek's tokenizers have some. In the alphabet it is the letter of the byte 0xFC.
        let json = r#"{"version": "1.0", "added_tokens": [{"id": 1, "content": "ü", "single_word": false,
            "lstrip": false, "rstrip": false, "normalized": false, "special": false}],
            "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
            "model": {"type": "BPE", "vocab": {"Ã": 0}, "merges": []}}"#;
        let tokenizer: Tokenizer = json.parse().unwrap();
        let spelling = Spelling::of(&tokenizer);
        let bytes = |token| spelling.bytes(&tokenizer, "tokenizer.json", token, false).unwrap();
        assert_eq!(bytes(1), "ü".as_bytes());
        assert_eq!(bytes(0), [0xC3], "an ordinary token is in letters");
    }

    #[test]
    fn byte_tokens_are_told_from_others() {
        assert_eq!(fallback("<0xE2>"), Some(0xE2));
        for other in ["<0xE>", "<0xE2", "0xE2>", "<0xGG>", "E2", ""] {
            assert_eq!(fallback(other), None, "{other}");
        }
    }
}
