//! Tokens a second, plain and by speculation, as more and more texts share a pass.
//!
//!     cargo run --release -p speculative --example measure_batch
//!     cargo run --release -p speculative --example measure_batch -- --model WHAT   # by prompt lookup

mod family;

use anyhow::{Result, ensure};
use clap::Parser;
use family::Family;
use model_files::ModelArgs;
use naive_decode::measurement::{Measurement, Series, median};
use naive_decode::{CpuExecutor, Executor, Pass, Sampler, Sampling, Span, Want};
use paged_cache::{PagedCache, Room};
use speculative::tasks::Task;
use speculative::{Guesser, Nothing, Proposer, accept};
use std::path::PathBuf;
use std::time::Instant;

const BATCHES: [usize; 6] = [1, 2, 4, 8, 16, 32];
const ROUNDS: usize = 5;
const TOKENS: usize = 64;
const DEPTHS: [usize; 3] = [0, 3, 7];
const CONTEXT: usize = 512;

/// Measures what speculation brings as batches grow.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    model: ModelArgs,
    /// Also write the raw samples to this file.
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

/// A text among others.
struct Text {
    sequence: usize,
    prompt: usize,
    context: Vec<u32>,
    proposer: Box<dyn Proposer>,
    sampler: Sampler,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let family = Family::new(&arguments.model, CONTEXT)?;
    // A draft model where there is one, else prompt lookup.
    let guesser = family.guessers()[0];
    let mut series = DEPTHS.map(|depth| Series {
        name: if depth == 0 { "plain".into() } else { format!("drafts of {depth}") },
        unit: "tokens a second".into(),
        points: Vec::new(),
    });
    println!("tokens a second, median of {ROUNDS}: tales, {}\n", guesser.name());
    println!("{:>6} {:>10} {:>12} {:>12}", "texts", series[0].name, series[1].name, series[2].name);
    for batch in BATCHES {
        let prompts: Vec<Vec<u32>> = (0..batch as u64)
            .map(|number| family.tokenizer.encode(&Task::Prose.prompt(number)))
            .collect::<naive_decode::Result<_>>()?;
        let mut samples = [const { Vec::new() }; DEPTHS.len()];
        for _ in 0..ROUNDS {
            let mut plain = Vec::new();
            for (&depth, samples) in DEPTHS.iter().zip(&mut samples) {
                let (rate, texts) = write(&family, guesser, &prompts, depth)?;
                if depth == 0 {
                    plain = texts;
                } else {
                    ensure!(texts == plain, "drafts of {depth} gave other texts");
                }
                samples.push(rate);
            }
        }
        let [plain, three, seven] = [0, 1, 2].map(|s: usize| median(&samples[s]));
        println!("{batch:>6} {plain:>10.0} {three:>12.0} {seven:>12.0}");
        for (series, samples) in series.iter_mut().zip(samples) {
            series.points.push((batch as f64, samples));
        }
    }
    let series = series.to_vec();
    Measurement::by("speculative", "measure_batch", series).keep(arguments.json.as_deref())?;
    Ok(())
}

/// Writes all texts together, greedy, a cycle of each in every pass; tokens a second without the prompts.
fn write(
    family: &Family,
    guesser: Guesser,
    prompts: &[Vec<u32>],
    depth: usize,
) -> Result<(f64, Vec<Vec<u32>>)> {
    let model = &family.model;
    let room = Room::for_tokens(model, prompts.len() * model.context().min(2 * CONTEXT))?;
    let attention = PagedCache::new(model, room)?;
    let mut executor = CpuExecutor { model: model.clone(), attention };
    let mut texts = Vec::new();
    for prompt in prompts {
        let sequence = executor.attention.open();
        let before = &prompt[..prompt.len() - 1];
        executor.execute(&Pass::one(Span::new(sequence, 0, before, Want::Nothing)))?;
        let mut proposer: Box<dyn Proposer> = match depth {
            0 => Box::new(Nothing),
            _ => family.proposer(guesser)?,
        };
        let mut sampler = Sampler::new(Sampling::default())?;
        proposer.propose(prompt, depth.min(1), &mut sampler)?; // it reads its prompt, too
        let (prompt, context) = (prompt.len(), prompt.clone());
        texts.push(Text { sequence, prompt, context, proposer, sampler });
    }
    let began = Instant::now();
    let mut tokens = 0;
    while texts.iter().any(|text| text.context.len() < text.prompt + TOKENS) {
        tokens += cycle(&mut executor, &mut texts, depth)?;
    }
    let rate = tokens as f64 / began.elapsed().as_secs_f64();
    let written = |text: Text| text.context[text.prompt..text.prompt + TOKENS].to_vec();
    Ok((rate, texts.into_iter().map(written).collect()))
}

/// One pass over everyone who has not finished; the tokens that came of it.
fn cycle(
    executor: &mut CpuExecutor<PagedCache>,
    texts: &mut [Text],
    depth: usize,
) -> Result<usize> {
    let running = texts.iter_mut().filter(|text| text.context.len() < text.prompt + TOKENS);
    let mut running: Vec<&mut Text> = running.collect();
    let mut trees = Vec::new();
    let mut pass = Pass::default();
    for text in &mut running {
        // No deeper than the text may still grow: the pass adds a token of its own.
        let depth = depth.min(text.prompt + TOKENS - text.context.len() - 1);
        let tree = text.proposer.propose(&text.context, depth, &mut text.sampler)?;
        pass.spans.push(tree.span(text.sequence, &text.context)?);
        trees.push(tree);
    }
    let logits = executor.execute(&pass)?;
    let mut tokens = 0;
    for ((text, tree), (span, rows)) in running.into_iter().zip(&trees).zip(pass.spans_with_rows())
    {
        let logits = logits.slice(ndarray::s![rows, ..]);
        let accepted = accept(&mut text.sampler, &mut text.context, tree, logits)?;
        let slots = accepted.path.iter().map(|node| span.start + 1 + node);
        let slots: Vec<usize> = std::iter::once(span.start).chain(slots).collect();
        executor.attention.keep(text.sequence, span.start, &slots)?;
        text.context.extend(accepted.path.iter().map(|&node| tree.nodes()[node].token));
        text.context.push(accepted.next);
        tokens += accepted.path.len() + 1;
    }
    Ok(tokens)
}
