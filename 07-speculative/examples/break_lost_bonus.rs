//! The token after a draft that was kept whole is never drawn.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&speculative::faults::LOST_BONUS)
}
