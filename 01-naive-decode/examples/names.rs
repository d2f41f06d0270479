//! Lets microGPT make up names.
//!
//!     cargo run --release -p naive-decode --example names -- --temperature 0.7 --seed 3

use clap::Parser;
use naive_decode::{MicroGpt, Sampler, Sampling};
use std::collections::HashSet;
use std::error::Error;

/// A 4,192-number language model makes up names, letter by letter.
#[derive(Parser)]
struct Arguments {
    /// How many names.
    #[arg(long, default_value_t = 30)]
    count: usize,
    /// 0 is the same likeliest name every time; 0.5 is cautious, 1 as the model believes, 1.5 wild.
    #[arg(long, default_value_t = 0.7)]
    temperature: f32,
    /// The same seed gives the same names, on every machine.
    #[arg(long, default_value_t = 7)]
    seed: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let Arguments { count, temperature, seed } = Arguments::parse();
    let model =
        MicroGpt::from_bytes(embedded_models::NAMES.config, embedded_models::NAMES.weights)?;
    let mut sampler = Sampler::new(Sampling { temperature, seed, ..Sampling::default() })?;
    let heard: HashSet<&str> = embedded_models::names::iter().collect();
    println!(
        "\n  A very small language model has heard {} names. Now it makes up its own.\n",
        heard.len()
    );

    let (mut remembered, mut steps, mut naive_rows) = (0, 0, 0);
    for i in 0..count {
        let name = one_name(&model, &mut sampler)?;
        let known = heard.contains(name.as_str());
        remembered += usize::from(known);
        // The token that begins it, and each letter. One in the block's last place is not run.
        let positions = (name.len() + 1).min(model.config().block_size);
        steps += positions;
        naive_rows += positions * (positions + 1) / 2;
        let shown = capitalised(&name) + if known { "*" } else { "" };
        print!("  {shown:<14}{}", if i % 5 == 4 || i + 1 == count { "\n" } else { "" });
    }

    println!(
        "\n  {} are its own inventions; * marks the {remembered} that it has heard.\n  \
         Remembering keys and values in lists, it worked through {steps} positions.\n  \
         Reading each name from the start for every letter, it would have been {naive_rows}.\n",
        count - remembered
    );
    Ok(())
}

/// The loop that every language model runs: score, choose, feed back.
fn one_name(model: &MicroGpt, sampler: &mut Sampler) -> Result<String, Box<dyn Error>> {
    let (mut keys, mut values) = (model.empty_lists(), model.empty_lists());
    let mut context = vec![model.config().bos_token_id];
    let mut name = String::new();
    for position in 0..model.config().block_size {
        let logits = model.step(context[position], position, &mut keys, &mut values)?;
        let token = sampler.sample(&logits, &context)?;
        let Some(letter) = model.config().letter(token) else { break };
        name.push(letter);
        context.push(token);
    }
    Ok(name)
}

fn capitalised(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or("(silence)".into(), |first| {
        first.to_uppercase().collect::<String>() + letters.as_str()
    })
}
