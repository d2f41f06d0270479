//! Every kernel against its reference, and that none is left out.

use cuda_kernels::check::{Check, Problem, all};
use cuda_kernels::{
    Address, DeviceError, DeviceResult, Gpu, Interpreter, Launch, Recording, Rows, forward_gpu,
    read_onto,
};
use ptx_interpreter::Module;
use std::collections::BTreeSet;

/// The interpreter, and what was launched on it.
#[derive(Default)]
struct Watched {
    device: Interpreter,
    launched: BTreeSet<&'static str>,
    /// The most shared memory that a block asked for.
    shared_bytes: u32,
}

impl Gpu for Watched {
    forward_gpu!(device: alloc write read copy prepare record replay finish);

    fn is_hopper(&self) -> bool {
        true
    }

    fn launch(&mut self, launch: &Launch) -> DeviceResult<()> {
        self.launched.insert(launch.entry);
        self.shared_bytes = self.shared_bytes.max(launch.shared_bytes);
        self.device.launch(launch)?;
        let counts = self.device.counts;
        match launch.entry {
            // Rows lie side by side, and banks are free for them.
            "rms_norm" if counts.bank_conflicts() > 0 => {
                Err(DeviceError(format!("{} bank conflicts", counts.bank_conflicts())))
            }
            // Two bytes are read twice for each that is written: neighbours lie next to each other.
            "swiglu" if counts.global_load_bytes != 2 * counts.global_store_bytes => {
                let (read, written) = (counts.global_load_bytes, counts.global_store_bytes);
                Err(DeviceError(format!("{read} bytes read, {written} written")))
            }
            _ => Ok(()),
        }
    }
}

#[test]
fn every_kernel_is_right_and_none_is_left_out() {
    let checks = all();
    let run = |check: &Check| {
        let mut device = Watched::default();
        if let Err(problem) = check.run(&mut device) {
            panic!("{}: {problem}", check.name);
        }
        let said = "what a check says that it needs decides which devices it is left out on";
        assert_eq!(device.shared_bytes, check.shared_bytes, "{}: {said}", check.name);
        device.launched
    };
    let launched: BTreeSet<_> = std::thread::scope(|scope| {
        let running: Vec<_> = checks.iter().map(|check| scope.spawn(move || run(check))).collect();
        running.into_iter().flat_map(|check| check.join().unwrap()).collect()
    });
    let mut there = BTreeSet::new();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/ptx");
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for line in text.lines().filter(|line| line.contains(".entry ")) {
            let name = line.split_once(".entry ").unwrap().1;
            there.insert(name.trim_end_matches('(').trim().to_owned());
        }
        Module::parse(&text).unwrap();
    }
    let missing: Vec<_> = there.iter().filter(|name| !launched.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "no check launches {missing:?}");
}

/// The interpreter, on which a kernel leaves something out in one of its launches.
struct LeavesOut {
    device: Interpreter,
    entry: &'static str,
    /// Its launches before that one; after it, more than there will be.
    before: usize,
    /// The store that is left out; everything, if none is named.
    store: Option<&'static str>,
}

impl Gpu for LeavesOut {
    forward_gpu!(device: is_hopper alloc write read copy prepare record replay finish);

    fn launch(&mut self, launch: &Launch) -> DeviceResult<()> {
        let before = self.before;
        self.before = before.wrapping_sub(usize::from(launch.entry == self.entry));
        if launch.entry != self.entry || before > 0 {
            return self.device.launch(launch);
        }
        let Some(store) = self.store else { return Ok(()) };
        let ptx = launch.ptx.replacen(store, "", 1);
        assert_ne!(ptx, launch.ptx);
        self.device.launch_text(&ptx, launch).map_err(|error| DeviceError(error.to_string()))
    }
}

/// Others have written the right values to the same place before, or the place has been given them to begin with.
#[test]
fn a_kernel_that_writes_nothing_is_noticed() {
    let cases = [
        ("matrix products", "gemm_decode_16", 0, None),
        ("matrix products", "gemm_decode_16", 1, None),
        // The second case's splits, in f32, after those that were rounded.
        ("matrix products", "gemm_decode_16", 5, None),
        ("matrix products with weights in blocks", "gemm_decode_int4_16", 0, None),
        ("matrix products with weights in blocks", "gemm_decode_int4_16", 1, None),
        ("matrix products with weights in blocks", "gemm_prefill", 0, None),
        ("multi-head latent attention", "mla_prefill", 0, None),
        ("attention, steps 1 to 5", "attention_02_tiled", 0, None),
        ("attention, steps 1 to 5", "attention_05_tensor_cores", 0, None),
        ("norms and RoPE of products in splits", "add_splits", 0, None),
        // Of what is no token.
        ("norms, gate, embedding, argmax", "embedding", 0, Some("st.global.u16 \t[%rd57], %rs1;")),
    ];
    for (name, entry, before, store) in cases {
        let check = all().into_iter().find(|check| check.name == name).unwrap();
        let mut device = LeavesOut { device: Interpreter::new(), entry, before, store };
        let found = check.run(&mut device);
        assert!(matches!(found, Err(Problem::Wrong(_))), "{entry} after {before}: {found:?}");
    }
}

/// A device on which one thing is not as it should be.
struct Broken {
    device: Interpreter,
    fault: Fault,
    recorded: Vec<Vec<Launch>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Rows are copied as if they lay side by side.
    NoStride,
    /// Each row of a copy but the last.
    LastRow,
    /// What is written is cut off after 4 MiB.
    OnePiece,
    /// What is read lies at the beginning of its piece of 256 bytes.
    ReadAligned,
    /// The second piece of what is read is not given.
    LosesSecond,
    /// It is given twice.
    TwiceSecond,
    /// It is given before the first.
    Swapped,
    /// The device fails before it.
    FailsInSecond,
    /// A recording is what was launched in it, once and for all.
    RunsWhenRecorded,
    /// Of a recording, the last launch is played first.
    Reversed,
    /// The latest recording is played, whichever is asked for.
    Latest,
    /// Memory that was never given out is written to without a word.
    NoBounds,
    /// Little shared memory.
    SmallShared,
}

impl Broken {
    fn new(fault: Fault) -> Self {
        Broken { device: Interpreter::new(), fault, recorded: Vec::new() }
    }
}

impl Gpu for Broken {
    forward_gpu!(device: is_hopper alloc prepare launch finish);

    fn shared_bytes(&self) -> u32 {
        if self.fault == Fault::SmallShared { 99 << 10 } else { self.device.shared_bytes() }
    }

    fn write(&mut self, to: Address, bytes: &[u8]) -> DeviceResult<()> {
        let most = if self.fault == Fault::OnePiece { 4 << 20 } else { usize::MAX };
        match self.device.write(to, &bytes[..bytes.len().min(most)]) {
            Err(_) if self.fault == Fault::NoBounds => Ok(()),
            written => written,
        }
    }

    fn read(&mut self, from: Address, bytes: usize, to: &mut dyn FnMut(&[u8])) -> DeviceResult<()> {
        let from = if self.fault == Fault::ReadAligned { from & !255 } else { from };
        let mut pieces = 0;
        let mut held = Vec::new();
        self.device.read(from, bytes, &mut |piece| {
            pieces += 1;
            match self.fault {
                Fault::LosesSecond if pieces == 2 => {}
                Fault::TwiceSecond if pieces == 2 => (0..2).for_each(|_| to(piece)),
                Fault::FailsInSecond if pieces >= 2 => {}
                Fault::Swapped if pieces == 1 && piece.len() < bytes => {
                    held = bytemuck::pod_collect_to_vec(piece);
                }
                _ => to(piece),
            }
            if pieces == 2 && self.fault == Fault::Swapped {
                to(bytemuck::cast_slice::<u128, u8>(&held));
            }
        })?;
        match self.fault {
            Fault::FailsInSecond if pieces >= 2 => Err(DeviceError("it is gone".into())),
            _ => Ok(()),
        }
    }

    fn copy(&mut self, rows: Rows) -> DeviceResult<()> {
        self.device.copy(match self.fault {
            Fault::NoStride => Rows { stride: rows.bytes, ..rows },
            Fault::LastRow if rows.count > 1 => Rows { count: rows.count - 1, ..rows },
            _ => rows,
        })
    }

    fn record(&mut self, launches: &[Launch]) -> DeviceResult<Recording> {
        if self.fault == Fault::RunsWhenRecorded {
            launches.iter().try_for_each(|launch| self.device.launch(launch))?;
        }
        self.recorded.push(launches.to_vec());
        Ok(Recording(self.recorded.len() - 1))
    }

    fn replay(&mut self, Recording(number): Recording) -> DeviceResult<()> {
        let missing = || DeviceError(format!("no recording {number}"));
        let mut launches = self.recorded.get(number).ok_or_else(missing)?.clone();
        match self.fault {
            Fault::RunsWhenRecorded => return Ok(()),
            Fault::Reversed => launches.reverse(),
            Fault::Latest => launches = self.recorded.last().cloned().unwrap_or_default(),
            _ => {}
        }
        launches.iter().try_for_each(|launch| self.device.launch(launch))
    }
}

#[test]
fn a_device_whose_memory_or_recordings_are_wrong_is_found_out() {
    let check = &all()[0];
    for fault in [
        Fault::NoStride,
        Fault::LastRow,
        Fault::OnePiece,
        Fault::ReadAligned,
        Fault::LosesSecond,
        Fault::TwiceSecond,
        Fault::Swapped,
        Fault::FailsInSecond,
        Fault::RunsWhenRecorded,
        Fault::Reversed,
        Fault::Latest,
        Fault::NoBounds,
    ] {
        assert!(check.run(&mut Broken::new(fault)).is_err(), "{fault:?} is not noticed");
    }
    assert_eq!(check.run(&mut Broken::new(Fault::SmallShared)), Ok(()));
}

#[test]
fn what_is_read_in_pieces_is_whole_and_in_order_or_an_error_and_nothing() {
    // Three pieces and a bit, behind what is there already.
    let numbers: Vec<u32> = (0..3 * 1024 + 7).collect();
    let read = |fault| {
        let mut gpu = Broken::new(fault);
        let at = gpu.alloc(size_of_val(&numbers[..])).unwrap();
        gpu.write(at, bytemuck::cast_slice(&numbers)).unwrap();
        let mut found = vec![9u32];
        let said = read_onto(&mut gpu, at, numbers.len(), &mut found).map_err(|error| error.0);
        (found, said)
    };
    assert_eq!(read(Fault::SmallShared), ([&[9], &numbers[..]].concat(), Ok(())));
    let none = |problem: &str| (vec![9], Err(problem.to_owned()));
    assert_eq!(read(Fault::FailsInSecond), none("it is gone"));
    assert_eq!(read(Fault::LosesSecond), none("cannot read: 2055 numbers came, not 3079"));
    assert_eq!(read(Fault::TwiceSecond), none("cannot read: 4103 numbers came, not 3079"));
}

#[test]
fn what_needs_more_shared_memory_than_there_is_is_left_out() {
    // As an RTX 30, 40 or 50 has it.
    let small = Broken::new(Fault::SmallShared);
    let is_left_out = |check: &&Check| !check.is_for_hopper && check.left_out(&small).is_some();
    let checks = all();
    let left_out: Vec<_> = checks.iter().filter(is_left_out).map(|check| check.name).collect();
    assert_eq!(left_out, ["multi-head latent attention"]);
    let whole = Interpreter::new();
    for check in checks {
        let why = check.left_out(&whole);
        assert_eq!(why.is_some(), check.is_for_hopper, "{}: {why:?}", check.name);
    }
}
