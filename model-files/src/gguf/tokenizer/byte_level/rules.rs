//! The rules that cut text into words, by the names that files have for them. The patterns are those of the models' own
//! tokenizer.json, as llama.cpp has them too.

use super::super::Vocabulary;
use naive_decode::Result;
use tokenizers::SplitDelimiterBehavior;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};

/// How a family of models cuts text into words.
pub(super) struct Rule {
    /// Values of `tokenizer.ggml.pre` that mean it.
    names: &'static [&'static str],
    words: Words,
    /// A word that is a token is taken whole, whatever the merges would make of it.
    pub(super) whole_words: bool,
    /// Text begins with the beginning-of-text token if the file does not say.
    pub(super) adds_beginning: bool,
    /// Characters are composed first (NFC).
    pub(super) composes: bool,
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

/// GPT-4o's: the same with contractions part of their words, and digits by threes.
const O200K: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);

/// DeepSeek's first: line ends, words of letters that have a case, marks, white space at the end, Chinese and Korean,
/// digits.
const DEEPSEEK: [&str; 6] = [
    r"[\r\n]",
    CASED,
    r"\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+",
    r"\s+$",
    r"[\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}]+",
    r"\p{N}+",
];

/// Words of letters that have a case, of those that the rule knows: Unicode has more.
const CASED: &str = concat!(
    r"\s?[A-Za-z\x{b5}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{1ba}\x{1bc}-\x{1bf}\x{1c4}-\x{293}",
    r"\x{295}-\x{2af}\x{370}-\x{373}\x{376}\x{377}\x{37b}-\x{37d}\x{37f}\x{386}\x{388}-\x{38a}\x{38c}",
    r"\x{38e}-\x{3a1}\x{3a3}-\x{3f5}\x{3f7}-\x{481}\x{48a}-\x{52f}\x{531}-\x{556}\x{10a0}-\x{10c5}",
    r"\x{13a0}-\x{13f5}\x{13f8}-\x{13fd}\x{1c90}-\x{1cba}\x{1cbd}-\x{1cbf}\x{1d00}-\x{1d2b}",
    r"\x{1d6b}-\x{1d77}\x{1d79}-\x{1d9a}\x{1e00}-\x{1f15}\x{1f18}-\x{1f1d}\x{1f20}-\x{1f45}",
    r"\x{1f48}-\x{1f4d}\x{1f50}-\x{1f57}\x{1f59}\x{1f5b}\x{1f5d}\x{1f5f}-\x{1f7d}\x{1f80}-\x{1fb4}",
    r"\x{1fb6}-\x{1fbc}\x{1fbe}\x{1fc2}-\x{1fc4}\x{1fc6}-\x{1fcc}\x{1fd0}-\x{1fd3}\x{1fd6}-\x{1fdb}",
    r"\x{1fe0}-\x{1fec}\x{1ff2}-\x{1ff4}\x{1ff6}-\x{1ffc}\x{2102}\x{2107}\x{210a}-\x{2113}\x{2115}",
    r"\x{2119}-\x{211d}\x{2124}\x{2126}\x{2128}\x{212a}-\x{212d}\x{212f}-\x{2134}\x{2139}",
    r"\x{213c}-\x{213f}\x{2145}-\x{2149}\x{214e}\x{2183}\x{2184}\x{2c00}-\x{2c7b}\x{2c7e}-\x{2ce4}",
    r"\x{2ceb}-\x{2cee}\x{2cf2}\x{2cf3}\x{a640}-\x{a66d}\x{a680}-\x{a69b}\x{a722}-\x{a76f}",
    r"\x{a771}-\x{a787}\x{a78b}-\x{a78e}\x{ab70}-\x{abbf}\x{fb00}-\x{fb06}\x{fb13}-\x{fb17}",
    r"\x{ff21}-\x{ff3a}\x{ff41}-\x{ff5a}\x{10400}-\x{1044f}\x{104b0}-\x{104d3}\x{104d8}-\x{104fb}",
    r"\x{10c80}-\x{10cb2}\x{10cc0}-\x{10cf2}\x{118a0}-\x{118df}\x{1e900}-\x{1e943}]+",
);

/// DeepSeek-V3's: digits by threes, Chinese and Japanese, and words, of which a mark may be the beginning.
const DEEPSEEK_3: [&str; 3] = [
    r"\p{N}{1,3}",
    r"[\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+",
    concat!(
        r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"##,
        r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*",
        r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
];

/// What llama.cpp does with files that name no rule.
const DEFAULT: [&str; 4] = [
    r"[\p{P}\$\+<=>\^~\|]+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
    r"\p{N}+",
    r"[0-9][0-9][0-9]",
];

const RULES: [Rule; 11] = [
    Rule { names: &["default"], words: Words::Patterns(&DEFAULT), ..GPT_2 },
    GPT_2,
    // "refact" is Granite's.
    Rule { names: &["smollm", "starcoder", "codeshell", "refact"], words: Words::Digits, ..GPT_2 },
    Rule {
        names: &["llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"],
        words: Words::Patterns(&[LLAMA_3]),
        whole_words: true,
        adds_beginning: true,
        ..GPT_2
    },
    // Llama 3's vocabulary, where conversion does not know it for one: SmolLM3's.
    Rule { names: &["smaug-bpe"], words: Words::Patterns(&[LLAMA_3]), whole_words: true, ..GPT_2 },
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
    // Phi-4.
    Rule { names: &["dbrx"], words: Words::Patterns(&[LLAMA_3]), ..GPT_2 },
    // Phi-4-mini.
    Rule { names: &["gpt-4o"], words: Words::Patterns(&[O200K]), ..GPT_2 },
    // DeepSeek-V2, too.
    Rule { names: &["deepseek-llm"], words: Words::Patterns(&DEEPSEEK), ..GPT_2 },
    Rule { names: &["deepseek-v3"], words: Words::Patterns(&DEEPSEEK_3), ..GPT_2 },
];

const GPT_2: Rule = Rule {
    names: &["gpt-2"],
    words: Words::Gpt2,
    whole_words: false,
    adds_beginning: false,
    composes: false,
};

impl Rule {
    pub(super) fn named(vocabulary: &Vocabulary) -> Result<&'static Self> {
        let key = "tokenizer.ggml.pre";
        let name = vocabulary.metadata.text(key)?.unwrap_or("default");
        RULES.iter().find(|rule| rule.names.contains(&name)).ok_or_else(|| {
            let known: Vec<&str> = RULES.iter().flat_map(|rule| rule.names).copied().collect();
            let expected = format!("a rule for cutting words that is known: {}", known.join(", "));
            vocabulary.metadata.mismatch(key, name, &expected)
        })
    }

    pub(super) fn pre_tokenizer(&self) -> tokenizers::Result<Sequence> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};

    /// The words of a text by the rule of this name.
    fn words<'t>(name: &str, text: &'t str) -> Vec<&'t str> {
        let rule = RULES.iter().find(|rule| rule.names.contains(&name)).unwrap();
        let mut cut = PreTokenizedString::from(text);
        rule.pre_tokenizer().unwrap().pre_tokenize(&mut cut).unwrap();
        let words = cut.get_splits(OffsetReferential::Original, OffsetType::Byte);
        words.into_iter().map(|(_, (from, to), _)| &text[from..to]).collect()
    }

    #[test]
    fn one_text_by_each_familys_rule() {
        const TEXT: &str = "It's helloWorld 12345東京café.\n\n  x_y //z א!";
        for (name, right) in [
            ("dbrx", "It|'s| helloWorld| |123|45|東京café|.\n\n| | x|_y| //|z| א|!"),
            ("gpt-4o", "It's| hello|World| |123|45|東京café|.\n\n| | x|_y| //|z| א|!"),
            // Marks are searched for in words, too, and the letters of ASCII are among them.
            ("deepseek-llm", "It|'|s| helloWorld| |12345|東京|caf|é|.|\n|\n| | x|_|y| //|z| א|!"),
            ("deepseek-v3", "It|'s| helloWorld| |123|45|東京|café|.\n\n| | x|_y| //|z| א|!"),
        ] {
            assert_eq!(words(name, TEXT).join("|"), right, "{name}");
        }
    }
}
