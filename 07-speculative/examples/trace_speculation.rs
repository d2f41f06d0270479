//! Writes what becomes of a few drafts, for the stepper of the book's chapter 7.
//!
//!     cargo run --release -p speculative --example trace_speculation > 07-speculative/traces/accepting.json
//!
//! Target, draft and rule are the real ones. What a step shows is replayed from the sampler's own random numbers, and must
//! come out as the rule has it.

use anyhow::{Context, Result, ensure};
use flash_attention::packed::Format;
use naive_decode::break_it::Bench;
use naive_decode::{Request, Sampler, Sampling, Tokenizer};
use ndarray::Array2;
use serde::Serialize;
use speculative::{
    Depth, DraftTree, Embedded, Guesser, Proposer, Speculation, Verdict, with_room_for_trees,
};

const DEPTH: usize = 4;
const CYCLES: usize = 3;
/// Tokens of a table, and of the text before a draft.
const SHOWN: usize = 4;
const BEFORE: usize = 8;
const TALE: u64 = 0;

#[derive(Serialize)]
struct Trace {
    kind: &'static str,
    command: &'static str,
    frames: Vec<Frame>,
}

#[derive(Serialize)]
struct Frame {
    event: String,
    text: String,
    draft: Vec<Token>,
    chances: Vec<Chance>,
    next: Option<String>,
}

#[derive(Serialize, Clone)]
struct Token {
    text: String,
    state: &'static str,
}

#[derive(Serialize)]
struct Chance {
    token: String,
    draft: f64,
    target: f64,
    residual: Option<f64>,
}

/// A proposer that is watched: its tree, the random numbers that come after it, and what became of it.
struct Watched {
    inner: Box<dyn Proposer>,
    sampler: Option<Sampler>,
    seen: Option<Seen>,
}

#[derive(Clone)]
struct Seen {
    context: Vec<u32>,
    tree: DraftTree,
    path: Vec<usize>,
    next: u32,
    logits: Array2<f32>,
}

impl Proposer for Watched {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn propose(
        &mut self,
        context: &[u32],
        depth: usize,
        sampler: &mut Sampler,
    ) -> naive_decode::Result<DraftTree> {
        let tree = self.inner.propose(context, depth, sampler)?;
        self.sampler = Some(sampler.clone());
        Ok(tree)
    }

    fn learn(&mut self, verdict: &Verdict) {
        self.seen = Some(Seen {
            context: verdict.context.to_vec(),
            tree: verdict.tree.clone(),
            path: verdict.path.to_vec(),
            next: verdict.next,
            logits: verdict.logits.to_owned(),
        });
    }
}

#[allow(dead_code, reason = "the test of the kept trace uses the rest of this file")]
fn main() -> Result<()> {
    print!("{}", trace()?);
    Ok(())
}

/// The whole trace as JSON.
pub(crate) fn trace() -> Result<String> {
    let family = Embedded::new(512, Format::Bf16)?;
    let mut stories = (0..20).map(|seed| story(&family, seed));
    let story = stories.find_map(Result::transpose).context("no seed shows both")??;
    let command = "cargo run --release -p speculative --example trace_speculation";
    let trace = Trace { kind: "accepting", command, frames: story };
    Ok(serde_json::to_string_pretty(&trace)? + "\n")
}

/// The first drafts of a text, if one of them is kept whole and one in part.
fn story(family: &Embedded, seed: u64) -> Result<Option<Vec<Frame>>> {
    let tokenizer = embedded_models::TARGET.tokenizer;
    let tokenizer = Tokenizer::from_bytes("tokenizer.json", tokenizer)?;
    let prompt = tokenizer.encode(&Bench::tale(TALE))?;
    let cache = with_room_for_trees(&family.target, family.target.context())?;
    let sampling = Sampling { temperature: 1.0, seed, ..Sampling::default() };
    let sampler = Sampler::new(sampling)?;
    let request = Request { prompt, tokens: 40, end_tokens: Vec::new() };
    let inner = family.proposer(Guesser::DraftModel)?;
    let watched = Watched { inner, sampler: None, seen: None };
    let (model, depth) = (family.target.clone(), Depth::Fixed(DEPTH));
    let mut text = Speculation::new(model, cache, watched, sampler, depth, request)?;
    let mut frames = Vec::new();
    let (mut is_whole, mut is_part) = (false, false);
    for _ in 0..CYCLES {
        text.advance()?.context("the text is long enough")?;
        let seen = text.proposer.seen.clone().context("a pass was verified")?;
        let sampler = text.proposer.sampler.clone().context("a draft was asked for")?;
        is_whole |= seen.path.len() == seen.tree.len();
        is_part |= (1..seen.tree.len()).contains(&seen.path.len());
        frames.extend(Replay { tokenizer: &tokenizer, seen, sampler }.frames()?);
    }
    Ok((is_whole && is_part).then_some(frames))
}

/// One cycle, again and slowly.
struct Replay<'a> {
    tokenizer: &'a Tokenizer,
    seen: Seen,
    sampler: Sampler,
}

impl Replay<'_> {
    fn text(&self, tokens: &[u32]) -> Result<String> {
        Ok(self.tokenizer.decode(tokens)?)
    }

    fn frames(mut self) -> Result<Vec<Frame>> {
        let Seen { context, tree, path, next, logits } = self.seen.clone();
        let before = self.text(&context[context.len().saturating_sub(BEFORE)..])?;
        let mut draft = Vec::new();
        for node in tree.nodes() {
            draft.push(Token { text: self.text(&[node.token])?, state: "proposed" });
        }
        let mut frames = vec![Frame {
            event: format!(
                "The draft proposes {} tokens, one after the other. The target runs all of them in one pass, \
                 with the text's last token before them.",
                draft.len()
            ),
            text: before.clone(),
            draft: draft.clone(),
            chances: Vec::new(),
            next: None,
        }];
        let mut context = context;
        let mut kept = Vec::new();
        let mut left = None;
        for (index, node) in tree.nodes().iter().enumerate() {
            let mut p = self.sampler.distribution(&logits.row(index).to_vec(), &context)?;
            let q = node.drawn_from.as_deref().context("a draft model draws")?;
            let (at_p, at_q) = (p[node.token as usize], q[node.token as usize]);
            let (chance, drawn) = (f64::from(at_p) / f64::from(at_q), self.sampler.uniform());
            let is_kept = drawn < chance;
            draft[index].state = if is_kept { "kept" } else { "refused" };
            let residual = (!is_kept).then(|| residual(&p, q));
            let rule = match chance >= 1.0 {
                true => "The target gives it no less than the draft: it is kept whatever is drawn."
                    .into(),
                false => format!(
                    "It is kept with chance p/q = {chance:.2}. The number drawn is {drawn:.2}: {}.",
                    if is_kept { "kept" } else { "refused" }
                ),
            };
            if !is_kept {
                draft[index + 1..].iter_mut().for_each(|token| token.state = "dropped");
            }
            let said = self.chances(&p, q, residual.as_deref(), &[node.token, next])?;
            frames.push(Frame {
                event: format!("Token {} of the draft. {rule}", index + 1),
                text: before.clone(),
                draft: draft.clone(),
                chances: said,
                next: None,
            });
            if let Some(residual) = residual {
                p = residual;
                left = Some(p);
                break;
            }
            context.push(node.token);
            kept.push(index);
        }
        ensure!(kept == path, "the replay keeps {kept:?}, the rule kept {path:?}");
        let (event, law) = match left {
            Some(residual) => (
                "What the target gives more to than the draft did is left; scaled to one, the next token is drawn \
                 from that. The rest of the draft goes, and so do its rows in the cache.",
                residual,
            ),
            None => (
                "All of the draft is kept. The pass has logits after its last token, too: from those comes a bonus.",
                self.sampler.distribution(&logits.row(tree.len()).to_vec(), &context)?,
            ),
        };
        ensure!(
            self.sampler.draw(&law) == next,
            "the replay draws another token than the rule did"
        );
        let came = path.len() + 1;
        frames.push(Frame {
            event: format!(
                "{event} {came} token{} for one pass.",
                if came == 1 { "" } else { "s" }
            ),
            text: before,
            draft,
            chances: Vec::new(),
            next: Some(self.text(&[next])?),
        });
        Ok(frames)
    }

    /// The tokens asked for, and the likeliest of both.
    fn chances(
        &self,
        p: &[f32],
        q: &[f32],
        residual: Option<&[f32]>,
        of: &[u32],
    ) -> Result<Vec<Chance>> {
        let mut tokens: Vec<u32> = (0..p.len() as u32).collect();
        let weight = |token: u32| p[token as usize].max(q[token as usize]);
        tokens.sort_by(|&a, &b| weight(b).total_cmp(&weight(a)));
        tokens.truncate(SHOWN);
        // What is drawn after a refusal is of interest in that step only.
        let asked = if residual.is_some() { of } else { &of[..1] };
        for &token in asked {
            if !tokens.contains(&token) {
                tokens.push(token);
            }
        }
        let round = |chance: f32| (f64::from(chance) * 1e4).round() / 1e4;
        let chance = |token: u32| -> Result<Chance> {
            let at = token as usize;
            Ok(Chance {
                token: self.text(&[token])?,
                draft: round(q[at]),
                target: round(p[at]),
                residual: residual.map(|residual| round(residual[at])),
            })
        };
        tokens.into_iter().map(chance).collect()
    }
}

/// `max(0, p - q)`, scaled to sum to one.
fn residual(p: &[f32], q: &[f32]) -> Vec<f32> {
    let mut left: Vec<f32> = p.iter().zip(q).map(|(p, q)| (p - q).max(0.0)).collect();
    let total: f64 = left.iter().map(|&left| f64::from(left)).sum();
    left.iter_mut().for_each(|left| *left = (f64::from(*left) / total) as f32);
    left
}
