//! Kernels broken on purpose, one line of PTX at a time, and what the interpreter says: for chapters 4 and 5 of the book.
//!
//!     cargo run --release -p cuda-kernels --example break_kernels
//!
//! With the name of a break, that one alone.

use cuda_kernels::Launch;
use cuda_kernels::small::attention::{Paged, hopper, step};
use cuda_kernels::steps::Step;
use ptx_interpreter::{Counts, Device, Error, Fault, Module, run};

/// A line of a kernel, changed.
struct Break {
    name: &'static str,
    what: &'static str,
    prepare: fn(&mut Device) -> Launch,
    /// Of the lines that have this in them, which one, from 0.
    line: (&'static str, usize),
    /// What becomes of it.
    edit: fn(&str) -> String,
}

const PAGED: Paged = Paged { keys: 300, queries: 1, heads: 2, kv_heads: 1, is_int8: false };

/// What can be broken here; `tests/kernels/mutants.rs` breaks every barrier, wait and swizzle of every kernel.
const BREAKS: [Break; 7] = [
    Break {
        name: "no-barrier-after-filling",
        what: "step 2 without the barrier after a tile was filled",
        prepare: |device| step(device, Step::Tiled, 64, 1),
        line: ("bar.sync", 0),
        edit: |_| String::new(),
    },
    Break {
        name: "no-barrier-before-refilling",
        what: "step 2 without the barrier before a tile is filled again",
        prepare: |device| step(device, Step::Tiled, 64, 1),
        line: ("bar.sync", 1),
        edit: |_| String::new(),
    },
    Break {
        name: "chunk-lost",
        what: "step 3 with OR where XOR exchanges chunks",
        prepare: |device| step(device, Step::Swizzled, 64, 1),
        line: ("xor.b32", 0),
        edit: |line| line.replace("xor", "or"),
    },
    Break {
        name: "one-copy-too-early",
        what: "step 4 waiting until one group of copies is left, and not none",
        prepare: |device| step(device, Step::Pipelined, 64, 1),
        line: ("cp.async.wait_group", 0),
        edit: |line| line.replace("wait_group 0", "wait_group 1"),
    },
    Break {
        name: "stage-never-empty",
        what: "step 6 where nobody says that a tile of keys has been read",
        prepare: |device| hopper(device, 512, 1),
        line: ("mbarrier.arrive.shared", 1),
        edit: |_| String::new(),
    },
    Break {
        name: "product-still-under-way",
        what: "step 6 looking at scores before the product is over",
        prepare: |device| hopper(device, 384, 1),
        line: ("wgmma.wait_group.sync.aligned 0", 0),
        edit: |line| line.replace("aligned 0", "aligned 1"),
    },
    Break {
        name: "maximum-of-one-warp",
        what: "paged decode without the barrier before its warps read each other's maxima",
        prepare: |device| PAGED.decode(device)[0].clone(),
        line: ("bar.sync", 1),
        edit: |_| String::new(),
    },
];

#[allow(dead_code, reason = "the test of what was kept uses the rest of this file")]
fn main() {
    let Some(asked) = std::env::args().nth(1) else {
        print!("{}", said());
        return;
    };
    match BREAKS.iter().find(|b| b.name == asked) {
        Some(found) => print!("{}", found.said()),
        None => {
            let names: Vec<&str> = BREAKS.iter().map(|b| b.name).collect();
            eprintln!("no break is called `{asked}`; there are {}", names.join(", "));
            std::process::exit(1);
        }
    }
}

/// What is said of all of them.
pub(crate) fn said() -> String {
    BREAKS.iter().map(Break::said).collect()
}

impl Break {
    fn said(&self) -> String {
        let launch = (self.prepare)(&mut Device::new());
        let (number, line, text) = self.changed(&launch);
        let squeezed = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let became = match squeezed(&(self.edit)(line)) {
            gone if gone.is_empty() => "nothing".into(),
            edited => format!("`{edited}`"),
        };
        let outcome = match self.run(&text) {
            Err(Error::Fault(fault)) => said_of(&fault),
            Err(error) => format!("no PTX: {error}\n"),
            Ok(counts) => {
                format!("runs to its end, with {} bank conflicts\n", counts.bank_conflicts())
            }
        };
        let line = squeezed(line);
        format!(
            "{}: {}\nline {number}: `{line}` becomes {became}\n\n{outcome}\n",
            self.name, self.what
        )
    }

    /// The line's number and text, and the module with the line changed.
    fn changed<'a>(&self, launch: &'a Launch) -> (usize, &'a str, String) {
        let entry =
            launch.ptx.find(&format!(".entry {}(", launch.entry)).expect("the kernel's own entry");
        let before = launch.ptx[..entry].lines().count();
        let lines: Vec<&str> = launch.ptx.lines().collect();
        let (part, which) = self.line;
        let found = (before..lines.len()).filter(|&at| lines[at].contains(part)).nth(which);
        let at = found.expect("a line to change");
        let edited = (self.edit)(lines[at]);
        let mut changed = lines.clone();
        changed[at] = &edited;
        (at + 1, lines[at], changed.join("\n") + "\n")
    }

    fn run(&self, text: &str) -> Result<Counts, Error> {
        let mut device = Device::new();
        let launch = (self.prepare)(&mut device);
        let module = Module::parse(text)?;
        Ok(run(module.kernel(launch.entry)?, &mut device, &launch.interpreted())?.counts)
    }
}

/// A fault in short lines.
fn said_of(fault: &Fault) -> String {
    let [x, y, z] = fault.block;
    let lane = fault.lane.map_or(String::new(), |lane| format!(", lane {lane}"));
    let problem = fault.problem.replace(": warps", ":\nwarps").replace("; ", "\n");
    format!(
        "{:?} in block ({x}, {y}, {z}), warp {}{lane}\nline {}: `{}`\n{problem}\n",
        fault.kind, fault.warp, fault.line, fault.text
    )
}
