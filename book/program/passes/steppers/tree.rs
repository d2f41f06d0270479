//! A tree of texts, each edge a run of blocks.

use serde::Deserialize;

use super::Drawn;
use crate::html::escape;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Trace {
    frames: Vec<Frame>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Frame {
    event: String,
    /// Blocks of the pool that nobody holds.
    free: usize,
    /// What has just been looked up.
    lookup: Option<Lookup>,
    /// Each before those below it.
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Lookup {
    prompt: Vec<String>,
    /// How many of its tokens were known.
    found: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Node {
    depth: usize,
    /// When its end was last used.
    used: u64,
    blocks: Vec<Block>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Block {
    number: u32,
    tokens: Vec<String>,
    /// Held by a request, too.
    in_use: bool,
}

impl Trace {
    pub(super) fn draw(&self) -> Result<Vec<Drawn>, String> {
        let draw = |frame: &Frame| {
            let mut html = frame.lookup.as_ref().map_or(Ok(String::new()), lookup)?;
            html += &nodes(&frame.nodes)?;
            html += &format!("<p class=\"free\">Free in the pool: {}</p>", frame.free);
            Ok(Drawn { event: frame.event.clone(), html })
        };
        self.frames.iter().map(draw).collect()
    }
}

/// A prompt, the known part of it marked.
fn lookup(Lookup { prompt, found }: &Lookup) -> Result<String, String> {
    let Some((known, rest)) = prompt.split_at_checked(*found) else {
        return Err(format!("{found} tokens were found of {}", prompt.len()));
    };
    let rest = escape(&rest.join(" "));
    let known = match known {
        [] => String::new(),
        known => format!("<mark>{}</mark> ", escape(&known.join(" "))),
    };
    Ok(format!(
        "<p class=\"lookup\">{known}{rest} <small>{found} of {} tokens known</small></p>",
        prompt.len()
    ))
}

/// The nodes as a nested list.
fn nodes(nodes: &[Node]) -> Result<String, String> {
    let mut html = String::from("<ul class=\"tree\">");
    let mut depth = 0;
    for (i, node) in nodes.iter().enumerate() {
        if node.depth > depth + usize::from(i > 0) {
            return Err(format!("a node at depth {} comes after one at {depth}", node.depth));
        }
        match node.depth.checked_sub(depth) {
            Some(0) if i > 0 => html += "</li>",
            Some(0) => {}
            Some(_) => html += "<ul>",
            None => html += &("</li></ul>".repeat(depth - node.depth) + "</li>"),
        }
        depth = node.depth;
        html += &format!("<li><small>used at {}</small>", node.used);
        for Block { number, tokens, in_use } in &node.blocks {
            let class = if *in_use { "edge in-use" } else { "edge" };
            let tokens = escape(&tokens.join(" "));
            html += &format!("<span class=\"{class}\"><b>{number}</b>{tokens}</span>");
        }
    }
    if !nodes.is_empty() {
        html += &("</li></ul>".repeat(depth) + "</li>");
    }
    Ok(html + "</ul>")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(depth: usize) -> Node {
        let block = Block { number: 3, tokens: vec!["a".into(), "b".into()], in_use: depth == 1 };
        Node { depth, used: 7, blocks: vec![block] }
    }

    #[test]
    fn nodes_are_nested_by_depth() {
        let html = nodes(&[0, 1, 2, 1, 0].map(node)).unwrap();
        let shape: String = html
            .replace("<ul class=\"tree\">", "(")
            .replace("<ul>", "(")
            .replace("</ul>", ")")
            .replace("</li>", "]")
            .replace("<li>", "[")
            .chars()
            .filter(|c| "()[]".contains(*c))
            .collect();
        assert_eq!(shape, "([([([])][])][])");
        assert_eq!(html.matches("in-use").count(), 2);
        assert_eq!(nodes(&[]).unwrap(), "<ul class=\"tree\"></ul>");
        assert!(nodes(&[node(1)]).is_err() && nodes(&[node(0), node(2)]).is_err());
    }

    #[test]
    fn what_was_found_is_marked() {
        let prompt = ["one", "<two>", "three"].map(String::from).to_vec();
        let html = lookup(&Lookup { prompt: prompt.clone(), found: 2 }).unwrap();
        assert!(html.contains("<mark>one &lt;two&gt;</mark> three"), "{html}");
        assert!(lookup(&Lookup { prompt, found: 4 }).is_err());
    }
}
