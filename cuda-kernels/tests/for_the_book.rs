//! What the book shows of the kernels is what the interpreter says today.

#[path = "../examples/break_kernels.rs"]
mod break_kernels;
#[path = "../examples/count_kernels.rs"]
mod count_kernels;
#[path = "../examples/trace_banks.rs"]
mod trace_banks;
#[path = "../examples/trace_rounds/main.rs"]
mod trace_rounds;

/// `cargo run --release -p cuda-kernels --example count_kernels > cuda-kernels/measurements/counts.json`
#[test]
fn the_tables_hold_what_is_counted() {
    assert_eq!(include_str!("../measurements/counts.json"), count_kernels::counts().unwrap());
}

/// `cargo run --release -p cuda-kernels --example trace_banks > cuda-kernels/traces/banks.json`
#[test]
fn the_banks_are_those_of_the_kernels() {
    assert_eq!(include_str!("../traces/banks.json"), trace_banks::trace().unwrap());
}

/// `cargo run --release -p cuda-kernels --example trace_rounds > cuda-kernels/traces/rounds.json`
#[test]
fn the_rounds_are_those_of_the_kernels() {
    assert_eq!(include_str!("../traces/rounds.json"), trace_rounds::trace().unwrap());
}

/// `cargo run --release -p cuda-kernels --example break_kernels > cuda-kernels/traces/broken.txt`
#[test]
fn broken_kernels_are_noticed_in_these_words() {
    assert_eq!(include_str!("../traces/broken.txt"), break_kernels::said());
}
