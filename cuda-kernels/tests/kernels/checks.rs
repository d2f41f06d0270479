//! Every kernel against its reference, and that none is left out.

use cuda_kernels::check::{Check, all};
use cuda_kernels::{Address, DeviceError, DeviceResult, Gpu, Interpreter, Launch, Recording, Rows};
use ptx_interpreter::Module;
use std::collections::BTreeSet;

/// The interpreter, and what was launched on it.
#[derive(Default)]
struct Watched {
    device: Interpreter,
    launched: BTreeSet<&'static str>,
}

impl Gpu for Watched {
    fn is_hopper(&self) -> bool {
        true
    }

    fn alloc(&mut self, bytes: usize) -> DeviceResult<Address> {
        self.device.alloc(bytes)
    }

    fn write(&mut self, to: Address, bytes: &[u8]) -> DeviceResult<()> {
        self.device.write(to, bytes)
    }

    fn read(&mut self, from: Address, bytes: &mut [u8]) -> DeviceResult<()> {
        self.device.read(from, bytes)
    }

    fn copy(&mut self, rows: Rows) -> DeviceResult<()> {
        self.device.copy(rows)
    }

    fn launch(&mut self, launch: &Launch) -> DeviceResult<()> {
        self.launched.insert(launch.entry);
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

    fn record(&mut self, launches: &[Launch]) -> DeviceResult<Recording> {
        self.device.record(launches)
    }

    fn replay(&mut self, recording: Recording) -> DeviceResult<()> {
        self.device.replay(recording)
    }

    fn finish(&mut self) -> DeviceResult<()> {
        self.device.finish()
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
