//! One activation far larger than the others of its row, in eight bits.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&flash_attention::faults::ACTIVATION_OUTLIER)
}
