//! Bank conflicts and sectors of patterns whose numbers everybody knows.

use ptx_interpreter::Counts;

use crate::kernel::run_words;

fn counts(body: &str) -> Counts {
    run_words(body, 32, &[0; 4096], 4096).unwrap_or_else(|error| panic!("{error}")).1
}

/// Requests and wavefronts of a store to `smem + lane * stride`.
fn shared(stride: u32, kind: &str, source: &str) -> (u64, u64) {
    let counts = counts(&format!(
        "mov.u32 %r1, smem; mad.lo.u32 %r2, %lane, {stride}, %r1; st.shared.{kind} [%r2], {source};"
    ));
    assert_eq!(counts.bank_conflicts(), counts.shared_wavefronts - counts.shared_requests);
    (counts.shared_requests, counts.shared_wavefronts)
}

#[test]
fn strides_of_words() {
    assert_eq!(shared(4, "u32", "%r3"), (1, 1), "one word after another");
    assert_eq!(shared(8, "u32", "%r3"), (1, 2), "every second word: two lanes in each bank");
    assert_eq!(shared(12, "u32", "%r3"), (1, 1), "an odd stride");
    assert_eq!(shared(128, "u32", "%r3"), (1, 32), "a column of a matrix with 32 words in a row");
    assert_eq!(shared(132, "u32", "%r3"), (1, 1), "the same with a padded row");
    assert_eq!(shared(0, "u32", "%r3"), (1, 1), "one word for all");
    assert_eq!(shared(2, "u16", "%r3"), (1, 1), "two lanes in each word");
}

#[test]
fn wide_accesses_take_turns() {
    assert_eq!(shared(8, "u64", "%rd1"), (2, 2));
    assert_eq!(shared(16, "v4.u32", "{%r3, %r3, %r3, %r3}"), (4, 4));
    // Rows of 128 bytes: the eight lanes of each turn meet in four banks.
    assert_eq!(shared(128, "v4.u32", "{%r3, %r3, %r3, %r3}"), (4, 32));
}

#[test]
fn a_swizzle_takes_the_conflicts_away() {
    // 16-byte chunk `lane % 8`'s row is `lane`: plain, all lanes in one chunk's banks; swizzled, spread over eight.
    let plain = "mov.u32 %r1, smem; mad.lo.u32 %r2, %lane, 128, %r1; ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r3, %r4, %r5, %r6}, [%r2];";
    let fill = "mov.u32 %r9, 0; mov.u32 %r8, smem; mad.lo.u32 %r8, %lane, 128, %r8;\n\
         FILL: st.shared.u32 [%r8], %r9; add.u32 %r8, %r8, 4; add.u32 %r9, %r9, 1; setp.lt.u32 %p1, %r9, 32; @%p1 bra FILL;";
    let base = counts(fill);
    let found = counts(&format!("{fill}{plain}"));
    assert_eq!(found.shared_requests - base.shared_requests, 4);
    assert_eq!(found.shared_wavefronts - base.shared_wavefronts, 32);
    let swizzled = plain.replace(
        "ldmatrix",
        "and.b32 %r7, %lane, 7; shl.b32 %r7, %r7, 4; xor.b32 %r2, %r2, %r7; ldmatrix",
    );
    let found = counts(&format!("{fill}{swizzled}"));
    assert_eq!(found.shared_wavefronts - base.shared_wavefronts, 4);
}

#[test]
fn sectors() {
    let load = |stride: u32, kind: &str, target: &str| {
        let counts = counts(&format!(
            "mul.wide.u32 %rd1, %lane, {stride}; add.s64 %rd1, %rd1, %in; ld.global.{kind} {target}, [%rd1];"
        ));
        (counts.global_load_requests, counts.global_load_sectors, counts.global_load_bytes)
    };
    assert_eq!(load(4, "u32", "%r1"), (1, 4, 128), "coalesced");
    assert_eq!(
        load(16, "v4.u32", "{%r1, %r2, %r3, %r4}"),
        (1, 16, 512),
        "coalesced, 16 bytes each"
    );
    assert_eq!(load(128, "u32", "%r1"), (1, 32, 128), "a column");
    assert_eq!(load(0, "u32", "%r1"), (1, 1, 128), "one address for all");
    assert_eq!(load(2, "u16", "%h1"), (1, 2, 64));
    let stores = counts(
        "mul.wide.u32 %rd1, %lane, 64; add.s64 %rd1, %rd1, %out; st.global.u32 [%rd1], %r1;",
    );
    assert_eq!(
        (stores.global_store_requests, stores.global_store_sectors, stores.global_store_bytes),
        (1, 32, 128)
    );
}

#[test]
fn instructions_of_warps_and_of_lanes() {
    let all = counts("mov.u32 %r1, 1;");
    let guarded = counts("setp.lt.u32 %p1, %lane, 8; @%p1 mov.u32 %r1, 1;");
    assert_eq!(guarded.warp_instructions - all.warp_instructions, 1);
    assert_eq!(guarded.lane_instructions - all.lane_instructions, 8);
}

/// Parallel blocks give the same counts and the same result as ever.
#[test]
fn counts_do_not_depend_on_the_order_of_blocks() {
    use ptx_interpreter::{Device, Launch, Module, run};
    let text = crate::kernel::module(
        "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r3, %r1, %r2, %tid; mul.wide.u32 %rd1, %r3, 2;\n\
         add.s64 %rd2, %out, %rd1; st.global.u16 [%rd2], %r3; setp.lt.u32 %p1, %tid, %r1; @%p1 bra L; mov.u32 %r4, 0; L:",
    );
    let module = Module::parse(&text).unwrap();
    let launch = |device: &mut Device| {
        let out = device.alloc::<u16>(33 * 200);
        let launch = Launch {
            grid: [200, 1, 1],
            block: [33, 1, 1],
            shared_bytes: 0,
            args: vec![0u64.into(), out.into()],
        };
        let report = run(module.kernel("k").unwrap(), device, &launch).unwrap();
        (report, device.download(out).unwrap())
    };
    let first = launch(&mut Device::new());
    for (index, value) in first.1.iter().enumerate() {
        assert_eq!(*value as usize, index);
    }
    assert_eq!(launch(&mut Device::new()), first);
}
