//! A pool of blocks and the tables that point into it.

use serde::Deserialize;

use super::Drawn;
use crate::html::escape;
use crate::plot::COLOURS;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Trace {
    /// Tokens of a block.
    block_tokens: usize,
    frames: Vec<Frame>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Frame {
    event: String,
    /// By block.
    references: Vec<u32>,
    sequences: Vec<Sequence>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sequence {
    name: String,
    tokens: usize,
    table: Vec<usize>,
}

/// A block as its holders see it.
#[derive(Default, Clone)]
struct Held<'a> {
    by: Vec<&'a str>,
    /// Slots that hold a token.
    filled: usize,
}

impl Trace {
    pub(super) fn draw(&self) -> Result<Vec<Drawn>, String> {
        let mut names: Vec<&str> = Vec::new();
        for sequence in self.frames.iter().flat_map(|frame| &frame.sequences) {
            if !names.contains(&sequence.name.as_str()) {
                names.push(&sequence.name);
            }
        }
        let mut before: &[u32] = &[];
        let mut drawn = Vec::new();
        for frame in &self.frames {
            let html = self.pool(frame, before, &names)? + &self.tables(frame, &names);
            drawn.push(Drawn { event: frame.event.clone(), html });
            before = &frame.references;
        }
        Ok(drawn)
    }

    fn held<'a>(&self, frame: &'a Frame) -> Result<Vec<Held<'a>>, String> {
        let mut held = vec![Held::default(); frame.references.len()];
        for Sequence { name, tokens, table } in &frame.sequences {
            if table.len() < tokens.div_ceil(self.block_tokens) {
                return Err(format!("{name} has {} blocks for {tokens} tokens", table.len()));
            }
            for (place, &block) in table.iter().enumerate() {
                let Some(held) = held.get_mut(block) else {
                    return Err(format!("{name} holds block {block}, which is not in the pool"));
                };
                held.by.push(name);
                let filled = tokens.saturating_sub(place * self.block_tokens);
                held.filled = held.filled.max(filled.min(self.block_tokens));
            }
        }
        Ok(held)
    }

    /// Every block: its number, its slots, and who holds it. One that was free a step ago is marked.
    fn pool(&self, frame: &Frame, before: &[u32], names: &[&str]) -> Result<String, String> {
        let mut html = String::from("<div class=\"pool\">");
        for (number, held) in self.held(frame)?.iter().enumerate() {
            let taken = before.get(number) == Some(&0) && frame.references[number] > 0;
            let class = match (held.by.is_empty(), taken) {
                (true, _) => "block is-free",
                (false, true) => "block is-new",
                (false, false) => "block",
            };
            let slots: String = (0..self.block_tokens)
                .map(
                    |slot| if slot < held.filled { "<i class=\"is-full\"></i>" } else { "<i></i>" },
                )
                .collect();
            let by = if held.by.is_empty() { "free".into() } else { held.by.join(", ") };
            html += &format!(
                "<div class=\"{class}\"{}><b>{number}</b><span class=\"slots\">{slots}</span><small>{}</small></div>",
                colour(&held.by, names),
                escape(&by)
            );
        }
        Ok(html + "</div>")
    }

    /// For every sequence the blocks of its table, in order.
    fn tables(&self, frame: &Frame, names: &[&str]) -> String {
        let mut html = String::from("<div class=\"tables\">");
        for Sequence { name, tokens, table } in &frame.sequences {
            let blocks: String = table.iter().map(|block| format!("<b>{block}</b>")).collect();
            html += &format!(
                "<p{}><span>{}: {tokens} tokens</span>{blocks}</p>",
                colour(&[name], names),
                escape(name)
            );
        }
        html + "</div>"
    }
}

/// The colour of whoever came first; none if nobody is there.
fn colour(by: &[&str], names: &[&str]) -> String {
    let first = by.first().and_then(|first| names.iter().position(|name| name == first));
    first.map_or(String::new(), |first| {
        format!(" style=\"--line: var(--series-{})\"", first % COLOURS)
    })
}
