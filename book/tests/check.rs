//! The book as it stands, and the program that checks it.

use std::process::Command;

/// What `book check` would find wrong is found by `cargo test` too: whoever renames a function that a chapter shows learns so at once.
#[test]
fn nothing_is_wrong_with_the_book() {
    let checked = Command::new(env!("CARGO_BIN_EXE_book")).arg("check").output().unwrap();
    let [said, wrong] =
        [checked.stdout, checked.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(checked.status.success(), "{wrong}");
    assert_eq!(said, "Nothing is wrong with the book.\n");
}
