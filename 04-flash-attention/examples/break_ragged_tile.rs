//! A last tile read past the end of the text.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&flash_attention::faults::RAGGED_TILE)
}
