//! A function's body, found by the function's name and replaced.

use std::ops::Range;

use syn::{Block, ImplItem, Item, ReturnType, Signature, Type};

/// The variable that opens a switched body.
pub(super) const SWITCH: &str = "WORKBOOK_OPEN";

/// What stands between a function's braces.
pub(super) enum Body<'a> {
    /// Left to the reader, who is told what to think about.
    Open(&'a str),
    /// As it was, and open while the variable [`SWITCH`] names this exercise.
    Switched {
        /// The exercise.
        name: &'a str,
        /// What there is to think about.
        think: &'a str,
    },
    /// This text.
    Solved(&'a str),
}

/// What stands between a function's braces.
pub(super) fn body<'a>(source: &'a str, function: &str) -> Result<&'a str, String> {
    Ok(&source[find(source, function)?.inside])
}

/// The source with a function's body replaced.
pub(super) fn replace(source: &str, function: &str, body: Body) -> Result<String, String> {
    let Found { inside, indent } = find(source, function)?;
    let (before, old, after) =
        (&source[..inside.start], &source[inside.clone()], &source[inside.end..]);
    let new = match body {
        Body::Open(think) => format!("\n{indent}    {}\n{indent}", todo(think)),
        Body::Switched { name, think } => format!(
            "\n{indent}    if std::env::var_os({SWITCH:?}).is_some_and(|open| open == {name:?}) {{ {} }}{old}",
            todo(think)
        ),
        Body::Solved(body) => body.into(),
    };
    Ok([before, &new, after].concat())
}

/// A `todo!` that says a text, braces included.
fn todo(think: &str) -> String {
    format!("todo!({:?})", think.replace('{', "{{").replace('}', "}}"))
}

struct Found {
    /// Between the braces.
    inside: Range<usize>,
    /// White space before the line of the closing brace.
    indent: String,
}

fn find(source: &str, function: &str) -> Result<Found, String> {
    let file = syn::parse_file(source).map_err(|e| format!("is not Rust: {e}"))?;
    let mut found = Vec::new();
    functions(&file.items, None, &mut |owner, signature, block| {
        let name = match owner {
            Some(owner) => format!("{owner}::{}", signature.ident),
            None => signature.ident.to_string(),
        };
        if name == function {
            found.push((signature.clone(), block.clone()));
        }
    });
    let (signature, block) = match &found[..] {
        [one] => one,
        [] => return Err(format!("has no function `{function}` with a body")),
        more => return Err(format!("has {} functions `{function}`: name another", more.len())),
    };
    // A body that only says `todo!` has no type to be the hidden one.
    if let ReturnType::Type(_, to) = &signature.output
        && matches!(**to, Type::ImplTrait(_))
    {
        return Err(format!("`{function}` returns an `impl Trait` and cannot be left open"));
    }
    let (open, close) = (block.brace_token.span.open(), block.brace_token.span.close());
    let inside = open.byte_range().end..close.byte_range().start;
    let line = source[..inside.end].rsplit('\n').next().unwrap_or_default();
    let indent = line.chars().take_while(|c| c.is_whitespace()).collect();
    Ok(Found { inside, indent })
}

/// Calls `see` for each function with a body: free ones, methods, and a trait's own.
fn functions(
    items: &[Item],
    owner: Option<&str>,
    see: &mut impl FnMut(Option<&str>, &Signature, &Block),
) {
    for item in items {
        match item {
            Item::Fn(function) => see(owner, &function.sig, &function.block),
            Item::Impl(block) => {
                let Type::Path(owner) = &*block.self_ty else { continue };
                let owner = owner.path.segments.last().map(|segment| segment.ident.to_string());
                for item in &block.items {
                    if let ImplItem::Fn(method) = item {
                        see(owner.as_deref(), &method.sig, &method.block);
                    }
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
fn free() -> u32 {
    1
}

impl<T> Held<T> {
    /// Adds.
    fn add(&self, n: u32) -> u32 {
        // Why it is so.
        self.0 + n
    }

    fn each(&self) -> impl Iterator<Item = u32> {
        0..self.0
    }
}

impl Clone for Held<u8> {
    fn clone(&self) -> Self { Held(self.0) }
}

impl Clone for Other {
    fn clone(&self) -> Self { Other }
}
";

    #[test]
    fn a_body_is_left_open_and_put_back() {
        let open = replace(SOURCE, "Held::add", Body::Open("What is \"n\" in {1, 2}?")).unwrap();
        let expected = SOURCE.replace(
            "// Why it is so.\n        self.0 + n",
            "todo!(\"What is \\\"n\\\" in {{1, 2}}?\")",
        );
        assert_eq!(open, expected);
        let solved = Body::Solved(body(SOURCE, "Held::add").unwrap());
        assert_eq!(replace(&open, "Held::add", solved).unwrap(), SOURCE);
    }

    #[test]
    fn a_switched_body_is_still_there() {
        let switch = Body::Switched { name: "free", think: "One." };
        let switched = replace(SOURCE, "free", switch).unwrap();
        assert!(switched.contains("open == \"free\") { todo!(\"One.\") }\n    1\n}"), "{switched}");
    }

    #[test]
    fn methods_are_told_apart_by_their_types() {
        let switched = replace(SOURCE, "Other::clone", Body::Solved(" todo!() ")).unwrap();
        assert!(switched.contains("Held(self.0) }") && !switched.contains("{ Other }"));
    }

    #[test]
    fn what_cannot_be_left_open_is_refused() {
        for (function, why) in [
            ("gone", "has no function `gone`"),
            ("add", "has no function `add`"),
            ("Held::each", "returns an `impl Trait`"),
        ] {
            let error = replace(SOURCE, function, Body::Open("?")).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        let twice = SOURCE.replace("Other", "Held");
        let error = replace(&twice, "Held::clone", Body::Open("?")).unwrap_err();
        assert!(error.contains("has 2 functions"), "{error}");
        assert!(replace("fn {", "f", Body::Open("?")).unwrap_err().contains("is not Rust"));
    }
}
