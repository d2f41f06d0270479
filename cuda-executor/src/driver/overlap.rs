//! Kernels that begin before the one before them has ended.
//!
//! Between two kernels a GPU waits for the last block of the first, and then brings the blocks of the second to its
//! multiprocessors: a microsecond or two, 160 times a step. From compute capability 9.0 on, a kernel can say that the
//! next may be brought already, and the next waits where it first needs what was written before (programmatic dependent
//! launch). Older GPUs do not know the two instructions. So they are not in the committed PTX, but put in here:
//!
//! - `griddepcontrol.launch_dependents` at the beginning of each kernel: the next may be brought as soon as all blocks of this
//!   one have begun. So it takes no room from blocks that have not.
//! - `griddepcontrol.wait` where a kernel's source says `after_earlier_kernels()`, which the PTX has as a comment; at its
//!   beginning, where it says nothing. It waits until earlier kernels have ended and what they wrote can be seen. What a kernel
//!   does before is to read weights.
//!
//! Each kernel waits, so all earlier ones have ended by way of the one before. And behind its wait a kernel reads by ordinary loads:
//! those of what stays the same while a kernel is there (`ld.global.nc`) may be older than the wait, since now it is there
//! while another still writes.

/// How PTX for older GPUs begins, and how what comes of it does.
const TARGETS: (&str, &str) = (".target sm_80", ".target sm_90");

/// The first GPUs with the two instructions.
const OLDEST: (i32, i32) = (9, 0);

/// What `after_earlier_kernels()` is in PTX.
const MARK: &str = "// after earlier kernels";

/// In the environment, it keeps kernels from beginning early.
const OFF: &str = "LADDER_NO_OVERLAP";

/// A load of what no kernel writes meanwhile, and one of anything.
const LOADS: (&str, &str) = ("ld.global.nc.", "ld.global.");

const LET_NEXT_BEGIN: &str = "\tgriddepcontrol.launch_dependents;\n";
const WAIT: &str = "\tgriddepcontrol.wait;\n";

/// [`edited`], unless that is switched off.
pub(super) fn overlapping(ptx: &str, capability: (i32, i32)) -> Option<String> {
    std::env::var_os(OFF).is_none().then(|| edited(ptx, capability)).flatten()
}

/// The same PTX with the two instructions in each kernel, if the GPU has them and it is not PTX for one architecture alone:
/// such a kernel is launched when all earlier ones have ended.
fn edited(ptx: &str, capability: (i32, i32)) -> Option<String> {
    if capability < OLDEST || !ptx.lines().any(|line| line == TARGETS.0) {
        return None;
    }
    let mut out = String::with_capacity(ptx.len() + 1024);
    let mut lines = ptx.lines();
    while let Some(line) = lines.next() {
        push(&mut out, if line == TARGETS.0 { TARGETS.1 } else { line });
        if line.contains(".entry ") {
            let body: Vec<&str> = lines.by_ref().take_while(|&line| line != "}").collect();
            add_entry(&mut out, &body);
            push(&mut out, "}");
        }
    }
    Some(out)
}

/// Adds the lines of an entry, from behind its name up to its last brace.
fn add_entry(out: &mut String, lines: &[&str]) {
    let is_marked = lines.iter().any(|line| line.trim() == MARK);
    let mut place = Place::Parameters;
    let mut has_waited = !is_marked;
    for line in lines {
        let text = line.trim();
        if place == Place::Declarations && is_code(text) {
            place = Place::Code;
            out.push_str(LET_NEXT_BEGIN);
            if !is_marked {
                out.push_str(WAIT);
            }
        }
        if text == "{" && place == Place::Parameters {
            place = Place::Declarations;
        }
        has_waited = has_waited || text == MARK;
        match (text == MARK, has_waited) {
            (true, _) => out.push_str(WAIT),
            (false, true) => push(out, &line.replace(LOADS.0, LOADS.1)),
            (false, false) => push(out, line),
        }
    }
}

#[derive(PartialEq)]
enum Place {
    Parameters,
    Declarations,
    Code,
}

/// Whether a line of an entry's body is no declaration: an instruction, a label, or what comes of `asm`.
fn is_code(line: &str) -> bool {
    let says_nothing = line.is_empty() || line.starts_with("//") && line != MARK;
    !says_nothing && !line.starts_with('.')
}

fn push(out: &mut String, line: &str) {
    out.push_str(line);
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::fs;

    const PTX: &str = "\
.version 8.4
.target sm_80
.address_size 64

.visible .entry first(
\t.param .u64 first_param_0
)
.maxntid 256, 1, 1
{
\t.reg .b64 \t%rd<2>;
\t// demoted variable
\t.shared .align 4 .b8 partial[32];

\tld.param.u64 \t%rd1, [first_param_0];
\tld.global.nc.f32 \t%f1, [%rd1];
\tret;

}
.visible .entry second()
{
\t.reg .pred \t%p<2>;

$L__BB0_1:
\tld.global.nc.u32 \t%r1, [%rd1];
\t// begin inline asm
\t// after earlier kernels
\t// end inline asm
\tret;
}
";

    #[test]
    fn kernels_wait_where_they_say_and_otherwise_first() {
        let found = edited(PTX, (9, 0)).unwrap();
        let expected = PTX
            .replace("sm_80", "sm_90")
            .replace("\tld.param", &format!("{LET_NEXT_BEGIN}{WAIT}\tld.param"))
            .replace("ld.global.nc.f32", "ld.global.f32")
            .replace("$L__BB0_1", &format!("{LET_NEXT_BEGIN}$L__BB0_1"))
            .replace("\t// after earlier kernels\n", WAIT);
        assert_eq!(found, expected);
    }

    #[test]
    fn older_gpus_and_kernels_for_one_alone_are_left_as_they_are() {
        assert_eq!(edited(PTX, (8, 9)), None);
        assert_eq!(edited(&PTX.replace("sm_80", "sm_90a"), (9, 0)), None);
        assert!(edited(PTX, (12, 0)).is_some());
    }

    /// Parameters that hold weights, of kernels that read some before they wait.
    fn weights_of(entry: &str) -> &'static [usize] {
        match entry {
            "gemm_decode_16" => &[3],
            "gemm_decode_swiglu_16" => &[2],
            "gemm_decode_int8_16" | "gemm_decode_int4_16" | "gemm_decode_fp8_16" => &[3, 4],
            _ => &[],
        }
    }

    /// Of all that is committed: each kernel waits once, and says once that the next may begin. Before it waits it reads what
    /// its weights' addresses lead to and nothing else, writes nothing, and does not end.
    #[test]
    fn nothing_but_weights_is_read_before_the_wait() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../cuda-kernels/ptx");
        let mut early = BTreeSet::new();
        for module in fs::read_dir(folder).unwrap() {
            let text = fs::read_to_string(module.unwrap().path()).unwrap();
            let Some(found) = edited(&text, (9, 0)) else { continue };
            for entry in found.split(".visible .entry ").skip(1) {
                let (name, body) = entry.split_once('(').unwrap();
                assert_eq!(entry.matches(WAIT).count(), 1, "{name}");
                assert_eq!(entry.matches(LET_NEXT_BEGIN).count(), 1, "{name}");
                let (before, after) = body.split_once(WAIT).unwrap();
                assert!(!after.contains(LOADS.0), "{name} reads what may be older than its wait");
                for parameter in read_by(name, before) {
                    assert!(weights_of(name).contains(&parameter), "{name}: {parameter}");
                    early.insert(name.to_owned());
                }
            }
        }
        assert_eq!(early.len(), 5, "{early:?}");
    }

    /// The parameters that the addresses of a kernel's reads come from, up to there.
    fn read_by(name: &str, lines: &str) -> BTreeSet<usize> {
        let mut from: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
        let mut read = BTreeSet::new();
        let is_name = |c: char| c.is_ascii_alphanumeric() || "%_.$".contains(c);
        for line in lines.lines().map(str::trim) {
            let line = line.split_once(' ').filter(|_| line.starts_with('@')).map_or(line, |l| l.1);
            let mut words = line.split(|c| !is_name(c)).filter(|word| !word.is_empty());
            let Some(operation) = words.next() else { continue };
            for what in ["st.", "red.", "atom.", "ret", "exit", "bar."] {
                assert!(!operation.starts_with(what), "{name}: {line}");
            }
            let operands: Vec<&str> = words.collect();
            // Of 64 bits are addresses; what else goes into one are numbers of rows and elements.
            let comes_from = |operand: &&str| match operand.split_once("_param_") {
                Some((_, number)) if operation == "ld.param.u64" => {
                    BTreeSet::from([number.parse().unwrap()])
                }
                _ => from.get(operand).cloned().unwrap_or_default(),
            };
            if operation.starts_with("ld.global") || operation.starts_with("cp.async.cg") {
                let address = operands.iter().rfind(|operand| operand.starts_with('%'));
                // Of a copy the address in shared memory comes first, and a number of bytes last.
                let address = if operation.starts_with("cp") { operands.get(1) } else { address };
                read.extend(address.map(comes_from).unwrap_or_default());
            } else if let Some((to, sources)) = operands.split_first() {
                let sources = sources.iter().flat_map(comes_from).collect::<BTreeSet<usize>>();
                from.entry(to).or_default().extend(sources);
            }
        }
        read
    }
}
