//! Whole models on the interpreter: what the processor says, and the same bits however the work is cut.

use cuda_executor::{CudaExecutor, PromptKernel, Room};
use cuda_kernels::{
    Address, Argument, DeviceError, DeviceResult, Gpu, Interpreter, Launch, Recording, Rows,
};
use half::bf16;
use kv_cache::{CachedDecoder, CachedExecutor, KvCache};
use naive_decode::{
    Config, CpuExecutor, Decoder, Executor, LoadOptions, Logits, Model, NaiveAttention, Pass,
    Result, Span, Visible, Want, dense, random_tensors,
};
use paged_cache::offload::HostTier;
use std::sync::Arc;

/// A Llama with every size that the kernels ask for, and none beyond.
fn config() -> Config {
    Config {
        hidden_size: 72,
        layers: 2,
        heads: 3,
        kv_heads: 1,
        head_dim: 64,
        intermediate_size: 136,
        vocab_size: 80,
        rms_norm_eps: 1e-5,
        rope_theta: 10_000.0,
        rope_scaling: None,
        trained_context: 320,
        tied_head: false,
        end_tokens: Vec::new(),
    }
}

const SEED: u64 = 5;

/// Weights as the device has them.
fn rounded(name: &str, shape: &[usize]) -> Result<Vec<f32>> {
    let numbers = random_tensors(SEED)(name, shape)?;
    Ok(numbers.into_iter().map(|number| bf16::from_f32(number).to_f32()).collect())
}

fn on_processor() -> Arc<Model> {
    let options = LoadOptions::default();
    Arc::new(Model::assemble(config(), options, &rounded, &dense(options.isa)).unwrap())
}

const ROOM: Room = Room { tokens: 640, capacity: 320, rows: 128 };

/// With three sequences open.
fn on_device(room: Room) -> CudaExecutor<Interpreter> {
    let (rope, tensors) = (&on_processor().rope, random_tensors(SEED));
    let mut executor =
        CudaExecutor::new(Interpreter::new(), config(), rope, &tensors, room).unwrap();
    (0..3).for_each(|sequence| assert_eq!(executor.cache_mut().open(), sequence));
    executor
}

fn bits(logits: Logits) -> Vec<f32> {
    logits.into_raw_vec_and_offset().0
}

fn text(length: usize) -> Vec<u32> {
    (0..length as u32).map(|i| (i * i + 3 * i) % 79).collect()
}

/// The same spans on the processor, which keeps nothing: all earlier tokens are run again.
fn right(spans: &[(&[u32], usize)]) -> Vec<Vec<f32>> {
    let model = on_processor();
    let mut logits = Vec::new();
    for (text, rows) in spans {
        let attention = NaiveAttention::new(model.isa);
        let mut executor = CpuExecutor { model: Arc::clone(&model), attention };
        let pass = Pass::one(Span::new(0, 0, text, Want::All));
        let all = executor.execute(&pass).unwrap();
        logits.extend(all.rows().into_iter().skip(text.len() - rows).map(|row| row.to_vec()));
    }
    logits
}

/// Activations are rounded to bf16, to 2^-9 of themselves on average, some ten times a layer; errors of many elements add up
/// as their root. A hundredth of a logit's usual size is about what that comes to; five of them are not exceeded.
fn assert_near(found: &Logits, right: &[Vec<f32>]) {
    assert_eq!(found.nrows(), right.len());
    for (row, (found, right)) in found.rows().into_iter().zip(right).enumerate() {
        let size = (right.iter().map(|x| x * x).sum::<f32>() / right.len() as f32).sqrt();
        for (token, (found, right)) in found.iter().zip(right).enumerate() {
            let off = (found - right).abs() / size;
            assert!(off < 0.05, "row {row}, token {token}: {found}, right is {right}");
        }
    }
}

#[test]
fn logits_are_those_of_the_processor() {
    let (long, short) = (text(90), &text(40)[3..]);
    let mut executor = on_device(ROOM);
    // A prompt that is long, and one beside it.
    let pass = Pass {
        spans: vec![
            Span::new(2, 0, &long[..80], Want::Last),
            Span::new(0, 0, &short[..20], Want::All),
        ],
    };
    let found = executor.execute(&pass).unwrap();
    let mut wanted = right(&[(&long[..80], 1)]);
    wanted.extend(right(&[(&short[..20], 20)]));
    assert_near(&found, &wanted);
    // A step of each; one of them in several rows.
    let pass = Pass {
        spans: vec![
            Span::new(0, 20, &short[20..21], Want::All),
            Span::new(2, 80, &long[80..83], Want::All),
        ],
    };
    let found = executor.execute(&pass).unwrap();
    assert_near(&found, &right(&[(&short[..21], 1), (&long[..83], 3)]));
}

/// Logits of a text's last row, fed in pieces that end at these places.
fn fed(ends: &[usize], text: &[u32]) -> Vec<f32> {
    let mut executor = on_device(ROOM);
    let mut start = 0;
    let mut last = None;
    for &end in ends {
        last =
            Some(executor.execute(&Pass::one(Span::new(1, start, &text[start..end], Want::Last))));
        start = end;
    }
    last.unwrap().unwrap().into_raw_vec_and_offset().0
}

#[test]
fn a_text_has_the_same_bits_in_any_pieces() {
    // Longer than a split of attention, with the kernels for many rows and for few.
    let text = text(290);
    let pieces = fed(&[100, 101, 200, 250, 289, 290], &text);
    assert_eq!(fed(&[128, 256, 290], &text), pieces);
}

#[test]
fn a_sequence_has_the_same_bits_alone_and_among_others() {
    let (text, other) = (text(40), text(100));
    let mut executor = on_device(ROOM);
    let beside = Span::new(0, 0, &other[..60], Want::Nothing);
    let spans = vec![beside, Span::new(1, 0, &text[..39], Want::Nothing)];
    executor.execute(&Pass { spans }).unwrap();
    let spans = vec![
        Span::new(1, 39, &text[39..], Want::Last),
        Span::new(0, 60, &other[60..], Want::Nothing),
    ];
    let among = executor.execute(&Pass { spans }).unwrap();
    assert_eq!(among.into_raw_vec_and_offset().0, fed(&[40], &text));
}

#[test]
fn what_is_rolled_back_leaves_nothing_behind() {
    let text = text(40);
    let mut executor = on_device(ROOM);
    let run = |executor: &mut CudaExecutor<_>, start: usize, tokens: &[u32]| {
        executor.execute(&Pass::one(Span::new(1, start, tokens, Want::Last))).unwrap()
    };
    run(&mut executor, 0, &text[..20]);
    run(&mut executor, 20, &[7; 18]);
    executor.cache_mut().truncate(1, 20).unwrap();
    assert_eq!(executor.cache().len(1), 20);
    let again = run(&mut executor, 20, &text[20..]);
    assert_eq!(again.into_raw_vec_and_offset().0, fed(&[20, 40], &text));
}

#[test]
fn the_nodes_of_a_tree_see_their_ancestors_only() {
    let text = text(30);
    let mut executor = on_device(ROOM);
    executor.execute(&Pass::one(Span::new(0, 0, &text, Want::Nothing))).unwrap();
    // Two guesses after the text, and one after the second of them.
    let mut span = Span::new(0, 30, &[4, 5, 6], Want::All);
    span.positions = vec![30, 30, 31];
    span.sees[1] = Visible { range: 0..30, also: vec![31] };
    span.sees[2] = Visible { range: 0..30, also: vec![31, 32] };
    let found = executor.execute(&Pass::one(span)).unwrap();
    let after = |tokens: &[u32]| [&text[..], tokens].concat();
    assert_near(&found, &right(&[(&after(&[4]), 1), (&after(&[5, 6]), 2)]));
}

#[test]
fn a_decoder_says_what_the_processor_says() {
    let text = text(140); // two passes and a step
    let mut decoder = CachedDecoder::over(on_device(ROOM), Some(ROOM.rows)).unwrap();
    decoder.feed(&text[..139]).unwrap();
    let last = decoder.feed(&text[139..]).unwrap();
    let found = Logits::from_shape_vec((1, last.len()), last).unwrap();
    assert_near(&found, &right(&[(&text, 1)]));
    assert_eq!((decoder.rows(), decoder.kv_bytes_per_token()), (140, 2 * 2 * 64 * 2));
    assert!(decoder.feed(&[]).is_err() && decoder.feed(&[1; 181]).is_err());
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let mut executor = on_device(Room { tokens: 32, ..ROOM });
    let text = text(33);
    let mut refused = |span: Span| {
        let error = executor.execute(&Pass::one(span)).unwrap_err().to_string();
        assert_eq!(executor.cache().len(0), 0);
        executor.cache().check_integrity([]).unwrap();
        error
    };
    let span = |tokens: &[u32]| Span::new(0, 0, tokens, Want::Last);
    assert_eq!(refused(span(&[1, 80])), "token is 80, expected below the vocabulary's 80");
    assert_eq!(refused(span(&text)), "the pool of blocks holds 32 tokens; 48 were asked for");
    assert_eq!(
        refused(span(&[0; 129])),
        "rows of a pass on CUDA is 129, expected at most 128, for which there is room"
    );
    let mut far = span(&[1]);
    far.positions = vec![320];
    assert_eq!(refused(far), "positions on the device holds 320 tokens; 321 were asked for");
    // There is room for what does fit.
    executor.execute(&Pass::one(span(&text[..32]))).unwrap();
    let empty = executor.execute(&Pass { spans: Vec::new() }).unwrap();
    assert_eq!(empty.dim(), (0, 80));

    let room = |room: Room, config: Config| {
        let rope = &on_processor().rope;
        let tensors = random_tensors(SEED);
        CudaExecutor::new(Interpreter::new(), config, rope, &tensors, room)
            .err()
            .unwrap()
            .to_string()
    };
    assert_eq!(
        room(Room { capacity: 321, ..ROOM }, config()),
        "the model's context holds 320 tokens; 321 were asked for"
    );
    assert_eq!(
        room(ROOM, Config { head_dim: 160, ..config() }),
        "head_dim for CUDA is 160, expected an even number up to 128"
    );
    assert_eq!(
        room(ROOM, Config { vocab_size: 81, ..config() }),
        "vocab_size for CUDA is 81, expected a multiple of 8"
    );
    assert!(room(Room { rows: 0, ..ROOM }, config()).contains("none of it 0"));
}

/// One token more of each of these sequences, which hold so many.
fn step(at: &[(usize, usize)]) -> Pass {
    let span = |&(sequence, held): &(usize, usize)| Span::new(sequence, held, &[7], Want::Last);
    Pass { spans: at.iter().map(span).collect() }
}

#[test]
fn a_step_that_is_played_again_gives_the_bits_of_one_that_is_launched() {
    let text = text(300);
    let run = |mut executor: CudaExecutor<Interpreter>| {
        let prompts = [(0, 255), (1, 20), (2, 3)];
        for (sequence, length) in prompts {
            for start in (0..length).step_by(100) {
                let tokens = &text[start..length.min(start + 100)];
                let span = Span::new(sequence, start, tokens, Want::Nothing);
                executor.execute(&Pass::one(span)).unwrap();
            }
        }
        // Three rows are filled up to four; the longest comes to a second split, and then a sequence is alone.
        let steps = [
            step(&[(0, 255), (1, 20), (2, 3)]),
            step(&[(2, 4), (0, 256), (1, 21)]),
            step(&[(1, 22), (2, 5), (0, 257)]),
            step(&[(0, 258)]),
            step(&[(1, 23)]),
        ];
        let logits = steps.map(|pass| bits(executor.execute(&pass).unwrap()));
        let gpu = executor.gpu();
        (logits, (gpu.recordings(), gpu.replays))
    };
    let (launched, none) = run(on_device(ROOM).without_graphs());
    let (played, counts) = run(on_device(ROOM));
    assert!(launched == played);
    assert_eq!(none, (0, 0));
    // Of four rows with one split and with two, of one row with two and with one.
    assert_eq!(counts, (4, 5));
}

#[test]
fn what_two_sequences_share_is_copied_before_one_writes_to_it() {
    let text = text(60);
    let mut executor = on_device(ROOM);
    let run = |executor: &mut CudaExecutor<_>, sequence, start, tokens: &[u32]| {
        bits(executor.execute(&Pass::one(Span::new(sequence, start, tokens, Want::Last))).unwrap())
    };
    run(&mut executor, 1, 0, &text[..40]);
    let fork = executor.cache_mut().fork(1).unwrap();
    // Forty tokens end inside of a block.
    assert_eq!(executor.cache().blocks().used(), 3);
    let forked = run(&mut executor, fork, 40, &[9; 5]);
    assert_eq!(forked, fed(&[40, 45], &[&text[..40], &[9; 5]].concat()));
    assert_eq!(executor.cache().blocks().used(), 4);
    assert_eq!(run(&mut executor, 1, 40, &text[40..]), fed(&[40, 60], &text));
    executor.cache().check_integrity([]).unwrap();
}

#[test]
fn the_branch_that_came_true_is_kept() {
    let text = text(30);
    let mut executor = on_device(ROOM);
    executor.execute(&Pass::one(Span::new(1, 0, &text, Want::Nothing))).unwrap();
    // Two guesses after the text, and one after the second of them, which crosses into the next block.
    let mut span = Span::new(1, 30, &[4, 5, 6], Want::All);
    span.positions = vec![30, 30, 31];
    span.sees[1] = Visible { range: 0..30, also: vec![31] };
    span.sees[2] = Visible { range: 0..30, also: vec![31, 32] };
    executor.execute(&Pass::one(span)).unwrap();
    executor.cache_mut().keep(1, 30, &[31, 32]).unwrap();
    let next = Span::new(1, 32, &[8, 9], Want::Last);
    let found = bits(executor.execute(&Pass::one(next)).unwrap());
    assert_eq!(found, fed(&[30, 34], &[&text[..], &[5, 6, 8, 9]].concat()));
}

#[test]
fn a_sequence_goes_to_the_host_and_comes_back() {
    let text = text(60);
    let mut executor = on_device(ROOM);
    let pass = |sequence, start, tokens| Pass::one(Span::new(sequence, start, tokens, Want::Last));
    executor.execute(&pass(1, 0, &text[..45])).unwrap();
    let mut tier = HostTier::new(usize::MAX);
    let parked = executor.cache_mut().park(1, &mut tier).unwrap();
    // Others have its blocks meanwhile.
    executor.execute(&pass(0, 0, &[3; 70])).unwrap();
    let back = executor.cache_mut().unpark(&parked, &mut tier).unwrap();
    assert_eq!(executor.cache().len(back), 45);
    let found = bits(executor.execute(&pass(back, 45, &text[45..])).unwrap());
    assert_eq!(found, fed(&[45, 60], &text));
}

#[test]
fn hidden_states_and_the_head_give_the_logits() {
    let text = text(70);
    let mut executor = on_device(ROOM);
    // More rows than the head takes at a time.
    let pass = |sequence| Pass::one(Span::new(sequence, 0, &text, Want::All));
    let whole = executor.execute(&pass(0)).unwrap();
    let hidden = executor.hidden(&pass(1)).unwrap();
    assert_eq!(hidden.dim(), (70, 72));
    assert_eq!(executor.cache().len(1), 70);
    assert!(executor.head(hidden.view()).unwrap() == whole);
    assert!(executor.head(hidden.slice(ndarray::s![.., ..64])).is_err());
}

#[test]
fn narrow_heads_are_those_of_the_processor() {
    let narrow = Config { head_dim: 24, heads: 2, ..config() };
    let options = LoadOptions::default();
    let model = Model::assemble(narrow.clone(), options, &rounded, &dense(options.isa)).unwrap();
    let model = Arc::new(model);
    let attention = NaiveAttention::new(model.isa);
    let text = text(70);
    let pass = Pass::one(Span::new(0, 0, &text, Want::All));
    let right = CpuExecutor { model: Arc::clone(&model), attention }.execute(&pass).unwrap();
    let right: Vec<Vec<f32>> = right.rows().into_iter().map(|row| row.to_vec()).collect();
    let (rope, tensors) = (&model.rope, random_tensors(SEED));
    let mut executor = CudaExecutor::new(Interpreter::new(), narrow, rope, &tensors, ROOM).unwrap();
    executor.cache_mut().open();
    assert_near(&executor.execute(&pass).unwrap(), &right);
}

#[test]
fn on_hopper_a_prompt_has_the_same_bits() {
    let text = text(100);
    let pass = Pass::one(Span::new(0, 0, &text, Want::Last));
    let (rope, tensors) = (&on_processor().rope, random_tensors(SEED));
    let mut gpu = Interpreter::new();
    gpu.is_hopper = true;
    let mut hopper = CudaExecutor::new(gpu, config(), rope, &tensors, ROOM).unwrap();
    hopper.cache_mut().open();
    assert_eq!(hopper.prompts(), &PromptKernel::Hopper);
    assert_eq!(bits(hopper.execute(&pass).unwrap()), fed(&[100], &text));
}

#[test]
fn a_hopper_whose_own_kernel_gives_other_bits_runs_prompts_with_the_usual_one() {
    let text = text(100);
    let pass = Pass::one(Span::new(0, 0, &text, Want::Last));
    let (rope, tensors) = (&on_processor().rope, random_tensors(SEED));
    let mut gpu = Odd { hopper_is_off: true, ..Odd::default() };
    gpu.gpu.is_hopper = true;
    let mut executor = CudaExecutor::new(gpu, config(), rope, &tensors, ROOM).unwrap();
    executor.cache_mut().open();
    let said = executor.prompts().to_string();
    assert_eq!(said, "the usual kernel: Hopper's gives other bits on this device");
    assert_eq!(bits(executor.execute(&pass).unwrap()), fed(&[100], &text));
}

/// A device that does not do as others do.
#[derive(Default)]
struct Odd {
    gpu: Interpreter,
    /// It does not record.
    has_no_graphs: bool,
    /// The first output of Hopper's kernel for prompts is off by its last bit.
    hopper_is_off: bool,
    /// Bytes that were asked for.
    allocated: usize,
}

impl Gpu for Odd {
    fn is_hopper(&self) -> bool {
        self.gpu.is_hopper()
    }

    fn alloc(&mut self, bytes: usize) -> DeviceResult<Address> {
        self.allocated += bytes;
        self.gpu.alloc(bytes)
    }

    fn write(&mut self, to: Address, bytes: &[u8]) -> DeviceResult<()> {
        self.gpu.write(to, bytes)
    }

    fn read(&mut self, from: Address, bytes: &mut [u8]) -> DeviceResult<()> {
        self.gpu.read(from, bytes)
    }

    fn copy(&mut self, rows: Rows) -> DeviceResult<()> {
        self.gpu.copy(rows)
    }

    fn launch(&mut self, launch: &Launch) -> DeviceResult<()> {
        self.gpu.launch(launch)?;
        if self.hopper_is_off && launch.entry.starts_with("paged_prefill_hopper") {
            let Argument::Pointer(out) = launch.arguments[0] else { panic!("it has an output") };
            let mut number = [0; 2];
            self.gpu.read(out, &mut number)?;
            number[0] ^= 1;
            self.gpu.write(out, &number)?;
        }
        Ok(())
    }

    fn record(&mut self, launches: &[Launch]) -> DeviceResult<Recording> {
        match self.has_no_graphs {
            true => Err(DeviceError("cannot make a graph: not supported".into())),
            false => self.gpu.record(launches),
        }
    }

    fn replay(&mut self, recording: Recording) -> DeviceResult<()> {
        self.gpu.replay(recording)
    }

    fn finish(&mut self) -> DeviceResult<()> {
        self.gpu.finish()
    }
}

#[test]
fn a_device_that_does_not_record_gives_the_same_bits_and_says_why() {
    let text = text(20);
    let (rope, tensors) = (&on_processor().rope, random_tensors(SEED));
    let gpu = Odd { has_no_graphs: true, ..Odd::default() };
    let mut executor = CudaExecutor::new(gpu, config(), rope, &tensors, ROOM).unwrap();
    executor.cache_mut().open();
    let mut last = Vec::new();
    for (start, end) in [(0, 18), (18, 19), (19, 20)] {
        let span = Span::new(0, start, &text[start..end], Want::Last);
        last = bits(executor.execute(&Pass::one(span)).unwrap());
    }
    assert_eq!(last, fed(&[18, 19, 20], &text));
    assert!(!executor.has_graphs());
    let said = executor.not_recorded().unwrap().to_string();
    assert!(said.contains("cannot make a graph: not supported"), "{said}");
}

#[test]
fn what_a_model_takes_is_known_before_there_is_a_device() {
    let (rope, tensors) = (&on_processor().rope, random_tensors(SEED));
    let room = Room { tokens: 100, capacity: 300, rows: 70 };
    for config in [config(), Config { tied_head: true, layers: 3, ..config() }] {
        let bytes = room.bytes(&config).unwrap();
        let gpu = Odd::default();
        let executor = CudaExecutor::new(gpu, config.clone(), rope, &tensors, room);
        assert_eq!(executor.unwrap().gpu().allocated, bytes);
    }
    assert!(room.bytes(&Config { vocab_size: 81, ..config() }).is_err());
}
