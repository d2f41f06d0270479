//! A character of several bytes, split over events.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&serving::faults::SPLIT_CHARACTER)
}
