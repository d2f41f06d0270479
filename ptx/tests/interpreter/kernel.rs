//! What the tests have in common: a kernel around a few instructions.

use ptx_interpreter::{Arg, Counts, Device, Error, Fault, FaultKind, Launch, Module, run};

/// A module with one kernel, `k`, whose parameters are `in` and `out`, already in `%in` and `%out` as global addresses, and
/// `%tid` and `%lane`.
pub(crate) fn module(body: &str) -> String {
    format!(
        ".version 8.4\n.target sm_90a\n.address_size 64\n\
         .visible .entry k(.param .u64 p_in, .param .u64 p_out) {{\n\
         .reg .pred %p<16>; .reg .b16 %h<16>; .reg .b32 %r<64>; .reg .b64 %rd<32>; .reg .f32 %f<64>;\n\
         .reg .b32 %tid, %lane; .reg .b64 %in, %out;\n\
         .shared .align 1024 .b8 smem[16384];\n\
         ld.param.u64 %in, [p_in];\nld.param.u64 %out, [p_out];\n\
         mov.u32 %tid, %tid.x;\nmov.u32 %lane, %laneid;\n\
         {body}\nret;\n}}\n"
    )
}

/// Instructions that store a 32-bit register of every thread: thread `t` to `out[t]`.
pub(crate) fn store(register: &str) -> String {
    format!(
        "mul.wide.u32 %rd30, %tid, 4; add.s64 %rd31, %out, %rd30; st.global.b32 [%rd31], {register};"
    )
}

/// Runs one block of `threads` threads over 32-bit words in and out.
pub(crate) fn run_words(
    body: &str,
    threads: u32,
    input: &[u32],
    outputs: usize,
) -> Result<(Vec<u32>, Counts), Error> {
    let module = Module::parse(&module(body))?;
    let mut device = Device::new();
    let (input, output) = (device.upload(input), device.upload(&vec![0u32; outputs]));
    let args: Vec<Arg> = vec![input.into(), output.into()];
    let launch = Launch { grid: [1, 1, 1], block: [threads, 1, 1], shared_bytes: 0, args };
    let report = run(module.kernel("k")?, &mut device, &launch)?;
    Ok((device.download(output)?, report.counts))
}

/// What every one of 32 threads has in a register after `body`.
pub(crate) fn each_lane(body: &str, register: &str) -> Vec<u32> {
    let body = format!("{body}\n{}", store(register));
    run_words(&body, 32, &[0; 32], 32).unwrap_or_else(|error| panic!("{error}")).0
}

/// The mistake that a kernel is stopped for.
pub(crate) fn fault_of(body: &str, threads: u32) -> Fault {
    match run_words(body, threads, &[0; 1024], 1024) {
        Err(Error::Fault(fault)) => *fault,
        other => panic!("expected a fault and got {:?}", other.map(|(_, counts)| counts)),
    }
}

/// That a kernel is stopped for a mistake of this kind, in words that say `part`.
#[track_caller]
pub(crate) fn assert_fault(body: &str, threads: u32, kind: FaultKind, part: &str) {
    let fault = fault_of(body, threads);
    assert_eq!(fault.kind, kind, "{fault}");
    assert!(fault.to_string().contains(part), "`{fault}` does not say `{part}`");
}

/// The result of one instruction on constants. `code` reads `%r1`, `%rd1`, `%h1` and so on up to 3 (the same values in
/// each width) and leaves its result in `%r0`, `%rd0`, `%h0` or `%p0`.
pub(crate) fn result_of(code: &str, inputs: [u64; 3]) -> u64 {
    let mut body =
        String::from("mov.b32 %r0, 0; mov.b64 %rd0, 0; mov.b16 %h0, 0; setp.ne.u32 %p0, 0, 0;\n");
    for (index, value) in inputs.iter().enumerate() {
        let at = index + 1;
        body += &format!(
            "mov.b64 %rd{at}, {value:#x}; cvt.u32.u64 %r{at}, %rd{at}; cvt.u16.u64 %h{at}, %rd{at};\n\
             setp.ne.u64 %p{at}, %rd{at}, 0;\n"
        );
    }
    body += code;
    body += "\ncvt.u64.u32 %rd10, %r0; cvt.u64.u16 %rd11, %h0; selp.b64 %rd12, 1, 0, %p0;\n\
             or.b64 %rd0, %rd0, %rd10; or.b64 %rd0, %rd0, %rd11; or.b64 %rd0, %rd0, %rd12;\n\
             st.global.u64 [%out], %rd0;";
    let (words, _) = run_words(&body, 1, &[0], 2).unwrap_or_else(|error| panic!("{code}: {error}"));
    u64::from(words[0]) | u64::from(words[1]) << 32
}

/// Rows of instruction, inputs and result.
#[track_caller]
pub(crate) fn check_table(table: &[(&str, [u64; 3], u64)]) {
    let wrong: Vec<String> = table
        .iter()
        .filter_map(|(code, inputs, right)| {
            let found = result_of(code, *inputs);
            (found != *right)
                .then(|| format!("{code} of {inputs:x?} is {right:#x}; got {found:#x}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The bits of a single-precision number.
pub(crate) fn f(value: f32) -> u64 {
    value.to_bits().into()
}

/// The bits of a double-precision number.
pub(crate) fn d(value: f64) -> u64 {
    value.to_bits()
}
