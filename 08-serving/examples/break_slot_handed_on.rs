//! A finished request's slot, handed on with its state.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&serving::faults::SLOT_HANDED_ON)
}
