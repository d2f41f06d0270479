//! Results of splits averaged instead of merged.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&flash_attention::faults::AVERAGED_SPLITS)
}
