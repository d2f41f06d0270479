//! Finds the test that makes an answer come true, and sees to it that the test says what the answer says.
//!
//! `cargo test` runs the test; this only makes sure that the question and the test speak of the same thing.

use std::fs;
use std::path::{Path, PathBuf};

use crate::place::Place;

/// A test function of the workspace.
pub(crate) struct Test {
    pub(crate) package: String,
    pub(crate) name: String,
    /// The test target that it is in, if it is no unit test.
    pub(crate) target: Option<String>,
    /// Its source, from the first line of the function to the last.
    body: String,
}

/// The test named as `package::test_name`.
pub(crate) fn find(place: &Place, reference: &str) -> Result<Test, String> {
    let (package, name) = reference
        .split_once("::")
        .ok_or_else(|| format!("`{reference}` names no test; write `package::test_name`"))?;
    let name = name.rsplit("::").next().unwrap_or(name);
    let folder = package_folder(place, package)
        .ok_or_else(|| format!("`{reference}`: the workspace has no package `{package}`"))?;
    for file in rust_files(&folder) {
        let source = fs::read_to_string(&file).unwrap_or_default();
        if let Some(body) = test_body(&source, name) {
            let target = target_of(file.strip_prefix(&folder).unwrap_or(&file));
            return Ok(Test { package: package.into(), name: name.into(), target, body });
        }
    }
    Err(format!(
        "package `{package}` has no test `{name}` that runs by itself (a function under `#[test]`, not `#[ignore]`d)"
    ))
}

impl Test {
    /// What to type to run it, and as little else as can be.
    pub(crate) fn command(&self) -> String {
        let target = match &self.target {
            Some(target) => format!("--test {target}"),
            None => "--lib".into(),
        };
        format!("cargo test -p {} {target} {}", self.package, self.name)
    }

    /// The test must contain the given code, spaces and line breaks aside.
    pub(crate) fn must_say(&self, code: &str) -> Result<(), String> {
        let squeeze = |text: &str| text.split_whitespace().collect::<String>();
        if !code.trim().is_empty() && squeeze(&self.body).contains(&squeeze(code)) {
            return Ok(());
        }
        Err(format!("the test `{}` does not say `{code}`", self.name))
    }

    /// The test must contain the given number.
    pub(crate) fn must_name(&self, value: f64) -> Result<(), String> {
        let plain = self.body.replace('_', "");
        let numbers = plain
            .split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+')))
            .filter_map(|word| word.parse::<f64>().ok());
        if numbers.into_iter().any(|number| number == value) {
            return Ok(());
        }
        Err(format!(
            "the test `{}` says nothing of {value}, which the quiz gives as the answer",
            self.name
        ))
    }
}

fn package_folder(place: &Place, package: &str) -> Option<PathBuf> {
    // Only a manifest that has the name somewhere is worth parsing.
    let is_package = |folder: &Path| {
        fs::read_to_string(folder.join("Cargo.toml")).is_ok_and(|manifest| {
            manifest.contains(package) && package_name(&manifest).as_deref() == Some(package)
        })
    };
    fs::read_dir(&place.root)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|folder| is_package(folder))
}

/// The package that a manifest's text is of, if it is one's.
pub(crate) fn package_name(manifest: &str) -> Option<String> {
    let table: toml::Table = manifest.parse().ok()?;
    Some(table.get("package")?.get("name")?.as_str()?.into())
}

/// The integration test that a file belongs to: `tests/NAME.rs`, or `tests/NAME/…`.
fn target_of(file: &Path) -> Option<String> {
    let name = file.strip_prefix("tests").ok()?.iter().next()?.to_str()?;
    Some(name.strip_suffix(".rs").unwrap_or(name).into())
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut files = Vec::new();
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.is_dir() {
            files.append(&mut rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// The body of a test function in rustfmt's layout: it ends at the first `}` that stands as far in as its `fn`.
fn test_body(source: &str, name: &str) -> Option<String> {
    let head = format!("fn {name}(");
    // Most files do not have it, and a look at the whole is quicker than one at each line.
    if !source.contains(&head) {
        return None;
    }
    let lines: Vec<_> = source.lines().collect();
    let at = lines.iter().position(|line| line.trim_start().starts_with(&head))?;
    let attributes: Vec<_> = lines[..at]
        .iter()
        .rev()
        .map(|line| line.trim())
        .take_while(|line| line.starts_with("#[") || line.starts_with("//"))
        .collect();
    if !attributes.iter().any(|line| line.starts_with("#[test"))
        || attributes.iter().any(|line| line.starts_with("#[ignore"))
    {
        return None;
    }
    let indent = &lines[at][..lines[at].len() - lines[at].trim_start().len()];
    let end = at
        + lines[at..].iter().position(|line| {
            line.strip_prefix(indent).is_some_and(|rest| rest.trim_end() == "}")
        })?;
    Some(lines[at..=end].join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "mod tests {\n    /// Says it.\n    #[test]\n    fn says_it() {\n        if true {\n            assert_eq!(f(), 1_500);\n        }\n    }\n\n    #[test]\n    #[ignore]\n    fn sleeps() {\n    }\n    fn helper() {\n    }\n}\n";

    #[test]
    fn only_tests_that_run_are_found() {
        assert!(test_body(SOURCE, "says_it").unwrap().contains("1_500"));
        assert!(!test_body(SOURCE, "says_it").unwrap().contains("ignore"));
        assert_eq!(
            (test_body(SOURCE, "sleeps"), test_body(SOURCE, "helper"), test_body(SOURCE, "says")),
            (None, None, None)
        );
    }

    #[test]
    fn a_test_must_say_the_code_and_name_the_number() {
        let test = Test {
            package: "p".into(),
            name: "says_it".into(),
            target: None,
            body: test_body(SOURCE, "says_it").unwrap(),
        };
        assert!(test.must_say("assert_eq!(f(),   1_500);").is_ok());
        assert!(test.must_say("assert_eq!(f(), 1_501);").is_err());
        assert!(test.must_say("").is_err());
        assert!(test.must_name(1500.0).is_ok());
        assert!(test.must_name(500.0).is_err());
    }

    #[test]
    fn this_very_test_is_found_in_the_workspace() {
        let test = find(&Place::here(), "book::this_very_test_is_found_in_the_workspace")
            .unwrap_or_else(|e| panic!("{e}"));
        assert!(test.must_say("this_very_test").is_ok());
        assert!(find(&Place::here(), "no-such-package::x").is_err());
    }
}
