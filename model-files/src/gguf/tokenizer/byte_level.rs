//! Byte-level BPE: text is cut into words, a word is its UTF-8 bytes, and pairs are merged by rank.

use super::Vocabulary;
use naive_decode::{Error, Result};
use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::unicode::NFC;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{SplitDelimiterBehavior, Tokenizer};

/// How a family of models cuts text into words.
struct Rule {
    /// Values of `tokenizer.ggml.pre` that mean it.
    names: &'static [&'static str],
    words: Words,
    /// A word that is a token is taken whole, whatever the merges would make of it.
    whole_words: bool,
    /// Text begins with the beginning-of-text token if the file does not say.
    adds_beginning: bool,
    /// Characters are composed first (NFC).
    composes: bool,
}

/// Where words end.
enum Words {
    /// GPT-2's pattern.
    Gpt2,
    /// Every digit by itself, then GPT-2's pattern.
    Digits,
    /// These patterns, one after another; what a pattern finds is a word.
    Patterns(&'static [&'static str]),
}

/// Contractions, words with what comes before them, digits by threes, marks with the line ends
/// after them, white space.
const LLAMA_3: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);

/// The same with every digit by itself.
const QWEN_2: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);

/// Mistral's: words end where lower case is followed by upper case.
const TEKKEN: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);

/// What llama.cpp does with files that name no rule.
const DEFAULT: [&str; 4] = [
    r"[\p{P}\$\+<=>\^~\|]+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
    r"\p{N}+",
    r"[0-9][0-9][0-9]",
];

const RULES: [Rule; 6] = [
    Rule { names: &["default"], words: Words::Patterns(&DEFAULT), ..GPT_2 },
    GPT_2,
    Rule { names: &["smollm", "starcoder", "codeshell"], words: Words::Digits, ..GPT_2 },
    Rule {
        names: &["llama-bpe", "llama3", "llama-v3"],
        words: Words::Patterns(&[LLAMA_3]),
        whole_words: true,
        adds_beginning: true,
        ..GPT_2
    },
    Rule {
        names: &["qwen2", "deepseek-r1-qwen"],
        words: Words::Patterns(&[QWEN_2]),
        composes: true,
        ..GPT_2
    },
    Rule {
        names: &["tekken"],
        words: Words::Patterns(&[TEKKEN]),
        whole_words: true,
        adds_beginning: true,
        ..GPT_2
    },
];

const GPT_2: Rule = Rule {
    names: &["gpt-2"],
    words: Words::Gpt2,
    whole_words: false,
    adds_beginning: false,
    composes: false,
};

impl Rule {
    fn named(vocabulary: &Vocabulary) -> Result<&'static Self> {
        let key = "tokenizer.ggml.pre";
        let name = vocabulary.metadata.text(key)?.unwrap_or("default");
        RULES.iter().find(|rule| rule.names.contains(&name)).ok_or_else(|| {
            let known: Vec<&str> = RULES.iter().flat_map(|rule| rule.names).copied().collect();
            let expected = format!("a rule for cutting words that is known: {}", known.join(", "));
            vocabulary.metadata.mismatch(key, name, &expected)
        })
    }

    fn pre_tokenizer(&self) -> tokenizers::Result<Sequence> {
        let mut steps: Vec<PreTokenizerWrapper> = Vec::new();
        let bytes = |with_pattern| ByteLevel::new(false, true, with_pattern).into();
        match self.words {
            Words::Gpt2 => steps.push(bytes(true)),
            Words::Digits => steps.extend([Digits::new(true).into(), bytes(true)]),
            Words::Patterns(patterns) => {
                for pattern in patterns {
                    let pattern = SplitPattern::Regex((*pattern).into());
                    let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false)?;
                    steps.push(split.into());
                }
                steps.push(bytes(false));
            }
        }
        Ok(Sequence::new(steps))
    }
}

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
