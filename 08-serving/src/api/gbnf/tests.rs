use super::*;

#[test]
fn larks_grammars_are_told_apart() {
    for grammar in [
        "start: \"::=\"",
        "a: \"::=\"\n start : a",
        "start: \"a\"",
        "?start: \"a::=b\"",
        "!start: \"a::=b\"",
        "start[max_tokens=5]: \"a::=b\"",
    ] {
        assert!(!is_gbnf(grammar), "{grammar}");
    }
    for grammar in ["root::=start\nstart::=\"a\"", "# x\n  root ::= \"start:\"", "a-b ::="] {
        assert!(is_gbnf(grammar), "{grammar}");
    }
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    for (grammar, words) in [
        ("\"a\"\nroot ::= \"a\"", "line 1: expected a rule"),
        ("root ::= \"a\"\nroot ::= \"b\"", "line 2: root has a rule already"),
        ("root ::= \"a\"\n  | other", "line 2: other has no rule"),
        ("main ::= \"a\"", "no rule root"),
        ("root ::= (\"a\" | \"b\"", "a bracket is open at the end"),
        ("root ::= (\"a\"\nb ::= \"b\")", "line 2: b begins where a bracket is open"),
        ("root ::= \"a\")", "line 1: `)` where no bracket is open"),
        ("root ::= * \"a\"", "line 1: `*` with nothing before it"),
        ("root ::= \"a\"+*", "line 1: `*` with nothing before it"),
        ("root ::= \"a\"{2,x}", "line 1: `{2,x}`, expected such as {2}"),
        ("root ::= \"a\"{2", "line 1: `{` without `}`"),
        ("root ::= \"a\"\n  \"b\"{5,2}", "line 2: `{5,2}`, expected such as {2}"),
        ("root ::= {0}", "line 1: `{0}` with nothing before it"),
        ("root ::= [z-a]", "line 1: 'z' to 'a' in brackets, expected the lower one first"),
        ("root ::= \"a\" b ::= \"c\"", "line 1: b begins a rule behind another"),
        ("root ::=\n \"a", "line 2: a text without its end"),
        ("root ::= [a", "line 1: `[` without `]`"),
        ("root ::= []", "line 1: `[]`, expected characters"),
        ("root ::= \"\\q\"", "line 1: an unknown escape"),
        ("root ::= \"\\ud800\"", "line 1: an escape that is no character"),
        ("root ::= \"\\x4é\"", "line 1: an escape that is no character"),
        ("root ::= <token>", "line 1: `<` is nothing"),
        ("root ::= \"a\" ::= \"b\"", "line 1: `::=` without a name"),
    ] {
        let said = to_lark(grammar).unwrap_err();
        assert!(said.contains(words), "{grammar}\n{said}");
    }
}
