//! Breaks the mask: chunks of a prompt forget the chunks before.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&kv_cache::faults::MASK_COLUMNS)
}
