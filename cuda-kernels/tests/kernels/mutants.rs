//! Kernels broken on purpose, by editing their PTX. Each must be noticed: by the interpreter (a race, a copy read before it
//! landed, a deadlock), by its result, or by a count that is asserted elsewhere. What only Hopper's kernels have to break is in
//! `mutants_hopper.rs`.

use crate::gpu::Gpu;
use crate::paged_case::{Case, Heads, Request, Runs};
use crate::{fp8, gemm, gemm_blocks, mla, paged_hopper};
use cuda_kernels::Launch;
use cuda_kernels::cache::Code;
use cuda_kernels::check::gemm_blocks::Format;
use cuda_kernels::check::numbers::Random;
use cuda_kernels::check::{hopper as hopper_case, sampling, steps};
use cuda_kernels::gemm::Product;
use cuda_kernels::rows::{AddRmsNorm, Argmax, RmsNorm};
use cuda_kernels::steps::Step;
use ptx_interpreter::{Error, FaultKind};
use std::collections::BTreeSet;

/// A device with all that a launch needs, and how to read what it wrote.
pub(crate) struct Prepared {
    pub(crate) gpu: Gpu,
    pub(crate) launch: Launch,
    pub(crate) read: Read,
}

/// What a kernel wrote.
pub(crate) type Read = Box<dyn Fn(&Gpu) -> Vec<u8>>;

/// What a run shows: what was written, and bank conflicts.
type Shown = (Vec<u8>, u64);

impl Prepared {
    fn run(mut self, ptx: &str) -> Result<Shown, Error> {
        let counts = self.gpu.try_run(ptx, &self.launch)?;
        Ok(((self.read)(&self.gpu), counts.bank_conflicts()))
    }
}

/// How a mutant was noticed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Noticed {
    Fault(FaultKind),
    Result,
    Conflicts,
}

impl Noticed {
    /// Whether the interpreter has said what is wrong, whatever came of it.
    pub(crate) fn is_fault(&self) -> bool {
        matches!(self, Noticed::Fault(_))
    }
}

fn notice(right: &Shown, prepared: Prepared, ptx: &str) -> Option<Noticed> {
    match prepared.run(ptx) {
        Err(Error::Fault(fault)) => Some(Noticed::Fault(fault.kind)),
        Err(error) => panic!("the mutant is no PTX: {error}"),
        Ok((written, _)) if written != right.0 => Some(Noticed::Result),
        Ok((_, conflicts)) if conflicts != right.1 => Some(Noticed::Conflicts),
        Ok(_) => None,
    }
}

fn norm() -> Prepared {
    let (mut gpu, mut random) = (Gpu::new(), Random(1));
    let (rows, width) = (2, 600);
    let out = gpu.alloc::<u16>(rows * width);
    let launch = RmsNorm {
        out: out.address(),
        x: gpu.upload_bf16(&random.bf16s(rows * width, 2.0)),
        weight: gpu.upload_bf16(&random.bf16s(width, 2.0)),
        rows,
        width,
        epsilon: 1e-5,
    };
    let read = move |gpu: &Gpu| gpu.bytes(out);
    Prepared { gpu, launch: launch.launch().unwrap(), read: Box::new(read) }
}

fn argmax() -> Prepared {
    let (mut gpu, mut random) = (Gpu::new(), Random(2));
    let found = gpu.alloc::<u64>(1);
    gpu.write(found, &[0]);
    let scores = gpu.upload(&random.bf16s(1000, 4.0));
    let launch = Argmax { found: found.address(), scores, rows: 1, vocabulary: 1000 };
    let read = move |gpu: &Gpu| gpu.bytes(found);
    Prepared { gpu, launch: launch.launch().unwrap(), read: Box::new(read) }
}

/// RMSNorm of a sum; of one whose splits are added first, if there are some.
fn add_norm(splits: Option<usize>) -> Prepared {
    let (mut gpu, mut random) = (Gpu::new(), Random(4));
    let (rows, width) = (2, 600);
    let x = random.bf16s(splits.unwrap_or(1) * rows * width, 2.0);
    let x = match splits {
        None => Product::Whole(gpu.upload_bf16(&x)),
        Some(splits) => Product::Parts { parts: gpu.upload(&x), splits },
    };
    let out = gpu.alloc::<u16>(rows * width);
    let launch = AddRmsNorm {
        out: out.address(),
        residual: gpu.upload_bf16(&random.bf16s(rows * width, 2.0)),
        x,
        weight: gpu.upload_bf16(&random.bf16s(width, 2.0)),
        rows,
        width,
        epsilon: 1e-5,
    };
    let read = move |gpu: &Gpu| gpu.bytes(out);
    Prepared { gpu, launch: launch.launch().unwrap(), read: Box::new(read) }
}

/// How keys and values are stored.
#[derive(Clone, Copy)]
enum Stored {
    Bf16,
    Int8,
    Fp8,
}

/// Two splits, and tiles enough that each stage is used again.
fn stored(is_prefill: bool, head_dim: usize, stored: Stored) -> Prepared {
    let heads = Heads { heads: 4, kv_heads: 2, head_dim };
    let requests = [Request::text(300, 20)];
    let case = match stored {
        Stored::Bf16 => Case::new(heads, &requests, false, 3),
        Stored::Int8 => Case::new(heads, &requests, true, 3),
        Stored::Fp8 => Case::fp8(heads, &requests, 3),
    };
    let mut gpu = Gpu::new();
    let (attention, workspace, out, parts) = case.upload(&mut gpu);
    if is_prefill {
        let read = move |gpu: &Gpu| gpu.bytes(out);
        Prepared { gpu, launch: attention.prefill().unwrap(), read: Box::new(read) }
    } else {
        let [launch, _] = attention.decode(workspace).unwrap();
        let read = move |gpu: &Gpu| gpu.bytes(parts);
        Prepared { gpu, launch, read: Box::new(read) }
    }
}

fn paged(is_prefill: bool) -> Prepared {
    stored(is_prefill, 64, Stored::Bf16)
}

fn step(step: Step) -> Prepared {
    let mut gpu = Gpu::new();
    let (attention, out) = gpu.bench(|gpu| steps::Case::new(200, 1, 1).place(gpu));
    let read = move |gpu: &Gpu| gpu.bytes(out);
    Prepared { gpu, launch: attention.launch(step).unwrap(), read: Box::new(read) }
}

pub(crate) fn step_6(head_dim: usize) -> Prepared {
    let mut gpu = Gpu::new();
    let (attention, out) =
        gpu.bench(|gpu| hopper_case::Case::new(400, [1, 1], head_dim, true).place(gpu));
    let read = move |gpu: &Gpu| gpu.bytes(out);
    Prepared { gpu, launch: attention.launch().unwrap(), read: Box::new(read) }
}

fn sample() -> Prepared {
    let mut gpu = Gpu::new();
    let (launch, tokens) = gpu.bench(|gpu| sampling::place(gpu, &sampling::rows(300)));
    Prepared { gpu, launch, read: Box::new(move |gpu| gpu.bytes(tokens)) }
}

/// Kernels with barriers: every one, which a test holds them to.
fn subjects() -> Vec<fn() -> Prepared> {
    vec![
        norm,
        || add_norm(None),
        || add_norm(Some(3)),
        argmax,
        sample,
        || fp8::prepared_write(Code::Int8),
        || fp8::prepared_write(Code::Fp8),
        || stored(true, 64, Stored::Bf16),
        || stored(true, 128, Stored::Bf16),
        || stored(true, 64, Stored::Int8),
        || stored(true, 128, Stored::Int8),
        || stored(true, 64, Stored::Fp8),
        || stored(true, 128, Stored::Fp8),
        || stored(false, 64, Stored::Bf16),
        || stored(false, 128, Stored::Bf16),
        || stored(false, 64, Stored::Int8),
        || stored(false, 128, Stored::Int8),
        || stored(false, 64, Stored::Fp8),
        || stored(false, 128, Stored::Fp8),
        || paged_hopper::prepared_with(64),
        || paged_hopper::prepared_with(128),
        crate::paged::prepared_join,
        mla::prepared,
        mla::prepared_decode,
        || step(Step::Tiled),
        || step(Step::Swizzled),
        || step(Step::Pipelined),
        || step(Step::TensorCores),
        || step_6(64),
        || step_6(128),
        || gemm::prepared_prefill(false),
        || gemm::prepared_prefill(true),
        gemm::prepared_prefill_hopper,
        || gemm::prepared_decode(7, false),
        || gemm::prepared_decode(7, true),
        || gemm::prepared_decode(20, false),
        || gemm::prepared_decode(20, true),
        || gemm::prepared_gated(7),
        || gemm::prepared_gated(20),
        || gemm_blocks::prepared(Format::Int4, None),
        || gemm_blocks::prepared(Format::Int4, Some(7)),
        || gemm_blocks::prepared(Format::Int4, Some(20)),
        || gemm_blocks::prepared(Format::Fp8, None),
        || gemm_blocks::prepared(Format::Fp8, Some(7)),
        || gemm_blocks::prepared(Format::Fp8, Some(20)),
    ]
}

/// The kernel's lines that `edit` would change, each changed alone, in the text of a module that has this kernel only.
fn mutants<'a>(
    launch: &'a Launch,
    edit: impl Fn(&str) -> Option<String> + 'a,
) -> impl Iterator<Item = (String, String)> + 'a {
    const ENTRY: &str = ".visible .entry ";
    let head = &launch.ptx[..launch.ptx.find(ENTRY).unwrap()];
    let body = &launch.ptx[launch.ptx.find(&format!("{ENTRY}{}(", launch.entry)).unwrap()..];
    let body = &body[..body[1..].find(ENTRY).map_or(body.len(), |next| next + 1)];
    let lines: Vec<&str> = body.lines().collect();
    (0..lines.len()).filter_map(move |i| {
        let edited = edit(lines[i])?;
        let mut changed: Vec<&str> = lines.clone();
        changed[i] = &edited;
        Some((lines[i].trim().into(), format!("{head}{}\n", changed.join("\n"))))
    })
}

/// Runs each mutant of a kernel; those that nothing noticed, and how the others were.
pub(crate) fn survivors(
    prepare: fn() -> Prepared,
    edit: impl Fn(&str) -> Option<String>,
) -> (Vec<String>, Vec<Noticed>) {
    let launch = prepare().launch;
    let right = prepare().run(launch.ptx).unwrap();
    let (mut survivors, mut noticed) = (Vec::new(), Vec::new());
    for (line, ptx) in mutants(&launch, edit) {
        match notice(&right, prepare(), &ptx) {
            Some(how) => noticed.push(how),
            None => survivors.push(format!("{}: {line}", launch.entry)),
        }
    }
    assert!(!noticed.is_empty(), "{} has nothing to change", launch.entry);
    (survivors, noticed)
}

/// Barriers that may be dropped unnoticed, in Hopper's kernels alone. Attention's turns order who multiplies first, which
/// changes times and no value. In the paged one and in the matrix product a barrier also stands between the last product and
/// the output's rows, which take an operand's place: the interpreter takes a warp group's products as one thing, so it knows of
/// no warp that still reads.
const UNNOTICED: [(&str, usize); 5] = [
    ("paged_prefill_hopper_64", 2),
    ("paged_prefill_hopper_128", 2),
    ("attention_06_hopper_64", 1),
    ("attention_06_hopper_128", 1),
    ("gemm_prefill_hopper", 1),
];

#[test]
fn a_dropped_barrier_is_noticed() {
    let without = |line: &str| line.contains("bar.sync").then(String::new);
    let run = |prepare: fn() -> Prepared| {
        let (left, noticed) = survivors(prepare, without);
        let unsaid: Vec<Noticed> = noticed.into_iter().filter(|how| !how.is_fault()).collect();
        (prepare().launch.entry, left.len(), unsaid)
    };
    let found: Vec<(&str, usize, Vec<Noticed>)> = std::thread::scope(|scope| {
        let running: Vec<_> =
            subjects().into_iter().map(|subject| scope.spawn(move || run(subject))).collect();
        running.into_iter().map(|subject| subject.join().unwrap()).collect()
    });
    let unnoticed = found.iter().filter(|(_, left, _)| *left > 0);
    assert_eq!(unnoticed.map(|&(kernel, left, _)| (kernel, left)).collect::<Vec<_>>(), UNNOTICED);
    // Each other is said to be wrong, and not seen by what came of it.
    for (kernel, _, unsaid) in &found {
        assert!(unsaid.is_empty(), "{kernel}: {unsaid:?}");
    }
}

#[test]
fn no_kernel_with_a_barrier_is_left_out() {
    let subjects: BTreeSet<&str> =
        subjects().into_iter().map(|prepare| prepare().launch.entry).collect();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/ptx");
    for module in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(module.unwrap().path()).unwrap();
        for kernel in text.split(".visible .entry ").skip(1) {
            let name = kernel.split('(').next().unwrap().trim();
            let has_barrier = kernel.contains("bar.sync");
            assert_eq!(has_barrier, subjects.contains(name), "{name}");
        }
    }
}

#[test]
fn a_chunk_in_the_wrong_place_is_noticed() {
    for prepare in [|| step(Step::Swizzled), || step(Step::TensorCores), || paged(false)] {
        let (survivors, _) =
            survivors(prepare, |line| line.contains("xor.b32").then(|| line.replace("xor", "or")));
        assert_eq!(survivors, [""; 0]);
    }
}

#[test]
fn a_copy_that_is_not_waited_for_is_noticed() {
    let prepares = [
        || step(Step::Pipelined),
        || step(Step::TensorCores),
        || paged(true),
        || paged(false),
        || gemm::prepared_prefill(false),
        || gemm::prepared_decode(7, false),
        || gemm::prepared_decode(20, false),
    ];
    for prepare in prepares {
        let later = |line: &str| {
            let (before, pending) = line.split_once("cp.async.wait_group ")?;
            let pending: u32 = pending.trim_end_matches(';').parse().unwrap();
            Some(format!("{before}cp.async.wait_group {};", pending + 1))
        };
        let (survivors, noticed) = survivors(prepare, later);
        assert_eq!(survivors, [""; 0]);
        assert!(noticed.iter().all(Noticed::is_fault), "{}: {noticed:?}", prepare().launch.entry);
    }
}

/// 2 to the x becomes 1: a weight, or what sums are multiplied with.
pub(crate) fn one_for_a_power(line: &str) -> Option<String> {
    let (_, operands) = line.split_once("ex2.approx.ftz.f32 ")?;
    let (to, _) = operands.split_once(',')?;
    Some(format!("mov.f32 {to}, 0f3F800000;"))
}

#[test]
fn a_weight_or_rescale_that_is_1_is_noticed() {
    for prepare in [
        || step(Step::Pipelined),
        || step(Step::TensorCores),
        || paged(true),
        || paged(false),
        crate::paged::prepared_join,
    ] {
        let (survivors, noticed) = survivors(prepare, one_for_a_power);
        assert_eq!(survivors, [""; 0]);
        let all = noticed.iter().all(|how| *how == Noticed::Result);
        assert!(all, "{}: {noticed:?}", prepare().launch.entry);
    }
}

/// Each mutant that `edit` gives is noticed, and there is one.
pub(crate) fn is_noticed(prepare: fn() -> Prepared, edit: impl Fn(&str) -> Option<String>) {
    let (survivors, _) = survivors(prepare, edit);
    assert_eq!(survivors, [""; 0]);
}
