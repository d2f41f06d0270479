//! A chapter's text, places in it, and what a pass may say about them.

use std::cmp::Reverse;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use crate::place::with_slashes;

/// One Markdown file of the book, as it stands on disk: no include has been followed yet.
pub(crate) struct Page<'a> {
    /// Path of the file inside the book's `src/`.
    pub(crate) file: &'a Path,
    pub(crate) text: &'a str,
}

/// A fenced code block.
pub(crate) struct Fence {
    /// What follows the opening back-ticks, e.g. `rust` or `quiz`.
    pub(crate) info: String,
    pub(crate) body: String,
    /// The whole block, fences included.
    pub(crate) range: Range<usize>,
}

/// Something that is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Problem {
    pub(crate) file: PathBuf,
    /// Counted from 1; 0 stands for the file as a whole.
    pub(crate) line: usize,
    pub(crate) message: String,
}

/// Replaces a part of a page's text.
#[derive(Debug)]
pub(crate) struct Edit {
    pub(crate) range: Range<usize>,
    pub(crate) text: String,
}

/// What a pass found on a page: how to rewrite it, and what is wrong with it.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) edits: Vec<Edit>,
    pub(crate) problems: Vec<Problem>,
}

impl Page<'_> {
    /// Markdown events with their place in the text. The extensions are those that mdBook itself turns on, and maths.
    pub(crate) fn events(&self) -> impl Iterator<Item = (Event<'_>, Range<usize>)> {
        let options = Options::ENABLE_TABLES
            | Options::ENABLE_FOOTNOTES
            | Options::ENABLE_STRIKETHROUGH
            | Options::ENABLE_TASKLISTS
            | Options::ENABLE_HEADING_ATTRIBUTES
            | Options::ENABLE_MATH;
        Parser::new_ext(self.text, options).into_offset_iter()
    }

    /// Every fenced code block, in order.
    pub(crate) fn fences(&self) -> Vec<Fence> {
        let mut fences = Vec::new();
        let mut open: Option<Fence> = None;
        for (event, range) in self.events() {
            match event {
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                    open =
                        Some(Fence { info: info.trim().to_string(), body: String::new(), range });
                }
                Event::Text(text) => {
                    if let Some(fence) = &mut open {
                        fence.body.push_str(&text);
                    }
                }
                Event::End(TagEnd::CodeBlock) => fences.extend(open.take()),
                _ => {}
            }
        }
        fences
    }

    /// The line, counted from 1, that holds the byte at `offset`.
    pub(crate) fn line(&self, offset: usize) -> usize {
        1 + self.text[..offset].matches('\n').count()
    }

    /// A problem at the line that holds `offset`.
    pub(crate) fn problem(&self, offset: usize, message: impl Into<String>) -> Problem {
        Problem { file: self.file.into(), line: self.line(offset), message: message.into() }
    }
}

impl Findings {
    /// Replaces `range` if `made` is text; otherwise notes why it is not.
    pub(crate) fn replace(
        &mut self,
        page: &Page,
        range: Range<usize>,
        made: Result<String, String>,
    ) {
        match made {
            Ok(text) => self.edits.push(Edit { range, text }),
            Err(message) => self.problems.push(page.problem(range.start, message)),
        }
    }

    /// Passes own different parts of a page. A directive where another pass replaces the text around it is a problem: in a fence
    /// that something is drawn from, or in the line that opens a callout.
    pub(crate) fn refuse_overlaps(&mut self, page: &Page) {
        // Where two begin at one place, the longer is the one around.
        self.edits.sort_by_key(|edit| (edit.range.start, Reverse(edit.range.end)));
        let mut around = 0..0;
        for edit in std::mem::take(&mut self.edits) {
            let Range { start, end } = edit.range;
            if around.end <= start {
                around = start..end;
                self.edits.push(edit);
                continue;
            }
            let [inner, outer] =
                [start..end, around.clone()].map(|at| page.text[at].lines().next().unwrap_or(""));
            let line = page.line(around.start);
            self.problems.push(page.problem(
                start,
                format!(
                    "`{inner}` cannot stand here: `{outer}`, line {line}, is replaced as a whole"
                ),
            ));
        }
    }

    /// The page's text with every edit made.
    ///
    /// # Panics
    /// If two edits overlap: see [`refuse_overlaps`](Self::refuse_overlaps).
    pub(crate) fn rewrite(mut self, text: &str) -> String {
        self.edits.sort_by_key(|edit| edit.range.start);
        let mut out = String::with_capacity(text.len() * 2);
        let mut done = 0;
        for edit in &self.edits {
            assert!(
                done <= edit.range.start,
                "two passes rewrite the same text at {:?}",
                edit.range
            );
            out.push_str(&text[done..edit.range.start]);
            out.push_str(&edit.text);
            done = edit.range.end;
        }
        out + &text[done..]
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "book/src/{}", with_slashes(&self.file))?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}", self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_carry_their_info_body_and_place() {
        let page = Page {
            file: Path::new("a.md"),
            text: "one\n\n```quiz\nx = 1\n```\n\n    not a fence\n",
        };
        let fences = page.fences();
        assert_eq!(fences.len(), 1);
        assert_eq!((fences[0].info.as_str(), fences[0].body.as_str()), ("quiz", "x = 1\n"));
        assert_eq!(page.line(fences[0].range.start), 3);
    }

    #[test]
    fn edits_are_made_in_place_whatever_their_order() {
        let edit = |range, text: &str| Edit { range, text: text.into() };
        let findings = Findings { edits: vec![edit(4..5, "D"), edit(0..2, "")], problems: vec![] };
        assert_eq!(findings.rewrite("abcdef"), "cdDf");
    }

    #[test]
    fn edits_that_overlap_are_problems_at_their_lines() {
        let page = Page { file: Path::new("a.md"), text: "```quiz\nx = 1\n```\ny\n" };
        let edit = |range| Edit { range, text: String::new() };
        let mut findings =
            Findings { edits: vec![edit(12..13), edit(0..17), edit(18..19)], problems: vec![] };
        findings.refuse_overlaps(&page);
        let said =
            "book/src/a.md:2: `1` cannot stand here: ````quiz`, line 1, is replaced as a whole";
        assert_eq!(findings.problems[0].to_string(), said);
        assert_eq!(findings.rewrite(page.text), "\n\n");
    }

    #[test]
    fn a_problem_reads_as_file_line_message() {
        let page = Page { file: Path::new("00/README.md"), text: "a\nb" };
        assert_eq!(page.problem(2, "no").to_string(), "book/src/00/README.md:2: no");
    }
}
