//! The workbook: a copy of the workspace in which some functions are left to the reader.
//!
//! `book/workbook.toml` names them. The sources know nothing of it: a function is found by its name, and its body is
//! taken out of the copy. So the solution is what the crates run, and there is no second text to keep in step.
//!
//! - [`cut`]: a function's body, found and replaced
//! - [`copy`]: the workspace, copied
//! - [`page`]: what the reader is given to read
//! - [`mod@prove`]: that tests notice an open exercise, and pass once it is solved

mod copy;
mod cut;
mod page;
mod prove;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use serde::Deserialize;

use crate::place::Place;
use crate::verified::{self, Test};
use cut::Body;
pub(crate) use prove::prove;

/// A function that a reader is to write.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Exercise {
    name: String,
    /// The rung that it belongs to, from 1 on.
    rung: usize,
    /// The page after which a reader can do it, below `book/src`.
    page: String,
    /// The source, from the root of the repository.
    file: String,
    /// `name`, or `Type::name`.
    function: String,
    /// What to think about: the text of the `todo!`.
    think: String,
    /// Tests that fail while it is open, as `package::name`.
    tests: Vec<String>,
}

impl Exercise {
    fn tests(&self, place: &Place) -> anyhow::Result<Vec<Test>> {
        let found = |reference: &String| verified::find(place, reference);
        let tests: Result<_, String> = self.tests.iter().map(found).collect();
        tests.map_err(|message| anyhow::anyhow!("exercise `{}`: {message}", self.name))
    }

    /// A source with the function's body replaced.
    fn replace(&self, source: &str, body: Body) -> anyhow::Result<String> {
        cut::replace(source, &self.function, body).map_err(|message| {
            anyhow::anyhow!("exercise `{}`: {}: {message}", self.name, self.file)
        })
    }
}

/// All exercises, in the order in which a reader meets them.
fn exercises(place: &Place) -> anyhow::Result<Vec<Exercise>> {
    #[derive(Deserialize)]
    struct Workbook {
        exercise: Vec<Exercise>,
    }
    let text = place.read("book/workbook.toml").map_err(anyhow::Error::msg)?;
    let Workbook { exercise } = toml::from_str(&text).context("book/workbook.toml")?;
    Ok(exercise)
}

/// What is wrong with the list of exercises, as far as that can be seen without running them.
pub(crate) fn problems(place: &Place) -> anyhow::Result<Vec<String>> {
    let exercises = exercises(place)?;
    let mut names = HashSet::new();
    let mut problems = Vec::new();
    for exercise in &exercises {
        let Exercise { name, page, file, tests, .. } = exercise;
        if !names.insert(name) {
            problems.push(format!("two exercises are called `{name}`"));
        }
        if !place.chapters().join(page).is_file() {
            problems.push(format!("exercise `{name}`: the book has no page `{page}`"));
        }
        if tests.is_empty() {
            problems.push(format!("exercise `{name}`: no test would notice that it is open"));
        }
        let source = place.read(file).map_err(anyhow::Error::msg);
        let cut = source.and_then(|source| exercise.replace(&source, Body::Open(&exercise.think)));
        problems.extend(cut.err().map(|e| format!("{e:#}")));
        problems.extend(exercise.tests(place).err().map(|e| format!("{e:#}")));
    }
    if !exercises.is_sorted_by_key(|exercise| exercise.rung) {
        problems.push("the exercises are not in the order of the rungs".into());
    }
    Ok(problems)
}

/// Those exercises that are asked for, by number of their rung or by name; all if none is.
fn chosen(all: Vec<Exercise>, which: &[String]) -> anyhow::Result<Vec<Exercise>> {
    let is = |exercise: &Exercise, asked: &String| {
        *asked == exercise.name || asked.trim_start_matches('0') == exercise.rung.to_string()
    };
    if let Some(asked) = which.iter().find(|asked| !all.iter().any(|one| is(one, asked))) {
        let names: Vec<_> = all.iter().map(|exercise| exercise.name.as_str()).collect();
        bail!(
            "no exercise is called `{asked}`; there are the rungs' numbers, and {}",
            names.join(", ")
        );
    }
    let asked = |one: &Exercise| which.is_empty() || which.iter().any(|asked| is(one, asked));
    Ok(all.into_iter().filter(asked).collect())
}

/// Writes a workbook into a folder that is new or empty.
pub(crate) fn write(place: &Place, folder: &Path, which: &[String]) -> anyhow::Result<()> {
    let exercises = chosen(exercises(place)?, which)?;
    let full = folder.read_dir().is_ok_and(|mut entries| entries.next().is_some());
    ensure!(!full, "{} is not empty: name a new folder, so that no work is lost", folder.display());
    let copy = write_with(place, folder, &exercises, |exercise| Body::Open(&exercise.think))?;
    std::fs::write(copy.root.join("WORKBOOK.md"), page::text(place, &exercises)?)?;
    println!(
        "{} exercises are open in {}. Begin with WORKBOOK.md there.",
        exercises.len(),
        copy.root.display()
    );
    Ok(())
}

/// Gives the functions of a workbook that are asked for their bodies back.
pub(crate) fn solve(place: &Place, folder: &Path, which: &[String]) -> anyhow::Result<()> {
    ensure!(!which.is_empty(), "which exercises are to be solved? Name them, or rungs");
    ensure!(folder.join("WORKBOOK.md").is_file(), "{} is not a workbook", folder.display());
    for exercise in chosen(exercises(place)?, which)? {
        let solved = place.read(&exercise.file).map_err(anyhow::Error::msg)?;
        let body = cut::body(&solved, &exercise.function).map_err(anyhow::Error::msg)?;
        let path = folder.join(&exercise.file);
        let source = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let whole = || {
            let (from, to) = (place.root.join(&exercise.file), path.display());
            format!("mend it, or take the whole file as it was: cp {} {to}", from.display())
        };
        let solved = exercise.replace(&source, Body::Solved(body)).with_context(whole)?;
        std::fs::write(&path, solved)?;
        println!("{}: `{}` is solved.", exercise.file, exercise.function);
    }
    Ok(())
}

/// Copies the workspace, and replaces the exercises' bodies in the copy.
fn write_with<'a>(
    place: &Place,
    folder: &Path,
    exercises: &'a [Exercise],
    body: impl Fn(&'a Exercise) -> Body<'a>,
) -> anyhow::Result<Place> {
    let root: PathBuf = copy::workspace(place, folder)?;
    for exercise in exercises {
        let path = root.join(&exercise.file);
        let source = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        std::fs::write(&path, exercise.replace(&source, body(exercise))?)?;
    }
    Ok(Place { root })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exercises_are_asked_for_by_rung_and_by_name() {
        let all = exercises(&Place::here()).unwrap();
        let first = all[0].clone();
        let names = |which: &[&str]| {
            let which: Vec<_> = which.iter().map(ToString::to_string).collect();
            chosen(all.clone(), &which).map(|chosen| chosen.into_iter().map(|e| e.name).collect())
        };
        let everything: Vec<String> = names(&[]).unwrap();
        assert_eq!(everything.len(), all.len());
        let one: Vec<String> = names(&[&first.name]).unwrap();
        assert_eq!(one, std::slice::from_ref(&first.name));
        let rung: Vec<String> = names(&["1"]).unwrap();
        assert!(rung.contains(&first.name) && rung.len() < all.len(), "{rung:?}");
        assert_eq!(names(&["01"]).unwrap(), rung);
        let unknown = names(&["9", "x"]).unwrap_err().to_string();
        assert!(unknown.contains("`9`") && unknown.contains(&first.name), "{unknown}");
    }

    #[test]
    fn a_workbook_is_open_until_it_is_solved_and_is_never_written_over() {
        let (place, folder) = (Place::here(), tempfile::tempdir().unwrap());
        let first = exercises(&place).unwrap().swap_remove(0);
        let which = [first.name.clone()];
        write(&place, folder.path(), &which).unwrap();
        let file = folder.path().join(&first.file);
        let (original, read) =
            (place.read(&first.file).unwrap(), || std::fs::read_to_string(&file).unwrap());
        assert!(read().contains("todo!(") && read() != original);
        let page = std::fs::read_to_string(folder.path().join("WORKBOOK.md")).unwrap();
        assert!(page.contains(&first.file) && page.contains("cargo test -p"), "{page}");
        let there = |path: &str| folder.path().join(path).exists();
        assert!(there("models/weights/target") && !there("target/CACHEDIR.TAG") && !there(".git"));
        assert!(
            write(&place, folder.path(), &which).unwrap_err().to_string().contains("not empty")
        );
        std::fs::write(&file, read().replacen("todo!", "{ todo!", 1)).unwrap();
        let broken = format!("{:#}", solve(&place, folder.path(), &which).unwrap_err());
        assert!(broken.contains("cp ") && broken.contains("is not Rust"), "{broken}");
        std::fs::write(&file, read().replacen("{ todo!", "todo!", 1)).unwrap();
        solve(&place, folder.path(), &which).unwrap();
        assert_eq!(read(), original);
    }

    #[test]
    fn only_a_workbook_is_solved() {
        let folder = tempfile::tempdir().unwrap();
        let error = solve(&Place::here(), folder.path(), &["1".into()]).unwrap_err().to_string();
        assert!(error.contains("is not a workbook"), "{error}");
    }
}
