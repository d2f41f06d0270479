//! Calls of functions in answers, however they are cut.

use super::*;
use crate::text::Spoken;

/// Text and calls of an answer, in pieces of so many letters.
fn run(answer: &str, letters: usize) -> (String, Vec<(String, String)>) {
    let mut finder = CallFinder::new(vec!["weather".into()]);
    let all: Vec<char> = answer.chars().collect();
    let pieces = all.chunks(letters).map(|piece| piece.iter().collect::<String>());
    let mut found = Found::default();
    pieces.for_each(|piece| found.extend(finder.push(&piece)));
    found.extend(finder.finish());
    let calls = found.calls().into_iter();
    (found.text(), calls.map(|call| (call.function.name, call.function.arguments)).collect())
}

#[test]
fn calls_are_told_from_text_however_it_is_cut() {
    let call = "{\"name\": \"weather\", \"arguments\": {\"city\": \"Köln\"}}";
    let is = ("weather".to_owned(), "{\"city\": \"Köln\"}".to_owned());
    for letters in 1..40 {
        let hermes = format!("Let me see. <tool_call>\n{call}\n</tool_call>");
        assert_eq!(run(&hermes, letters), ("Let me see. ".into(), vec![is.clone()]));
        let two = format!("<tool_call>{call}</tool_call><tool_call>{call}</tool_call>");
        assert_eq!(run(&two, letters), (String::new(), vec![is.clone(), is.clone()]));
        let apart = format!("\n<tool_call>{call}</tool_call>\n<tool_call>{call}</tool_call>\n");
        assert_eq!(run(&apart, letters), (String::new(), vec![is.clone(), is.clone()]));
        let then = format!("<tool_call>{call}</tool_call>\n That is all.");
        assert_eq!(run(&then, letters), ("\n That is all.".into(), vec![is.clone()]));
        let llama = call.replace("arguments", "parameters");
        assert_eq!(run(&llama, letters), (String::new(), vec![is.clone()]));
    }
}

#[test]
fn a_mark_in_a_string_ends_no_call() {
    let within = |city: &str| format!("{{\"city\": \"{city}\"}}");
    let call = |city: &str| format!("{{\"name\": \"weather\", \"arguments\": {}}}", within(city));
    for city in [
        "</tool_call>",
        "a\\\"</tool_call>",
        "\\\\",
        "</tool",
        "<tool_call>{}</tool_call>",
        "\\u0022",
    ] {
        let is = ("weather".to_owned(), within(city));
        let answer = format!("So: <tool_call>\n{}\n</tool_call> then", call(city));
        let two = format!("<tool_call>{}</tool_call>", call(city)).repeat(2);
        for letters in 1..60 {
            assert_eq!(run(&answer, letters), ("So:  then".into(), vec![is.clone()]), "{answer}");
            assert_eq!(run(&two, letters), (String::new(), vec![is.clone(); 2]), "{two}");
        }
    }
}

#[test]
fn a_string_that_does_not_end_hides_no_call() {
    let call = "<tool_call>{\"name\": \"weather\", \"arguments\": {}}</tool_call>";
    for broken in
        ["<tool_call>{\"name\": \"wea}</tool_call> and", "<tool_call>He said \"now</tool_call>"]
    {
        for between in ["\n", " "] {
            let is = ("weather".to_owned(), "{}".to_owned());
            let answer = format!("{broken}{between}{call}");
            for letters in 1..40 {
                assert_eq!(
                    run(&answer, letters),
                    (format!("{broken}{between}"), vec![is.clone()]),
                    "{answer}"
                );
            }
        }
    }
}

#[test]
fn a_loop_of_what_looks_like_calls_takes_no_longer_than_its_length() {
    for said in [
        "<tool_call>",
        "<tool_call>{\"",
        "<tool_call>{\\\"a</tool_call>",
        "<tool_call>{\"a\\</tool_call>",
    ] {
        let said = said.repeat(50_000);
        let begun = std::time::Instant::now();
        assert_eq!(run(&said, 5), (said.clone(), Vec::new()));
        let took = begun.elapsed();
        assert!(took.as_secs() < 10, "{took:?} for {} bytes", said.len());
    }
}

#[test]
fn arguments_are_told_while_they_come() {
    let mut finder = CallFinder::new(vec!["weather".into()]);
    let mut tell = |text: &str| {
        let mut found = finder.push(text).0.into_iter();
        let told = found.next().map(|spoken| match spoken {
            Spoken::Text(text) => format!("text {text}"),
            Spoken::Call(call) => {
                format!("call {} {}", call.function.name, call.function.arguments)
            }
            Spoken::More(more) => format!("more {more}"),
        });
        assert_eq!(found.next(), None);
        told.unwrap_or_default()
    };
    for (text, told) in [
        ("So: <tool_call>\n{\"name\": \"weather\", \"argu", "text So: "),
        ("ments\": {\"city\":", "call weather {\"city\":"),
        (" \"Kö</tool_call>ln\"", "more  \"Kö</tool_call>ln\""),
        (", \"in\": [1, {}]</tool", "more , \"in\": [1, {}]"),
        ("s", "more </tools"),
        ("}", "more }"),
        ("}\n</tool_c", ""),
        ("all> then", "text  then"),
        // Two in the same marks, and one that is cut off.
        ("<tool_call>{\"name\": \"weather\", \"arguments\": {}}", "call weather {}"),
        (
            "\n{\"name\": \"weather\", \"arguments\": {\"a\": 1}}</tool_call>",
            "call weather {\"a\": 1}",
        ),
        ("<tool_call>{\"name\": \"weather\", \"arguments\": {\"a\"", "call weather {\"a\""),
    ] {
        assert_eq!(tell(text), told, "{text}");
    }
    assert_eq!(finder.finish(), Found::default());
}

#[test]
fn a_mark_that_was_cut_spoils_no_call() {
    let call = "{\"name\": \"weather\", \"arguments\": {\"city\": \"Köln\"}}";
    let is = ("weather".to_owned(), "{\"city\": \"Köln\"}".to_owned());
    for letters in 1..40 {
        for cut in 0.."</tool_call>".len() {
            let answer = format!("<tool_call>{call}{}", &"</tool_call>"[..cut]);
            assert_eq!(run(&answer, letters), (String::new(), vec![is.clone()]), "{answer}");
        }
    }
}

#[test]
fn what_comes_at_once_is_found_in_its_order() {
    let call = "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>";
    let mut finder = CallFinder::new(vec!["now".into()]);
    let found = finder.push(&format!("First {call}\nthen {call} and")).0;
    let kinds = found.iter().map(|spoken| match spoken {
        Spoken::Text(text) => text,
        Spoken::Call(call) => &call.function.name,
        Spoken::More(arguments) => arguments,
    });
    assert_eq!(kinds.collect::<Vec<_>>(), ["First ", "now", "\nthen ", "now", " and"]);
}

#[test]
fn calls_are_found_in_each_model_s_way_of_writing_them() {
    let call = "{\"name\": \"weather\", \"arguments\": {\"city\": \"Köln\"}}";
    let llama = call.replace("arguments", "parameters");
    let is = ("weather".to_owned(), "{\"city\": \"Köln\"}".to_owned());
    for letters in 1..40 {
        for (answer, text, calls) in [
            // Mistral-7B-Instruct-v0.3, with the mark and where it is not written out.
            (format!("[TOOL_CALLS] [{call}, {call}]"), "", 2),
            (format!(" [ {call}]"), "", 1),
            (format!("Let me see. [TOOL_CALLS][{call}]\n"), "Let me see. ", 1),
            // Hermes' marks around a list.
            (format!("<tool_call>[{call},{call}]</tool_call> then"), " then", 2),
            // Llama 3, with the mark and with several.
            (format!("<|python_tag|>{llama}"), "", 1),
            (format!("<|python_tag|>{llama}; {llama}"), "", 2),
            (format!("{llama};{llama}"), "", 2),
            // A mark that is only spoken of.
            (
                format!("It writes [TOOL_CALLS]. <tool_call>{call}</tool_call>"),
                "It writes [TOOL_CALLS]. ",
                1,
            ),
        ] {
            let expected = (text.to_owned(), vec![is.clone(); calls]);
            assert_eq!(run(&answer, letters), expected, "{answer}");
        }
    }
}

#[test]
fn arguments_are_told_as_they_are_written() {
    let arguments = r#"{ "id": 12345678901234567890123, "at": 1e999, "z": 1.0, "a": [] }"#;
    for call in ["arguments", "parameters"] {
        let answer = format!(r#"{{"name": "weather", "{call}": {arguments}}}"#);
        let (text, calls) = run(&answer, 7);
        assert_eq!((text.as_str(), calls.len()), ("", 1));
        assert_eq!(calls[0].1, arguments);
    }
}

#[test]
fn a_call_whose_arguments_are_null_has_none() {
    for (written, arguments) in [
        (r#""arguments": null"#, "{}"),
        (r#""parameters":null"#, "{}"),
        (r#""arguments": null, "parameters": {"city": "Rome"}"#, r#"{"city": "Rome"}"#),
    ] {
        let call = format!(r#"{{"name": "weather", {written}}}"#);
        for answer in [format!("<tool_call>{call}</tool_call>"), call] {
            let is = ("weather".to_owned(), arguments.to_owned());
            assert_eq!(run(&answer, 7), (String::new(), vec![is]), "{answer}");
        }
    }
}

#[test]
fn json_that_is_no_call_does_not_wait_for_its_end() {
    for (text, told) in [
        ("{\"city\": \"Ro", true),
        ("{ \"nam\": 1", true),
        ("[ {\"place\"", true),
        ("{\"name\": \"Ada\", \"age", true),
        ("{\"name\": 7", true),
        ("{}", true),
        ("{\"name\"", false),
        ("{\"name\" : \"wea", false),
        ("[{\"type\": \"function\"", false),
        ("{\"arguments\": {\"city", false),
        ("{", false),
        ("[", false),
    ] {
        let mut finder = CallFinder::new(vec!["weather".into(), "now".into()]);
        let found = finder.push(text);
        assert_eq!(found.text() == text, told, "{text}: {found:?}");
    }
}

#[test]
fn what_is_no_call_stays_text() {
    for text in [
        "plain",
        "a <tool",
        "a < b",
        "{\"name\": \"other\", \"arguments\": {}}",
        "{\"city\": 1}",
        "<tool_call>{\"name\": \"weather\"}</tool_call> then",
        "<tool_call>{\"name\": \"wea",
        "\n<tool_call>{\"name\": \"weather\"}</tool_call>\n",
        " <tool_call>",
        " \n",
        "[1] as they say",
        "[",
        "[TOOL",
        "[TOOL_CALLS] [{\"name\": \"other\", \"arguments\": {}}]",
        "see [TOOL_CALLS] and <|python_tag|>print(1)",
        "<|python_tag|>print(1)",
        "[{\"name\": \"weather\", \"arguments\": {}}, {\"city\": 1}]",
        "{\"name\": \"weather\", \"arguments\": {}} and more",
        "[]",
        "[[\"weather\", {}]]",
        "{\"name\": \"weather\", \"arguments\": [\"Rome\"]}",
    ] {
        for letters in 1..20 {
            assert_eq!(run(text, letters), (text.to_owned(), Vec::new()));
        }
    }
}
