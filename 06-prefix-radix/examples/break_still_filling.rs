//! A hit on blocks that another request is still filling.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&prefix_radix::faults::STILL_FILLING)
}
