//! The small launches run, and each is what its name says.

use cuda_kernels::small::ALL;
use ptx_interpreter::{Step, Trace};

/// How many instructions were told of.
struct Told(u64);

impl Trace for Told {
    /// Banks are drawn as they are counted: as many requests, and as many wavefronts.
    fn step(&mut self, step: &Step<'_>) {
        self.0 += 1;
        for access in step.shared {
            let by_bank = access.by_bank();
            assert_eq!(by_bank.len() as u64, access.requests, "{}", step.text);
            let wavefronts: usize = by_bank.iter().map(Vec::len).sum();
            assert_eq!(wavefronts as u64, access.wavefronts, "{}", step.text);
        }
    }
}

#[test]
fn each_runs_to_its_end_and_is_short_enough_to_watch() {
    for small in &ALL {
        assert_eq!(small.launch().entry, small.name);
        let mut told = Told(0);
        let counts = small.run_traced(&mut told).unwrap_or_else(|e| panic!("{}: {e}", small.name));
        assert_eq!(told.0, counts.warp_instructions, "{}", small.name);
        assert!(told.0 < 150_000, "{} takes {} instructions", small.name, told.0);
    }
}

#[test]
fn every_source_has_one() {
    let modules: Vec<&str> = ALL.iter().map(|small| small.launch().ptx).collect();
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/ptx")).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(modules.contains(&text.as_str()), "no small launch of {}", path.display());
    }
}
