//! Grammars in GBNF, the notation of llama.cpp and xgrammar, as grammars in Lark's.
//!
//! A rule is `name ::= …`; the first one to be written is `root`. The two notations differ in little: names, how characters are
//! written, and what a text is made of. Lark's grammars stand on terminals, of which the longest that fits is taken, so that
//! `[a-z]+ "end"` would take `friend` for letters and miss the end. GBNF knows only characters, and decides nothing before it has
//! to. So each character becomes a terminal of its own, and both mean the same.

use std::collections::HashMap;
use std::fmt::Write;

/// Whether a grammar looks as if it were written so: a line of it begins a rule. Lark's may have `::=` in a text.
pub(super) fn is_gbnf(grammar: &str) -> bool {
    let begins = |line: &str| {
        let line = line.trim_start();
        let named = line.trim_start_matches(is_of_name);
        named.len() < line.len() && named.trim_start().starts_with("::=")
    };
    grammar.lines().any(begins)
}

/// The grammar in Lark's notation.
///
/// # Errors
/// What is wrong with it, and in which line.
pub(super) fn to_lark(grammar: &str) -> Result<String, String> {
    let parts = parts(grammar)?;
    let mut names = Names::default();
    let mut lark = String::new();
    // Where brackets were opened, and where what stands before begins.
    let (mut open, mut element) = (Vec::new(), 0);
    // Whether something stands before that may be repeated.
    let mut repeats = false;
    for (place, (line, part)) in parts.iter().enumerate() {
        let wrong = |what: String| Err(format!("line {line}: {what}"));
        let before = place.checked_sub(1).map(|before| &parts[before].1);
        let is_rule = matches!(parts.get(place + 1), Some((_, Part::Defines)));
        if lark.is_empty() && !is_rule {
            return wrong("expected a rule, such as root ::= \"yes\" | \"no\"".into());
        }
        repeats = match part {
            Part::Name(name) if is_rule => {
                if !open.is_empty() {
                    return wrong(format!("{name} begins where a bracket is open, expected `)`"));
                }
                if before.is_some_and(|_| parts[place - 1].0 == *line) {
                    return wrong(format!(
                        "{name} begins a rule behind another, expected it in a line of its own"
                    ));
                }
                let rule = names.of(name, *line);
                if std::mem::replace(&mut rule.is_defined, true) {
                    return wrong(format!("{name} has a rule already, expected one of each name"));
                }
                let _ = write!(lark, "\n{}:", rule.lark);
                false
            }
            Part::Name(name) => {
                element = lark.len();
                let _ = write!(lark, " {}", names.of(name, *line).lark);
                true
            }
            Part::Defines => match before {
                Some(Part::Name(_)) => false,
                _ => return wrong("`::=` without a name before it".into()),
            },
            Part::Or => {
                lark += " |";
                false
            }
            Part::Open => {
                open.push(lark.len());
                lark += " (";
                false
            }
            Part::Close => {
                let Some(begins) = open.pop() else {
                    return wrong("`)` where no bracket is open".into());
                };
                element = begins;
                lark += " )";
                true
            }
            Part::Characters(characters) => {
                element = lark.len();
                let _ = write!(lark, " ({})", characters.join(" "));
                true
            }
            Part::Repeated(times) => {
                if !repeats {
                    return wrong(format!("`{times}` with nothing before it to be repeated"));
                }
                lark += times;
                false
            }
            Part::Never => {
                if !repeats {
                    return wrong("`{0}` with nothing before it to be repeated".into());
                }
                lark.truncate(element);
                lark += " ()";
                false
            }
        };
    }
    if !open.is_empty() {
        return Err("a bracket is open at the end, expected `)`".into());
    }
    match names.undefined() {
        Some((name, line)) => {
            Err(format!("line {line}: {name} has no rule, expected {name} ::= …"))
        }
        None if !names.0.contains_key("root") => Err("no rule root, expected root ::= …".into()),
        None => Ok(format!("start: {}{lark}\n", names.0["root"].lark)),
    }
}

/// What a grammar is made of.
enum Part {
    Name(String),
    /// `::=`
    Defines,
    /// `|`
    Or,
    Open,
    Close,
    /// One after the other, each as Lark writes it.
    Characters(Vec<String>),
    /// How often what stands before is repeated, as Lark writes it.
    Repeated(String),
    /// What stands before is not there.
    Never,
}

/// Rules by name.
#[derive(Default)]
struct Names(HashMap<String, Rule>);

struct Rule {
    /// What Lark calls it: its own names have small letters, digits and `_`.
    lark: String,
    /// Where it is first seen.
    line: usize,
    is_defined: bool,
}

impl Names {
    fn of(&mut self, name: &str, line: usize) -> &mut Rule {
        let number = self.0.len();
        self.0.entry(name.to_owned()).or_insert_with(|| {
            let letter =
                |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
            let like: String = name.chars().map(letter).collect();
            Rule { lark: format!("r{number}_{like}"), line, is_defined: false }
        })
    }

    /// The first that is used and has no rule.
    fn undefined(&self) -> Option<(&str, usize)> {
        let undefined = self.0.iter().filter(|(_, rule)| !rule.is_defined);
        let undefined = undefined.map(|(name, rule)| (rule.line, name.as_str()));
        undefined.min().map(|(line, name)| (name, line))
    }
}

/// The parts of a grammar, each with its line.
fn parts(grammar: &str) -> Result<Vec<(usize, Part)>, String> {
    let mut text = Text { rest: grammar, line: 1 };
    let mut parts = Vec::new();
    loop {
        text.skip();
        let line = text.line;
        let Some(first) = text.next() else { return Ok(parts) };
        let part = match first {
            ':' if text.eat(":=") => Part::Defines,
            '|' => Part::Or,
            '(' => Part::Open,
            ')' => Part::Close,
            '.' => Part::Characters(vec![ANY.into()]),
            '*' | '+' | '?' => Part::Repeated(first.into()),
            '{' => text.times()?,
            '"' => Part::Characters(text.characters()?),
            '[' => Part::Characters(vec![text.class()?]),
            _ if is_of_name(first) => Part::Name(text.name(first)),
            _ => return Err(format!("line {line}: `{first}` is nothing that a grammar has there")),
        };
        parts.push((line, part));
    }
}

/// Any character, an end of line included.
const ANY: &str = r"/[\s\S]/";

fn is_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_')
}

/// What has not been read yet.
struct Text<'t> {
    rest: &'t str,
    line: usize,
}

impl Text<'_> {
    fn next(&mut self) -> Option<char> {
        let mut letters = self.rest.chars();
        let letter = letters.next()?;
        self.rest = letters.as_str();
        self.line += usize::from(letter == '\n');
        Some(letter)
    }

    fn eat(&mut self, expected: &str) -> bool {
        let rest = self.rest.strip_prefix(expected);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// White space, and comments to the end of their line.
    fn skip(&mut self) {
        while let Some(letter) = self.rest.chars().next() {
            match letter {
                '#' => while self.next().is_some_and(|letter| letter != '\n') {},
                _ if letter.is_whitespace() => _ = self.next(),
                _ => break,
            }
        }
    }

    fn name(&mut self, first: char) -> String {
        let end = self.rest.find(|letter| !is_of_name(letter)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        format!("{first}{name}")
    }

    /// Behind `{`: one number, or two with a comma between, of which the second may be left out.
    fn times(&mut self) -> Result<Part, String> {
        let Some((inside, rest)) = self.rest.split_once('}') else {
            return Err(format!("line {}: `{{` without `}}`", self.line));
        };
        let number = |text: &str| text.trim().parse::<u32>().ok();
        let part = match inside.split_once(',') {
            None => number(inside).map(|times| match times {
                0 => Part::Never,
                times => Part::Repeated(format!("{{{times}}}")),
            }),
            Some((least, most)) if most.trim().is_empty() => {
                number(least).map(|least| Part::Repeated(format!("{{{least},}}")))
            }
            Some((least, most)) => match (number(least), number(most)) {
                (Some(0), Some(0)) => Some(Part::Never),
                (Some(least), Some(most)) if least <= most => {
                    Some(Part::Repeated(format!("{{{least},{most}}}")))
                }
                _ => None,
            },
        };
        self.rest = rest;
        let expected = "expected such as {2}, {2,} or {2,5}";
        part.ok_or_else(|| format!("line {}: `{{{inside}}}`, {expected}", self.line))
    }

    /// Behind `"`: up to the next.
    fn characters(&mut self) -> Result<Vec<String>, String> {
        let line = self.line;
        let mut characters = Vec::new();
        loop {
            match self.next() {
                Some('"') => return Ok(characters),
                Some('\\') => characters.push(written(self.escaped()?)),
                Some(letter) => characters.push(written(letter)),
                None => return Err(format!("line {line}: a text without its end, expected `\"`")),
            }
        }
    }

    /// Behind `[`: up to `]`.
    fn class(&mut self) -> Result<String, String> {
        let line = self.line;
        let mut class = String::from(if self.eat("^") { "/[^" } else { "/[" });
        let begins = class.len();
        loop {
            match self.next() {
                Some(']') if class.len() == begins => {
                    return Err(format!("line {line}: `[]`, expected characters in it"));
                }
                Some(']') => return Ok(class + "]/"),
                None => return Err(format!("line {line}: `[` without `]`")),
                Some(letter) => {
                    let first = self.of_class(letter)?;
                    class += &in_class(first);
                    // At the end it is a character as others are.
                    if self.rest.starts_with("-]") || !self.eat("-") {
                        continue;
                    }
                    let Some(letter) = self.next() else { continue };
                    let last = self.of_class(letter)?;
                    if last < first {
                        return Err(format!(
                            "line {line}: {first:?} to {last:?} in brackets, expected the lower one first"
                        ));
                    }
                    class.push('-');
                    class += &in_class(last);
                }
            }
        }
    }

    /// A character between brackets that begins with this one.
    fn of_class(&mut self, letter: char) -> Result<char, String> {
        match letter {
            '\\' => self.escaped(),
            letter => Ok(letter),
        }
    }

    /// Behind `\`.
    fn escaped(&mut self) -> Result<char, String> {
        let line = self.line;
        let digits = match self.next() {
            Some('n') => return Ok('\n'),
            Some('r') => return Ok('\r'),
            Some('t') => return Ok('\t'),
            Some(letter @ ('\\' | '"' | '\'' | '[' | ']' | '-' | '^' | '/' | '.')) => {
                return Ok(letter);
            }
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            _ => {
                let expected =
                    r#"expected one of \n \r \t \\ \" \[ \] \- \^ \x.. \u.... \U........"#;
                return Err(format!("line {line}: an unknown escape, {expected}"));
            }
        };
        let code = self.rest.get(..digits).and_then(|code| u32::from_str_radix(code, 16).ok());
        let Some(letter) = code.and_then(char::from_u32) else {
            return Err(format!(
                "line {line}: an escape that is no character, expected {digits} hexadecimal digits of one"
            ));
        };
        self.rest = &self.rest[digits..];
        Ok(letter)
    }
}

/// One character as Lark writes it, which is as JSON does.
fn written(letter: char) -> String {
    serde_json::Value::from(letter.to_string()).to_string()
}

/// One character as a regular expression has it between brackets.
fn in_class(letter: char) -> String {
    format!("\\x{{{:X}}}", u32::from(letter))
}

#[cfg(test)]
mod tests;
