//! Step 6: Hopper's instructions read no byte in vain.

use crate::gpu::Gpu;
use cuda_kernels::check::hopper::cases;

/// Queries of a block, and keys of a tile.
const TILE: usize = 128;

#[test]
fn boxes_bring_what_is_inside_of_the_tensor() {
    for case in cases() {
        let mut gpu = Gpu::new();
        let (attention, _) = gpu.bench(|gpu| case.place(gpu));
        let counts = gpu.run(&attention.launch().unwrap());
        // Queries once, keys and values once for each tile of queries.
        let ends = (1..=case.tokens.div_ceil(TILE)).map(|tile| (tile * TILE).min(case.tokens));
        let seen: usize =
            ends.map(|end| if case.is_causal { end } else { case.tokens }).sum::<usize>();
        let row = case.head_dim * 2 / 32;
        let sectors = case.heads * (case.tokens + 2 * seen) * row;
        assert_eq!(counts.global_load_sectors, sectors as u64, "{} tokens", case.tokens);
    }
}
