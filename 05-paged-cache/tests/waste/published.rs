//! The shares that were published come out.
//!
//! Kwon et al. (2023) served OPT-13B on an A100: figures 2 and 13 say what became of its memory, and how
//! many requests ran at once. Here the same memory is shared by made-up requests with the same mean
//! lengths. One number of theirs went in (how widely answers spread, from the 13.3 % that Orca (Max)
//! reserves); the others come out.

use paged_cache::waste::{
    ALPACA, Allocator, Buddy, Contiguous, FirstFit, Paged, Report, SHAREGPT, SetAside, Workload,
    simulate,
};

/// Table 1: 12 GiB for keys and values, 800 KiB a token.
const MEMORY: usize = 12 * 1024 * 1024 / 800;
/// The longest text that OPT takes.
const LONGEST: usize = 2048;

/// Serves the same 3,000 requests, which come faster than any allocator can admit them.
fn served(workload: &Workload, mut allocator: impl Allocator) -> Report {
    let per_step = 300.0 / (workload.prompt.mean + workload.output.mean);
    let requests = workload.trace(3_000, per_step, LONGEST, 1).unwrap();
    let report = simulate(&mut allocator, &requests).unwrap();
    assert!(report.crowded_steps > 300, "the memory was not short for long");
    report
}

fn first_fit(set_aside: SetAside) -> Report {
    served(&SHAREGPT, Contiguous::new(FirstFit::new(MEMORY), set_aside, LONGEST))
}

fn buddy(set_aside: SetAside) -> Report {
    served(&SHAREGPT, Contiguous::new(Buddy::new(MEMORY), set_aside, LONGEST))
}

fn paged(workload: &Workload, block_size: usize) -> Report {
    served(workload, Paged::new(MEMORY, block_size).unwrap())
}

#[test]
fn one_piece_for_each_request_wastes_60_to_80_percent() {
    // Figure 2 counts what the buddy system adds by rounding up as external, here it is internal.
    for (set_aside, tokens, reserved, fragments, running) in [
        (SetAside::Longest, 0.204, 0.133, 0.573 + 0.089, 7.0),
        (SetAside::PowerOfTwo, 0.268, 0.179, 0.136 + 0.416, 9.81),
        (SetAside::Exact, 0.382, 0.252, 0.366, 13.62),
    ] {
        let report = buddy(set_aside);
        let near = |found: f64, published: f64| (found - published).abs() < 0.03;
        assert!(near(report.tokens, tokens), "{set_aside:?}: {report:?}");
        assert!(near(report.reserved, reserved), "{set_aside:?}: {report:?}");
        assert!(near(report.internal + report.external, fragments), "{set_aside:?}: {report:?}");
        assert!((report.running / running - 1.0).abs() < 0.1, "{set_aside:?}: {report:?}");
        assert!((0.60..0.82).contains(&report.wasted()), "{set_aside:?}: {report:?}");
        assert_eq!((report.free, report.preemptions), (0.0, 0));
    }
}

#[test]
fn some_of_that_waste_is_the_buddy_systems() {
    // Where the first gap is taken and nothing is rounded up, 60 % is no longer the least.
    let [longest, power_of_two, exact] =
        [SetAside::Longest, SetAside::PowerOfTwo, SetAside::Exact].map(first_fit);
    assert_eq!(longest, buddy(SetAside::Longest), "2,048 is a power of two");
    assert!((0.56..0.64).contains(&power_of_two.wasted()), "{power_of_two:?}");
    assert!((0.45..0.53).contains(&exact.wasted()), "{exact:?}");
    // Even then a third is reserved, and nobody knows the true length.
    assert!(exact.internal == 0.0 && exact.reserved > 0.3, "{exact:?}");
}

#[test]
fn blocks_of_16_waste_less_than_4_percent() {
    let report = paged(&SHAREGPT, 16);
    assert!(report.wasted() < 0.04 && report.tokens > 0.96, "{report:?}");
    assert_eq!(report.external, 0.0);
    // At least the 4.3 times as many at once that figure 13 has.
    assert!(report.running > 4.3 * buddy(SetAside::Longest).running, "{report:?}");
}

#[test]
fn whether_4_percent_is_true_depends_on_lengths_and_blocks() {
    let wasted = |workload, sizes: [usize; 9]| sizes.map(|size| paged(workload, size).wasted());
    let sizes = [1, 2, 4, 8, 16, 32, 64, 128, 256];
    let (long, short) = (wasted(&SHAREGPT, sizes), wasted(&ALPACA, sizes));
    for wasted in [&long, &short] {
        assert_eq!(wasted[0], 0.0, "a block of one token has no room to waste");
        assert!(wasted.is_sorted(), "{wasted:?}");
    }
    // Conversations: up to blocks of 32. Short instructions: up to 8, and 16 waste twice that.
    assert!(long[5] < 0.04 && long[6] > 0.04, "{long:?}");
    assert!(short[3] < 0.04 && (0.06..0.09).contains(&short[4]), "{short:?}");
    // Half a block for each request, as texts are longer than a block.
    let half_a_block = paged(&SHAREGPT, 16).running * 7.5 / MEMORY as f64;
    assert!((long[4] / half_a_block - 1.0).abs() < 0.05, "{} {half_a_block}", long[4]);
}
