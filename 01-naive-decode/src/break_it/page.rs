//! Headlines, paragraphs and columns, in plain text.

/// Lines so far, and how long they may be.
pub(super) struct Page {
    width: usize,
    lines: Vec<String>,
}

impl Page {
    pub(super) fn new(width: usize, title: String) -> Self {
        Page { width, lines: vec![title] }
    }

    pub(super) fn text(self) -> String {
        self.lines.join("\n")
    }

    /// A headline and, indented, what it says.
    pub(super) fn paragraph(&mut self, head: &str, text: &str) {
        self.lines.extend([String::new(), head.to_owned()]);
        self.lines.extend(wrap(text, self.width - 2).into_iter().map(|line| format!("  {line}")));
    }

    /// Two texts side by side.
    pub(super) fn columns(&mut self, left: (&str, &str), right: (&str, &str)) {
        let column = (self.width - 7) / 2;
        let [left, right] = [left, right].map(|(head, text)| {
            std::iter::once(head.to_owned()).chain(wrap(text, column)).collect::<Vec<_>>()
        });
        self.lines.push(String::new());
        for i in 0..left.len().max(right.len()) {
            let cell = |side: &[String]| side.get(i).cloned().unwrap_or_default();
            let (left, right) = (cell(&left), cell(&right));
            let padding = " ".repeat(column - left.chars().count());
            self.lines.push(format!("  {left}{padding} │ {right}").trim_end().to_owned());
        }
    }
}

/// Breaks lines at spaces, and inside a word only if it is longer than a line.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for paragraph in text.trim_end().split('\n') {
        let mut line = String::new();
        for word in paragraph.split_inclusive(' ') {
            let mut word = word;
            let used = line.chars().count();
            if used > 0 && used + word.trim_end().chars().count() > width {
                lines.push(std::mem::take(&mut line).trim_end().to_owned());
            }
            while word.chars().count() > width {
                let cut = word.char_indices().nth(width).map_or(word.len(), |(at, _)| at);
                lines.push(word[..cut].trim_end().to_owned());
                word = &word[cut..];
            }
            line += word;
        }
        lines.push(line.trim_end().to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::wrap;

    #[test]
    fn no_line_is_longer_than_asked_for() {
        let long = "a".repeat(25) + " bc  d\n\nef";
        assert_eq!(
            wrap(&long, 10),
            ["a".repeat(10), "a".repeat(10), "aaaaa bc".into(), "d".into(), "".into(), "ef".into()]
        );
    }
}
