//! What replaces a refused token is drawn from the target's distribution, as if nothing had been refused.
//!
//! No logit is wrong here, and no row is in the wrong place: the *choice* is. So this break-it writes sampled text,
//! and what it compares are the laws that tokens are drawn by, for which it gives logits too.

use super::TOKENS;
use crate::accept::{Accepted, Rule, accept};
use crate::cache::with_room_for_trees;
use crate::proposers::DraftModel;
use crate::small_world::{BOUND, DRAFTS, distance, write};
use crate::speculation::{Depth, Speculation};
use crate::tree::DraftTree;
use embedded_models::DRAFT;
use naive_decode::break_it::{Bench, BreakIt, Check, Report, Side, Surprise, Text};
use naive_decode::{
    CpuExecutor, Error, Executor, LoadOptions, Model, NaiveAttention, Pass, Request, Result,
    Sampler, Sampling, Span, Want,
};
use ndarray::ArrayView2;
use std::sync::Arc;

/// Tokens that the draft proposes.
const DEPTH: usize = 4;

// ANCHOR: fault
/// [`accept`] without the residual: a token is refused, and the next one is drawn from all of `p`. So is the next
/// sibling weighed against all of it. What the draft says too often was refused for that very reason, and here
/// gets a second chance.
///
/// # Errors
/// Those of [`Sampler::distribution`].
pub fn resample_from_target(
    sampler: &mut Sampler,
    context: &mut Vec<u32>,
    tree: &DraftTree,
    logits: ArrayView2<f32>,
) -> Result<Accepted> {
    let text = context.len();
    let mut path: Vec<usize> = Vec::new();
    let next = loop {
        let at = path.last().copied();
        let row = logits.row(at.map_or(0, |node| node + 1)).to_vec();
        let p = sampler.distribution(&row, context);
        let p = p.inspect_err(|_| context.truncate(text))?;
        let kept = tree.children(at).find(|&child| {
            let node = &tree.nodes()[child];
            let (token, q) = (node.token as usize, node.drawn_from.as_deref());
            sampler.uniform() < f64::from(p[token]) / q.map_or(1.0, |q| f64::from(q[token]))
        });
        match kept {
            Some(child) => {
                context.push(tree.nodes()[child].token);
                path.push(child);
            }
            None => break sampler.draw(&p),
        }
    };
    context.truncate(text);
    Ok(Accepted { path, next })
}
// ANCHOR_END: fault

fn rule(side: Side) -> Rule {
    match side {
        Side::Clean => accept,
        Side::Broken => resample_from_target,
    }
}

fn sampling() -> Sampling {
    Sampling { temperature: 1.0, seed: 5, ..Sampling::default() }
}

/// What replaces a refused token is drawn from the target instead of the residual.
pub const NO_RESIDUAL: BreakIt = BreakIt {
    name: "no-residual",
    package: "speculative",
    cites: &["systems chapter, why the residual", "ShopeeLLM/Spec-RL#14"],
    symptom: "greedy, nothing; sampled, every word fits, and what the draft likes comes too often",
    guard: "counts of sampled texts of three tokens are the target's: chi-square below 2.3 a degree of freedom",
    weaker_test: Some("greedy texts are the same with every draft"),
    run,
};

fn run(bench: &Bench) -> Result<Report> {
    bench.only_embedded("the draft that was distilled from it")?;
    let context = Some(bench.model.context());
    let options = LoadOptions { context, ..LoadOptions::default() };
    let draft = Model::embedded(DRAFT.name, DRAFT.config, DRAFT.weights, options)?;
    let draft = Arc::new(draft);
    let prompt = bench.tokenizer.encode(&Bench::tale(0))?;
    let [clean, broken] =
        [Side::Clean, Side::Broken].map(|side| sampled(bench, &draft, &prompt, rule(side)));
    let (clean, broken) = (clean?, broken?);
    let [exact, without] = laws(bench, &draft, &prompt, &clean)?;
    let differ =
        |(a, b): (&Vec<f64>, &Vec<f64>)| a.iter().zip(b).any(|(a, b)| (a - b).abs() > 1e-3);
    Ok(Report {
        name: NO_RESIDUAL.name,
        package: NO_RESIDUAL.package,
        cites: NO_RESIDUAL.cites,
        symptom: NO_RESIDUAL.symptom,
        prompt: bench.tokenizer.decode(&prompt)?,
        tried: 1,
        first_difference: clean.iter().zip(&broken).position(|(a, b)| a != b),
        first_logit_difference: exact.iter().zip(&without).position(differ),
        surprise: Surprise { clean: surprise(&exact, &clean), broken: surprise(&without, &clean) },
        guard: check(NO_RESIDUAL.guard, is_exact),
        weaker_test: NO_RESIDUAL.weaker_test.map(|what| check(what, greedy_is_the_same)),
        recall: None,
        clean: text(bench, &prompt, &clean)?,
        broken: text(bench, &prompt, &broken)?,
    })
}

/// A text written by speculation at temperature 1, the same random numbers under every rule.
fn sampled(bench: &Bench, draft: &Arc<Model>, prompt: &[u32], rule: Rule) -> Result<Vec<u32>> {
    let model = bench.model.clone();
    let cache = with_room_for_trees(&model, model.context())?;
    let proposer = DraftModel::new(draft.clone(), &model)?;
    let sampler = Sampler::new(sampling())?;
    let request = Request { prompt: prompt.to_vec(), tokens: TOKENS, end_tokens: Vec::new() };
    let depth = Depth::Fixed(DEPTH);
    let mut text =
        Speculation::new(model, cache, proposer, sampler, depth, request)?.with_rule(rule);
    while text.advance()?.is_some() {}
    Ok(text.context()[prompt.len()..].to_vec())
}

/// A chance for every token, `[vocab]`.
type Law = Vec<f64>;

/// By token of a text, what it would be drawn by if a draft were asked there: `p` under the rule, and without the
/// residual `min(p, q) + (1 - sum min(p, q)) p`.
fn laws(bench: &Bench, draft: &Arc<Model>, prompt: &[u32], text: &[u32]) -> Result<[Vec<Law>; 2]> {
    let whole = [prompt, text].concat();
    let said_by = |model: &Arc<Model>| {
        let attention = NaiveAttention::new(model.isa);
        let mut executor = CpuExecutor { model: model.clone(), attention };
        let span = Span::new(0, 0, &whole[..whole.len() - 1], Want::All);
        executor.execute(&Pass::one(span))
    };
    let (target, draft) = (said_by(&bench.model)?, said_by(draft)?);
    let sampler = Sampler::new(sampling())?;
    let mut laws = [Vec::new(), Vec::new()];
    for row in prompt.len() - 1..whole.len() - 1 {
        let law = |logits: &ndarray::Array2<f32>| -> Result<Law> {
            let p = sampler.distribution(&logits.row(row).to_vec(), &whole[..=row])?;
            Ok(p.into_iter().map(f64::from).collect())
        };
        let (p, q) = (law(&target)?, law(&draft)?);
        let kept: f64 = p.iter().zip(&q).map(|(p, q)| p.min(*q)).sum();
        laws[1].push(p.iter().zip(&q).map(|(p, q)| p.min(*q) + (1.0 - kept) * p).collect());
        laws[0].push(p);
    }
    Ok(laws)
}

/// -log2 of the chance that each law gives to its token, to a hundredth of a bit.
fn surprise(laws: &[Law], tokens: &[u32]) -> Vec<f64> {
    let bits = |(law, &token): (&Law, &u32)| {
        (-libm::log2(law[token as usize]) * 100.0).round() / 100.0 + 0.0
    };
    laws.iter().zip(tokens).map(bits).collect()
}

fn is_exact(side: Side) -> Result<()> {
    for draft in DRAFTS {
        let found = distance(rule(side), draft, &sampling())?;
        if found >= BOUND {
            let what = format!("chi-square by degrees of freedom with {draft:?}");
            return Err(Error::invalid(what, format!("{found:.1}"), format!("below {BOUND}")));
        }
    }
    Ok(())
}

fn greedy_is_the_same(side: Side) -> Result<()> {
    let greedy = |rule: Rule, draft| write(rule, draft, &mut Sampler::new(Sampling::default())?);
    let expected = greedy(accept, DRAFTS[0])?;
    for draft in DRAFTS {
        let found = greedy(rule(side), draft)?;
        if found != expected {
            let what = format!("greedy text with {draft:?}");
            return Err(Error::invalid(what, format!("{found:?}"), format!("{expected:?}")));
        }
    }
    Ok(())
}

fn check(what: &'static str, run: fn(Side) -> Result<()>) -> Check {
    let said = |side| run(side).err().map(|error| error.to_string());
    Check { what, on_clean: said(Side::Clean), on_broken: said(Side::Broken) }
}

fn text(bench: &Bench, prompt: &[u32], tokens: &[u32]) -> Result<Text> {
    let mut stream = bench.tokenizer.stream_after(prompt);
    let tokens = tokens.iter().map(|&token| stream.push(token)).collect::<Result<Vec<String>>>()?;
    Ok(Text { text: tokens.concat(), tokens })
}
