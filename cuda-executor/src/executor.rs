//! A model on a device, running passes.

use crate::forward::{FEW_ROWS, Forward, Scratch};
use crate::graphs::{Graphs, StepSize};
use crate::heads::Heads;
use crate::memory::{BlockShape, DeviceBlocks};
use crate::prompts::PromptKernels;
use crate::rehearsal::prepare;
use crate::room::Room;
use crate::shared::{Shared, failed};
use crate::staging::{Staged, Staging, most_bytes, stage};
use crate::weights::{Weights, check};
use cuda_kernels::cache::BLOCK_TOKENS;
use cuda_kernels::rows::Argmax;
use cuda_kernels::{Address, Gpu, Launch, read_onto};
use flash_attention::tile_attention::KvType;
use half::bf16;
use kv_cache::{CachedExecutor, KvCache};
use naive_decode::{
    Attention, Config, Element, Error, Executor, Hidden, KvSize, Likeliest, Logits, Pass, Result,
    Rope, Tensors,
};
use ndarray::{Array2, ArrayView2, s};
use paged_cache::PagedCache;
use std::ops::Range;
use std::sync::MutexGuard;

// ANCHOR: executor
/// A Llama on a device: weights, keys and values in a paged pool, and the kernels between them, in bfloat16.
///
/// The tables of the pool are a [`PagedCache`]'s, whose memory is the device's. So whatever is done to a cache between
/// passes, such as forking a sequence or parking it, is done here by the same code.
pub struct CudaExecutor<G> {
    gpu: Shared<G>,
    forward: Forward,
    room: Room,
    cache: PagedCache,
    /// Where passes' arrays go.
    staged: Address,
    /// None if every launch is launched by itself.
    graphs: Option<Graphs>,
}
// ANCHOR_END: executor

impl<G: Gpu + 'static> CudaExecutor<G> {
    /// Brings a model's weights to the device and sets memory aside. No sequence is open yet.
    ///
    /// # Errors
    /// If the kernels do not fit the model's sizes or the device, a tensor is missing or has another shape, the room is empty,
    /// longer than the model's context or for passes of more rows than can be launched, or the device has too little memory.
    pub fn new(
        mut gpu: G,
        config: Config,
        rope: &Rope,
        tensors: Tensors,
        room: Room,
    ) -> Result<Self> {
        let heads = check(&config)?;
        room.check(&config)?;
        if room.capacity > rope.positions() {
            let (capacity, asked) = (rope.positions(), room.capacity);
            return Err(Error::Capacity { what: "the model's context".into(), capacity, asked });
        }
        prepare(&mut gpu, &config)?;
        let prompts = PromptKernels::choose(&mut gpu, heads.wide)?;
        let weights = Weights::load(&mut gpu, &config, heads, tensors)?;
        let turns = turns(rope, heads, room.capacity)?;
        let turns_address = gpu.alloc(size_of_val(&turns[..])).map_err(failed)?;
        gpu.write(turns_address, bytemuck::cast_slice(&turns)).map_err(failed)?;
        let alloc = &mut |bytes| gpu.alloc(bytes);
        let scratch =
            Scratch::new(alloc, &config, heads, (room.rows, room.capacity)).map_err(failed)?;
        let staged = gpu.alloc(most_bytes(room.rows, room.capacity)).map_err(failed)?;
        let (blocks, shape) = (room.tokens.div_ceil(BLOCK_TOKENS), BlockShape::of(&config, heads));
        let pool = gpu.alloc(blocks * shape.bytes()).map_err(failed)?;
        let gpu = Shared::new(gpu);
        let memory = DeviceBlocks { gpu: gpu.clone(), base: pool, blocks, shape };
        let size = KvSize { heads: config.kv_heads, key_dim: heads.wide, value_dim: heads.wide };
        let cache = PagedCache::elsewhere(
            Box::new(memory),
            &vec![size; config.layers],
            (BLOCK_TOKENS, KvType::Exact(Element::Bf16)),
            blocks,
            room.capacity,
        )?;
        let forward = Forward {
            config,
            heads,
            weights,
            turns: turns_address,
            pool,
            scratch,
            blocks,
            prompts,
        };
        let graphs = Some(Graphs::default());
        Ok(CudaExecutor { gpu, forward, room, cache, staged, graphs })
    }
}

impl<G: Gpu> CudaExecutor<G> {
    /// The same without graphs: each kernel of a step is launched by itself.
    #[must_use]
    pub fn without_graphs(self) -> Self {
        CudaExecutor { graphs: None, ..self }
    }

    /// Which kernels prompts take on this device.
    pub fn prompts(&self) -> &PromptKernels {
        &self.forward.prompts
    }

    /// Whether steps are played from graphs: all whose size the device could record.
    pub fn has_graphs(&self) -> bool {
        self.graphs.is_some()
    }

    /// Why some steps are not played from graphs, if the device failed to record one.
    pub fn not_recorded(&self) -> Option<&Error> {
        self.graphs.as_ref()?.failure.as_ref()
    }

    /// What it was given room for.
    pub fn room(&self) -> Room {
        self.room
    }

    /// The device, to look at or to time. Memory that is written to here is written to behind the executor's back.
    pub fn gpu(&self) -> MutexGuard<'_, G> {
        self.gpu.lock()
    }

    fn check(&self, pass: &Pass) -> Result<()> {
        if pass.rows() > self.room.rows {
            let expected = format!("at most {}, for which there is room", self.room.rows);
            return Err(Error::invalid("rows of a pass on CUDA", pass.rows(), expected));
        }
        for span in &pass.spans {
            let vocabulary = self.forward.config.vocab_size;
            if let Some(token) = span.tokens.iter().find(|&&token| token as usize >= vocabulary) {
                let expected = format!("below the vocabulary's {vocabulary}");
                return Err(Error::invalid("token", token, expected));
            }
            let capacity = self.room.capacity;
            if let Some(&position) = span.positions.iter().find(|&&position| position >= capacity) {
                let what = "positions on the device".into();
                return Err(Error::Capacity { what, capacity, asked: position + 1 });
            }
            for (what, found) in
                [("positions", span.positions.len()), ("visible slots", span.sees.len())]
            {
                if found != span.rows() {
                    let expected = format!("{}, one for each row", span.rows());
                    return Err(Error::invalid(format!("{what} of a span"), found, expected));
                }
            }
        }
        Ok(())
    }

    /// Runs a pass as far as `finish` goes, and commits it if all goes well. It has run when this returns: whoever times
    /// it times the device, and what fails in it fails here.
    fn run<T>(
        &mut self,
        pass: &Pass,
        size: Option<StepSize>,
        finish: impl FnOnce(&mut Self, &Staged) -> Result<T>,
    ) -> Result<T> {
        self.cache.begin(pass)?;
        let mut staging = Staging::default();
        let staged = stage(&mut staging, self.staged, pass, &self.cache, size)?;
        self.gpu.with(|gpu| gpu.write(self.staged, &staging.bytes))?;
        let out = finish(self, &staged)?;
        // What is read from the device has been waited for; of a pass that wants nothing, nothing is read.
        if pass.wanted().is_empty() {
            self.gpu.with(Gpu::finish)?;
        }
        self.cache.commit(pass);
        Ok(out)
    }

    /// The layers, each kernel by itself.
    fn run_layers(&self, staged: &Staged) -> Result<()> {
        self.launch(&self.forward.layers(staged)?)
    }

    fn launch(&self, launches: &[Launch]) -> Result<()> {
        self.gpu.with(|gpu| launches.iter().try_for_each(|launch| gpu.launch(launch)))
    }

    /// A step that is filled up to `size`, logits included. It is recorded the first time, if the device can.
    fn run_step(&mut self, size: StepSize, staged: &Staged) -> Result<()> {
        let CudaExecutor { gpu, forward, graphs, .. } = self;
        let record = || {
            let launches = forward.step(staged, size.rows)?;
            gpu.with(|gpu| gpu.record(&launches))
        };
        match graphs.as_mut().and_then(|graphs| graphs.get(size, record)) {
            Some(recording) => self.gpu.with(|gpu| gpu.replay(recording)),
            None => self.launch(&self.forward.step(staged, size.rows)?),
        }
    }

    /// What is asked for of the wanted rows `rows`, whose logits lie on the device: tokens of those of which they are enough, if
    /// they have a likeliest, and the others' logits. `found` has room for what the device finds, a number in u64 for each wanted row.
    fn read_head(
        &self,
        rows: Range<usize>,
        is_enough: &[bool],
        found: Address,
        out: &mut HeadRows,
    ) -> Result<()> {
        let is_enough = &is_enough[rows.clone()];
        let mut tokens = vec![None; rows.len()];
        if is_enough.contains(&true) {
            let found = found + (rows.start * size_of::<u64>()) as u64;
            self.launch(&[self.forward.argmax(found, rows.len())?])?;
            let mut numbers = Vec::new();
            self.gpu.with(|gpu| read_onto(gpu, found, rows.len(), &mut numbers))?;
            let places = tokens.iter_mut().zip(numbers).zip(is_enough);
            for ((token, number), _) in places.filter(|(_, is_enough)| **is_enough) {
                *token = Argmax::token(number);
            }
        }
        self.read_logits(&tokens, &mut out.logits)?;
        out.tokens.extend(tokens);
        Ok(())
    }

    /// Appends the logits of the rows on the device that have no token.
    fn read_logits(&self, tokens: &[Option<u32>], logits: &mut Vec<f32>) -> Result<()> {
        let vocabulary = self.forward.config.vocab_size;
        let wanted = |row: &usize| tokens[*row].is_none();
        let Some(first) = (0..tokens.len()).find(wanted) else { return Ok(()) };
        let last = (0..tokens.len()).rfind(wanted).expect("the first is one");
        let from = self.forward.scratch.logits + (first * vocabulary * size_of::<f32>()) as u64;
        let count = (last + 1 - first) * vocabulary;
        if tokens[first..=last].iter().all(Option::is_none) {
            return self.gpu.with(|gpu| read_onto(gpu, from, count, logits));
        }
        // In one go, with what lies between: rows one by one would each wait for the device.
        let mut all = Vec::new();
        self.gpu.with(|gpu| read_onto(gpu, from, count, &mut all))?;
        let rows = all.chunks_exact(vocabulary).zip(&tokens[first..=last]);
        rows.filter(|(_, token)| token.is_none()).for_each(|(row, _)| logits.extend(row));
        Ok(())
    }

    /// So many rows, as many at a time as the head takes.
    fn in_pieces(&self, rows: usize) -> impl Iterator<Item = Range<usize>> + use<G> {
        let few = self.room.rows.min(FEW_ROWS);
        (0..rows).step_by(few).map(move |first| first..rows.min(first + few))
    }
}

/// What was read of wanted rows so far, as [`Likeliest`] has it.
#[derive(Default)]
struct HeadRows {
    tokens: Vec<Option<u32>>,
    logits: Vec<f32>,
}

impl<G: Gpu> Executor for CudaExecutor<G> {
    fn execute(&mut self, pass: &Pass) -> Result<Logits> {
        let all = vec![false; pass.wanted().len()];
        Ok(self.likeliest(pass, &all)?.logits)
    }

    /// What the device finds is what [`argmax`](naive_decode::argmax) finds, to the last tie.
    fn likeliest(&mut self, pass: &Pass, is_enough: &[bool]) -> Result<Likeliest> {
        self.check(pass)?;
        let (wanted, vocabulary) = (pass.wanted().len(), self.forward.config.vocab_size);
        if is_enough.len() != wanted {
            let expected = format!("{wanted}, one for each wanted row");
            return Err(Error::invalid(
                "rows of which a token is enough",
                is_enough.len(),
                expected,
            ));
        }
        if pass.rows() == 0 {
            return Ok(Likeliest { tokens: Vec::new(), logits: Array2::zeros((0, vocabulary)) });
        }
        let size = self
            .graphs
            .as_ref()
            .and_then(|_| StepSize::of(pass, self.room.rows, self.room.capacity));
        let HeadRows { tokens, logits } = self.run(pass, size, |executor, staged| {
            let mut out = HeadRows::default();
            let numbers = is_enough.iter().filter(|&&is_enough| !is_enough).count() * vocabulary;
            out.logits.reserve(numbers);
            let found = staged.likeliest;
            if let Some(size) = size {
                executor.run_step(size, staged)?;
                executor.read_head(0..wanted, is_enough, found, &mut out)?;
                return Ok(out);
            }
            executor.run_layers(staged)?;
            for rows in executor.in_pieces(wanted) {
                executor.launch(&[executor.forward.pick(staged, rows.start, rows.len())?])?;
                executor.launch(&executor.forward.head(rows.len())?)?;
                executor.read_head(rows, is_enough, found, &mut out)?;
            }
            Ok(out)
        })?;
        let rows = tokens.iter().filter(|token| token.is_none()).count();
        Ok(Likeliest { tokens, logits: shaped(rows, vocabulary, logits) })
    }

    fn hidden(&mut self, pass: &Pass) -> Result<Hidden> {
        self.check(pass)?;
        let (wanted, width) = (pass.wanted().len(), self.forward.config.hidden_size);
        if pass.rows() == 0 {
            return Ok(Array2::zeros((0, width)));
        }
        let bits = self.run(pass, None, |executor, staged| {
            executor.run_layers(staged)?;
            let mut bits = Vec::with_capacity(wanted * width);
            for rows in executor.in_pieces(wanted) {
                executor.launch(&[executor.forward.pick(staged, rows.start, rows.len())?])?;
                let (picked, count) = (executor.forward.scratch.picked, rows.len() * width);
                executor.gpu.with(|gpu| read_onto(gpu, picked, count, &mut bits))?;
            }
            Ok(bits)
        })?;
        let hidden = bits.into_iter().map(|bits| bf16::from_bits(bits).to_f32()).collect();
        Ok(shaped(wanted, width, hidden))
    }

    /// Hidden states are rounded to bfloat16, which those of [`Executor::hidden`] are already.
    fn head(&mut self, hidden: ArrayView2<f32>) -> Result<Logits> {
        let (rows, width) = hidden.dim();
        let Config { hidden_size, vocab_size: vocabulary, .. } = self.forward.config;
        if width != hidden_size {
            return Err(Error::invalid("width of hidden states", width, hidden_size.to_string()));
        }
        let mut logits = Vec::with_capacity(rows * vocabulary);
        for rows in self.in_pieces(rows) {
            let (from, count) = (hidden.slice(s![rows.clone(), ..]), rows.len());
            let bits: Vec<u16> = from.iter().map(|&x| bf16::from_f32(x).to_bits()).collect();
            let Scratch { picked, logits: found, .. } = self.forward.scratch;
            self.gpu.with(|gpu| gpu.write(picked, bytemuck::cast_slice(&bits)))?;
            self.launch(&self.forward.head(count)?)?;
            self.gpu.with(|gpu| read_onto(gpu, found, count * vocabulary, &mut logits))?;
        }
        Ok(shaped(rows, vocabulary, logits))
    }
}

impl<G: Gpu> CachedExecutor for CudaExecutor<G> {
    type Cache = PagedCache;

    fn cache(&self) -> &PagedCache {
        &self.cache
    }

    fn cache_mut(&mut self) -> &mut PagedCache {
        &mut self.cache
    }

    fn config(&self) -> &Config {
        &self.forward.config
    }

    fn context(&self) -> usize {
        self.cache.capacity()
    }
}

/// Rows that were read one after the other, as an array.
fn shaped(rows: usize, width: usize, numbers: Vec<f32>) -> Array2<f32> {
    Array2::from_shape_vec((rows, width), numbers).expect("what is read is whole")
}

/// Cosines and sines, `[positions][wide / 2][2]`: what becomes of pairs (1, 0) when they are turned. Pairs of zeros that
/// fill a head up are left as they are.
fn turns(rope: &Rope, heads: Heads, positions: usize) -> Result<Vec<f32>> {
    let half = heads.narrow / 2;
    let mut all = Vec::with_capacity(positions * heads.wide);
    for position in 0..positions {
        let mut head = vec![1.0; half];
        head.resize(heads.narrow, 0.0);
        rope.rotate(&mut head, position)?;
        all.extend((0..half).flat_map(|pair| [head[pair], head[pair + half]]));
        all.extend((half..heads.wide / 2).flat_map(|_| [1.0, 0.0]));
    }
    Ok(all)
}
