//! `ladder simulate`: what a deployment would do, without having it.
//!
//! | File | Holds |
//! |---|---|
//! | `subject.rs` | what is simulated: a shape, or a model whose files are here |
//! | `machine.rs` | this machine's two limits, measured |
//! | `drive.rs` | a real engine under the load of some clients, every step timed |
//! | `calibrate.rs` | what passes of that engine take |
//! | `report.rs` | tables, and JSON |

mod calibrate;
mod drive;
mod machine;
mod report;
mod subject;

pub use calibrate::calibrate;
pub use drive::{Driven, Task, drive};
pub use machine::this_machine;
pub use subject::{of_files, storage_of};

use crate::device;
use crate::engine::EngineOptions;
use crate::engine::policy::Budget;
use crate::load::Load;
use crate::load::sizes::{Size, Spread};
use crate::packed::{Keep, load_packed};
use crate::say::say;
use crate::simulator::{
    Card, Deployment, Fitted, Hardware, KvMethod, PassTime, SimulatedModel, Speculation, Storage,
    Workload, simulate,
};
use crate::trace::Batching;
use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use flash_attention::packed::Weights;
use flash_attention::threads::Pool;
use indicatif::ProgressBar;
use model_files::ModelArgs;
use naive_decode::LoadOptions;
use report::{Drawn, Report};
use std::sync::Arc;

/// Texts as long as this are timed, if a load has any.
const DEEPEST: usize = 512;

/// Tokens of a block.
const BLOCK: usize = 16;

/// How lengths lie around their mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Lengths {
    /// Many short ones, some several times as long
    Exponential,
    /// All alike
    Fixed,
}

impl Lengths {
    fn spread(self) -> Spread {
        match self {
            Lengths::Exponential => Spread::Exponential,
            Lengths::Fixed => Spread::Fixed,
        }
    }
}

/// What to simulate.
#[derive(Debug, Clone, Args)]
pub struct SimulateArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// A published model by its shape alone: smollm2-135m, llama-2-7b, llama-2-13b, llama-2-70b, llama-3-8b,
    /// llama-3-70b, mistral-7b
    #[arg(long, value_name = "NAME", conflicts_with = "model")]
    shape: Option<String>,
    #[command(flatten)]
    hardware: HardwareArgs,
    #[command(flatten)]
    storage: StorageArgs,
    /// How requests share passes
    #[arg(long, value_enum, default_value_t = Batching::Continuous)]
    batching: Batching,
    /// Rows of a pass, at most; as many as `ladder serve` takes if not given, 1,024 on a card and 256 on this machine
    #[arg(long)]
    rows: Option<usize>,
    /// Requests that run at once, at most
    #[arg(long, default_value_t = 32)]
    running: usize,
    /// Tokens that the pool has room for; on a card all that fits beside the weights if not given, on this
    /// machine as much as `ladder serve` takes
    #[arg(long, value_name = "N")]
    pool_tokens: Option<usize>,
    #[command(flatten)]
    guesses: GuessArgs,
    #[command(flatten)]
    load: Load,
    /// Instead of arrivals: so many clients, of which each asks again as soon as it has its answer
    #[arg(long, value_name = "N", conflicts_with = "per_second")]
    clients: Option<usize>,
    /// How lengths of prompts and answers lie around their mean
    #[arg(long, value_enum, default_value_t = Lengths::Exponential)]
    lengths: Lengths,
    /// Print one JSON object, with every request
    #[arg(long)]
    json: bool,
}

/// What it runs on.
#[derive(Debug, Clone, Args)]
struct HardwareArgs {
    /// What to run on: this (this machine, measured), l4, rtx-4090, l40s, a100, h100, h200
    #[arg(long, value_name = "NAME", default_value = "this")]
    hardware: String,
    /// Cards that share the model
    #[arg(long, default_value_t = 1)]
    cards: usize,
    /// Memory of one, if it is not what the name says
    #[arg(long, value_name = "GB")]
    memory: Option<f64>,
    /// What memory gives one, if it is not what the name says
    #[arg(long, value_name = "GB/s")]
    bandwidth: Option<f64>,
    /// What arithmetic one does, if it is not what the name says
    #[arg(long, value_name = "TFLOP/s")]
    tflops: Option<f64>,
    /// What an hour of one costs
    #[arg(long)]
    price: Option<f64>,
}

/// How weights, keys and values are stored.
#[derive(Debug, Clone, Args)]
struct StorageArgs {
    /// Bits of a weight, scales included; 16 if not given
    #[arg(long, value_name = "BITS")]
    weight_bits: Option<f64>,
    /// What is kept of a token: model (the model's own), mha, mqa, gqa:GROUPS, mla, mla:LATENT+ROPE
    #[arg(long, value_name = "METHOD")]
    kv: Option<KvMethod>,
    /// Bits of each number that is kept; 16 if not given
    #[arg(long, value_name = "BITS")]
    kv_bits: Option<f64>,
    /// Tokens back that every layer looks, if not what the model says. What lies behind is let go of here; `ladder serve`
    /// keeps it, as prefixes are shared
    #[arg(long, value_name = "N")]
    window: Option<usize>,
}

/// Who guesses.
#[derive(Debug, Clone, Copy, Args)]
struct GuessArgs {
    /// Tokens to guess ahead for each text; 0 for none
    #[arg(long, default_value_t = 0)]
    draft: usize,
    /// How often a guess comes true
    #[arg(long, default_value_t = 0.8)]
    acceptance: f64,
    /// What guessing a token takes, as a part of a pass of the model
    #[arg(long, default_value_t = 0.0)]
    draft_cost: f64,
}

/// Simulates a deployment and prints what it would do: what the roofline allows, and a run.
///
/// # Errors
/// Whatever is wrong with the model, the numbers, or their going together.
pub fn run(args: &SimulateArgs) -> Result<()> {
    let is_here = args.hardware.is_this_machine();
    let deployment = match (&args.shape, is_here) {
        (Some(name), _) => {
            let model = subject::of_shape(subject::named(name)?, args.storage.asked())?;
            args.deployment(model, args.hardware.open()?)
        }
        (None, false) => {
            let files = args.model.files()?;
            let context = files.config.trained_context;
            let model = of_files(&files, context, args.storage.asked())?;
            args.deployment(model, args.hardware.open()?)
        }
        (None, true) => args.measured()?,
    };
    let Load { prompt_tokens, answer_tokens, .. } = args.load;
    let bounds = deployment.bounds(prompt_tokens, answer_tokens)?;
    // What cannot be asked is refused first. What does not fit is shown, and where it does not.
    let run = match deployment.longest() {
        Ok(longest) => {
            let workload = args.workload(longest)?;
            let drawn = Drawn::of(&workload.sizes, args.lengths.spread(), longest);
            Ok((drawn, simulate(&deployment, &workload)?))
        }
        Err(does_not_fit) => Err(does_not_fit),
    };
    if !args.json {
        report::print_bounds(&deployment, &bounds, prompt_tokens, answer_tokens)?;
    }
    let (drawn, outcome) = run?;
    match args.json {
        true => {
            let report = Report::new(&deployment, bounds, drawn, outcome);
            say!("{}", serde_json::to_string_pretty(&report)?)?;
        }
        false => report::print_outcome(&deployment, &drawn, &outcome)?,
    }
    Ok(())
}

impl SimulateArgs {
    fn rows(&self) -> usize {
        self.rows.unwrap_or(match self.hardware.is_this_machine() {
            true => EngineOptions::ROWS,
            false => device::ROWS,
        })
    }

    fn workload(&self, longest: usize) -> Result<Workload> {
        self.load.check_fits(longest)?;
        let sizes = self.load.sizes(self.lengths.spread()).draw(longest)?;
        Ok(Workload { sizes, clients: self.clients, seed: self.load.seed })
    }

    /// A deployment whose passes take what the roofline allows.
    fn deployment(&self, model: SimulatedModel, hardware: Hardware) -> Deployment {
        Deployment {
            model,
            pass_time: PassTime::Roofline(hardware.machine()),
            hardware,
            policy: self.batching.policy(),
            budget: Budget { rows: self.rows(), running: self.running },
            block: BLOCK,
            pool_tokens: self.pool_tokens,
            speculation: self.guesses.asked(),
        }
    }

    /// The model itself on this machine: its passes are timed.
    fn measured(&self) -> Result<Deployment> {
        let StorageArgs { weight_bits, kv, kv_bits, window } = &self.storage;
        let is_other =
            weight_bits.is_some() || kv.is_some() || kv_bits.is_some() || window.is_some();
        ensure!(
            !is_other,
            "how the model is stored is measured with it on this machine: --weight-bits, --kv, --kv-bits and \
             --window go with --shape or a card's name"
        );
        let HardwareArgs { cards, bandwidth, tflops, .. } = &self.hardware;
        ensure!(
            *cards == 1 && bandwidth.is_none() && tflops.is_none(),
            "this machine is measured: --cards, --bandwidth and --tflops go with --shape or a card's name"
        );
        let files = self.model.files()?;
        let pool = Pool::shared();
        let load = LoadOptions::default();
        let loaded = load_packed(&files, Weights::AsStored, load, &pool, Keep::Slow)?;
        let model = Arc::new(loaded.model);
        let counted = of_files(&files, model.context(), storage_of(&files, &model)?)?;
        // No more are timed side by side than will ever be there.
        let side_by_side = self.running.min(self.clients.unwrap_or(self.load.requests)).max(1);
        let options = EngineOptions {
            rows: self.rows(),
            running: side_by_side,
            queue: side_by_side,
            ..EngineOptions::for_model(&model)?
        };
        let usual = options.pool_bytes / model.kv_bytes_per_token() / BLOCK * BLOCK;
        let mut deployment = self.deployment(counted, self.hardware.open()?);
        deployment.pool_tokens = self.pool_tokens.or(Some(usual));
        deployment.check()?;
        let longest = deployment.longest()?;
        let workload = self.workload(longest)?;
        let lengths = workload.sizes.iter().map(|size: &Size| size.prompt + size.answer);
        // Beside it, an answer of a few tokens must fit.
        let depth = lengths.max().unwrap_or(1).clamp(64, DEEPEST).min(longest / 2);
        let bar = ProgressBar::new(0);
        let passes = calibrate(&model, &deployment.model, &options, depth, &bar)?;
        bar.finish_and_clear();
        let fitted = Fitted::to(&passes, deployment.model.head_share())?;
        deployment.pass_time = PassTime::Measured(fitted);
        Ok(deployment)
    }
}

impl HardwareArgs {
    fn is_this_machine(&self) -> bool {
        self.hardware == "this"
    }

    /// This machine, or cards.
    fn open(&self) -> Result<Hardware> {
        let memory_bytes = self.memory.map(|gb| gb * 1e9);
        let mut one = match self.is_this_machine() {
            true => this_machine(Pool::shared().threads(), memory_bytes)?,
            false => Hardware::from(Card::named(&self.hardware)?),
        };
        one.memory_bytes = memory_bytes.unwrap_or(one.memory_bytes);
        one.bytes_per_second = self.bandwidth.map_or(one.bytes_per_second, |gb| gb * 1e9);
        one.flops_per_second = self.tflops.map_or(one.flops_per_second, |tera| tera * 1e12);
        one.price_per_hour = self.price.or(one.price_per_hour);
        Ok(one.times(self.cards)?)
    }
}

impl StorageArgs {
    fn asked(&self) -> Storage {
        Storage {
            weight_bits: self.weight_bits.unwrap_or(Storage::BF16.weight_bits),
            method: self.kv.unwrap_or(KvMethod::OfTheModel),
            window: self.window,
            kv_bits: self.kv_bits.unwrap_or(Storage::BF16.kv_bits),
        }
    }
}

impl GuessArgs {
    fn asked(&self) -> Speculation {
        let GuessArgs { draft, acceptance, draft_cost: cost } = *self;
        Speculation { draft, acceptance, cost }
    }
}
