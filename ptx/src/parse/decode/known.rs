//! Which instructions there are, and what to say of those that there are not.

/// Every instruction that is executed, by its first word.
const KNOWN: &[&str] = &[
    "abs",
    "activemask",
    "add",
    "and",
    "atom",
    "bar",
    "barrier",
    "bfe",
    "bfi",
    "bfind",
    "bra",
    "brev",
    "clz",
    "cnot",
    "copysign",
    "cos",
    "cp",
    "cvt",
    "cvta",
    "discard",
    "div",
    "dp4a",
    "elect",
    "ex2",
    "exit",
    "fence",
    "fma",
    "griddepcontrol",
    "isspacep",
    "ld",
    "ldmatrix",
    "ldu",
    "lg2",
    "lop3",
    "mad",
    "mapa",
    "match",
    "max",
    "mbarrier",
    "membar",
    "min",
    "mma",
    "mov",
    "mul",
    "nanosleep",
    "neg",
    "not",
    "or",
    "popc",
    "prefetch",
    "prefetchu",
    "prmt",
    "rcp",
    "red",
    "redux",
    "rem",
    "ret",
    "rsqrt",
    "sad",
    "selp",
    "set",
    "setmaxnreg",
    "setp",
    "shf",
    "shfl",
    "shl",
    "shr",
    "sin",
    "sqrt",
    "st",
    "stmatrix",
    "sub",
    "tanh",
    "testp",
    "trap",
    "vote",
    "wgmma",
    "xor",
];

/// Those that are left out on purpose, which an error says.
const LEFT_OUT: &[&str] = &[
    "createpolicy",
    "applypriority",
    "brkpt",
    "pmevent",
    "fns",
    "szext",
    "bmsk",
    "subc",
    "addc",
    "madc",
    "vadd",
    "call",
    "brx",
    "alloca",
    "stackrestore",
    "stacksave",
    "tex",
    "suld",
    "slct",
    "mad24",
    "mul24",
];

pub(in crate::parse) fn is_known(mnemonic: &str) -> bool {
    let name = mnemonic.split('.').next().unwrap_or_default();
    KNOWN.contains(&name)
}

/// Why a mnemonic is not known, and what it may have been meant to be.
pub(in crate::parse) fn unknown(mnemonic: &str) -> String {
    let name = mnemonic.split('.').next().unwrap_or_default();
    if LEFT_OUT.contains(&name) {
        return format!("`{name}` is an instruction of PTX that this interpreter leaves out");
    }
    let nearest = KNOWN.iter().min_by_key(|known| distance(name, known)).unwrap_or(&"mov");
    format!(
        "unknown instruction `{}`; the nearest known is `{nearest}`",
        crate::parse::one_line(name)
    )
}

/// Edit distance.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().take(32).collect();
    let mut row: Vec<usize> = (0..=a.len()).collect();
    for (i, letter) in b.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for j in 0..a.len() {
            let change = diagonal + usize::from(a[j] != letter);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[a.len()]
}
