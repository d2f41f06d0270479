//! The generated text is the same for ever, and held-out worlds are held out.

use std::collections::HashSet;

use embedded_models::Document;
use embedded_models::notes::NotedWorld;
use embedded_models::recall::{self, FIRST_HELD_OUT_SEED, World};
use embedded_models::{names, notes, tales, words};

/// FNV-1a, 64 bits: enough to notice any change.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

type Generator = fn(u64) -> Document;

/// The weights were trained on these very texts: a change here makes them another model's.
#[test]
fn a_seed_gives_the_same_text_for_ever() {
    let kinds: [(&str, Generator); 6] = [
        ("tale", tales::tale),
        ("chat", tales::chat),
        ("list", recall::list_document),
        ("near", recall::near_document),
        ("far", recall::far_document),
        ("notes", notes::document),
    ];
    let hashes: Vec<_> = kinds
        .iter()
        .map(|(name, document)| {
            let text: String = (0..50).map(|seed| document(seed).text).collect();
            (*name, format!("{:016x}", hash(&text)))
        })
        .collect();
    assert_eq!(hashes, HASHES.map(|(name, hash)| (name, hash.to_owned())));
}

const HASHES: [(&str, &str); 6] = [
    ("tale", "93aa1b32d6e62369"),
    ("chat", "d20cecfbeb1b9859"),
    ("list", "c4b39f84163c4371"),
    ("near", "0d7c62daf43e87b4"),
    ("far", "8374dc4e967efcb8"),
    ("notes", "a97cf7176ee634b4"),
];

#[test]
fn a_world_of_the_most_facts_and_of_one_more() {
    assert_eq!(recall::MOST_PAIRS, 44);
    for number in 0..100 {
        let world = World::held_out(number, 44, 1);
        let names: HashSet<_> = world.facts.iter().map(|fact| fact.name).collect();
        assert_eq!(names.len(), 44);
    }
    let refused = std::panic::catch_unwind(|| World::new(0, 45, 0)).unwrap_err();
    assert_eq!(refused.downcast_ref::<String>().unwrap(), "a world has at most 44 facts, not 45");
}

#[test]
fn answers_are_marked_where_they_stand() {
    for seed in 0..200 {
        for document in [
            tales::tale(seed),
            tales::chat(seed),
            recall::list_document(seed),
            recall::near_document(seed),
            recall::far_document(seed),
            notes::document(seed),
        ] {
            assert!(document.text.is_ascii(), "offsets are bytes and characters at once");
            let mut last_end = 0;
            for range in &document.answers {
                assert!(last_end <= range.start && range.start < range.end);
                assert!(document.text[range.clone()].starts_with(' '));
                last_end = range.end;
            }
        }
    }
}

#[test]
fn a_world_says_each_fact_once_and_nothing_else_about_it() {
    for number in 0..300 {
        let pairs = 2 + number as usize % 7;
        let world = World::held_out(number, pairs, number as usize % 5);
        assert_eq!(world.facts.len(), pairs);
        let distinct: HashSet<_> =
            world.facts.iter().flat_map(|fact| [fact.name, fact.value]).collect();
        assert_eq!(distinct.len(), 2 * pairs, "names and values differ");
        for (i, fact) in world.facts.iter().enumerate() {
            let sentence = &world.prompt()[fact.sentence_bytes.clone()];
            assert!(sentence.contains(fact.name) && sentence.ends_with('.'), "{sentence}");
            assert!(fact.sentence_bytes.start < fact.value_bytes.start);
            assert!(fact.value_bytes.end < fact.sentence_bytes.end);
            assert_eq!(&world.prompt()[fact.value_bytes.clone()], world.answer(i));
            let mut words: Vec<_> = world.prompt().split(|c: char| !c.is_alphabetic()).collect();
            words.retain(|word| [fact.name, fact.value].contains(word));
            assert_eq!(words.len(), 2, "{words:?}");
            assert!(!world.question(i).contains(fact.value), "the question gives nothing away");
        }
    }
}

#[test]
fn held_out_worlds_begin_where_training_seeds_end() {
    assert_eq!(World::held_out(3, 4, 1), World::new(FIRST_HELD_OUT_SEED + 3, 4, 1));
    let held_out: HashSet<_> =
        (0..500).map(|number| World::held_out(number, 4, 1).prompt().to_owned()).collect();
    assert_eq!(held_out.len(), 500);
    assert!((0..500).all(|seed| !held_out.contains(World::new(seed, 4, 1).prompt())));
}

#[test]
fn given_names_are_plain_sorted_and_different() {
    let all: Vec<_> = names::iter().collect();
    assert!(all.len() > 1_500);
    assert!(all.is_sorted_by(|a, b| a < b));
    // A name and the token that begins it must fit the names model's 16 positions.
    assert!(all.iter().all(|name| name.len() < 16 && name.bytes().all(|b| b.is_ascii_lowercase())));
}

#[test]
fn no_value_word_is_also_a_name() {
    assert!(words::VALUES.iter().all(|value| value.starts_with(|c: char| c.is_ascii_lowercase())));
    let distinct: HashSet<_> = words::NAMES.iter().chain(&words::VALUES).collect();
    assert_eq!(distinct.len(), words::NAMES.len() + words::VALUES.len());
}

#[test]
fn notes_keep_every_fact_and_nothing_else() {
    for number in 0..100 {
        let noted = NotedWorld::held_out(number, 3, 2, 2);
        let blocks: String = (0..noted.blocks()).map(|i| noted.block(i)).collect();
        assert_eq!(blocks.replace('\n', " "), noted.world().prompt());
        for (i, fact) in noted.world().facts.iter().enumerate() {
            let kept = format!(" {} is {}", fact.name, fact.value);
            for block in 0..noted.blocks() {
                assert_eq!(noted.notes(block).contains(&kept), block == i / 2);
                assert_eq!(
                    noted.block(block).contains(&format!(" {}.", fact.value)),
                    block == i / 2
                );
            }
        }
        let words = |text: &str| text.split_whitespace().count();
        assert!(
            (0..3).all(|i| words(&noted.notes(i)) == 7),
            "two facts of three words, and a heading"
        );
    }
}

#[test]
fn noted_documents_have_notes_on_blocks_that_are_gone() {
    let mut gone = 0;
    for seed in 0..500 {
        let text = notes::document(seed).text;
        let before_questions = text.split("\nQuestion:").next().unwrap();
        for notes in before_questions.split("\nNotes:").skip(1) {
            let notes = notes.split(['.', '\n']).next().unwrap();
            gone += notes
                .split(',')
                .filter(|fact| !before_questions.contains(&format!("word of{fact}")))
                .count();
        }
        assert!(text.len() > 2_300, "questions to the end");
    }
    assert!((600..900).contains(&gone), "about two facts of five: {gone}");
}
