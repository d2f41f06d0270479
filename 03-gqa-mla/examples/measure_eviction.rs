//! What is lost when less is kept: surprise and recall against the kept fraction, method by
//! method.
//!
//!     cargo run --release -p gqa-mla --example measure_eviction

use anyhow::Result;
use clap::Parser;
use comfy_table::{Table, presets};
use embedded_models::recall::{FIRST_HELD_OUT_SEED, World};
use embedded_models::tales;
use gqa_mla::evict::{
    Budget, Evict, EvictingCache, Fork, Held, Method, Observation, Sinks, methods,
};
use indicatif::{ProgressBar, ProgressStyle};
use kv_cache::KvCache;
use model_files::ModelArgs;
use naive_decode::measurement::{Measurement, Series};
use naive_decode::{LoadOptions, Logits, Model, Pass, Span, Tokenizer, Want, argmax};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// Parts of the text that are kept.
const FRACTIONS: [f64; 6] = [0.15, 0.25, 0.35, 0.5, 0.75, 1.0];
/// Facts of a world, evenly spread over about 450 tokens, and sentences after each.
const FACTS: usize = 8;
const FILLER: usize = 4;
/// Worlds asked about, and tales scored: a sample each.
const WORLDS: u64 = 4;
const TALES: u64 = 2;
/// Tokens of a tale: the first half is the prompt, the second is scored.
const TALE: usize = 448;
/// Tokens fed at once; what is dropped matters from the next chunk on.
const CHUNK: usize = 32;
/// At this fraction the position of the fact is swept.
const SWEPT: f64 = 0.25;
/// Entries of the windows that are tried with and without sinks, and tokens of their text.
const STREAM_WINDOW: usize = 64;
const STREAM: usize = 1536;

/// Measures what each method of eviction costs.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    model: ModelArgs,
    /// Also write the raw samples to this file.
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let bench = Bench::new(&arguments.model)?;
    let methods = methods();
    let style = ProgressStyle::with_template("{msg:>12} {bar:40} {pos}/{len}  {eta} left")?;
    let bar = ProgressBar::new((methods.len() * FRACTIONS.len()) as u64).with_style(style);
    let mut series = Vec::new();
    for method in &methods {
        bar.set_message(method.name);
        series.extend(bench.measure(method, &bar)?);
    }
    bar.finish_and_clear();
    print_fractions(&series);
    print_positions(&series);
    let mass = bench.attention_on_the_first()?;
    let streams = bench.streams()?;
    print_sinks(&mass, &streams);
    series.extend([mass, streams].concat());
    Measurement::by("gqa-mla", "measure_eviction", series).keep(arguments.json.as_deref())?;
    Ok(())
}

/// The model and the texts.
struct Bench {
    model: Arc<Model>,
    tokenizer: Tokenizer,
}

/// What is fed before logits are wanted, and after.
const QUESTION_ENDS: &str = "?";

impl Bench {
    fn new(model: &ModelArgs) -> Result<Self> {
        let files = model.files()?;
        let options = LoadOptions { context: Some(STREAM), ..LoadOptions::default() };
        Ok(Bench { model: Arc::new(files.load(options)?), tokenizer: files.tokenizer })
    }

    /// One method at every fraction: surprise, recall, and recall by position.
    fn measure(&self, method: &Method, bar: &ProgressBar) -> Result<Vec<Series>> {
        let name = |what: &str| format!("{}: {what}", method.name);
        let empty =
            |what, unit: &str| Series { name: name(what), unit: unit.into(), points: vec![] };
        let mut surprise = empty("surprise", "nats");
        let mut with_prompt = empty("recall, asked in the prompt", "%");
        let mut later = empty("recall, asked later", "%");
        let mut by_position = empty("recall by position", "%");
        for fraction in FRACTIONS {
            let tales = (0..TALES).map(|tale| self.nats(method, fraction, tale));
            surprise.points.push((fraction, tales.collect::<Result<_>>()?));
            let worlds = (0..WORLDS)
                .map(|number| self.recall(method, fraction, number))
                .collect::<Result<Vec<_>>>()?;
            let share = |asked: &[bool; FACTS]| {
                100.0 * asked.iter().filter(|right| **right).count() as f64 / FACTS as f64
            };
            with_prompt.points.push((fraction, worlds.iter().map(|(a, _)| share(a)).collect()));
            later.points.push((fraction, worlds.iter().map(|(_, b)| share(b)).collect()));
            if fraction == SWEPT {
                by_position.points = (0..FACTS)
                    .map(|fact| {
                        let right = |(_, later): &([bool; FACTS], [bool; FACTS])| {
                            if later[fact] { 100.0 } else { 0.0 }
                        };
                        // Where the fact lies, as a part of the text.
                        (fact as f64 / FACTS as f64, worlds.iter().map(right).collect())
                    })
                    .collect();
            }
            bar.inc(1);
        }
        Ok(vec![surprise, with_prompt, later, by_position])
    }

    /// Mean surprise of the second half of a tale, in nats.
    fn nats(&self, method: &Method, fraction: f64, tale: u64) -> Result<f64> {
        let tokens = self.tale(tale, TALE)?;
        let mut cache = (method.make)(&self.model, TALE, Budget::Fraction(fraction))?;
        let (prompt, rest) = tokens.split_at(TALE / 2);
        self.feed(&mut *cache, &prompt[..prompt.len() - 1])?;
        self.score(&mut *cache, prompt[prompt.len() - 1], rest)
    }

    /// Mean surprise of `tokens` after `before`, in nats.
    fn score(&self, cache: &mut dyn KvCache, before: u32, tokens: &[u32]) -> Result<f64> {
        let inputs = [&[before], &tokens[..tokens.len() - 1]].concat();
        let mut nats = 0.0;
        for (inputs, targets) in inputs.chunks(CHUNK).zip(tokens.chunks(CHUNK)) {
            let pass = Pass::one(Span::new(0, cache.len(0), inputs, Want::All));
            let logits = self.model.forward(&pass, &mut *cache)?;
            nats += surprises(&logits, targets).iter().sum::<f64>();
        }
        Ok(nats / tokens.len() as f64)
    }

    /// Which facts are still known, asked at the prompt's end and asked when the prompt is over.
    fn recall(
        &self,
        method: &Method,
        fraction: f64,
        number: u64,
    ) -> Result<([bool; FACTS], [bool; FACTS])> {
        let world = World::held_out(number, FACTS, FILLER);
        let facts = self.tokenizer.encode(world.prompt())?;
        let longest =
            (0..FACTS).map(|fact| self.question(&world, fact)).collect::<Result<Vec<_>>>()?;
        let room = longest.iter().map(|(ask, lead)| ask.len() + lead.len()).max().unwrap_or(0);
        let capacity = facts.len() + room;
        let mut told = (method.make)(&self.model, capacity, Budget::Fraction(fraction))?;
        let (last, before) = facts.split_last().expect("a world has a text");
        self.feed_unwanted(&mut *told, before)?;
        let mut over = told.fork();
        self.feed_unwanted(&mut *told, &[*last])?;
        self.feed(&mut *over, &[*last])?;
        let (mut in_prompt, mut later) = ([false; FACTS], [false; FACTS]);
        for fact in 0..FACTS {
            let (ask, lead) = &longest[fact];
            let answer = self.tokenizer.encode(world.answer(fact))?;
            let answers = |cache: &dyn Fork| -> Result<bool> {
                let mut cache = cache.fork();
                self.feed(&mut *cache, ask)?;
                let logits = self.feed(&mut *cache, lead)?;
                Ok([argmax(&logits.row(0).to_vec())?] == answer[..])
            };
            in_prompt[fact] = answers(&*told)?;
            later[fact] = answers(&*over)?;
        }
        Ok((in_prompt, later))
    }

    /// The question, and the lead of its answer.
    fn question(&self, world: &World, fact: usize) -> Result<(Vec<u32>, Vec<u32>)> {
        let text = world.question(fact);
        let end = text.find(QUESTION_ENDS).expect("a question asks") + QUESTION_ENDS.len();
        let (ask, lead) = text.split_at(end);
        Ok((self.tokenizer.encode(ask)?, self.tokenizer.encode(lead)?))
    }

    /// In chunks, of which the last wants logits.
    fn feed(&self, cache: &mut dyn KvCache, tokens: &[u32]) -> Result<Logits> {
        let (last, before) = tokens.split_last().expect("something to feed");
        self.feed_unwanted(cache, before)?;
        let pass = Pass::one(Span::new(0, cache.len(0), &[*last], Want::Last));
        Ok(self.model.forward(&pass, &mut *cache)?)
    }

    fn feed_unwanted(&self, cache: &mut dyn KvCache, tokens: &[u32]) -> Result<()> {
        for chunk in tokens.chunks(CHUNK) {
            let pass = Pass::one(Span::new(0, cache.len(0), chunk, Want::Nothing));
            self.model.forward(&pass, &mut *cache)?;
        }
        Ok(())
    }

    /// Tales that no training text had, one after another.
    fn tale(&self, number: u64, length: usize) -> Result<Vec<u32>> {
        let mut text = String::new();
        let mut seed = FIRST_HELD_OUT_SEED + (number + 1) * 1000;
        loop {
            text += &tales::tale(seed).text;
            text += " ";
            seed += 1;
            let tokens = self.tokenizer.encode(&text)?;
            if tokens.len() >= length {
                return Ok(tokens[..length].to_vec());
            }
        }
    }

    /// The part of all attention that falls on the first token and on the first four, by layer.
    fn attention_on_the_first(&self) -> Result<Vec<Series>> {
        let layers = self.model.config.layers;
        let mut series: Vec<Series> = [1, 4]
            .map(|first| Series {
                name: format!("attention on the first {first}"),
                unit: "%".into(),
                points: (0..layers).map(|layer| (layer as f64, Vec::new())).collect(),
            })
            .to_vec();
        for tale in 0..TALES {
            let sums = Arc::new(Mutex::new(vec![[0.0; 3]; layers]));
            let budget = Budget::Fraction(1.0);
            let policy = OnTheFirst { sums: Arc::clone(&sums) };
            let mut cache = EvictingCache::new(&self.model, TALE, 1, budget, policy)?;
            self.feed_unwanted(&mut cache, &self.tale(tale, TALE)?)?;
            for (layer, [first, four, all]) in sums.lock().expect("no panic").iter().enumerate() {
                series[0].points[layer].1.push(100.0 * first / all);
                series[1].points[layer].1.push(100.0 * four / all);
            }
        }
        Ok(series)
    }

    /// A long stream through small windows, which are full when scoring begins: surprise up to a tale's
    /// length, which is within the trained 512, and from there on, most of it past that.
    fn streams(&self) -> Result<Vec<Series>> {
        let window = |sinks| {
            let budget = Budget::Entries(STREAM_WINDOW);
            EvictingCache::new(&self.model, STREAM, 1, budget, Sinks { count: sinks })
        };
        let caches: Vec<(&str, Box<dyn Fork>)> = vec![
            ("no sinks", Box::new(window(0)?)),
            ("1 sink", Box::new(window(1)?)),
            ("4 sinks", Box::new(window(4)?)),
            (
                "4 sinks, positions in cache",
                Box::new(window(4)?.with_positions_in_cache(&self.model)?),
            ),
        ];
        let mut series = Vec::new();
        for (name, cache) in caches {
            let mut points = vec![(0.0, Vec::new()), (1.0, Vec::new())];
            for tale in 0..TALES {
                let tokens = self.tale(tale, STREAM)?;
                let mut cache = cache.fork();
                self.feed_unwanted(&mut *cache, &tokens[..2 * STREAM_WINDOW])?;
                for (part, end) in [TALE, STREAM].into_iter().enumerate() {
                    let start = cache.len(0);
                    let last = tokens[start];
                    points[part].1.push(self.score(&mut *cache, last, &tokens[start + 1..end])?);
                }
            }
            series.push(Series { name: format!("stream, {name}"), unit: "nats".into(), points });
        }
        Ok(series)
    }
}

/// Keeps everything, and adds up the attention on the first token, on the first four, and on all.
#[derive(Clone)]
struct OnTheFirst {
    sums: Arc<Mutex<Vec<[f64; 3]>>>,
}

impl Evict for OnTheFirst {
    fn check(&self, _budget: usize) -> naive_decode::Result<()> {
        Ok(())
    }

    fn observes(&self) -> bool {
        true
    }

    fn observe(&mut self, query: &Observation) {
        // Early queries have little else to look at.
        if query.slot >= STREAM_WINDOW {
            let mut sums = self.sums.lock().expect("no panic");
            let [first, four, all] = &mut sums[query.layer];
            *first += f64::from(query.weights[0]);
            *four += query.weights[..4].iter().copied().map(f64::from).sum::<f64>();
            *all += 1.0;
        }
    }

    fn choose(&self, _held: &Held) -> Option<Vec<usize>> {
        None
    }
}

/// −ln of the probability of each target.
fn surprises(logits: &Logits, targets: &[u32]) -> Vec<f64> {
    let nats = |(row, &target): (ndarray::ArrayView1<f32>, &u32)| {
        let highest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let total: f64 = row.iter().map(|&l| libm::exp(f64::from(l - highest))).sum();
        libm::log(total) - f64::from(row[target as usize] - highest)
    };
    logits.outer_iter().zip(targets).map(nats).collect()
}

fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / samples.len().max(1) as f64
}

fn table(header: Vec<String>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_header(header);
    table
}

fn of<'a>(series: &'a [Series], what: &'a str) -> impl Iterator<Item = (&'a str, &'a Series)> {
    series.iter().filter_map(move |s| {
        let (name, found) = s.name.split_once(": ")?;
        (found == what).then_some((name, s))
    })
}

fn print_fractions(series: &[Series]) {
    for (what, title) in [
        ("surprise", "surprise of the second half of a tale, nats a token"),
        (
            "recall, asked in the prompt",
            "right answers, percent; the question is part of the prompt",
        ),
        (
            "recall, asked later",
            "right answers, percent; the question comes when the prompt is over",
        ),
    ] {
        println!("{title}, by kept fraction");
        let header = ["method".to_owned()].into_iter();
        let mut table = table(header.chain(FRACTIONS.map(|f| f.to_string())).collect());
        for (name, series) in of(series, what) {
            let decimals = if what == "surprise" { 3 } else { 0 };
            let cells = series.points.iter().map(|(_, s)| format!("{:.decimals$}", mean(s)));
            table.add_row([name.to_owned()].into_iter().chain(cells));
        }
        println!("{table}\n");
    }
}

fn print_positions(series: &[Series]) {
    println!(
        "right answers with {SWEPT} kept, percent, asked later, by the fact's place in the text"
    );
    let positions = (0..FACTS).map(|fact| format!("{:.2}", fact as f64 / FACTS as f64));
    let mut table = table(["method".to_owned()].into_iter().chain(positions).collect());
    for (name, series) in of(series, "recall by position") {
        let cells = series.points.iter().map(|(_, s)| format!("{:.0}", mean(s)));
        table.add_row([name.to_owned()].into_iter().chain(cells));
    }
    println!("{table}\n");
}

fn print_sinks(mass: &[Series], streams: &[Series]) {
    println!(
        "attention on the first tokens, percent, by layer (queries from token {STREAM_WINDOW} on)"
    );
    let layers = mass[0].points.iter().map(|(layer, _)| format!("{layer}"));
    let mut first = table(["".to_owned()].into_iter().chain(layers).collect());
    for series in mass {
        let cells = series.points.iter().map(|(_, s)| format!("{:.1}", mean(s)));
        first.add_row([series.name.clone()].into_iter().chain(cells));
    }
    println!("{first}\n\na window of {STREAM_WINDOW} entries, nats a token");
    let header = ["".into(), format!("up to token {TALE}"), format!("from there to {STREAM}")];
    let mut second = table(header.to_vec());
    for series in streams {
        let cells = series.points.iter().map(|(_, s)| format!("{:.3}", mean(s)));
        second.add_row([series.name.clone()].into_iter().chain(cells));
    }
    println!("{second}");
}
