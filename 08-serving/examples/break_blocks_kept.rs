//! A client that has gone, and blocks that stay.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&serving::faults::BLOCKS_KEPT)
}
