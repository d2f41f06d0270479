//! Kernels that begin before the one before them has ended.
//!
//! Between two kernels a GPU waits for the last block of the first, and then brings the blocks of the second to its
//! multiprocessors: a microsecond or two, two hundred times a step. From compute capability 9.0 on, a kernel can say that the
//! next may be brought already, and the next waits where it first needs what was written before (programmatic dependent
//! launch). Older GPUs do not know the two instructions. So they are not in the committed PTX, but put in here:
//!
//! - `griddepcontrol.launch_dependents` at the beginning of each kernel: the next may be brought as soon as all blocks of this
//!   one have begun. So it takes no room from blocks that have not.
//! - `griddepcontrol.wait` where a kernel's source says `after_earlier_kernels()`, which the PTX has as a comment; at its
//!   beginning, where it says nothing. It waits until earlier kernels have ended and what they wrote can be seen. What a kernel
//!   does before is to read weights.

/// How PTX for older GPUs begins, and how what comes of it does.
const TARGETS: (&str, &str) = (".target sm_80", ".target sm_90");

/// The first GPUs with the two instructions.
const OLDEST: (i32, i32) = (9, 0);

/// What `after_earlier_kernels()` is in PTX.
const MARK: &str = "// after earlier kernels";

const LET_NEXT_BEGIN: &str = "\tgriddepcontrol.launch_dependents;\n";
const WAIT: &str = "\tgriddepcontrol.wait;\n";

/// The same PTX with the two instructions in each kernel, if the GPU has them and it is not PTX for one architecture alone:
/// such kernels order themselves.
pub(super) fn overlapping(ptx: &str, capability: (i32, i32)) -> Option<String> {
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
        match text == MARK {
            true => out.push_str(WAIT),
            false => push(out, line),
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
    use cuda_kernels::gemm::{Gemm, Weights};
    use cuda_kernels::rows::SwiGlu;

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
\tret;

}
.visible .entry second()
{
\t.reg .pred \t%p<2>;

$L__BB0_1:
\tmov.u32 \t%r1, %tid.x;
\t// begin inline asm
\t// after earlier kernels
\t// end inline asm
\tret;
}
";

    #[test]
    fn kernels_wait_where_they_say_and_otherwise_first() {
        let found = overlapping(PTX, (9, 0)).unwrap();
        let expected = PTX
            .replace("sm_80", "sm_90")
            .replace("\tld.param", &format!("{LET_NEXT_BEGIN}{WAIT}\tld.param"))
            .replace("$L__BB0_1", &format!("{LET_NEXT_BEGIN}$L__BB0_1"))
            .replace("\t// after earlier kernels\n", WAIT);
        assert_eq!(found, expected);
    }

    #[test]
    fn older_gpus_and_kernels_for_one_alone_are_left_as_they_are() {
        assert_eq!(overlapping(PTX, (8, 9)), None);
        assert_eq!(overlapping(&PTX.replace("sm_80", "sm_90a"), (9, 0)), None);
        assert!(overlapping(PTX, (12, 0)).is_some());
    }

    /// Of what is committed: a wait and a word to the next for each entry, and products of few rows read weights first.
    #[test]
    fn each_committed_kernel_waits_once() {
        let swiglu = SwiGlu { out: 0, x: 0, rows: 1, width: 8 }.launch().unwrap();
        let weights = Weights::Bf16(0);
        let product = Gemm { out: 0, x: 0, weights, rows: 1, outputs: 64, inputs: 64 };
        let product = product.decode(0).unwrap().swap_remove(0);
        for launch in [swiglu, product] {
            let found = overlapping(launch.ptx, (9, 0)).unwrap();
            let entries: Vec<&str> = found.split(".visible .entry ").skip(1).collect();
            assert!(!entries.is_empty());
            for entry in entries {
                let waits: Vec<_> = entry.match_indices(WAIT).collect();
                assert_eq!(waits.len(), 1, "{entry}");
                assert_eq!(entry.matches(LET_NEXT_BEGIN).count(), 1, "{entry}");
                let first_copy = entry.find("cp.async").unwrap_or(entry.len());
                let reads_first = entry.starts_with("gemm_decode_16(");
                assert_eq!(reads_first && first_copy < waits[0].0, reads_first, "{entry}");
            }
        }
    }
}
