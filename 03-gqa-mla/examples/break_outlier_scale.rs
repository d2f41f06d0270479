//! One INT8 scale for all keys, an outlier channel among them.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&gqa_mla::faults::OUTLIER_SCALE)
}
