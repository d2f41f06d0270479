//! What compaction saves and what it costs: memory, facts that the notes hold, and text that they
//! leave out.
//!
//!     cargo run --release -p gqa-mla --example measure_compaction

use anyhow::Result;
use clap::Parser;
use comfy_table::{Table, presets};
use embedded_models::notes::{NOTES, NotedWorld};
use gqa_mla::compaction::{Notes, When, compact};
use gqa_mla::evict::{Budget, EvictingCache, Sinks};
use indicatif::{ProgressBar, ProgressStyle};
use kv_cache::{CachedDecoder, KvCache};
use model_files::ModelArgs;
use naive_decode::measurement::{Measurement, Series};
use naive_decode::{Decoder, LoadOptions, Model, Pass, Span, Tokenizer, Want, argmax};
use std::path::PathBuf;
use std::sync::Arc;

/// Sentences after each fact: what notes leave out. The text must stay within the trained context.
const FILLERS: [usize; 4] = [1, 2, 3, 4];
const BLOCKS: usize = 2;
const FACTS_PER_BLOCK: usize = 3;
/// Worlds at each point, a sample each.
const WORLDS: u64 = 8;
/// Notes are about 5 tokens a fact; those that have not ended by then never will.
const MOST_NOTES: usize = 40;

/// Measures what is left of a text once its blocks have been replaced by notes.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    model: ModelArgs,
    /// Also write the raw samples to this file.
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

/// What happens to each block of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Block and notes are kept.
    Everything,
    /// The model's own notes instead of the block.
    OwnNotes,
    /// The right notes instead of the block.
    GivenNotes,
    /// The right notes, but written when the block was gone already.
    NotesUnseen,
    /// Neither.
    Dropped,
}

const WAYS: [(Way, &str); 5] = [
    (Way::Everything, "everything kept"),
    (Way::OwnNotes, "own notes"),
    (Way::GivenNotes, "given notes"),
    (Way::NotesUnseen, "given notes, block unseen"),
    (Way::Dropped, "no notes"),
];

/// What is measured of each, and its unit.
const COLUMNS: [(&str, &str); 4] = [
    ("entries kept", "%"),
    ("facts recalled", "%"),
    ("facts right in the notes", "%"),
    ("block told again", "nats"),
];

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let files = arguments.model.files()?;
    let model = Arc::new(files.load(LoadOptions::default())?);
    let reader = Reader { model, tokenizer: files.tokenizer };
    let style = ProgressStyle::with_template("{msg:>26} {bar:40} {pos}/{len}  {eta} left")?;
    let bar = ProgressBar::new((WAYS.len() * FILLERS.len()) as u64).with_style(style);
    let mut series = Vec::new();
    for (way, name) in WAYS {
        bar.set_message(name);
        let mut columns: Vec<Series> = COLUMNS
            .iter()
            .map(|(what, unit)| Series {
                name: format!("{name}: {what}"),
                unit: (*unit).into(),
                points: Vec::new(),
            })
            .collect();
        for filler in FILLERS {
            let mut points = vec![Vec::new(); COLUMNS.len()];
            for number in 0..WORLDS {
                for (samples, sample) in points.iter_mut().zip(reader.read(way, filler, number)?) {
                    samples.push(sample);
                }
            }
            for (series, samples) in columns.iter_mut().zip(points) {
                series.points.push((filler as f64, samples));
            }
            bar.inc(1);
        }
        series.extend(columns);
    }
    bar.finish_and_clear();
    print_tables(&series);
    Measurement::by("gqa-mla", "measure_compaction", series).keep(arguments.json.as_deref())?;
    Ok(())
}

type Cached = CachedDecoder<EvictingCache<Sinks>>;

struct Reader {
    model: Arc<Model>,
    tokenizer: Tokenizer,
}

impl Reader {
    /// Reads a world block by block, and says what [`COLUMNS`] ask.
    fn read(&self, way: Way, filler: usize, number: u64) -> Result<[f64; 4]> {
        let noted = NotedWorld::held_out(number, BLOCKS, FACTS_PER_BLOCK, filler);
        let mut decoder = self.decoder()?;
        let (mut seen, mut right_in_notes) = (0, 0);
        for block in 0..BLOCKS {
            let tokens = self.tokenizer.encode(&noted.block(block))?;
            let given = noted.notes(block);
            let given = self.tokenizer.encode(given.strip_prefix(NOTES).unwrap_or(&given))?;
            let notes = self.block(&mut decoder, way, &tokens, &given)?;
            let notes = self.tokenizer.decode(&notes)?;
            let facts = &noted.world().facts[block * FACTS_PER_BLOCK..][..FACTS_PER_BLOCK];
            let noted =
                facts.iter().filter(|f| notes.contains(&format!(" {} is {}", f.name, f.value)));
            right_in_notes += noted.count();
            seen = decoder.len();
        }
        let cache = &decoder.executor.attention;
        let kept = cache.slots(0, 0, 0).len();
        let facts = BLOCKS * FACTS_PER_BLOCK;
        let mut recalled = 0;
        for fact in 0..facts {
            let mut cache = decoder.executor.attention.clone();
            let question = self.tokenizer.encode(&noted.world().question(fact))?;
            let pass = Pass::one(Span::new(0, cache.len(0), &question, Want::Last));
            let logits = self.model.forward(&pass, &mut cache)?;
            let answer = self.tokenizer.encode(noted.world().answer(fact))?;
            recalled += usize::from([argmax(&logits.row(0).to_vec())?] == answer[..]);
        }
        let percent = |part: usize, whole: usize| 100.0 * part as f64 / whole as f64;
        Ok([
            percent(kept, seen),
            percent(recalled, facts),
            percent(right_in_notes, facts),
            self.told_again(&decoder, &noted.block(0))?,
        ])
    }

    /// A cache that never drops anything of its own accord.
    fn decoder(&self) -> Result<Cached> {
        let model = Arc::clone(&self.model);
        let budget = Budget::Fraction(1.0);
        let cache = EvictingCache::new(&model, model.context(), 1, budget, Sinks::NONE)?;
        Ok(CachedDecoder::new(model, cache, None)?)
    }

    /// One block, and what is to become of it. Returns the notes that were taken.
    fn block(
        &self,
        decoder: &mut Cached,
        way: Way,
        block: &[u32],
        given: &[u32],
    ) -> Result<Vec<u32>> {
        let ask = self.tokenizer.encode(NOTES)?;
        let start = decoder.len();
        let (notes, when) = match way {
            Way::Everything => {
                decoder.feed(&[block, &ask, given].concat())?;
                return Ok(given.to_vec());
            }
            Way::Dropped => {
                decoder.feed(block)?;
                decoder.executor.attention.drop_range(0, start..start + block.len())?;
                return Ok(Vec::new());
            }
            Way::OwnNotes => {
                let end = *self.tokenizer.encode(".")?.last().expect("a full stop is a token");
                (Notes::Own { end, most: MOST_NOTES }, When::BeforeForgetting)
            }
            Way::GivenNotes => (Notes::Given(given), When::BeforeForgetting),
            Way::NotesUnseen => (Notes::Given(given), When::AfterForgetting),
        };
        Ok(compact(decoder, block, &ask, notes, when)?.notes)
    }

    /// Mean surprise when the first block is told once more: whoever has it can copy it.
    fn told_again(&self, decoder: &Cached, block: &str) -> Result<f64> {
        let mut cache = decoder.executor.attention.clone();
        let room = self.model.context() - cache.len(0);
        let mut tokens = self.tokenizer.encode(&format!("\n{block}"))?;
        tokens.truncate(room);
        let pass = Pass::one(Span::new(0, cache.len(0), &tokens, Want::All));
        let logits = self.model.forward(&pass, &mut cache)?;
        let nats: f64 = logits
            .outer_iter()
            .zip(&tokens[1..])
            .map(|(row, &target)| {
                let highest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let total: f64 = row.iter().map(|&l| libm::exp(f64::from(l - highest))).sum();
                libm::log(total) - f64::from(row[target as usize] - highest)
            })
            .sum();
        Ok(nats / (tokens.len() - 1) as f64)
    }
}

fn print_tables(series: &[Series]) {
    println!(
        "{BLOCKS} blocks of {FACTS_PER_BLOCK} facts; guessing among the facts gets one in {}\n",
        BLOCKS * FACTS_PER_BLOCK
    );
    for (what, unit) in COLUMNS {
        println!("{what}, {unit}, by sentences after each fact");
        let mut table = Table::new();
        let header = ["".to_owned()].into_iter().chain(FILLERS.map(|f| f.to_string()));
        table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_header(header);
        for (_, name) in WAYS {
            let found = series.iter().find(|s| s.name == format!("{name}: {what}"));
            let cells = found.iter().flat_map(|s| &s.points).map(|(_, samples)| {
                let mean = samples.iter().sum::<f64>() / samples.len() as f64;
                if unit == "nats" { format!("{mean:.2}") } else { format!("{mean:.0}") }
            });
            table.add_row([name.to_owned()].into_iter().chain(cells));
        }
        println!("{table}\n");
    }
}
