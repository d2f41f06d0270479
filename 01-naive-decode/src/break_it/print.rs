//! A report for a reader at a terminal: side by side where there is room, else one below the other.

use super::page::Page;
use super::report::{Check, Recall, Report, Score, Text};
use std::io::IsTerminal;

/// From this many columns on the two texts stand side by side.
const SIDE_BY_SIDE: usize = 100;

/// Width where it cannot be found out: into a file, say.
const DEFAULT_WIDTH: usize = 100;

/// More surprise than this many bits is drawn as this many.
const FULL_BAR: f64 = 8.0;

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Stands before the first token that differs.
const MARK: char = '»';

/// Prints the report, as wide as the terminal.
pub fn print(report: &Report) {
    println!("{}", shown(report));
}

/// The report as it is printed: as wide as the terminal, and with its colour where there is one.
pub fn shown(report: &Report) -> String {
    let width = terminal_size::terminal_size().map_or(DEFAULT_WIDTH, |(w, _)| w.0.into());
    let text = render(report, width.max(40));
    // Bold for the mark and what follows it on its line is all the colour there is.
    let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let bold = std::io::stdout().is_terminal() && !is_plain;
    match bold {
        true => text.replace(MARK, "\u{1b}[1;31m»\u{1b}[0m"),
        false => text,
    }
}

/// The report as text of at most `width` columns.
fn render(report: &Report, width: usize) -> String {
    let mut page = Page::new(width, format!("{} ({})", report.name, report.package));
    page.paragraph("What to watch for", report.symptom);
    page.paragraph("Seen in", &report.cites.join("; "));
    let prompt = match report.tried {
        1 => "Prompt".to_owned(),
        tried => format!("Prompt (number {tried} of those tried until a token changed)"),
    };
    page.paragraph(&prompt, &report.prompt);
    let mark = report.first_difference;
    let (clean, broken) = (marked(&report.clean, mark), marked(&report.broken, mark));
    if width >= SIDE_BY_SIDE {
        page.columns(("Clean", &clean), ("Broken", &broken));
    } else {
        page.paragraph("Clean", &clean);
        page.paragraph("Broken", &broken);
    }
    page.paragraph("First difference", &difference(report));
    page.paragraph(
        &format!("Surprise of the clean tokens, in bits ({} 0, {} 8 and more)", BARS[0], BARS[7]),
        &[("clean", &report.surprise.clean), ("broken", &report.surprise.broken)]
            .map(|(side, bits)| {
                format!("{side}, {:.2} on average\n{}", mean(bits), sparkline(bits))
            })
            .join("\n"),
    );
    if let Some(recall) = &report.recall {
        page.paragraph("Recall", &counts(recall));
    }
    if let Some(weaker) = &report.weaker_test {
        page.paragraph("A weaker test", &verdicts(weaker));
    }
    page.paragraph("The guard", &verdicts(&report.guard));
    page.text()
}

fn counts(recall: &Recall) -> String {
    let score = |s: &Score| format!("{} of {} right before, {} after", s.clean, s.asked, s.broken);
    let mut lines = vec![
        recall.edit.clone(),
        format!("this fact:   {}", score(&recall.hit)),
        format!("other facts: {}", score(&recall.others)),
        format!("guessing among the prompt's values: one in {}", recall.chance_one_in),
        "at other tokens, counted from the value:".to_owned(),
    ];
    lines.extend(recall.by_position.iter().map(|(offset, s)| format!("{offset:+}: {}", score(s))));
    lines.push("at this token, in one layer only:".to_owned());
    lines.extend(recall.by_layer.iter().map(|(layer, s)| format!("{layer}: {}", score(s))));
    lines.join("\n")
}

fn mean(bits: &[f64]) -> f64 {
    bits.iter().sum::<f64>() / bits.len().max(1) as f64
}

fn verdicts(check: &Check) -> String {
    let said = |verdict: &Option<String>| match verdict {
        None => "passes".to_owned(),
        Some(message) => format!("fails: {message}"),
    };
    let (clean, broken) = (said(&check.on_clean), said(&check.on_broken));
    format!("{}\nclean:  {clean}\nbroken: {broken}", check.what)
}

fn difference(report: &Report) -> String {
    let total = report.clean.tokens.len();
    let token = |text: &Text, at: usize| match text.tokens.get(at) {
        Some(token) => format!("{token:?}"),
        None => "the end".to_owned(),
    };
    match (report.first_difference, report.first_logit_difference) {
        (Some(at), _) => format!(
            "token {} of {total}: {} became {}",
            at + 1,
            token(&report.clean, at),
            token(&report.broken, at)
        ),
        (None, Some(at)) => {
            format!("no token of {total}; but the logits differ from token {} on", at + 1)
        }
        (None, None) => format!("none in {total} tokens, nor in their logits"),
    }
}

fn marked(text: &Text, at: Option<usize>) -> String {
    let Some(at) = at else { return text.text.clone() };
    let (same, different) = text.tokens.split_at(at);
    // The mark goes after the space that a token brings along, so that it touches the word.
    let different = different.concat();
    let word = different.trim_start();
    let space = &different[..different.len() - word.len()];
    format!("{}{space}{MARK}{word}", same.concat())
}

fn sparkline(bits: &[f64]) -> String {
    let bar = |bits: &f64| {
        let height = (bits / FULL_BAR).min(1.0) * (BARS.len() - 1) as f64;
        BARS[height.round() as usize]
    };
    bits.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::break_it::Surprise;

    fn report() -> Report {
        let text = |tokens: [&str; 4]| Text {
            text: tokens.concat(),
            tokens: tokens.map(str::to_owned).to_vec(),
        };
        let check = |broken: Option<&str>| Check {
            what: "what is checked",
            on_clean: None,
            on_broken: broken.map(str::to_owned),
        };
        Report {
            name: "a-fault",
            package: "a-crate",
            cites: &["owner/repository#1"],
            symptom: "something is wrong",
            prompt: "The word of Ada is".into(),
            tried: 1,
            clean: text([" amber", ".", "\nThe", " end"]),
            broken: text([" amber", ".", " The", " tide"]),
            first_difference: Some(2),
            first_logit_difference: Some(1),
            surprise: Surprise {
                clean: vec![0.0, 1.0, 0.5, 0.5],
                broken: vec![0.0, 4.0, 99.0, 1.0],
            },
            guard: check(Some("x is 1, expected 2")),
            weaker_test: Some(check(None)),
            recall: None,
        }
    }

    #[test]
    fn a_narrow_terminal_gets_one_text_below_the_other() {
        insta::assert_snapshot!(render(&report(), 60));
    }

    #[test]
    fn a_wide_terminal_gets_them_side_by_side() {
        let text = render(&report(), 100);
        assert!(text.lines().any(|line| line.contains("Clean") && line.contains("│ Broken")));
        assert!(text.lines().all(|line| line.chars().count() <= 100));
    }
}
