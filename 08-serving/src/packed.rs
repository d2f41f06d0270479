//! A model's files, packed for rung 04's kernels, and kept packed for the next start.

mod place;

use crate::say::tell;
use anyhow::Result;
use clap::ValueEnum;
use flash_attention::fusion::Fused;
use flash_attention::kernels::Simd;
use flash_attention::packed::{Format, Packed, PackedFile, PackedFrom, Packer, Rows, Weights};
use flash_attention::threads::Pool;
use indicatif::{ProgressBar, ProgressStyle};
use model_files::{BlockType, ModelFiles};
use naive_decode::{LoadOptions, Model};
use place::Places;
use serde::Serialize;
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Packing that takes longer than this is worth a file.
const SLOW: Duration = Duration::from_secs(1);

/// Numbers packed after which the pages that they came from are let go of.
const RELEASE: usize = 1 << 20;

/// Whether packed weights are kept in a file, to be mapped at the next start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Keep {
    /// Neither read a file nor write one
    Never,
    /// Write one if packing takes longer than a second
    Slow,
    /// Write one if there is none
    Always,
}

/// How a model came to be packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Came {
    /// From its files.
    Packed,
    /// From its files, and a file of packed weights was written.
    PackedAndKept,
    /// From a file of packed weights.
    Mapped,
}

/// A model with its matrices packed.
pub struct PackedModel {
    /// The model.
    pub model: Model,
    /// What became of its matrices.
    pub packed: Vec<Packed>,
    /// How.
    pub came: Came,
}

impl PackedModel {
    /// What its matrices are kept as, the most common first: "90 x q8_0, 31 x q8_0 (converted)".
    pub fn weights(&self) -> String {
        let mut packed = self.packed.clone();
        packed.sort_by_key(|entry| std::cmp::Reverse(entry.matrices));
        let names = packed.iter().map(|entry| {
            let way = if entry.as_stored { "" } else { " (converted)" };
            format!("{} x {}{way}", entry.matrices, entry.format.name())
        });
        names.collect::<Vec<_>>().join(", ")
    }
}

/// The model with its matrices packed for the pool's threads, from a file of packed weights if there is
/// one that fits. What is wrong with one that does not is said in a line on standard error, and it is
/// replaced.
///
/// # Errors
/// Whatever is wrong with the model's files.
pub fn load_packed(
    files: &ModelFiles,
    weights: Weights,
    options: LoadOptions,
    pool: &Arc<Pool>,
    keep: Keep,
) -> Result<PackedModel> {
    let origin = files.origin().filter(|_| keep != Keep::Never);
    let places = origin.map(|origin| Places::of(origin, weights, pool.threads()));
    let from = origin.map(|origin| PackedFrom {
        sources: origin.digest,
        weights,
        threads: pool.threads(),
    });
    let (mut file, mut is_odd) = (None, false);
    if let (Some(places), Some(from)) = (&places, &from) {
        file = places.there().find_map(|path| match PackedFile::open(path, from) {
            Ok(file) => Some(file),
            Err(problem) => {
                tell!("{problem}; packing again");
                is_odd = true;
                None
            }
        });
    }
    let bar = bar(files, file.is_some());
    let since = Cell::new(0);
    let progress = |numbers: usize| {
        bar.inc(numbers as u64);
        since.set(since.get() + numbers);
        if since.get() >= RELEASE {
            since.set(0);
            files.release_pages();
        }
    };
    let simd = Simd::within(options.isa);
    match weights {
        Weights::As(Format::Bf16Fast) if !simd.has_bf16_instructions() => {
            tell!("no instructions for BF16 on this processor: bf16-fast is slower than bf16");
        }
        Weights::As(Format::Int8) if !simd.has_tiles() => {
            tell!("no AMX on this processor: int8 reads prompts more slowly than q8_0");
        }
        _ => {}
    }
    let stored = |name: &str| rows(files, name, weights);
    let mut packer = Packer::new(weights, options.isa, pool, &stored).with_progress(&progress);
    if let Some(file) = &file {
        packer = packer.with_file(file);
    }
    let began = Instant::now();
    let model = files.assemble(options, &Fused::new(&packer, pool))?;
    let took = began.elapsed();
    bar.finish_and_clear();
    let packed = packer.packed();
    let mut came = if file.is_some() { Came::Mapped } else { Came::Packed };
    if let (None, Some(places), Some(from)) = (&file, &places, &from)
        && (is_odd || keep == Keep::Always || took > SLOW)
    {
        // A model that runs is worth more than a file that was not written.
        match places.write(|path| Ok(packer.write(path, from)?)) {
            Ok(path) => {
                tell!("packed weights are kept in {}", path.display());
                came = Came::PackedAndKept;
            }
            Err(problem) => tell!("packed weights are not kept: {problem}"),
        }
    }
    Ok(PackedModel { model, packed, came })
}

/// A progress bar on standard error, where somebody is looking and there is something to wait for.
fn bar(files: &ModelFiles, is_mapped: bool) -> ProgressBar {
    if is_mapped {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("packing {wide_bar} {percent} %, {eta} left")
        .expect("the template is well formed");
    ProgressBar::new(files.parameters() as u64).with_style(style)
}

/// A matrix as the file stores it, or with the codes that it has there, if the kernels can multiply that and it is wanted.
fn rows<'a>(
    files: &'a ModelFiles,
    name: &str,
    weights: Weights,
) -> naive_decode::Result<Option<Rows<'a>>> {
    let Some(raw) = files.raw(name) else { return Ok(None) };
    let is_wanted = |format| weights == Weights::AsStored || weights == Weights::As(format);
    let recoded = raw.kind.recoded().and_then(format).filter(|&format| is_wanted(format));
    let (raw, as_stored) = match recoded.and_then(|_| raw.recoded()) {
        Some(recoded) => (recoded, false),
        None => (raw, true),
    };
    let (Some(format), &[outputs, inputs]) = (format(raw.kind), &raw.shape[..]) else {
        return Ok(None);
    };
    let rows = Rows::stored(format, outputs, inputs, raw.bytes)?;
    Ok(Some(if as_stored { rows } else { rows.converted() }))
}

/// The format that kernels multiply such blocks in.
fn format(kind: BlockType) -> Option<Format> {
    match kind {
        BlockType::F32 => Some(Format::F32),
        BlockType::F16 => Some(Format::F16),
        BlockType::BF16 => Some(Format::Bf16),
        BlockType::Q8_0 => Some(Format::Q8_0),
        BlockType::Q4_0 => Some(Format::Q4_0),
        BlockType::Q4_1 => Some(Format::Q4_1),
        _ => None,
    }
}
