//! Devices that do not do as others do.

use crate::world::{ROOM, SEED, bits, config, fed, interpreter, on, on_processor, text};
use cuda_executor::{CudaExecutor, PromptKernels, Room, prepare};
use cuda_kernels::{
    Address, Argument, DeviceError, DeviceResult, Gpu, Interpreter, Launch, Recording, forward_gpu,
};
use kv_cache::{CachedExecutor, KvCache};
use naive_decode::{Config, Executor, Pass, Span, Want, random_tensors};
use std::collections::BTreeSet;

/// A device that does not do as others do.
#[derive(Default)]
struct Odd {
    gpu: Interpreter,
    /// Steps of so many rows it does not record.
    not_recorded: Vec<u32>,
    /// How often it was asked to record, and launches of what it did.
    recorded: Vec<usize>,
    /// The kernel that its driver cannot compile.
    not_compiled: Option<&'static str>,
    /// The one of Hopper's kernels for prompts that is refused.
    refused: Option<&'static str>,
    /// The one that ends the device.
    kills: Option<&'static str>,
    is_dead: bool,
    /// The one whose first output is off by its last bit.
    is_off: Option<&'static str>,
    /// After so many pieces of a read it is dead.
    dies_after_pieces: Option<usize>,
    /// Bytes that were asked for.
    allocated: usize,
    /// Whether something was launched that nobody has waited for yet.
    is_busy: bool,
    /// Kernels that were made ready.
    prepared: BTreeSet<&'static str>,
    /// Kernels that were launched or recorded, with their grids.
    launched: Vec<(&'static str, [u32; 3])>,
}

impl Gpu for Odd {
    forward_gpu!(gpu: is_hopper copy);

    fn alloc(&mut self, bytes: usize) -> DeviceResult<Address> {
        self.allocated += bytes;
        self.gpu.alloc(bytes)
    }

    fn write(&mut self, to: Address, bytes: &[u8]) -> DeviceResult<()> {
        self.live()?;
        self.gpu.write(to, bytes)
    }

    fn read(&mut self, from: Address, bytes: usize, to: &mut dyn FnMut(&[u8])) -> DeviceResult<()> {
        self.live()?;
        self.is_busy = false;
        let most = self.dies_after_pieces.unwrap_or(usize::MAX);
        let mut pieces = 0;
        self.gpu.read(from, bytes, &mut |piece| {
            pieces += 1;
            if pieces <= most {
                to(piece);
            }
        })?;
        self.is_dead |= pieces > most;
        self.live()
    }

    fn prepare(&mut self, launches: &[Launch]) -> DeviceResult<()> {
        self.prepared.extend(launches.iter().map(|launch| launch.entry));
        let refused = launches.iter().find(|launch| Some(launch.entry) == self.not_compiled);
        match refused {
            Some(launch) => Err(DeviceError(format!("cannot load the module of {}", launch.entry))),
            None => self.gpu.prepare(launches),
        }
    }

    fn launch(&mut self, launch: &Launch) -> DeviceResult<()> {
        self.live()?;
        self.is_busy = true;
        self.launched.push((launch.entry, launch.grid));
        let is = |kernel: Option<&str>| kernel.is_some_and(|name| launch.entry.starts_with(name));
        if is(self.refused) {
            return Err(DeviceError("too much shared memory".into()));
        }
        self.gpu.launch(launch)?;
        // Whoever asks next is told.
        self.is_dead |= is(self.kills);
        if is(self.is_off) {
            let Argument::Pointer(out) = launch.arguments[0] else { panic!("it has an output") };
            let mut number = self.gpu.peek(out, 2)?;
            number[0] ^= 1;
            self.gpu.write(out, &number)?;
        }
        Ok(())
    }

    fn record(&mut self, launches: &[Launch]) -> DeviceResult<Recording> {
        self.recorded.push(launches.len());
        self.launched.extend(launches.iter().map(|launch| (launch.entry, launch.grid)));
        // A step begins with the embeddings of its rows.
        match self.not_recorded.contains(&launches[0].grid[0]) {
            true => Err(DeviceError("cannot make a graph: not supported".into())),
            false => self.gpu.record(launches),
        }
    }

    fn replay(&mut self, recording: Recording) -> DeviceResult<()> {
        self.is_busy = true;
        self.gpu.replay(recording)
    }

    fn finish(&mut self) -> DeviceResult<()> {
        self.live()?;
        self.is_busy = false;
        self.gpu.finish()
    }
}

impl Odd {
    fn live(&self) -> DeviceResult<()> {
        if self.is_dead { Err(DeviceError("an illegal instruction".into())) } else { Ok(()) }
    }
}

/// Hopper's kernels for prompts, and what messages call them.
const HOPPERS: [(&str, &str); 2] =
    [("paged_prefill_hopper", "attention"), ("gemm_prefill_hopper", "matrix product")];

#[test]
fn on_hopper_a_prompt_has_the_same_bits() {
    let text = text(100);
    let pass = Pass::one(Span::new(0, 0, &text, Want::Last));
    let mut hopper = on(Odd { gpu: interpreter(true), ..Odd::default() }, ROOM).unwrap();
    assert_eq!(hopper.prompts(), &PromptKernels::Hopper);
    hopper.gpu().launched.clear();
    assert_eq!(bits(hopper.execute(&pass).unwrap()), fed(&[100], &text));
    let gpu = hopper.gpu();
    for (kernel, _) in HOPPERS {
        let usual = kernel.trim_end_matches("_hopper");
        let launched = gpu.launched.iter().map(|(entry, _)| entry);
        let mut of_both = launched.filter(|entry| entry.starts_with(usual)).peekable();
        assert!(of_both.peek().is_some() && of_both.all(|entry| entry.starts_with(kernel)));
    }
}

#[test]
fn a_hopper_whose_own_kernels_give_other_bits_runs_prompts_with_the_usual_ones() {
    let text = text(100);
    let pass = Pass::one(Span::new(0, 0, &text, Want::Last));
    for (kernel, what) in HOPPERS {
        let gpu = Odd { gpu: interpreter(true), is_off: Some(kernel), ..Odd::default() };
        let mut executor = on(gpu, ROOM).unwrap();
        let said = executor.prompts().to_string();
        let expected =
            format!("the usual kernels: Hopper's {what} gives other bits on this device");
        assert_eq!(said, expected);
        assert_eq!(bits(executor.execute(&pass).unwrap()), fed(&[100], &text));
    }
}

#[test]
fn a_hopper_that_refuses_its_own_kernels_goes_on_and_one_that_dies_of_one_is_an_error() {
    let gpu = || interpreter(true);
    for (kernel, what) in HOPPERS {
        let refusing = Odd { gpu: gpu(), refused: Some(kernel), ..Odd::default() };
        let said = on(refusing, ROOM).unwrap().prompts().to_string();
        let expected =
            format!("the usual kernels: Hopper's {what} cannot be run: too much shared memory");
        assert_eq!(said, expected);
        let dying = Odd { gpu: gpu(), kills: Some(kernel), ..Odd::default() };
        assert_eq!(
            on(dying, ROOM).err().unwrap().to_string(),
            format!(
                "CUDA: Hopper's {what} for prompts failed when it was tried: an illegal instruction; with LADDER_NO_HOPPER=1 in the environment prompts take the usual kernels"
            )
        );
    }
}

#[test]
fn a_kernel_that_does_not_compile_is_found_out_before_anything_is_set_aside() {
    for entry in
        ["embedding", "gemm_decode_16", "paged_decode_64", "gemm_prefill", "paged_prefill_64"]
    {
        let gpu = || Odd { not_compiled: Some(entry), ..Odd::default() };
        let mut watched = gpu();
        let refused = prepare(&mut watched, &config()).unwrap_err().to_string();
        assert_eq!(refused, format!("CUDA: cannot load the module of {entry}"));
        assert_eq!(watched.allocated, 0);
        assert_eq!(on(gpu(), ROOM).err().unwrap().to_string(), refused);
    }
}

#[test]
fn every_kernel_that_passes_launch_was_made_ready() {
    let text = text(100);
    let mut executor = on(Odd::default(), ROOM).unwrap();
    let long = Span::new(0, 0, &text, Want::All);
    executor.execute(&Pass::one(long)).unwrap();
    executor.hidden(&Pass::one(Span::new(1, 0, &text[..5], Want::All))).unwrap();
    executor.execute(&Pass::one(Span::new(1, 5, &text[5..6], Want::Last))).unwrap();
    executor.likeliest(&Pass::one(Span::new(1, 6, &text[6..26], Want::Last)), &[true]).unwrap();
    let gpu = executor.gpu();
    let launched: BTreeSet<_> = gpu.launched.iter().map(|&(entry, _)| entry).collect();
    let late: Vec<_> = launched.difference(&gpu.prepared).collect();
    assert!(late.is_empty() && !launched.is_empty(), "{late:?} are compiled in a request");
}

#[test]
fn kernels_that_do_what_two_did_change_no_bit() {
    // Of 264 inputs and of 320 there are two splits; of 6,152 there are more than a norm adds, and twice as many outputs
    // are enough for a product with its gate.
    let wide =
        Config { hidden_size: 264, heads: 5, intermediate_size: 6_152, layers: 1, ..config() };
    let (rope, tensors) = (&on_processor().rope, random_tensors(SEED));
    let mut executor = CudaExecutor::new(Odd::default(), wide, rope, &tensors, ROOM).unwrap();
    let text = text(70);
    let mut fed = |ends: &[usize]| {
        let sequence = executor.cache_mut().open();
        let (mut start, mut last) = (0, Vec::new());
        for &end in ends {
            executor.gpu().launched.clear();
            let span = Span::new(sequence, start, &text[start..end], Want::Last);
            last = bits(executor.execute(&Pass::one(span)).unwrap());
            start = end;
        }
        let launched: Vec<_> = executor.gpu().launched.iter().map(|&(entry, _)| entry).collect();
        (last, launched)
    };
    let (many, few) = (fed(&[70]), fed(&[64, 70]));
    assert!(many.0 == few.0);
    let product = "gemm_decode_16";
    let attend = ["rope_cache_parts", "paged_decode_64", "join_splits"];
    let feed_forward = ["gemm_decode_swiglu_16", product, "add_splits", "add_rms_norm"];
    let expected = [
        &["embedding", "rms_norm", product][..],
        &attend,
        &[product, "add_rms_norm_parts"],
        &feed_forward,
        &["embedding", product, "add_splits_f32"],
    ];
    assert_eq!(few.1, expected.concat());
}

#[test]
fn beside_a_prompt_of_many_rows_few_rows_keep_their_kernel() {
    let text = text(100);
    let mut executor = on(Odd::default(), ROOM).unwrap();
    let mut attention = |rows: [usize; 3]| {
        executor.gpu().launched.clear();
        let mut spans = Vec::new();
        for (sequence, rows) in rows.into_iter().enumerate() {
            executor.cache_mut().truncate(sequence, 0).unwrap();
            spans.push(Span::new(sequence, 0, &text[..rows], Want::Nothing));
        }
        executor.execute(&Pass { spans }).unwrap();
        let gpu = executor.gpu();
        let of = |kernel| gpu.launched.iter().find(|(entry, _)| *entry == kernel);
        // Requests are a grid's third dimension.
        ["paged_decode_64", "paged_prefill_64"].map(|kernel| of(kernel).map(|(_, grid)| grid[2]))
    };
    assert_eq!(attention([100, 3, 1]), [Some(2), Some(1)]);
    assert_eq!(attention([16, 17, 60]), [Some(1), Some(2)]);
    assert_eq!(attention([1, 60, 60]), [Some(1), Some(2)]);
    assert_eq!(attention([40, 40, 40]), [None, Some(3)]);
    assert_eq!(attention([40, 3, 21]), [Some(3), None]);
}

#[test]
fn a_step_that_cannot_be_recorded_gives_the_same_bits_and_the_others_are_played() {
    let text = text(24);
    let mut executor = on(Odd { not_recorded: vec![1], ..Odd::default() }, ROOM).unwrap();
    let prompts = [Span::new(0, 0, &text[..18], Want::Last), Span::new(1, 0, &[3], Want::Nothing)];
    executor.execute(&Pass { spans: prompts.into() }).unwrap();
    let mut last = Vec::new();
    // Both together, then the first alone, and so on.
    for (step, end) in (19..=24).enumerate() {
        let mut spans = vec![Span::new(0, end - 1, &text[end - 1..end], Want::Last)];
        if step % 2 == 0 {
            spans.push(Span::new(1, 1 + step / 2, &[3], Want::Last));
        }
        let logits = executor.execute(&Pass { spans }).unwrap();
        last = logits.row(0).to_vec();
    }
    assert_eq!(last, fed(&[18, 19, 20, 21, 22, 23, 24], &text));
    assert_eq!(executor.gpu().recorded.len(), 2, "each size is recorded once, or tried once");
    assert_eq!(executor.gpu().gpu.replays, 3, "what was recorded is kept");
    assert!(executor.has_graphs());
    let said = executor.not_recorded().unwrap().to_string();
    assert!(said.contains("cannot make a graph: not supported"), "{said}");
}

#[test]
fn a_pass_has_run_when_it_returns_also_if_it_wants_nothing() {
    let text = text(20);
    let mut executor = on(Odd::default(), ROOM).unwrap();
    let pass = |start, end, want| Pass::one(Span::new(0, start, &text[start..end], want));
    assert_eq!(executor.execute(&pass(0, 7, Want::Nothing)).unwrap().dim(), (0, 80));
    assert!(!executor.gpu().is_busy);
    assert_eq!(executor.hidden(&pass(7, 19, Want::Nothing)).unwrap().dim(), (0, 72));
    assert!(!executor.gpu().is_busy);
    executor.execute(&pass(19, 20, Want::Last)).unwrap();
    assert!(!executor.gpu().is_busy);
}

#[test]
fn a_read_that_fails_on_its_way_fails_its_pass_and_nothing_is_committed() {
    let text = text(60);
    let mut executor = on(Odd::default(), ROOM).unwrap();
    let pass = |start, end| Pass::one(Span::new(0, start, &text[start..end], Want::All));
    executor.execute(&pass(0, 20)).unwrap();
    // Logits of 20 rows are two pieces, and so is a block of the pool.
    executor.gpu().dies_after_pieces = Some(1);
    let mut bytes = vec![7];
    let block = executor.cache().tables(0).unwrap().held().next().unwrap();
    assert!(executor.cache_mut().parts().1.copy_out(block, &mut bytes).is_err());
    assert_eq!(bytes, [7]);
    executor.gpu().is_dead = false;
    assert!(executor.execute(&pass(20, 40)).is_err());
    assert_eq!(executor.cache().len(0), 20);
}

#[test]
fn what_a_model_takes_is_known_before_there_is_a_device() {
    let (rope, tensors) = (&on_processor().rope, random_tensors(SEED));
    let room = Room { tokens: 100, capacity: 300, rows: 70 };
    for config in [config(), Config { tied_head: true, layers: 3, ..config() }] {
        let bytes = room.bytes(&config).unwrap();
        let recorded = room.recorded_bytes(&config).unwrap();
        let gpu = Odd::default();
        let executor = CudaExecutor::new(gpu, config.clone(), rope, &tensors, room);
        let mut executor = executor.unwrap();
        assert_eq!(executor.gpu().allocated, bytes - recorded);
        // Steps of up to 64 rows, with one split of keys or two; each has so many launches.
        executor.cache_mut().open();
        executor.execute(&Pass::one(Span::new(0, 0, &[1], Want::Last))).unwrap();
        let [launches] = executor.gpu().recorded[..] else { panic!("one step was recorded") };
        assert_eq!(recorded, 7 * 2 * launches * (10 << 10));
    }
    assert!(room.bytes(&Config { vocab_size: 81, ..config() }).is_err());
}

#[test]
fn a_hopper_s_trial_takes_little_memory_beside() {
    let (rope, tensors) = (&on_processor().rope, random_tensors(SEED));
    for config in [config(), Config { head_dim: 128, ..config() }] {
        let expected = ROOM.bytes(&config).unwrap() - ROOM.recorded_bytes(&config).unwrap();
        let gpu = Odd { gpu: interpreter(true), ..Odd::default() };
        let executor = CudaExecutor::new(gpu, config.clone(), rope, &tensors, ROOM).unwrap();
        let trial = executor.gpu().allocated - expected;
        assert!((1..2 << 20).contains(&trial), "{trial} bytes");
    }
}
