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
use naive_decode::break_it::noise;
use naive_decode::measurement::{Measurement, Series, median};
use naive_decode::roofline::probe::Memory;
use naive_decode::{Element, Isa, KvSize, LayerSpec, Pass, Span, Want};
use ndarray::{Array2, Array3};
use std::path::PathBuf;
use std::time::Instant;

/// Lengths of a prompt.
const PROMPTS: [usize; 4] = [128, 256, 512, 1024];
/// Lengths of what a decode step looks back on.
const PASTS: [usize; 5] = [128, 512, 1024, 2048, 4096];
const ROUNDS: usize = 9;

/// A head of the prompt, and the fast memory that its tiles are cut for.
const DIM: usize = 64;
const FAST_BYTES: usize = 64 << 10;

/// Decoding as a model of 135 million parameters does it: 30 layers, 9 query heads on 3 KV heads. All
/// layers together are more than a processor's caches hold.
const LAYERS: usize = 30;
const HEADS: usize = 9;
const SIZE: KvSize = KvSize { heads: 3, key_dim: DIM, value_dim: DIM };

/// Measures bytes and time of attention against length.
#[derive(Parser)]
struct Arguments {
    /// Also write the raw samples to this file.
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let style = ProgressStyle::with_template("measuring {bar:40} {pos}/{len}  {eta} left")?;
    let steps = ROUNDS * (PROMPTS.len() + PASTS.len());
    let bar = ProgressBar::new(steps as u64).with_style(style);
    let mut series = prompts(&bar)?;
    let decode = decode(&bar)?;
    bar.finish_and_clear();
    print_prompts(&series);
    print_decode(&decode);
    series.extend(decode);
    Measurement::by("flash-attention", "measure_attention", series)
        .keep(arguments.json.as_deref())?;
    Ok(())
}

fn series(name: &str, unit: &str) -> Series {
    Series { name: name.into(), unit: unit.into(), points: Vec::new() }
}

type Form = fn(&Head, &Traffic) -> Array2<f32>;

const FORMS: [(&str, Form); 4] = [
    ("standard", standard),
    ("FlashAttention v1", |head, traffic| flash_v1(head, tiling(), traffic)),
    ("FlashAttention v2", |head, traffic| flash_v2(head, tiling(), traffic)),
    ("Flash-Decoding", |head, traffic| flash_decoding(head, 1, traffic)),
];

fn tiling() -> Tiling {
    Tiling::fitting(FAST_BYTES, DIM)
}

/// One head of a causal prompt: bytes moved, then time, of each form.
fn prompts(bar: &ProgressBar) -> Result<Vec<Series>> {
    let named =
        |unit: &'static str| FORMS.map(|(name, _)| series(&format!("{name}: {unit}"), unit));
    let (mut moved, mut time) = (named("MB moved"), named("ms"));
    for length in PROMPTS {
        let matrix = |seed| Array2::from_shape_vec((length, DIM), noise(seed, length * DIM));
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
                let found = form(&head, &traffic);
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
fn decode(bar: &ProgressBar) -> Result<Vec<Series>> {
    let memory = Memory::new();
    let threads = rayon::current_num_threads();
    let mut series = ["contiguous f32", "tiles f32", "contiguous bf16", "tiles bf16"]
        .map(|name| series(name, "ms"))
        .to_vec();
    series.push(Series { name: "memory read".into(), unit: "GB/s".into(), points: Vec::new() });
    for past in PASTS {
        let mut samples = vec![Vec::new(); series.len()];
        for (e, element) in [Element::F32, Element::Bf16].into_iter().enumerate() {
            let shape = KvShape {
                layers: LAYERS,
                kv_heads: SIZE.heads,
                key_dim: DIM,
                value_dim: DIM,
                element,
            };
            let isa = Isa::best();
            let sizes = [Some(SIZE); LAYERS];
            let mut slab = Cached::new(ContiguousStore::new(shape, past + 1, 1), isa);
            let mut tiles = FlashCache::of_sizes(&sizes, element.into(), isa, past + 1, 1);
            fill(&mut slab, past, element)?;
            fill(&mut tiles, past, element)?;
            for _ in 0..ROUNDS {
                // In turns, so that no side has the quieter minutes.
                let (slab_ms, expected) = step(&mut slab, past, element)?;
                let (tiles_ms, found) = step(&mut tiles, past, element)?;
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

fn numbers(seed: u64, rows: usize, heads: usize) -> Array3<f32> {
    let numbers = noise(seed, rows * heads * DIM);
    Array3::from_shape_vec((rows, heads, DIM), numbers).expect("as many numbers as asked for")
}

fn layer(index: usize, window: Option<usize>) -> LayerSpec {
    LayerSpec { index, kv_layer: index, window, scale: 1.0 / (DIM as f32).sqrt(), score_cap: None }
}

/// Keys and values as a model would have rounded them.
fn keys_values(seed: u64, rows: usize, element: Element) -> (Array3<f32>, Array3<f32>) {
    let rounded = |seed| {
        let mut x = numbers(seed, rows, SIZE.heads);
        element.round(x.as_slice_mut().expect("fresh arrays are contiguous"));
        x
    };
    (rounded(seed), rounded(seed + 1))
}

/// Writes so many tokens to every layer. Each row sees itself only, which is soon done.
fn fill(cache: &mut impl KvCache, past: usize, element: Element) -> Result<()> {
    let pass = Pass::one(Span::new(0, 0, &vec![0; past], Want::Nothing));
    cache.begin(&pass)?;
    for index in 0..LAYERS {
        let (k, v) = keys_values(2 * index as u64, past, element);
        cache.attend(layer(index, Some(1)), &pass, k.view(), k.view(), v.view())?;
    }
    cache.commit(&pass);
    Ok(())
}

/// One row through all layers, and back again; milliseconds, and the last layer's answer.
fn step(cache: &mut impl KvCache, past: usize, element: Element) -> Result<(f64, Array3<f32>)> {
    let pass = Pass::one(Span::new(0, past, &[0], Want::Last));
    let q = numbers(7, 1, HEADS);
    let (k, v) = keys_values(5, 1, element);
    cache.begin(&pass)?;
    let started = Instant::now();
    // One entry into the thread pool for all layers, as the model has it.
    let mut last = Ok(Array3::zeros((0, 0, 0)));
    rayon::scope(|_| {
        for index in 0..LAYERS {
            last = cache.attend(layer(index, None), &pass, q.view(), k.view(), v.view());
        }
    });
    Ok((started.elapsed().as_secs_f64() * 1e3, last?))
}

fn print_prompts(series: &[Series]) {
    let Tiling { queries, keys } = tiling();
    println!(
        "\none head of a causal prompt, {DIM} wide, tiles of {queries} queries and {keys} keys\n"
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

fn print_decode(series: &[Series]) {
    println!(
        "\none row, {LAYERS} layers, {HEADS} query heads on {} KV heads, median of {ROUNDS}\n",
        SIZE.heads
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
        let gigabytes =
            |element: Element| (LAYERS * past * SIZE.numbers() * element.bytes()) as f64 / 1e9;
        let (rate, rate16) =
            (gigabytes(Element::F32) / tiles * 1e3, gigabytes(Element::Bf16) / tiles16 * 1e3);
        println!(
            "{past:>7} {slab:>11.3} {tiles:>10.3} {rate:>9.1} {:>6.0}% {slab16:>12.3} {tiles16:>10.3} {rate16:>9.1} {:>6.0}% {read:>12.1}",
            100.0 * rate / read,
            100.0 * rate16 / read
        );
    }
}
