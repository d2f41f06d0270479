//! Text that is wrong: every mistake is an error that says where and what, and never a panic.

use proptest::prelude::*;
use ptx_interpreter::{Error, Module};

use crate::kernel::module;

/// The error of a kernel with this body.
fn refused(body: &str) -> (u32, String, String) {
    match Module::parse(&module(body)) {
        Err(Error::Parse { line, text, problem }) => (line, text, problem),
        other => panic!("{body}: {:?}", other.map(|_| "read")),
    }
}

#[test]
fn an_unknown_instruction_is_named_with_its_line_and_its_nearest() {
    let (line, text, problem) = refused("mov.u32 %r1, 0;\nmull.lo.u32 %r1, %r1, 3;");
    assert_eq!((line, text.as_str()), (13, "mull.lo.u32 %r1, %r1, 3"));
    assert_eq!(problem, "unknown instruction `mull`; the nearest known is `mul`");
    let (_, _, problem) = refused("call (%r1), f, (%r2);");
    assert_eq!(problem, "`call` is an instruction of PTX that this interpreter leaves out");
}

#[test]
fn mistakes_in_statements() {
    for (body, part) in [
        ("add.s32.foo %r1, %r1, 1;", "does not know `.foo` of `add`"),
        ("add %r1, %r1, 1;", "`add` needs a type"),
        ("add.s32 %r1, %r1;", "it has 2 operands; right would be 3"),
        ("add.s32 %r99, %r1, 1;", "`%r99` is not a register"),
        ("add.s32 %p1, %r1, 1;", "`%p1` is a predicate; a register is needed"),
        ("add.f32 %f1, %f1, 1;", "1 is a whole number"),
        ("setp.lt.s32 %r1, %r1, 1;", "`%r1` is not a predicate"),
        ("setp.s32 %p1, %r1, 1;", "needs a comparison"),
        ("@%q mov.u32 %r1, 0;", "`%q` is not a predicate"),
        ("bra NOWHERE;", "there is no label `NOWHERE`"),
        ("L: mov.u32 %r1, 0; L: ret;", "the label `L` is there twice"),
        ("ld.global.v4.u32 {%r1, %r2}, [%in];", "2 registers for 4 values"),
        ("ld.global.u32 %r1, %in;", "should be an address in brackets"),
        ("mov.u32 %r1, %r2 %r3;", "expected `,` or `;`"),
        ("cp.async.cg.shared.global [smem], [%in], 12;", "copies 4, 8 or 16 bytes"),
        ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 %r1, %r1, %r1, %r1;", "knows m16n8"),
        (
            "mma.sync.aligned.m16n8k9223372036854775808.row.col.f32.bf16.bf16.f32 %r1, %r1, %r1, %r1;",
            "`mma` needs a shape",
        ),
        (
            "wgmma.mma_async.sync.aligned.m64n8k9223372036854775808.f32.bf16.bf16 {%r1}, %rd1, %rd1, %p1;",
            "`wgmma` needs a shape",
        ),
        (
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%r1,%r2,%r3,%r4}, {%r1,%r2}, {%r3,%r4}, {%r1,%r2,%r3,%r4};",
            "D, A, B, C have 4, 2, 2, 4 registers; right would be 4, 4, 2, 4",
        ),
        ("shfl.bfly.b32 %r1, %r1, 1, 31;", "without `.sync`"),
        ("sqrt.rn.s32 %r1, %r1;", "needs a floating-point type"),
        ("popc.f32 %r1, %f1;", "`popc` needs an integer type"),
        (
            "mul24.lo.u32 %r1, %r1, %r1;",
            "`mul24` is an instruction of PTX that this interpreter leaves out",
        ),
        // What PTX has of other types alone.
        ("rcp.approx.f16 %h1, %h1;", "`rcp` is not there for this type"),
        ("sqrt.rn.f16 %h1, %h1;", "not there for this type"),
        ("rsqrt.approx.bf16 %h1, %h1;", "not there for this type"),
        ("div.rn.f16 %h1, %h1, %h1;", "not there for this type"),
        ("copysign.f16 %h1, %h1, %h1;", "not there for this type"),
        ("mad.f16 %h1, %h1, %h1, %h1;", "`mad` is not there for this type"),
        ("lg2.approx.f64 %rd1, %rd1;", "not there for this type"),
        ("sin.approx.f64 %rd1, %rd1;", "not there for this type"),
        ("cos.approx.f16 %h1, %h1;", "not there for this type"),
        ("ex2.approx.f64 %rd1, %rd1;", "not there for this type"),
        ("tanh.approx.f64 %rd1, %rd1;", "not there for this type"),
        ("min.NaN.f64 %rd1, %rd1, %rd1;", "not there for this type"),
        ("max.NaN.s32 %r1, %r1, %r1;", "not there for this type"),
        ("fma.rn.relu.f32 %f1, %f1, %f1, %f1;", "not there for this type"),
        ("add.tf32 %r1, %r1, %r1;", "not there for this type"),
        ("testp.normal.s32 %p1, %r1;", "`testp` is not there for this type"),
        // What would be another result.
        ("add.rz.f64 %rd1, %rd1, %rd1;", "knows `add` of this type to nearest alone"),
        ("fma.rp.f64 %rd1, %rd1, %rd1, %rd1;", "to nearest alone"),
        ("sqrt.rm.f64 %rd1, %rd1;", "to nearest alone"),
        ("max.relu.s32 %r1, %r1, %r2;", "does not know `.relu` of `max`"),
        ("cvt.rm.f16.f32 %h1, %f1;", "these modifiers of this conversion"),
        ("cvt.rp.bf16x2.f32 %r1, %f1, %f2;", "these modifiers"),
        ("cvt.rz.f16.f64 %h1, %rd1;", "these modifiers"),
        ("cvt.rz.f16.s32 %h1, %r1;", "these modifiers"),
        ("cvt.rz.f64.s64 %rd1, %rd1;", "these modifiers"),
        ("cvt.rn.sat.f16.f64 %h1, %rd1;", "these modifiers"),
        ("cvt.rn.satfinite.f16.f32 %h1, %f1;", "these modifiers"),
        ("cvt.rn.relu.f16x2.e4m3x2 %r1, %h1;", "these modifiers"),
        (
            "wgmma.mma_async.sync.aligned.m64n8k32.satfinite.s32.s8.s8 {%r1,%r2,%r3,%r4}, %rd1, %rd1, %p1;",
            "does not know `.satfinite` of `wgmma`",
        ),
        (".reg .b32 %big<4000000000>;", "more registers than"),
        (".reg .b33 %x;", "registers need a type"),
        ("mov.u32 %r1, 0x;", "not a number"),
        ("mov.u32 %r1, 09;", "those that begin with 0 are octal"),
        ("mov.u32 %r1, \"text;", "without its closing quote"),
        ("/* mov.u32 %r1, 0;", "a comment without its end"),
    ] {
        let (line, _, problem) = refused(body);
        assert!(problem.contains(part), "{body}: `{problem}` does not say `{part}`");
        assert_eq!(line, 12, "{body}");
    }
}

#[test]
fn mistakes_outside_of_kernels() {
    for (text, part) in [
        (".visible .entry k() { ret;", "a `}` is missing"),
        (".func f() { ret; }", "functions are not known"),
        (".foo", "`.foo` is not known outside of a kernel"),
        (".visible .entry k() .foo 3 { ret; }", "does not know `.foo` of a kernel"),
        (".global .b8 x[99999999999];", "at most"),
        (".global .align 3 .b8 x[4];", "3 is not an alignment"),
        (".const .b32 x[2] = {1, 2, 3};", "more values than the variable has elements"),
        (".visible .entry k(.param .b8 p[]) { ret; }", "a parameter needs its size"),
    ] {
        let error = Module::parse(text).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: `{error}` does not say `{part}`");
    }
}

#[test]
fn what_compilers_print_around_kernels() {
    let text = "//\n// Generated\n//\n.version 8.4\n.target sm_80\n.address_size 64\n\n\t// .globl\tk\n\
        .extern .shared .align 16 .b8 dynamic[];\n.file 1 \"a.cu\"\n\
        .visible .entry k(\n.param .u64 .ptr .align 8 p\n)\n.maxntid 256, 1, 1\n.minnctapersm 1\n{\n\
        .reg .pred %p<2>;\n.reg .b32 %r<3>;\n.loc 1 2 3\n\t// begin inline asm\n{ .pragma \"nounroll\"; mov.u32 %r1, dynamic; }\n\
        // end inline asm\n$L__BB0_1:\n\t@%p1 bra $L__BB0_1;\n\tbra.uni $L__BB0_2;\n$L__BB0_2:\n\tret;\n\n}\n";
    let module = Module::parse(text).unwrap();
    let kernel = module.kernel("k").unwrap();
    assert_eq!(kernel.parameters().collect::<Vec<_>>(), [("p", 8)]);
    assert!(Module::parse("").unwrap().kernels().next().is_none());
}

/// A text with something of everything.
fn sample() -> String {
    module(
        "setp.lt.u32 %p1|%p2, %lane, 10; @!%p1 bra L; mov.b64 {%r1, %r2}, %rd1; L:\n\
         { .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [smem+-8], 1; }\n\
         cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4];\n\
         ld.global.nc.L1::no_allocate.v2.f32 {%f1, _}, [%in+16]; fma.rn.f32 %f1, %f2, 0f3F800000, 0d3FF0000000000000;\n\
         ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r5];\n\
         shfl.sync.bfly.b32 %r1|%p3, %r2, 1, 31, -1; lop3.b32 %r1, %r2, %r3, %r4, 0x1e;",
    )
}

#[test]
fn the_sample_of_the_mutations_is_right() {
    Module::parse(&sample()).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Cut off anywhere: an error, or a smaller module.
    #[test]
    fn a_text_that_ends_early_never_panics(at in 0usize..4000) {
        let text = sample();
        let at = (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        let _ = Module::parse(&text[..at]);
    }

    /// Pieces replaced, removed or doubled.
    #[test]
    fn a_mutated_text_never_panics(
        edits in prop::collection::vec((0usize..4000, 0usize..12, "[%a-z0-9.,;:{}\\[\\]@!<>|+\\-\"/*_ \n]{0,6}"), 1..6)
    ) {
        let mut text: Vec<char> = sample().chars().collect();
        for (at, length, with) in edits {
            let at = at % (text.len() + 1);
            let end = (at + length).min(text.len());
            text.splice(at..end, with.chars());
        }
        let _ = Module::parse(&text.into_iter().collect::<String>());
    }

    /// Anything at all.
    #[test]
    fn no_text_panics(text in "\\PC{0,200}") {
        let _ = Module::parse(&text);
    }
}
