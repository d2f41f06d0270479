//! What is wrong with a file of JSON: it ends too early, is something else, or lacks what it should say.

use crate::error::{Error, Result};
use serde::Deserialize;
use serde_json::error::Category;

/// Reads a file of JSON; `file` is the name that errors give it.
///
/// # Errors
/// If it is not the JSON that it should be; names the field that is not.
pub fn read_json<'a, T: Deserialize<'a>>(file: &str, json: &'a [u8]) -> Result<T> {
    let mut reader = serde_json::Deserializer::from_slice(json);
    let read = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let field = error.path().to_string();
        match error.into_inner() {
            // The path to the whole is a dot.
            wrong if wrong.is_data() && field != "." => {
                Error::file(file, format!("{field}: {}", in_terms_of_json(&wrong)))
            }
            wrong => Error::json(file, &wrong),
        }
    })?;
    reader.end().map_err(|wrong| Error::json(file, &wrong))?;
    Ok(read)
}

impl Error {
    /// A file that cannot be read as the JSON that it should be.
    pub fn json(file: impl Into<String>, source: &serde_json::Error) -> Self {
        let problem = match source.classify() {
            Category::Eof => format!("cut short, expected whole JSON: {source}"),
            Category::Syntax => format!("not JSON: {source}"),
            Category::Data | Category::Io => in_terms_of_json(source),
        };
        Error::file(file, problem)
    }
}

/// How serde says what it expected, in Rust's terms, and what that is in JSON's.
const TERMS: [(&str, &str); 9] = [
    ("usize", "a whole number, 0 or more"),
    ("u64", "a whole number, 0 or more"),
    ("u32", "a whole number, 0 or more"),
    ("i64", "a whole number"),
    ("i32", "a whole number"),
    ("f64", "a number"),
    ("f32", "a number"),
    ("a sequence", "a list"),
    ("a map", "an object"),
];

/// How serde begins to name a type of the program's own, which stands for an object.
const OWN_TYPES: [&str; 2] = ["struct ", "internally tagged enum "];

/// What is wrong with JSON that is not of the kind it should be, without a word of Rust's types.
pub fn in_terms_of_json(problem: &serde_json::Error) -> String {
    let said = problem.to_string();
    let place = match problem.line() {
        0 => String::new(),
        line => format!(" at line {line} column {}", problem.column()),
    };
    let kind = said.strip_suffix(&place).unwrap_or(&said);
    let Some((found, expected)) = kind.rsplit_once(", expected ") else { return said };
    let term = TERMS.iter().find(|(ours, _)| *ours == expected).map(|&(_, theirs)| theirs);
    let own = OWN_TYPES.iter().any(|own| expected.starts_with(own)).then_some("an object");
    match term.or(own) {
        Some(expected) => format!("{found}, expected {expected}{place}"),
        None => said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use std::fmt::Debug;

    #[derive(Debug, Deserialize)]
    struct Layer {
        #[expect(dead_code, reason = "it is never read: none is of the right kind")]
        heads: Option<usize>,
    }

    fn said<'a, T: Deserialize<'a> + Debug>(json: &'a str) -> String {
        in_terms_of_json(&serde_json::from_str::<T>(json).unwrap_err())
    }

    #[test]
    fn no_type_of_rust_is_named() {
        let place = |column| format!(" at line 1 column {column}");
        let whole = "expected a whole number, 0 or more";
        let heads = said::<Layer>(r#"{"heads": "x"}"#);
        assert_eq!(heads, format!("invalid type: string \"x\", {whole}{}", place(13)));
        let layer = said::<Layer>("7");
        assert_eq!(layer, format!("invalid type: integer `7`, expected an object{}", place(1)));
        let list = said::<Vec<f32>>("true");
        assert_eq!(list, format!("invalid type: boolean `true`, expected a list{}", place(4)));
        let number = said::<Vec<f32>>("[1, null]");
        assert_eq!(number, format!("invalid type: null, expected a number{}", place(8)));
        // From a value there is no place, and what has no name in Rust's terms stays as it is.
        let value = serde_json::from_value::<u32>(serde_json::json!(-1)).unwrap_err();
        assert_eq!(in_terms_of_json(&value), format!("invalid value: integer `-1`, {whole}"));
        assert!(said::<bool>("1").contains("expected a boolean"));
    }
}
