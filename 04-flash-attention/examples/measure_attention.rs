//! What attention moves and how long it takes, against length: the textbook forms on one head of a prompt, and
//! a decode step over the caches of rungs 02 and 04.
//!
//!     cargo run --release -p flash-attention --example measure_attention

use anyhow::{Result, ensure};
use clap::Parser;
use flash_attention::traffic::Traffic;
use flash_attention::{FlashCache, Head, Tiling, flash_decoding, flash_v1, flash_v2, standard};
use indicatif::{ProgressBar, ProgressStyle};
use kv_cache::{Cached, ContiguousStore, KvCache, KvShape};
use model_files::ModelArgs;
use naive_decode::break_it::noise;
use naive_decode::measurement::{Measurement, Series, median};
use naive_decode::roofline::probe::Memory;
use naive_decode::{Config, Element, Isa, KvSize, LayerSpec, Pass, Span, Want};
use ndarray::{Array2, Array3};
use std::path::PathBuf;
use std::time::Instant;

/// Lengths of a prompt.
const PROMPTS: [usize; 4] = [128, 256, 512, 1024];
/// Lengths of what a decode step looks back on.
const PASTS: [usize; 5] = [128, 512, 1024, 2048, 4096];
const ROUNDS: usize = 9;

/// The fast memory that a head's tiles are cut for.
const FAST_BYTES: usize = 64 << 10;

/// What attention is of.
#[derive(Clone, Copy)]
struct Shape {
    layers: usize,
    heads: usize,
    kv_heads: usize,
    /// Of a head.
    dim: usize,
}

impl Shape {
    /// The model's, or that of a model of 135 million parameters, whose layers together keep more than a
    /// processor's caches hold.
    fn of(model: &ModelArgs) -> Result<Self> {
        if model.is_embedded() {
            return Ok(Shape { layers: 30, heads: 9, kv_heads: 3, dim: 64 });
        }
        let Config { layers, heads, kv_heads, head_dim: dim, .. } = model.files()?.config;
        Ok(Shape { layers, heads, kv_heads, dim })
    }

    fn size(self) -> KvSize {
        KvSize { heads: self.kv_heads, key_dim: self.dim, value_dim: self.dim }
    }

    fn tiling(self) -> Tiling {
        Tiling::fitting(FAST_BYTES, self.dim)
    }

    fn layer(self, index: usize, window: Option<usize>) -> LayerSpec {
        let scale = 1.0 / (self.dim as f32).sqrt();
        LayerSpec { index, kv_layer: index, window, scale, score_cap: None }
    }

    fn numbers(self, seed: u64, rows: usize, heads: usize) -> Array3<f32> {
        let numbers = noise(seed, rows * heads * self.dim);
        Array3::from_shape_vec((rows, heads, self.dim), numbers).expect("as many numbers as asked")
    }

    /// Keys and values as a model would have rounded them.
    fn keys_values(self, seed: u64, rows: usize, element: Element) -> (Array3<f32>, Array3<f32>) {
        let rounded = |seed| {
            let mut x = self.numbers(seed, rows, self.kv_heads);
            element.round(x.as_slice_mut().expect("fresh arrays are contiguous"));
            x
        };
        (rounded(seed), rounded(seed + 1))
    }
}

/// Measures bytes and time of attention against length.
#[derive(Parser)]
struct Arguments {
    /// Whose shape attention has; that of 135 million parameters if not given
    #[command(flatten)]
    model: ModelArgs,
    /// Also write the raw samples to this file
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let style = ProgressStyle::with_template("measuring {bar:40} {pos}/{len}  {eta} left")?;
    let steps = ROUNDS * (PROMPTS.len() + PASTS.len());
    let bar = ProgressBar::new(steps as u64).with_style(style);
    let shape = Shape::of(&arguments.model)?;
    let mut series = prompts(shape, &bar)?;
    let decode = decode(shape, &bar)?;
    bar.finish_and_clear();
    print_prompts(shape, &series);
    print_decode(shape, &decode);
    series.extend(decode);
    Measurement::by("flash-attention", "measure_attention", series)
        .keep(arguments.json.as_deref())?;
    Ok(())
}

fn series(name: &str, unit: &str) -> Series {
    Series { name: name.into(), unit: unit.into(), points: Vec::new() }
}

type Form = fn(&Head, Tiling, &Traffic) -> Array2<f32>;

const FORMS: [(&str, Form); 4] = [
    ("standard", |head, _, traffic| standard(head, traffic)),
    ("FlashAttention v1", flash_v1),
    ("FlashAttention v2", flash_v2),
    ("Flash-Decoding", |head, _, traffic| flash_decoding(head, 1, traffic)),
];

/// One head of a causal prompt: bytes moved, then time, of each form.
fn prompts(shape: Shape, bar: &ProgressBar) -> Result<Vec<Series>> {
    let named =
        |unit: &'static str| FORMS.map(|(name, _)| series(&format!("{name}: {unit}"), unit));
    let (mut moved, mut time) = (named("MB moved"), named("ms"));
    for length in PROMPTS {
        let matrix =
            |seed| Array2::from_shape_vec((length, shape.dim), noise(seed, length * shape.dim));
        let (q, k, v) = (matrix(1)?, matrix(2)?, matrix(3)?);
        let sees: Vec<_> = (1..=length).map(|end| 0..end).collect();
        let (queries, keys, values) = (q.view(), k.view(), v.view());
        let head =
            Head { isa: Isa::best(), scale: 0.2, cap: None, queries, keys, values, sees: &sees };
        let expected = standard(&head, &Traffic::new());
        let mut samples = FORMS.map(|_| Vec::new());
        for round in 0..ROUNDS {
            for (i, (name, form)) in FORMS.into_iter().enumerate() {
                let traffic = Traffic::new();
                let started = Instant::now();
                let found = form(&head, shape.tiling(), &traffic);
                samples[i].push(started.elapsed().as_secs_f64() * 1e3);
                ensure!(found == expected, "{name} gives other bits");
                if round == 0 {
                    let megabytes = traffic.total().moved() as f64 / 1e6;
                    moved[i].points.push((length as f64, vec![megabytes]));
                }
            }
            bar.inc(1);
        }
        for (series, samples) in time.iter_mut().zip(samples) {
            series.points.push((length as f64, samples));
        }
    }
    Ok(moved.into_iter().chain(time).collect())
}

/// A decode step through all layers: time per cache, and the bandwidth probe beside it.
fn decode(shape: Shape, bar: &ProgressBar) -> Result<Vec<Series>> {
    let memory = Memory::new();
    let threads = rayon::current_num_threads();
    let mut series = ["contiguous f32", "tiles f32", "contiguous bf16", "tiles bf16"]
        .map(|name| series(name, "ms"))
        .to_vec();
    series.push(Series { name: "memory read".into(), unit: "GB/s".into(), points: Vec::new() });
    for past in PASTS {
        let mut samples = vec![Vec::new(); series.len()];
        for (e, element) in [Element::F32, Element::Bf16].into_iter().enumerate() {
            let Shape { layers, kv_heads, dim, .. } = shape;
            let kept = KvShape { layers, kv_heads, key_dim: dim, value_dim: dim, element };
            let isa = Isa::best();
            let sizes = vec![Some(shape.size()); layers];
            let mut slab = Cached::new(ContiguousStore::new(kept, past + 1, 1)?, isa);
            let mut tiles = FlashCache::of_sizes(&sizes, element.into(), isa, past + 1, 1)?;
            fill(shape, &mut slab, past, element)?;
            fill(shape, &mut tiles, past, element)?;
            for _ in 0..ROUNDS {
                // In turns, so that no side has the quieter minutes.
                let (slab_ms, expected) = step(shape, &mut slab, past, element)?;
                let (tiles_ms, found) = step(shape, &mut tiles, past, element)?;
                ensure!(found == expected, "the caches disagree");
                samples[2 * e].push(slab_ms);
                samples[2 * e + 1].push(tiles_ms);
                samples[4].push(memory.read_rate(threads) / 1e9);
                if e == 0 {
                    bar.inc(1);
                }
            }
        }
        for (series, samples) in series.iter_mut().zip(samples) {
            series.points.push((past as f64, samples));
        }
    }
    Ok(series)
}

/// Writes so many tokens to every layer. Each row sees itself only, which is soon done.
fn fill(shape: Shape, cache: &mut impl KvCache, past: usize, element: Element) -> Result<()> {
    let pass = Pass::one(Span::new(0, 0, &vec![0; past], Want::Nothing));
    cache.begin(&pass)?;
    for index in 0..shape.layers {
        let (k, v) = shape.keys_values(2 * index as u64, past, element);
        cache.attend(shape.layer(index, Some(1)), &pass, k.view(), k.view(), v.view())?;
    }
    cache.commit(&pass);
    Ok(())
}

/// One row through all layers, and back again; milliseconds, and all layers' answers.
fn step(
    shape: Shape,
    cache: &mut impl KvCache,
    past: usize,
    element: Element,
) -> Result<(f64, Vec<Array3<f32>>)> {
    let pass = Pass::one(Span::new(0, past, &[0], Want::Last));
    let q = shape.numbers(7, 1, shape.heads);
    let (k, v) = shape.keys_values(5, 1, element);
    cache.begin(&pass)?;
    let started = Instant::now();
    // One entry into the thread pool for all layers, as the model has it.
    let mut answers = Vec::with_capacity(shape.layers);
    rayon::scope(|_| {
        for index in 0..shape.layers {
            let layer = shape.layer(index, None);
            answers.push(cache.attend(layer, &pass, q.view(), k.view(), v.view()));
        }
    });
    let took = started.elapsed().as_secs_f64() * 1e3;
    Ok((took, answers.into_iter().collect::<Result<_, _>>()?))
}

fn print_prompts(shape: Shape, series: &[Series]) {
    let Tiling { queries, keys } = shape.tiling();
    println!(
        "\none head of a causal prompt, {} wide, tiles of {queries} queries and {keys} keys\n",
        shape.dim
    );
    print!("{:>7}", "length");
    FORMS.iter().for_each(|(name, _)| print!(" {:>26}", name));
    println!();
    for (i, length) in PROMPTS.iter().enumerate() {
        print!("{length:>7}");
        for form in 0..FORMS.len() {
            let (moved, time) =
                (&series[form].points[i].1, &series[form + FORMS.len()].points[i].1);
            print!(" {:>12.2} MB {:>8.2} ms", median(moved), median(time));
        }
        println!();
    }
}

fn print_decode(shape: Shape, series: &[Series]) {
    println!(
        "\none row, {} layers, {} query heads on {} KV heads, median of {ROUNDS}\n",
        shape.layers, shape.heads, shape.kv_heads
    );
    println!("{:>7} {:>40} {:>42} {:>12}", "", "f32", "bf16", "probe");
    println!(
        "{:>7} {:>11} {:>10} {:>9} {:>7} {:>12} {:>10} {:>9} {:>7} {:>12}",
        "past",
        "slab ms",
        "tiles ms",
        "GB/s",
        "share",
        "slab ms",
        "tiles ms",
        "GB/s",
        "share",
        "GB/s"
    );
    for (i, past) in PASTS.iter().enumerate() {
        let [slab, tiles, slab16, tiles16, read] =
            [0, 1, 2, 3, 4].map(|s: usize| median(&series[s].points[i].1));
        let gigabytes = |element: Element| {
            (shape.layers * past * shape.size().numbers() * element.bytes()) as f64 / 1e9
        };
        let (rate, rate16) =
            (gigabytes(Element::F32) / tiles * 1e3, gigabytes(Element::Bf16) / tiles16 * 1e3);
        println!(
            "{past:>7} {slab:>11.3} {tiles:>10.3} {rate:>9.1} {:>6.0}% {slab16:>12.3} {tiles16:>10.3} {rate16:>9.1} {:>6.0}% {read:>12.1}",
            100.0 * rate / read,
            100.0 * rate16 / read
        );
    }
}
