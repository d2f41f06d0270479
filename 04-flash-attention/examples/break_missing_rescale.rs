//! A running maximum that moves without the sums.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&flash_attention::faults::MISSING_RESCALE)
}
