//! What only Hopper's kernels have to break: mbarriers, copies by the accelerator, descriptors of operands, products of warp
//! groups. And their weights and sums.

use crate::gemm::prepared_prefill_hopper;
use crate::mutants::{Noticed, Prepared, is_noticed, one_for_a_power, step_6, survivors};
use crate::paged_hopper::prepared_with;

/// Attention, both with heads of 64.
const ATTENTION: [fn() -> Prepared; 2] = [|| step_6(64), || prepared_with(64)];
/// And the matrix product.
const SUBJECTS: [fn() -> Prepared; 3] = [ATTENTION[0], ATTENTION[1], prepared_prefill_hopper];

/// Each mutant of each subject is noticed, and in this way.
fn all_noticed(
    subjects: &[fn() -> Prepared],
    edit: impl Fn(&str) -> Option<String>,
    how: impl Fn(&Noticed) -> bool,
) {
    for &prepare in subjects {
        let (survivors, noticed) = survivors(prepare, &edit);
        assert_eq!(survivors, [""; 0]);
        assert!(noticed.iter().all(&how), "{}: {noticed:?}", prepare().launch.entry);
    }
}

#[test]
fn a_wait_for_an_mbarrier_that_is_missing_is_noticed() {
    let without = |line: &str| {
        let wait = line.contains("mbarrier.try_wait");
        wait.then(|| "setp.eq.u32 done, 0, 0;".into())
    };
    all_noticed(&SUBJECTS, without, Noticed::is_fault);
}

#[test]
fn an_arrival_that_is_missing_is_noticed() {
    let without = |line: &str| line.contains("mbarrier.arrive.shared").then(String::new);
    all_noticed(&SUBJECTS, without, Noticed::is_fault);
    // The turns.
    all_noticed(
        &ATTENTION,
        |line| line.contains("bar.arrive").then(String::new),
        Noticed::is_fault,
    );
}

/// Fewer, so that the phase ends before they have landed; more, so that it never ends.
#[test]
fn a_wrong_number_of_bytes_is_noticed() {
    for bytes in ["64", "1000000"] {
        let expecting = |line: &str| {
            let (before, _) = line.rsplit_once(',')?;
            line.contains("expect_tx").then(|| format!("{before}, {bytes};"))
        };
        all_noticed(&SUBJECTS, expecting, Noticed::is_fault);
    }
}

#[test]
fn a_product_that_is_not_waited_for_is_noticed() {
    let sooner = |line: &str| {
        let (before, pending) = line.split_once("wgmma.wait_group.sync.aligned ")?;
        let pending: u32 = pending.trim_end_matches(';').parse().unwrap();
        Some(format!("{before}wgmma.wait_group.sync.aligned {};", pending + 1))
    };
    all_noticed(&SUBJECTS, sooner, Noticed::is_fault);
}

/// The accelerator exchanges chunks within 128 bytes, and an operand's descriptor says so in its uppermost two bits. Here it
/// says 64 bytes, or none.
#[test]
fn an_operand_that_is_read_with_another_swizzle_is_noticed() {
    for layout in [2, 0] {
        let reading = |line: &str| {
            let (before, descriptor) =
                line.strip_prefix('\t')?.strip_suffix(';')?.rsplit_once(", ")?;
            let descriptor: u64 = descriptor.parse().ok()?;
            let is_descriptor = before.starts_with("or.b64") && descriptor >> 62 == 1;
            is_descriptor.then(|| format!("{before}, {};", descriptor & !(3 << 62) | layout << 62))
        };
        // What is read instead is other numbers, none at all, or somebody else's place.
        all_noticed(&SUBJECTS, reading, |_| true);
    }
}

/// All but two. The first tile stands before the loop, and what its two rows' sums are multiplied with does not matter: they
/// are still nothing.
#[test]
fn a_weight_or_rescale_that_is_1_is_noticed() {
    for prepare in ATTENTION {
        let (survivors, noticed) = survivors(prepare, one_for_a_power);
        assert_eq!(survivors.len(), 2, "{survivors:?}");
        let all = noticed.iter().all(|how| *how == Noticed::Result);
        assert!(all, "{}: {noticed:?}", prepare().launch.entry);
    }
}

/// Chunks that threads put down themselves: values of a block that is not full, and the output on its way to memory.
#[test]
fn a_chunk_in_the_wrong_place_is_noticed() {
    for prepare in [ATTENTION[1], prepared_prefill_hopper] {
        is_noticed(prepare, |line| line.contains("xor.b32").then(|| line.replace("xor", "or")));
    }
}

/// A split's first product takes nothing over from the split before, all others add.
#[test]
fn a_product_that_adds_what_it_should_not_or_does_not_is_noticed() {
    let turned =
        |line: &str| line.contains("setp.ne.b32 add").then(|| line.replace("setp.ne", "setp.eq"));
    is_noticed(prepared_prefill_hopper, turned);
}
