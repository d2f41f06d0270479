//! What the interpreter tells of a launch's last block, kept so that one can go through it at will.

use anyhow::Result;
use cuda_kernels::Launch;
use cuda_kernels::small::Small;
use ptx_interpreter::{Counts, Pending, SharedAccess, Step, Trace};
use std::collections::HashMap;

/// A run of a small launch.
pub struct Recording {
    /// The kernel, and what is launched.
    pub small: &'static Small,
    /// The launch.
    pub launch: Launch,
    /// The block that was recorded: the grid's last one, which under a causal mask sees the most.
    pub block: [u32; 3],
    /// Its instructions, in the order in which its warps executed them.
    pub moments: Vec<Moment>,
    /// What the whole launch did.
    pub counts: Counts,
    /// Each warp's moments.
    pub(super) of_warp: Vec<Vec<usize>>,
    texts: HashMap<usize, String>,
    names: Vec<String>,
}

/// One instruction of one warp.
pub struct Moment {
    /// The warp.
    pub warp: u32,
    /// Index of the instruction in the kernel.
    pub pc: usize,
    /// Line of the PTX, from 1.
    pub line: u32,
    /// Lanes that are here.
    pub active: u32,
    /// Lanes that execute it.
    pub executing: u32,
    /// What it did in shared memory.
    pub shared: Vec<SharedAccess>,
    /// What is under way after it.
    pub pending: Pending,
    registers: Vec<(usize, [u64; 32])>,
    predicates: Vec<(usize, u32)>,
}

impl Recording {
    /// Runs the launch.
    ///
    /// # Errors
    /// What is wrong with the kernel, if something is.
    pub fn of(small: &'static Small) -> Result<Self> {
        let launch = small.launch();
        let block = launch.grid.map(|blocks| blocks - 1);
        let mut recorder =
            Recorder { block, moments: Vec::new(), texts: HashMap::new(), names: Names::default() };
        let counts = small.run_traced(&mut recorder)?;
        let Recorder { moments, texts, names, .. } = recorder;
        let mut of_warp = vec![Vec::new(); launch.threads.div_ceil(32) as usize];
        for (at, moment) in moments.iter().enumerate() {
            of_warp[moment.warp as usize].push(at);
        }
        Ok(Self { small, launch, block, moments, counts, of_warp, texts, names: names.list })
    }

    /// A moment's instruction in one line.
    pub fn text(&self, moment: &Moment) -> &str {
        self.texts.get(&moment.pc).map_or("", String::as_str)
    }

    /// Registers that it wrote: each with its name and the bits of all 32 lanes.
    pub fn registers<'a>(
        &'a self,
        moment: &'a Moment,
    ) -> impl Iterator<Item = (&'a str, &'a [u64; 32])> {
        moment.registers.iter().map(|(name, lanes)| (self.names[*name].as_str(), lanes))
    }

    /// Predicates that it changed: each with its name and one bit a lane.
    pub fn predicates<'a>(&'a self, moment: &'a Moment) -> impl Iterator<Item = (&'a str, u32)> {
        moment.predicates.iter().map(|(name, lanes)| (self.names[*name].as_str(), *lanes))
    }

    /// What a warp executes next after moment `at`, if it goes on.
    pub(super) fn next_of(&self, warp: usize, at: usize) -> Option<&Moment> {
        let moments = &self.of_warp[warp];
        let next = moments.partition_point(|&moment| moment <= at);
        moments.get(next).map(|&moment| &self.moments[moment])
    }
}

/// Names, each once.
#[derive(Default)]
struct Names {
    list: Vec<String>,
    places: HashMap<String, usize>,
}

impl Names {
    fn place(&mut self, name: &str) -> usize {
        if let Some(place) = self.places.get(name) {
            return *place;
        }
        self.list.push(name.into());
        self.places.insert(name.into(), self.list.len() - 1);
        self.list.len() - 1
    }
}

struct Recorder {
    block: [u32; 3],
    moments: Vec<Moment>,
    texts: HashMap<usize, String>,
    names: Names,
}

impl Trace for Recorder {
    fn step(&mut self, step: &Step<'_>) {
        if step.block != self.block {
            return;
        }
        self.texts.entry(step.pc).or_insert_with(|| step.text.into());
        let names = &mut self.names;
        self.moments.push(Moment {
            warp: step.warp,
            pc: step.pc,
            line: step.line,
            active: step.active,
            executing: step.executing,
            shared: step.shared.to_vec(),
            pending: step.pending.clone(),
            registers: step
                .written
                .iter()
                .map(|(name, lanes)| (names.place(name), *lanes))
                .collect(),
            predicates: step
                .predicates
                .iter()
                .map(|(name, lanes)| (names.place(name), *lanes))
                .collect(),
        });
    }
}
