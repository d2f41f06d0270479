//! A `quiz` fence holds questions in TOML. Each names a test of the workspace that makes its answer come true.

use serde::Deserialize;

use crate::digits::grouped;
use crate::html::{escape, from_markdown};
use crate::page::{Fence, Findings, Page};
use crate::place::{Place, with_slashes};
use crate::verified;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Quiz {
    question: Vec<Question>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    ask: String,
    /// What the reader may choose from. Without it, the reader types a number.
    #[serde(default)]
    choices: Vec<String>,
    answer: Answer,
    /// Unit of a number, shown behind the field.
    #[serde(default)]
    unit: String,
    /// How far off a typed number may be, as a part of the answer.
    #[serde(default = "one_percent")]
    tolerance: f64,
    why: String,
    /// `package::test_name`.
    verified_by: String,
    /// The line of that test which says what the answer says.
    asserts: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Answer {
    Number(f64),
    /// One of the choices, word for word.
    Choice(String),
}

fn one_percent() -> f64 {
    0.01
}

pub(super) fn find(page: &Page, place: &Place, findings: &mut Findings) {
    let mut asked = 0;
    for fence in page.fences().into_iter().filter(|fence| fence.info == "quiz") {
        let quiz: Quiz = match toml::from_str(&fence.body) {
            Ok(quiz) => quiz,
            Err(e) => {
                let line_start = fence.range.start
                    + offset_in(page, &fence, e.span().map_or(0, |span| span.start));
                findings.problems.push(page.problem(
                    line_start,
                    format!("this `quiz` fence does not parse: {}", e.message()),
                ));
                continue;
            }
        };
        let mut html = String::from("<section class=\"quiz\">");
        for (question, offset) in quiz.question.iter().zip(question_offsets(page, &fence)) {
            asked += 1;
            match render(question, asked, page, place) {
                Ok(made) => html += &made,
                Err(message) => findings.problems.push(page.problem(offset, message)),
            }
        }
        findings.replace(page, fence.range, Ok(html + "</section>\n"));
    }
}

/// Where a place in a fence's body is, counted from the fence's start: the body begins on the line after.
fn offset_in(page: &Page, fence: &Fence, in_body: usize) -> usize {
    let first_line = page.text[fence.range.clone()].find('\n').map_or(0, |end| end + 1);
    (first_line + in_body).min(fence.range.len().saturating_sub(1))
}

fn question_offsets<'a>(page: &'a Page, fence: &'a Fence) -> impl Iterator<Item = usize> + 'a {
    page.text[fence.range.clone()]
        .match_indices("[[question]]")
        .map(|(at, _)| fence.range.start + at)
}

fn render(
    question: &Question,
    number: usize,
    page: &Page,
    place: &Place,
) -> Result<String, String> {
    // What a field is called by. When the book is printed, all pages are on one: the page's name tells theirs apart.
    let file = with_slashes(page.file).replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let id = format!("ask-{file}-{number}");
    let test = verified::find(place, &question.verified_by)?;
    test.must_say(&question.asserts)?;
    let (expected, field) = match &question.answer {
        Answer::Choice(answer) => {
            (escape(&position(question, answer)?.to_string()), choices(question, &id)?)
        }
        Answer::Number(value) if question.choices.is_empty() => {
            test.must_name(*value)?;
            // The keypad that some phones show for decimals has no minus.
            let keys = if *value < 0.0 { "text" } else { "decimal" };
            let field = format!(
                "<p class=\"typed\"><label><input type=\"text\" inputmode=\"{keys}\" size=\"12\" aria-labelledby=\"{id} {id}-unit\"> <span id=\"{id}-unit\">{}</span></label></p>",
                escape(&question.unit)
            );
            (value.to_string(), field)
        }
        Answer::Number(_) => return Err(
            "the answer is a number but the question has choices; write the answer as one of them"
                .into(),
        ),
    };
    let shown = match &question.answer {
        Answer::Choice(answer) => from_markdown(answer)?,
        Answer::Number(value) => format!("{} {}", grouped(*value), escape(&question.unit)),
    };
    Ok(format!(
        "<div class=\"question\" data-answer=\"{expected}\" data-tolerance=\"{}\"><div class=\"ask\"><span class=\"ask-number\">{number}</span><div id=\"{id}\">{}</div></div>{field}<p class=\"said\" role=\"status\"></p>\
         <details class=\"answer\"><summary>Answer</summary><p><strong>{}.</strong> {}</p>\
         <p class=\"held\">Held by <code>cargo test -p {} {}</code><code class=\"asserts\">{}</code></p></details></div>",
        question.tolerance,
        from_markdown(&question.ask)?,
        shown.trim_end().trim_end_matches('.'),
        from_markdown(&question.why)?,
        escape(&test.package),
        escape(&test.name),
        escape(question.asserts.trim()),
    ))
}

fn position(question: &Question, answer: &str) -> Result<usize, String> {
    question.choices.iter().position(|choice| choice == answer).ok_or_else(|| {
        format!("the answer `{answer}` is none of the choices {:?}", question.choices)
    })
}

/// Radio buttons, named after the question: buttons of one name allow one choice.
fn choices(question: &Question, id: &str) -> Result<String, String> {
    let mut html =
        format!("<div role=\"radiogroup\" aria-labelledby=\"{id}\"><ul class=\"choices\">");
    for (value, choice) in question.choices.iter().enumerate() {
        let choice = from_markdown(choice)?;
        html += &format!(
            "<li><label><input type=\"radio\" name=\"{id}\" value=\"{value}\"> <span>{choice}</span></label></li>"
        );
    }
    Ok(html + "</ul></div>")
}

#[cfg(test)]
mod tests {
    use super::super::try_pass;
    use super::*;

    const FILES: [(&str, &str); 2] = [
        ("01-a/Cargo.toml", "[package]\nname = \"a\"\n"),
        ("01-a/src/x.rs", "#[test]\nfn counts_rows() {\n    assert_eq!(rows(), 1_500);\n}\n"),
    ];

    fn quiz(fields: &str) -> String {
        format!(
            "text\n\n```quiz\n[[question]]\nask = \"Rows, $x$?\"\nwhy = \"because\"\nasserts = \"assert_eq!(rows(), 1_500);\"\n{fields}\n```\n"
        )
    }

    #[test]
    fn a_number_and_a_choice_are_rendered_with_the_test_that_holds_them() {
        let text = quiz("answer = 1500\nunit = \"rows\"\nverified_by = \"a::counts_rows\"");
        let out = try_pass(find, &text, &FILES).rewrite(&text);
        assert!(out.contains("data-answer=\"1500\"") && out.contains("1,500 rows"), "{out}");
        assert!(out.contains("cargo test -p a counts_rows") && out.contains("<math"), "{out}");
        let text = quiz(
            "choices = [\"1,500\", \"1,501\"]\nanswer = \"1,501\"\nverified_by = \"a::counts_rows\"",
        );
        let out = try_pass(find, &text, &FILES).rewrite(&text);
        assert!(out.contains("data-answer=\"1\""), "{out}");
    }

    #[test]
    fn an_answer_below_zero_can_be_typed_on_a_phone() {
        let test = "#[test]\nfn ends() {\n    assert_eq!(ends(), [-16, 15]);\n}\n";
        let files = [FILES[0], ("01-a/src/x.rs", test)];
        for (answer, keys) in [("-16", "text"), ("15", "decimal")] {
            let fields = format!("answer = {answer}\nverified_by = \"a::ends\"");
            let said = "assert_eq!(ends(), [-16, 15]);";
            let text = quiz(&fields).replace("assert_eq!(rows(), 1_500);", said);
            let out = try_pass(find, &text, &files).rewrite(&text);
            assert!(out.contains(&format!("inputmode=\"{keys}\"")), "{out}");
        }
    }

    #[test]
    fn questions_that_one_test_holds_have_buttons_of_their_own() {
        let fields = "choices = [\"b\", \"c\"]\nanswer = \"b\"\nverified_by = \"a::counts_rows\"";
        let text = quiz(fields).repeat(2);
        let out = try_pass(find, &text, &FILES).rewrite(&text);
        for number in 1..=2 {
            let name = format!("name=\"ask-chapter-README-md-{number}\"");
            assert_eq!(out.matches(&name).count(), 2, "{out}");
        }
    }

    #[test]
    fn fields_are_called_by_their_question_and_a_status_says_how_it_went() {
        let made = |fields: &str| {
            let text = quiz(&format!("{fields}\nverified_by = \"a::counts_rows\""));
            try_pass(find, &text, &FILES).rewrite(&text)
        };
        let id = "ask-chapter-README-md-1";
        for (fields, named) in [
            (
                "answer = 1500\nunit = \"rows\"",
                format!("aria-labelledby=\"{id} {id}-unit\"> <span id=\"{id}-unit\">rows<"),
            ),
            (
                "choices = [\"b\"]\nanswer = \"b\"",
                format!("role=\"radiogroup\" aria-labelledby=\"{id}\""),
            ),
        ] {
            let out = made(fields);
            assert!(
                out.contains(&named) && out.contains(&format!("<div id=\"{id}\">Rows, ")),
                "{out}"
            );
            assert!(out.contains("<p class=\"said\" role=\"status\"></p>"), "{out}");
        }
    }

    #[test]
    fn an_answer_that_no_test_makes_true_is_a_problem() {
        for (fields, expected) in [
            ("answer = 1500\nverified_by = \"a::gone\"", "gone"),
            ("answer = 1501\nverified_by = \"a::counts_rows\"", "1501"),
            (
                "choices = [\"b\"]\nanswer = \"c\"\nverified_by = \"a::counts_rows\"",
                "none of the choices",
            ),
            ("choices = [\"b\"]\nanswer = 1500\nverified_by = \"a::counts_rows\"", "one of them"),
            ("answer = 1500", "verified_by"),
        ] {
            let found = try_pass(find, &quiz(fields), &FILES);
            assert!(
                found.problems[0].message.contains(expected),
                "{expected}: {:?}",
                found.problems
            );
        }
        let unsaid = quiz("answer = 1500\nverified_by = \"a::counts_rows\"")
            .replace("assert_eq!(rows(), 1_500);", "assert!(true)");
        assert!(try_pass(find, &unsaid, &FILES).problems[0].message.contains("assert!(true)"));
    }

    #[test]
    fn a_fence_that_does_not_parse_is_a_problem_at_its_line() {
        let found = try_pass(find, "```quiz\n[[question]]\nask = \n```\n", &FILES);
        assert_eq!(found.problems[0].line, 3, "{:?}", found.problems);
    }
}
