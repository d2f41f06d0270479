//! How near the kernels come to what the machine can do: packed weights, and attention over keys and values in tiles.
//!
//!     cargo run --release -p flash-attention --example measure_kernels

use anyhow::Result;
use clap::Parser;
use comfy_table::{CellAlignment, Table, presets};
use flash_attention::kernels::Simd;
use flash_attention::packed::{Format, Memory as WeightMemory, PackedLinear};
use flash_attention::threads::Pool;
use flash_attention::tile_attention::KvType;
use indicatif::{ProgressBar, ProgressStyle};
use mimalloc::MiMalloc;
use naive_decode::break_it::noise;
use naive_decode::measurement::{Measurement, Series, median};
use naive_decode::roofline::probe::{Memory, fma_rate};
use naive_decode::{Element, Isa, Linear, Pass, Span, Want};
use ndarray::Array2;
use shape::{CHUNK, KEPT_BYTES, PAST, SHAPES, Shape};
use std::hint::black_box;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

#[path = "../benches/attention/shape.rs"]
mod shape;

// As `ladder` has it: with most others, a large array comes from the system anew each time, a page at a time.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Outputs and inputs of a matrix: those of the widest in a model of 135 million parameters.
const MATRIX: [usize; 2] = [1536, 576];

/// Rows of activations: of one text, of a few, of a server's batch, of a prompt.
const ROWS: [usize; 5] = [1, 4, 8, 32, 512];

/// Rows from which on a kernel is held to the machine's arithmetic, and below to its memory.
const MANY_ROWS: usize = 8;

/// Rows that fill a tile of AMX.
const TILE_ROWS: usize = 16;

/// Blocks of memory that are probed. On machines with several memories, where a block lies decides how fast it is read.
const PLACES: usize = 4;

/// Measures the kernels of packed weights and of attention beside memory and arithmetic.
#[derive(Parser)]
struct Arguments {
    /// How often each kernel is measured, and the machine beside it
    #[arg(long, default_value_t = NonZeroUsize::new(9).unwrap())]
    rounds: NonZeroUsize,
    /// Also write the raw samples to this file
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

/// What the machine can do, measured beside each sample.
struct Limits {
    /// How often it is measured, with a kernel after it each time.
    rounds: usize,
    pool: Arc<Pool>,
    simd: Simd,
    memory: [Memory; PLACES],
}

impl Limits {
    /// Bytes a second, of the block that lies best.
    fn memory(&self) -> f64 {
        let rates = self.memory.iter().map(|memory| memory.read_rate(self.pool.threads()));
        rates.fold(0.0, f64::max)
    }

    /// Operations a second for so many rows: products of bytes for weights that are integers, in tiles if rows fill them; two
    /// for activations of two digits; products of BF16 for its fast mode where there are any; multiply-adds of floats for all
    /// else.
    fn arithmetic(&self, format: Option<Format>, rows: usize) -> f64 {
        let dots = match format {
            Some(Format::Q8_0 | Format::Q4_0 | Format::Q4_1) => {
                let in_tiles = (rows >= TILE_ROWS).then(|| self.simd.byte_tile_rate(&self.pool));
                in_tiles.flatten().or_else(|| Some(self.simd.byte_dot_rate(&self.pool)))
            }
            Some(Format::Int8) => Some(self.simd.digit_dot_rate(&self.pool)),
            Some(Format::Bf16Fast) => self.simd.bf16_dot_rate(&self.pool),
            _ => None,
        };
        dots.unwrap_or_else(|| fma_rate(self.pool.threads()))
    }
}

/// One kernel at one size.
struct Measured {
    kernel: String,
    /// "1 row", "decode".
    load: String,
    /// What a run moves or computes, and what the machine can.
    unit: &'static str,
    amount: f64,
    seconds: Vec<f64>,
    limit: Vec<f64>,
}

impl Measured {
    /// Shares of the limit in percent, each sample by the probe beside it.
    fn shares(&self) -> Vec<f64> {
        let pairs = self.seconds.iter().zip(&self.limit);
        pairs.map(|(seconds, limit)| 100.0 * self.amount / seconds / limit).collect()
    }

    /// The raw samples, and the shares that they come to.
    fn series(&self) -> [Series; 3] {
        let Measured { kernel, load, unit, seconds, limit, .. } = self;
        let series = |what: &str, unit: &str, x: f64, samples: Vec<f64>| Series {
            name: format!("{kernel}: {load}{what}"),
            unit: unit.into(),
            points: vec![(x, samples)],
        };
        let times = seconds.iter().map(|s| 1e6 * s).collect();
        let limits = limit.iter().map(|l| l / 1e9).collect();
        [
            series("", "%", 100.0, self.shares()), // of a hundred, so that shares of all kernels stand in one table
            series(", time", "us", self.amount, times),
            series(", limit", &format!("G{unit}/s"), self.amount, limits),
        ]
    }
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let limits = Limits {
        rounds: arguments.rounds.get(),
        pool: Pool::shared(),
        simd: Simd::within(Isa::best()),
        memory: std::array::from_fn(|_| Memory::new()),
    };
    let kinds =
        [KvType::from(Element::F32), Element::Bf16.into(), Element::F16.into(), KvType::Int8];
    let style = ProgressStyle::with_template("measuring {bar:40} {pos}/{len}  {eta} left");
    let steps = Format::ALL.len() * ROWS.len() + SHAPES.len() * (kinds.len() + 1);
    let bar =
        ProgressBar::new(steps as u64).with_style(style.expect("the template is well formed"));
    let mut measured = Vec::with_capacity(steps);
    for format in Format::ALL {
        let matrices = matrices(format, &limits)?;
        for rows in ROWS {
            measured.push(multiply(&limits, &matrices, rows)?);
            bar.inc(1);
        }
    }
    for shape in SHAPES {
        for kind in kinds {
            measured.push(decode(&limits, shape, kind));
            bar.inc(1);
        }
        measured.push(chunk(&limits, shape));
        bar.inc(1);
    }
    bar.finish_and_clear();
    print_table(&measured);
    let series = measured.iter().flat_map(Measured::series).collect();
    Measurement::by("flash-attention", "measure_kernels", series)
        .keep(arguments.json.as_deref())?;
    Ok(())
}

/// As many matrices as no cache holds.
fn matrices(format: Format, limits: &Limits) -> Result<Vec<PackedLinear>> {
    let [outputs, inputs] = MATRIX;
    let (weights, memory) = (noise(1, outputs * inputs), WeightMemory::new(limits.pool.threads()));
    let pack = || {
        let (simd, pool) = (limits.simd, &limits.pool);
        PackedLinear::from_floats(format, &weights, outputs, inputs, simd, pool, &memory)
    };
    let first = pack()?;
    let count = KEPT_BYTES.div_ceil(first.bytes());
    let rest = (1..count).map(|_| pack()).collect::<naive_decode::Result<Vec<_>>>()?;
    Ok(std::iter::once(first).chain(rest).collect())
}

/// `rows` rows through one matrix after another.
fn multiply(limits: &Limits, matrices: &[PackedLinear], rows: usize) -> Result<Measured> {
    let ([outputs, inputs], format) = (MATRIX, matrices[0].format());
    let x = Array2::from_shape_vec((rows, inputs), noise(2, rows * inputs))?;
    let matrices = &matrices[..matrices.len().min((8192 / rows).max(4))];
    let many = rows >= MANY_ROWS;
    let (unit, amount) = match many {
        true => ("op", (2 * rows * outputs * inputs) as f64),
        false => ("B", matrices[0].bytes() as f64),
    };
    let load = if rows == 1 { "1 row".into() } else { format!("{rows} rows") };
    let run = || matrices.iter().for_each(|matrix| drop(black_box(matrix.apply(x.view()))));
    let limit = || if many { limits.arithmetic(Some(format), rows) } else { limits.memory() };
    let (kernel, rounds) = (format.name().into(), limits.rounds);
    Ok(sampled(rounds, kernel, load, (unit, amount), matrices.len(), run, limit))
}

/// A decode step after [`PAST`] tokens, one layer after another.
fn decode(limits: &Limits, shape: Shape, kind: KvType) -> Measured {
    let bytes = shape.layer_bytes(kind);
    let layers = KEPT_BYTES.div_ceil(bytes);
    let mut cache = shape.cache(layers, kind);
    let pass = Pass::one(Span::new(0, PAST, &[0], Want::Last));
    let q = shape.numbers(2, 1, shape.heads, shape.key_dim);
    let k = shape.numbers(3, 1, shape.kv_heads, shape.key_dim);
    let run = || {
        for index in 0..layers {
            black_box(shape.attend(&mut cache, index, &pass, None, q.view(), k.view()));
        }
    };
    let load = format!("decode, {kind}");
    let (kernel, amount) = (shape.name.into(), ("B", bytes as f64));
    sampled(limits.rounds, kernel, load, amount, layers, run, || limits.memory())
}

/// [`CHUNK`] rows of a prompt after [`PAST`] tokens.
fn chunk(limits: &Limits, shape: Shape) -> Measured {
    let mut cache = shape.cache(1, Element::F32.into());
    let pass = Pass::one(Span::new(0, PAST, &[0; CHUNK], Want::Last));
    let q = shape.numbers(2, CHUNK, shape.heads, shape.key_dim);
    let k = shape.numbers(3, CHUNK, shape.kv_heads, shape.key_dim);
    let run = || drop(black_box(shape.attend(&mut cache, 0, &pass, None, q.view(), k.view())));
    let (load, amount) = (format!("{CHUNK} rows"), ("op", shape.chunk_flops() as f64));
    sampled(limits.rounds, shape.name.into(), load, amount, 1, run, || {
        limits.arithmetic(None, CHUNK)
    })
}

/// Runs once to warm up, then limit and kernel in turns. A run is `count` times what is measured.
fn sampled(
    rounds: usize,
    kernel: String,
    load: String,
    (unit, amount): (&'static str, f64),
    count: usize,
    mut run: impl FnMut(),
    limit: impl Fn() -> f64,
) -> Measured {
    run();
    let (mut seconds, mut limits) = (Vec::with_capacity(rounds), Vec::with_capacity(rounds));
    for _ in 0..rounds {
        limits.push(limit());
        let began = Instant::now();
        run();
        seconds.push(began.elapsed().as_secs_f64() / count as f64);
    }
    Measured { kernel, load, unit, amount, seconds, limit: limits }
}

fn print_table(measured: &[Measured]) {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["kernel", "load", "time", "does", "machine does", "share"]);
    for it in measured {
        let (seconds, limit) = (median(&it.seconds), median(&it.limit));
        table.add_row([
            it.kernel.clone(),
            it.load.clone(),
            format!("{:.1} us", 1e6 * seconds),
            format!("{:.1} G{}/s", it.amount / seconds / 1e9, it.unit),
            format!("{:.1} G{}/s", limit / 1e9, it.unit),
            format!("{:.0} %", median(&it.shares())),
        ]);
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{table}");
}
