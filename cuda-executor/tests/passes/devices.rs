//! Devices that do not do as others do.

use crate::world::{ROOM, SEED, bits, config, fed, on_processor, text};
use cuda_executor::{CudaExecutor, PromptKernel, Room};
use cuda_kernels::{
    Address, Argument, DeviceError, DeviceResult, Gpu, Interpreter, Launch, Recording, forward_gpu,
};
use kv_cache::CachedExecutor;
use naive_decode::{Config, Executor, Pass, Span, Want, random_tensors};

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
    /// Whether something was launched that nobody has waited for yet.
    is_busy: bool,
}

impl Gpu for Odd {
    forward_gpu!(gpu: is_hopper write copy);

    fn alloc(&mut self, bytes: usize) -> DeviceResult<Address> {
        self.allocated += bytes;
        self.gpu.alloc(bytes)
    }

    fn read(&mut self, from: Address, bytes: &mut [u8]) -> DeviceResult<()> {
        self.is_busy = false;
        self.gpu.read(from, bytes)
    }

    fn launch(&mut self, launch: &Launch) -> DeviceResult<()> {
        self.is_busy = true;
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
        self.is_busy = true;
        self.gpu.replay(recording)
    }

    fn finish(&mut self) -> DeviceResult<()> {
        self.is_busy = false;
        self.gpu.finish()
    }
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
fn a_pass_has_run_when_it_returns_also_if_it_wants_nothing() {
    let text = text(20);
    let (rope, tensors) = (&on_processor().rope, random_tensors(SEED));
    let mut executor = CudaExecutor::new(Odd::default(), config(), rope, &tensors, ROOM).unwrap();
    executor.cache_mut().open();
    let pass = |start, end, want| Pass::one(Span::new(0, start, &text[start..end], want));
    assert_eq!(executor.execute(&pass(0, 7, Want::Nothing)).unwrap().dim(), (0, 80));
    assert!(!executor.gpu().is_busy);
    assert_eq!(executor.hidden(&pass(7, 19, Want::Nothing)).unwrap().dim(), (0, 72));
    assert!(!executor.gpu().is_busy);
    executor.execute(&pass(19, 20, Want::Last)).unwrap();
    assert!(!executor.gpu().is_busy);
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
