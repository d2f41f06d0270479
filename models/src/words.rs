//! The vocabulary of the generated text.
//!
//! Every entry of [`NAMES`] and [`VALUES`], with the space before it, is one token of the family's
//! tokenizer, so that one cached position holds one fact. No value occurs anywhere else in the
//! generated text: a value in an answer can only have come from its fact.

/// The people of tales and recall worlds.
pub const NAMES: [&str; 48] = [
    "Ada", "Anna", "Bela", "Boris", "Clara", "Cleo", "Dean", "Dora", "Elsa", "Emil", "Felix",
    "Finn", "Greta", "Gwen", "Hans", "Hugo", "Ida", "Iris", "Jack", "Jonas", "Karl", "Kira",
    "Lena", "Leo", "Max", "Mina", "Nina", "Nora", "Olga", "Otto", "Paul", "Petra", "Quinn", "Rosa",
    "Ruth", "Sam", "Sven", "Tess", "Tom", "Ulla", "Uma", "Vera", "Viktor", "Walt", "Wanda", "Xena",
    "Yuri", "Zoe",
];

/// The words that recall worlds give to people.
pub const VALUES: [&str; 48] = [
    "acorn", "amber", "basil", "birch", "cedar", "clover", "cobalt", "copper", "daisy", "delta",
    "ember", "fjord", "flint", "garnet", "ginger", "hazel", "honey", "indigo", "ivory", "jade",
    "jasper", "kelp", "lemon", "linen", "mango", "maple", "nickel", "nutmeg", "olive", "onyx",
    "pearl", "pepper", "quartz", "quill", "raven", "ruby", "saffron", "silver", "thyme", "topaz",
    "umber", "velvet", "violet", "walnut", "wheat", "xenon", "yarrow", "zinc",
];

/// Things that people of a tale hold, give away and lose.
pub(crate) const OBJECTS: [&str; 24] = [
    "lantern",
    "red kite",
    "wooden flute",
    "brass key",
    "blue map",
    "clay jar",
    "iron bell",
    "old clock",
    "paper boat",
    "glass bead",
    "green scarf",
    "tin pot",
    "small drum",
    "stone owl",
    "yellow book",
    "long rope",
    "soft blanket",
    "round mirror",
    "sharp pencil",
    "tin whistle",
    "straw hat",
    "white candle",
    "leather bag",
    "wool sock",
];

/// Where tales happen.
pub(crate) const PLACES: [&str; 20] = [
    "mill",
    "harbour",
    "orchard",
    "library",
    "market",
    "bridge",
    "lighthouse",
    "bakery",
    "meadow",
    "station",
    "garden",
    "workshop",
    "tower",
    "forest",
    "river bank",
    "school",
    "stable",
    "well",
    "hill",
    "cellar",
];

/// Sentences about nobody.
pub(crate) const WEATHER: [&str; 12] = [
    "It was a bright morning.",
    "Rain fell softly on the roofs.",
    "A cold wind came from the north.",
    "The sun was warm and the air was still.",
    "Snow covered every path.",
    "Fog hung over the fields.",
    "The evening sky turned orange.",
    "Stars came out one by one.",
    "Somewhere a bell rang twice.",
    "The clouds moved slowly to the east.",
    "Nobody was on the road.",
    "Leaves danced in the wind.",
];

/// How people of a tale feel.
pub(crate) const FEELINGS: [&str; 10] =
    ["happy", "sad", "tired", "proud", "curious", "worried", "calm", "brave", "shy", "hungry"];

/// Animals that pass through.
pub(crate) const ANIMALS: [&str; 10] =
    ["fox", "owl", "hare", "goat", "crow", "duck", "cat", "dog", "hen", "mouse"];

/// The word with its indefinite article: "an owl", "a red kite".
pub(crate) fn indefinite(word: &str) -> String {
    let article = if word.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{article} {word}")
}
