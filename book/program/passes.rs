//! What happens to a chapter between disk and page. Each pass owns one kind of mark-up.

use anyhow::bail;
use mdbook_preprocessor::book::{Book, BookItem};
use mdbook_preprocessor::{Preprocessor, PreprocessorContext};

use crate::page::{Findings, Page};
use crate::place::Place;

mod break_its;
mod callouts;
mod captured;
mod changes;
mod comments;
mod counts;
mod directives;
mod fences;
pub(crate) mod figures;
pub(crate) mod maths;
mod measured;
mod numbers;
mod quiz;
pub(crate) mod readmes;
mod simulators;
mod snippets;
mod steppers;

/// Notes what one kind of mark-up on a page becomes, and what is wrong with it.
type Pass = fn(&Page, &Place, &mut Findings);

/// All passes. They read the page as it is on disk, so their order does not matter.
const PASSES: [Pass; 16] = [
    break_its::find,
    callouts::find,
    captured::find,
    changes::find,
    comments::find,
    counts::find,
    fences::find,
    figures::find,
    maths::find,
    measured::find,
    numbers::find,
    quiz::find,
    readmes::find,
    simulators::find,
    snippets::find,
    steppers::find,
];

/// Runs every pass over a page.
pub(crate) fn run(page: &Page, place: &Place) -> Findings {
    let mut findings = Findings::default();
    for pass in PASSES {
        pass(page, place, &mut findings);
    }
    findings.refuse_overlaps(page);
    findings
}

/// The passes as mdBook wants them: one preprocessor, to run before includes are followed.
pub(crate) struct Passes {
    pub(crate) place: Place,
}

impl Preprocessor for Passes {
    fn name(&self) -> &str {
        "ladder"
    }

    fn run(&self, _: &PreprocessorContext, mut book: Book) -> anyhow::Result<Book> {
        let mut problems = Vec::new();
        book.for_each_mut(|item| {
            let BookItem::Chapter(chapter) = item else { return };
            let Some(file) = &chapter.source_path else { return };
            let mut findings = run(&Page { file, text: &chapter.content }, &self.place);
            problems.append(&mut findings.problems);
            chapter.content = findings.rewrite(&chapter.content);
        });
        if !problems.is_empty() {
            problems.sort();
            bail!("{}", problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
        }
        Ok(book)
    }
}

/// Test helper: runs one pass over a text, in a repository that is empty or holds the given files.
#[cfg(test)]
pub(crate) fn try_pass(pass: Pass, text: &str, files: &[(&str, &str)]) -> Findings {
    let root = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    let mut findings = Findings::default();
    let page = Page { file: std::path::Path::new("chapter/README.md"), text };
    pass(&page, &Place { root: root.path().into() }, &mut findings);
    findings
}
