//! What was found, as a table and as JSON.

use crate::load::sizes::{Size, Spread};
use crate::say::say;
use crate::simulator::words::{bytes, money, scaled, time};
use crate::simulator::{
    Bounds, Deployment, Fitted, Hardware, Limit, Outcome, PassBound, PassTime, Quantiles,
};
use anyhow::Result;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

/// Everything, for `--json`. Times are seconds, sizes are bytes.
#[derive(Serialize)]
pub(super) struct Report<'a> {
    model: &'a str,
    hardware: &'a Hardware,
    roofline: Bounds,
    /// What passes were measured to take, if they were.
    calibration: Option<&'a Fitted>,
    load: Drawn,
    run: Outcome,
}

/// What lengths were drawn.
#[derive(Serialize)]
pub(super) struct Drawn {
    /// Tokens that a prompt and its answer may have together; a prompt may have half of them.
    longest: usize,
    /// Requests that are as long as they may be: what is drawn longer is cut to that.
    cut: usize,
    /// Tokens of a prompt and of an answer, on average.
    prompt_tokens: f64,
    answer_tokens: f64,
}

impl Drawn {
    pub(super) fn of(sizes: &[Size], spread: Spread, longest: usize) -> Self {
        // Lengths that are fixed fit, or are refused.
        let is_cut = |size: &&Size| {
            spread == Spread::Exponential
                && (size.prompt >= longest / 2 || size.prompt + size.answer >= longest)
        };
        let mean = |of: fn(&Size) -> usize| {
            sizes.iter().map(of).sum::<usize>() as f64 / sizes.len().max(1) as f64
        };
        Drawn {
            longest,
            cut: sizes.iter().filter(is_cut).count(),
            prompt_tokens: mean(|size| size.prompt),
            answer_tokens: mean(|size| size.answer),
        }
    }
}

impl<'a> Report<'a> {
    pub(super) fn new(
        deployment: &'a Deployment,
        roofline: Bounds,
        load: Drawn,
        run: Outcome,
    ) -> Self {
        let calibration = match &deployment.pass_time {
            PassTime::Measured(fitted) => Some(fitted),
            PassTime::Roofline(_) => None,
        };
        let (model, hardware) = (&deployment.model.name, &deployment.hardware);
        Report { model, hardware, roofline, calibration, load, run }
    }
}

/// What the roofline allows.
///
/// # Errors
/// If standard output cannot be written.
pub(super) fn print_bounds(
    deployment: &Deployment,
    bounds: &Bounds,
    prompt: usize,
    answer: usize,
) -> Result<()> {
    let Deployment { model, hardware, .. } = deployment;
    say!("model     {}: {} of weights", model.name, bytes(bounds.weight_bytes))?;
    say!(
        "hardware  {}: {}, {}/s, {}FLOP/s, ridge point {:.1} FLOP a byte",
        hardware.name,
        bytes(hardware.memory_bytes),
        bytes(hardware.bytes_per_second),
        scaled(hardware.flops_per_second),
        bounds.ridge
    )?;
    say!(
        "cache     {} a token, {} for {prompt} + {answer} tokens: {} requests fit beside the weights",
        bytes(bounds.kv_bytes_per_token),
        bytes(bounds.kv_bytes_per_request),
        bounds.requests_that_fit
    )?;
    if deployment.speculation.draft > 0 {
        say!(
            "guesses   {:.2} tokens a step of one text, {:.2} times as fast",
            bounds.tokens_per_step,
            bounds.speculative_speed_up
        )?;
    }
    say!("\nWhat the roofline allows:")?;
    let mut table = table(["pass", "memory", "", "time", "bound by", "tokens/s", "cost of 1M"]);
    let row = |name: String, pass: &PassBound| {
        [
            name,
            bytes(pass.memory_bytes),
            if pass.fits { String::new() } else { "does not fit".into() },
            time(pass.seconds),
            match pass.limit {
                Limit::Memory => "memory".into(),
                Limit::Arithmetic => "arithmetic".into(),
            },
            format!("{:.0}", pass.tokens_per_second),
            money(pass.cost_per_million_tokens),
        ]
    };
    let mut prefill = row(format!("prompt of {prompt}"), &bounds.prefill);
    // One token comes of a prompt, whatever that is a second.
    (prefill[5], prefill[6]) = (String::new(), String::new());
    table.add_row(prefill);
    for pass in &bounds.decode {
        let name = match pass.requests {
            1 => "1 text, a token".to_owned(),
            several => format!("{several} texts, a token each"),
        };
        table.add_row(row(name, pass));
    }
    say!("{table}")
}

/// What became of a run.
///
/// # Errors
/// If standard output cannot be written.
pub(super) fn print_outcome(
    deployment: &Deployment,
    drawn: &Drawn,
    outcome: &Outcome,
) -> Result<()> {
    let how = match &deployment.pass_time {
        PassTime::Roofline(_) => "every pass as the roofline allows: no real one is as fast".into(),
        PassTime::Measured(fitted) => format!(
            "passes as {} of this engine were timed, {:.0} % off in the middle, and {:.0} % longer for what else \
             this machine does",
            fitted.passes,
            100.0 * fitted.typical_error,
            100.0 * (fitted.held_up - 1.0)
        ),
    };
    let Outcome { policy, requests, seconds, .. } = outcome;
    say!("\nA run of {} requests, {policy} batches, {how}:", requests.len())?;
    if drawn.cut > 0 {
        say!(
            "({} of them are cut to what there is room for, {} tokens in all and half of that for a prompt: prompts have {:.0} on \
             average, answers {:.0})",
            drawn.cut,
            drawn.longest,
            drawn.prompt_tokens,
            drawn.answer_tokens
        )?;
    }
    let mut table = table(["", "p50", "p95", "p99"]);
    for (name, Quantiles { p50, p95, p99 }) in
        [("time to first token", outcome.ttft), ("time per token after it", outcome.tpot)]
    {
        table.add_row([name.to_string(), time(p50), time(p95), time(p99)]);
    }
    say!("{table}")?;
    let memory = outcome.memory;
    say!(
        "{:.0} tokens/s, {:.2} requests/s; {seconds:.2} s in all, busy for {:.0} % of it",
        outcome.tokens_per_second,
        outcome.requests_per_second,
        100.0 * outcome.busy
    )?;
    say!(
        "{} passes of {:.1} rows and {:.1} requests; {} gave up a place",
        outcome.passes,
        outcome.rows_per_pass,
        outcome.requests_per_pass,
        outcome.preemptions
    )?;
    if outcome.drafted_tokens > 0 {
        say!("{} of {} guesses came true", outcome.accepted_tokens, outcome.drafted_tokens)?;
    }
    say!(
        "{} of weights and {} of keys and values at most (a pool of {}), of {}",
        bytes(memory.weights),
        bytes(memory.peak_kv),
        bytes(memory.pool),
        bytes(memory.of)
    )?;
    match outcome.cost_per_million_tokens {
        Some(_) => say!("a million tokens cost {}", money(outcome.cost_per_million_tokens)),
        None => say!("what a million tokens cost depends on --price"),
    }
}

fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
