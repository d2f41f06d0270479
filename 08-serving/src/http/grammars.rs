//! Forms that answers are held to, compiled once.
//!
//! llguidance makes a parser of a schema, an expression or a grammar, and says before each token which tokens may
//! come next. All of its work has limits, so no schema can hold up the server: one that is too much is refused
//! when it comes, and an answer whose next step is too much is refused by itself, as its form is to blame. Answers that are
//! held to the same form share the time that following it may take.

use crate::api::formats::Form;
use crate::engine::{Constraint, TokenSet};
use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use naive_decode::{Error, Result, Tokenizer};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fmt::Display;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use steps::{Allowance, Steps};

mod steps;

/// Compiled forms that are kept: those used last.
const KEPT: usize = 32;

/// States of a lexer, at most; each takes a kilobyte or two.
const MOST_LEXER_STATES: usize = 20_000;

/// Ways to go on at one place of an answer, at most; each takes eight bytes for as long as the answer is written. An object
/// has up to four for each property that it may lack. So llguidance's own limit, 2,000, is 500 properties, or a choice of
/// some twenty objects of twenty; the longest schemas that are looked at come to about 8,000 if all is written out.
const MOST_WAYS_ON: usize = 10_000;

/// What a form is called where it is refused.
const FORM: &str = "the form of the answer";

/// Compiles forms and keeps the last ones.
pub struct Grammars {
    factory: ParserFactory,
    end_tokens: Arc<[u32]>,
    kept: Mutex<VecDeque<(Form, Arc<Entry>)>>,
    steps: Steps,
}

/// What was made of a form, or what is wrong with it. Who comes with the same form while it is compiled waits.
type Entry = OnceLock<Compiling<Compiled>>;

/// With what is wrong with the form, where something is.
type Compiling<T> = std::result::Result<T, String>;

/// A compiled form, before its first token.
struct Compiled {
    matcher: Matcher,
    allowance: Arc<Allowance>,
}

impl Grammars {
    /// For a vocabulary. Ids are below `vocabulary`, which may be more than the tokenizer has.
    ///
    /// # Errors
    /// If the vocabulary cannot be prepared, or there is no thread to be had.
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
        limits.max_items_in_row = MOST_WAYS_ON;
        limits.precompute_large_lexemes = false;
        limits.verbose_errors = false;
        let steps = Steps::watched();
        let steps =
            steps.map_err(|problem| Error::invalid("forms' thread", problem, "a thread"))?;
        Ok(Grammars { factory, end_tokens: end_tokens.into(), kept: Mutex::default(), steps })
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
        let entry = self.entry(form);
        let compiled = entry.get_or_init(|| self.compile(form)).as_ref();
        let usable = compiled.map_err(String::clone).and_then(|Compiled { matcher, allowance }| {
            // With what may come first, which `compile` has found: no answer has to find it again.
            let mine = matcher.deep_clone();
            mine.get_error().map_or(Ok((mine, allowance.clone())), Err)
        });
        let (matcher, allowance) = usable.map_err(|problem| {
            self.forget(&entry);
            refusal(problem)
        })?;
        self.make_room();
        let (end_tokens, steps) = (self.end_tokens.clone(), self.steps.clone());
        Ok(GrammarConstraint { matcher, allowance, end_tokens, steps })
    }

    /// How many compiled forms are kept.
    pub fn kept(&self) -> usize {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// What is kept of a form, or is to be. It is the last one used now.
    fn entry(&self, form: &Form) -> Arc<Entry> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept.iter().position(|(known, _)| known == form).and_then(|at| kept.remove(at));
        let (form, entry) = known.unwrap_or_else(|| (form.clone(), Arc::default()));
        kept.push_back((form, entry.clone()));
        entry
    }

    /// One more has been compiled: those that were used long ago make room.
    fn make_room(&self) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let surplus = kept.len().saturating_sub(KEPT);
        kept.drain(..surplus);
    }

    /// Keeps no place for what could not be compiled.
    fn forget(&self, entry: &Arc<Entry>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(_, other)| !Arc::ptr_eq(entry, other));
    }

    fn compile(&self, form: &Form) -> Compiling<Compiled> {
        let grammars = match form {
            Form::Around { lark, forms } => {
                let inner = forms.iter().enumerate().map(|(i, form)| {
                    Ok(GrammarWithLexer { name: Some(format!("form{i}")), ..grammar(form)? })
                });
                let outer = GrammarWithLexer::from_lark(lark.clone());
                std::iter::once(Ok(outer)).chain(inner).collect::<Compiling<_>>()?
            }
            form => vec![grammar(form)?],
        };
        let grammar = TopLevelGrammar { grammars, max_tokens: None };
        let mut matcher = Matcher::new(self.factory.create_parser(grammar)).into_cancellable();
        if let Some(problem) = matcher.get_error() {
            return Err(problem);
        }
        // What nothing can begin shows here: a form that only leads back to itself, for one.
        let allowance = Allowance::new();
        self.steps.take(&allowance, &mut matcher, Matcher::compute_mask_or_eos)?;
        Ok(Compiled { matcher, allowance })
    }
}

/// One form that has no others in it.
fn grammar(form: &Form) -> Compiling<GrammarWithLexer> {
    Ok(match form {
        Form::Schema { text, is_strict } => {
            let mut schema: Value =
                serde_json::from_str(text).map_err(|problem| problem.to_string())?;
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
        Form::Around { .. } => return Err("one in another that is in another".into()),
    })
}

/// Whether an answer failed because of its form.
pub(super) fn is_of_form(problem: &Error) -> bool {
    matches!(problem, Error::Invalid { what, .. } if what == FORM)
}

fn refusal(problem: impl Display) -> Error {
    let found = format!("none that can be compiled ({})", said(problem));
    let expected = "a JSON schema, a regular expression or a grammar in Lark's notation";
    Error::invalid(FORM, found, expected)
}

/// It was compiled, and is too much to follow at some token.
fn lost(problem: impl Display) -> Error {
    let found = format!("too much to follow here ({})", said(problem));
    Error::invalid(FORM, found, "one with fewer ways to go on")
}

/// What llguidance says, without what it adds for those who work on it: its state, a backtrace, or that there is none.
fn said(problem: impl Display) -> String {
    let mut said = problem.to_string();
    said.truncate(said.find("\n<").unwrap_or(said.len()));
    said
}

/// Holds one answer to a form.
pub struct GrammarConstraint {
    matcher: Matcher,
    allowance: Arc<Allowance>,
    end_tokens: Arc<[u32]>,
    steps: Steps,
}

impl Constraint for GrammarConstraint {
    fn mask(&mut self) -> Result<Option<TokenSet>> {
        let mask =
            self.steps.take(&self.allowance, &mut self.matcher, Matcher::compute_mask_or_eos);
        let mask = mask.map_err(lost)?;
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
            false => {
                let accept = |matcher: &mut Matcher| matcher.consume_token(token);
                self.steps.take(&self.allowance, &mut self.matcher, accept).map_err(lost)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::formats::StructuredOutputs;
    use crate::http::dialect::tests::{may_be, tokenizer, with_grammars};
    use std::sync::Barrier;

    #[test]
    fn a_choice_is_one_of_its_texts_and_nothing_else() {
        let tokenizer = with_grammars(tokenizer(&[], true));
        let texts = [
            "a",
            "ab",
            "abc d",
            "a",
            "yes\n\"sir\"",
            "\\n",
            "\u{1}\t",
            "é🦊",
            "x|y",
            "// no",
            "/[a-z]/",
            "{1}",
        ];
        let choice = Some(texts.map(str::to_owned).into());
        let form = StructuredOutputs { choice, ..StructuredOutputs::default() }.form().unwrap();
        for text in texts {
            assert!(may_be(&tokenizer, &form, text), "{text:?}");
        }
        for other in ["", "abc", "A", "aab", "yes", "\n", "\\", "é", "x", "//", "q", "{"] {
            assert!(!may_be(&tokenizer, &form, other), "{other:?}");
        }
    }

    #[test]
    fn a_grammar_in_gbnf_means_what_its_characters_do() {
        let tokenizer = with_grammars(tokenizer(&[], true));
        for (grammar, those, others) in [
            ("root ::= \"yes\" | \"no\"", &["yes", "no"][..], &["", "ye", "yesno"][..]),
            // What Lark's terminals would get wrong.
            ("root ::= [a-z]+ \"end\"", &["friend", "aend", "endend"], &["end", "friends"]),
            ("root ::= \"a\"? \"ab\" | \"aa\"", &["ab", "aab", "aa"], &["a", "b"]),
            // As vLLM's documentation has it, and llama.cpp's.
            (
                "root ::= select\nselect ::= \"SELECT \" column \" from \" table\n\
                 column ::= \"col_1\" | \"col_2\"\n table ::= \"t\" [1-9] [0-9]*",
                &["SELECT col_1 from t10", "SELECT col_2 from t3"],
                &["SELECT col_3 from t1", "SELECT col_1 from t0"],
            ),
            (
                "# a list\nroot ::= \"[\" ws ( item (\n \",\" ws item )* )? \"]\" ws # here\n\
                 item ::= [0-9]{1,3}\n       | root\nws ::= [ \\t\\n]*",
                &["[]", "[1, 22,333]", "[ [], [[7]] ]\n"],
                &["[1,]", "[1234]", "[[]"],
            ),
            (
                "root ::= a{2} b{1,} \"c\"{0,2}\na ::= \"a\"\nb ::= \"b\"",
                &["aab", "aabbbcc"],
                &["ab", "aabccc"],
            ),
            ("root ::= [^a-c\\n\"] .", &["dx", "d\n", "é🦊"], &["ax", "\nx", "\"x", "d"]),
            (
                "root ::= [\\x41\\u00e9\\U0001F98A] \"\\x41\\\"\\\\\"",
                &["AA\"\\", "éA\"\\", "🦊A\"\\"],
                &["BA\"\\"],
            ),
            ("root ::= [+--/] [ --]", &["+ ", ",-", "-,", "/#"], &[".-", "+.", "/"]),
            ("root ::= [!--] [a-z-9]", &["!z", "-9", ",-"], &[".z", "!A"]),
            (
                "root ::= \"a\"{0} \"b\" ( \"c\" (\"d\") ){0,0} x{0}\nx ::= \"x\"",
                &["b"],
                &["ab", "bc", "bcd", "bx", ""],
            ),
            ("root ::= [-a] [a-] [/.^$*]", &["-a/", "a-^", "-a.", "aa$"], &["ba/", "-ax"]),
            (
                "root-Rule ::= \"a\" \"\"\nroot ::= root-Rule | root_rule\nroot_rule ::= \"b\"",
                &["a", "b"],
                &["", "ab"],
            ),
            ("root ::= \"\" | \"a\" root", &["", "a", "aaa"], &["b"]),
        ] {
            let outputs = json!({"grammar": grammar});
            let outputs: StructuredOutputs = serde_json::from_value(outputs).unwrap();
            let form = outputs.form().unwrap();
            for text in those {
                assert!(may_be(&tokenizer, &form, text), "{grammar}\n{text:?}");
            }
            for text in others {
                assert!(!may_be(&tokenizer, &form, text), "{grammar}\n{text:?}");
            }
        }
    }

    #[test]
    fn who_comes_with_a_form_at_once_shares_it() {
        let (_, grammars) = with_grammars(tokenizer(&[], true));
        let (good, bad) = (Form::Regex("(a|bc*){2,40}".into()), Form::Regex("(".into()));
        let together = Barrier::new(4);
        let constraint = |form: &Form| {
            together.wait();
            grammars.constraint(form)
        };
        let all = |form: &Form| {
            std::thread::scope(|scope| {
                let each = [(); 4].map(|()| scope.spawn(|| constraint(form)));
                each.map(|thread| thread.join().unwrap())
            })
        };
        for _ in 0..20 {
            let [first, others @ ..] = all(&good).map(|constraint| constraint.unwrap().allowance);
            assert!(others.iter().all(|other| Arc::ptr_eq(&first, other)), "compiled twice");
            assert_eq!(grammars.kept(), 1);
            assert!(all(&bad).iter().all(Result::is_err));
            assert_eq!(grammars.kept(), 1, "what cannot be compiled is not kept");
            grammars.kept.lock().unwrap().clear();
        }
    }
}
