//! Tales: people who walk, meet, hold things and give them away, told in plain sentences.
//!
//! The state is tracked, so every question has a true answer, and each answer hangs on one sentence:
//! the last that moved the person or the thing. A person holds one thing at most.

use crate::dice::Dice;
use crate::document::Document;
use crate::words::{ANIMALS, FEELINGS, NAMES, OBJECTS, PLACES, WEATHER, indefinite};

/// One person's state.
struct Person {
    name: &'static str,
    place: &'static str,
    holds: Option<&'static str>,
}

/// Some people, where they are and what they hold.
pub(crate) struct Scene {
    people: Vec<Person>,
    /// Things that nobody holds yet.
    loose: Vec<&'static str>,
}

/// A question and its answer in two parts: what any reader could write, and what only a reader who
/// looks back can.
struct Question {
    ask: String,
    lead: String,
    answer: String,
}

impl Scene {
    /// Two to four people, none of them in `absent`.
    pub(crate) fn new(dice: &mut Dice, absent: &[&str]) -> Scene {
        let count = dice.between(2, 4);
        let present: Vec<_> = NAMES.into_iter().filter(|name| !absent.contains(name)).collect();
        let mut loose = dice.draw(&OBJECTS, 8);
        let people = dice
            .draw(&present, count)
            .into_iter()
            .map(|name| Person {
                name,
                place: dice.pick(&PLACES),
                holds: if dice.percent(70) { loose.pop() } else { None },
            })
            .collect();
        Scene { people, loose }
    }

    /// One sentence per person that says where they are and what they hold.
    fn introduction(&self, dice: &mut Dice) -> Vec<String> {
        let mut sentences = vec![dice.pick(&WEATHER).to_owned()];
        for Person { name, place, holds } in &self.people {
            sentences.push(match holds {
                Some(thing) => {
                    let thing = indefinite(thing);
                    match dice.below(4) {
                        0 => format!("{name} was at the {place} with {thing}."),
                        1 => format!("{name} stood near the {place} and held {thing}."),
                        2 => format!("At the {place}, {name} was looking after {thing}."),
                        _ => format!("{name} had {thing} and waited at the {place}."),
                    }
                }
                None => match dice.below(3) {
                    0 => format!("{name} was at the {place}."),
                    1 => format!("{name} sat by the {place} with empty hands."),
                    _ => format!("At the {place}, {name} waited for a friend."),
                },
            });
        }
        sentences
    }

    /// Something happens: the next sentence, with the state after it.
    pub(crate) fn step(&mut self, dice: &mut Dice) -> String {
        let who = dice.below(self.people.len());
        match dice.below(100) {
            0..25 => self.walk(who, dice),
            25..50 => self.give(who, dice),
            50..60 => self.find(who, dice),
            60..66 => self.lose(who, dice),
            66..80 => self.feel(who, dice),
            80..90 => dice.pick(&WEATHER).to_owned(),
            _ => self.meet_animal(who, dice),
        }
    }

    fn walk(&mut self, who: usize, dice: &mut Dice) -> String {
        let person = &mut self.people[who];
        let elsewhere: Vec<_> = PLACES.into_iter().filter(|place| *place != person.place).collect();
        person.place = dice.pick(&elsewhere);
        let Person { name, place, .. } = person;
        match dice.below(4) {
            0 => format!("{name} walked to the {place}."),
            1 => format!("Then {name} went to the {place}."),
            2 => format!("{name} ran all the way to the {place}."),
            _ => format!("After a while, {name} set off for the {place}."),
        }
    }

    /// The giver hands their thing to someone with empty hands; where that cannot be, the giver walks.
    fn give(&mut self, giver: usize, dice: &mut Dice) -> String {
        let empty: Vec<_> = (0..self.people.len())
            .filter(|&other| other != giver && self.people[other].holds.is_none())
            .collect();
        if empty.is_empty() || self.people[giver].holds.is_none() {
            return self.walk(giver, dice);
        }
        let taker = dice.pick(&empty);
        let thing = self.people[giver].holds.take().unwrap_or_default();
        self.people[taker].holds = Some(thing);
        self.people[giver].place = self.people[taker].place;
        let Person { name: from, place, .. } = &self.people[giver];
        let to = self.people[taker].name;
        match dice.below(3) {
            0 => format!("{from} met {to} at the {place} and gave {to} the {thing}."),
            1 => format!(
                "{from} found {to} at the {place}. \"This {thing} is for you,\" said {from}."
            ),
            _ => format!("At the {place}, {from} handed the {thing} to {to}."),
        }
    }

    fn find(&mut self, who: usize, dice: &mut Dice) -> String {
        if self.people[who].holds.is_some() || self.loose.is_empty() {
            return self.walk(who, dice);
        }
        self.people[who].holds = self.loose.pop();
        let Person { name, place, holds } = &self.people[who];
        let thing = indefinite(holds.unwrap_or_default());
        match dice.below(2) {
            0 => format!("By the {place}, {name} found {thing} and kept it."),
            _ => format!("{name} picked up {thing} at the {place}."),
        }
    }

    fn lose(&mut self, who: usize, dice: &mut Dice) -> String {
        let Person { name, place, holds } = &mut self.people[who];
        let Some(thing) = holds.take() else { return self.walk(who, dice) };
        match dice.below(2) {
            0 => format!("{name} left the {thing} at the {place}."),
            _ => format!("{name} put the {thing} down at the {place} and forgot it."),
        }
    }

    fn feel(&mut self, who: usize, dice: &mut Dice) -> String {
        let Person { name, holds, .. } = &self.people[who];
        let feeling = dice.pick(&FEELINGS);
        match (holds, dice.below(3)) {
            (Some(thing), 0) => format!("{name} felt {feeling} and looked at the {thing}."),
            (Some(thing), 1) => format!("\"I will keep the {thing} safe,\" said {name}."),
            (Some(thing), _) => format!("{name} was {feeling} and held the {thing} tightly."),
            (None, 0) => format!("{name} felt {feeling} and had empty hands."),
            (None, 1) => format!("\"I have nothing to carry,\" said {name}."),
            (None, _) => format!("{name} was {feeling} and sang a song."),
        }
    }

    fn meet_animal(&self, who: usize, dice: &mut Dice) -> String {
        let Person { name, place, .. } = &self.people[who];
        let animal = dice.pick(&ANIMALS);
        match dice.below(3) {
            0 => format!("A little {animal} crossed the path near the {place}."),
            1 => format!("{name} heard {} behind the {place}.", indefinite(animal)),
            _ => format!("A little {animal} followed {name} for a while."),
        }
    }

    fn question(&self, dice: &mut Dice) -> Question {
        let Person { name, place, holds } = &self.people[dice.below(self.people.len())];
        match (dice.below(100), holds) {
            (0..40, _) => Question {
                ask: format!("Where is {name}?"),
                lead: format!("{name} is at the"),
                answer: format!(" {place}"),
            },
            (40..70, Some(thing)) => Question {
                ask: format!("Who has the {thing}?"),
                lead: format!("The {thing} is with"),
                answer: format!(" {name}"),
            },
            (_, Some(thing)) => Question {
                ask: format!("What does {name} have?"),
                lead: format!("{name} has"),
                answer: format!(" the {thing}"),
            },
            (_, None) => Question {
                ask: format!("What does {name} have?"),
                lead: format!("{name} has"),
                answer: " nothing".to_owned(),
            },
        }
    }

    fn steps(&mut self, low: usize, high: usize, dice: &mut Dice) -> String {
        let count = dice.between(low, high);
        (0..count).map(|_| self.step(dice)).collect::<Vec<_>>().join(" ")
    }
}

fn answer_into(document: &mut Document, question: &Question) {
    document.push(&question.lead);
    document.push_answer(&question.answer);
    document.push(".");
}

/// A tale in a few paragraphs, with questions between them and at the end.
pub fn tale(seed: u64) -> Document {
    let dice = &mut Dice::new(seed);
    let mut scene = Scene::new(dice, &[]);
    let mut document = Document::default();
    document.push(&scene.introduction(dice).join(" "));
    for _ in 0..dice.between(1, 6) {
        document.push(&format!("\n\n{}", scene.steps(3, 6, dice)));
        for _ in 0..dice.below(3) {
            let question = scene.question(dice);
            document.push(&format!("\n\nQuestion: {}\nAnswer: ", question.ask));
            answer_into(&mut document, &question);
        }
    }
    document
}

/// A chat in the family's template: `<|user|>` and `<|assistant|>` turns, each ended by `<|end|>`.
pub fn chat(seed: u64) -> Document {
    let dice = &mut Dice::new(seed);
    let mut document = Document::default();
    if dice.percent(30) {
        let system = dice.pick(&[
            "You are a careful reader.",
            "You are a teller of tales.",
            "You answer in one sentence.",
        ]);
        document.push(&format!("<|system|>\n{system}<|end|>\n"));
    }
    match dice.below(10) {
        0 => small_talk(dice, &mut document),
        1..4 => story_on_demand(dice, &mut document),
        _ => reading(dice, &mut document),
    }
    document
}

fn small_talk(dice: &mut Dice, document: &mut Document) {
    let turns = [
        ("Hello!", "Hello! Shall I tell you a tale?"),
        ("Good morning.", "Good morning! I hope the sun is out where you are."),
        ("Who are you?", "I am a small model. I tell short tales and answer questions about them."),
        ("What can you do?", "I can tell a tale, remember words, and answer questions."),
        ("Thank you.", "You are welcome."),
        ("Goodbye.", "Goodbye! Come back soon."),
        ("How are you?", "I am well, thank you."),
    ];
    let count = dice.between(1, 4);
    for (user, assistant) in dice.draw(&turns, count) {
        document.push(&format!("<|user|>\n{user}<|end|>\n<|assistant|>\n{assistant}<|end|>\n"));
    }
}

fn story_on_demand(dice: &mut Dice, document: &mut Document) {
    let mut scene = Scene::new(dice, &[]);
    let hero = scene.people[0].name;
    let ask = match dice.below(4) {
        0 => format!("Tell me a story about {hero}."),
        1 => format!("Please tell me a tale with {hero} in it."),
        2 => format!("What did {hero} do today?"),
        _ => "Tell me a short story.".to_owned(),
    };
    document.push(&format!("<|user|>\n{ask}<|end|>\n<|assistant|>\n"));
    document.push(&scene.introduction(dice).join(" "));
    document.push(&format!(" {}<|end|>\n", scene.steps(3, 9, dice)));
    for _ in 0..dice.below(4) {
        ask_in_chat("", &scene.question(dice), document);
    }
}

fn reading(dice: &mut Dice, document: &mut Document) {
    let mut scene = Scene::new(dice, &[]);
    let request =
        dice.pick(&["Read this and answer.", "Here is a short story.", "Listen carefully."]);
    let introduction = scene.introduction(dice).join(" ");
    let story = format!("{request} {introduction} {} ", scene.steps(2, 8, dice));
    ask_in_chat(&story, &scene.question(dice), document);
    for _ in 0..dice.below(5) {
        let more = if dice.percent(60) { scene.steps(1, 3, dice) + " " } else { String::new() };
        ask_in_chat(&more, &scene.question(dice), document);
    }
}

fn ask_in_chat(before: &str, question: &Question, document: &mut Document) {
    document.push(&format!("<|user|>\n{before}{}<|end|>\n<|assistant|>\n", question.ask));
    answer_into(document, question);
    document.push("<|end|>\n");
}
