//! What there is to run on: a card's memory, how fast it is read, how fast it counts, what it costs.

use naive_decode::roofline::Machine;
use naive_decode::{Error, Result};
use serde::Serialize;

/// Cards of a deployment, at most.
const MOST_CARDS: usize = 1024;

/// What a deployment runs on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Hardware {
    /// What it is called.
    pub name: String,
    /// FLOPs a second, at most.
    pub flops_per_second: f64,
    /// Bytes a second from memory.
    pub bytes_per_second: f64,
    /// Bytes of memory.
    pub memory_bytes: f64,
    /// What an hour of it costs, if that is known. In dollars, or whatever one counts in.
    pub price_per_hour: Option<f64>,
}

/// A card that can be bought or rented, as its maker describes it: dense BF16 arithmetic, and memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Card {
    /// What to call it on the command line.
    pub name: &'static str,
    /// What its maker calls it.
    pub label: &'static str,
    /// Dense BF16 FLOPs a second.
    pub flops_per_second: f64,
    /// Bytes a second from its memory.
    pub bytes_per_second: f64,
    /// Bytes of its memory.
    pub memory_bytes: f64,
    /// Dollars an hour, roughly: what renting one begins at in 2026. Lists differ by more than twice.
    pub price_per_hour: Option<f64>,
}

/// Cards that are known by name, from their makers' data sheets.
pub const CARDS: [Card; 6] = [
    card("l4", "NVIDIA L4", [121e12, 300e9, 24e9], None),
    card("rtx-4090", "NVIDIA GeForce RTX 4090", [165.2e12, 1.008e12, 24e9], None),
    card("l40s", "NVIDIA L40S", [362e12, 864e9, 48e9], None),
    card("a100", "NVIDIA A100 SXM, 80 GB", [312e12, 2.039e12, 80e9], Some(1.5)),
    card("h100", "NVIDIA H100 SXM", [989e12, 3.35e12, 80e9], Some(2.0)),
    card("h200", "NVIDIA H200 SXM", [989e12, 4.8e12, 141e9], Some(3.5)),
];

const fn card(
    name: &'static str,
    label: &'static str,
    [flops_per_second, bytes_per_second, memory_bytes]: [f64; 3],
    price_per_hour: Option<f64>,
) -> Card {
    Card { name, label, flops_per_second, bytes_per_second, memory_bytes, price_per_hour }
}

impl Card {
    /// The card of this name.
    ///
    /// # Errors
    /// If there is none; all names are said.
    pub fn named(name: &str) -> Result<Self> {
        CARDS.into_iter().find(|card| card.name == name).ok_or_else(|| {
            let known: Vec<&str> = CARDS.iter().map(|card| card.name).collect();
            Error::invalid("the card", format!("\"{name}\""), known.join(", "))
        })
    }
}

impl From<Card> for Hardware {
    fn from(card: Card) -> Self {
        Hardware {
            name: card.label.into(),
            flops_per_second: card.flops_per_second,
            bytes_per_second: card.bytes_per_second,
            memory_bytes: card.memory_bytes,
            price_per_hour: card.price_per_hour,
        }
    }
}

impl Hardware {
    /// So many of them side by side, each with its part of every matrix. What they say to each other takes no
    /// time here, so this is the best there could be.
    ///
    /// # Errors
    /// If there are none, or far too many.
    pub fn times(self, cards: usize) -> Result<Self> {
        if !(1..=MOST_CARDS).contains(&cards) {
            return Err(Error::invalid("cards", cards, format!("1 to {MOST_CARDS}")));
        }
        let many = cards as f64;
        Ok(Hardware {
            name: if cards == 1 { self.name } else { format!("{cards} x {}", self.name) },
            flops_per_second: self.flops_per_second * many,
            bytes_per_second: self.bytes_per_second * many,
            memory_bytes: self.memory_bytes * many,
            price_per_hour: self.price_per_hour.map(|price| price * many),
        })
    }

    /// Its two limits.
    pub fn machine(&self) -> Machine {
        Machine { peak_flops: self.flops_per_second, bandwidth: self.bytes_per_second }
    }

    /// # Errors
    /// A number that nothing could be computed with.
    pub(super) fn check(&self) -> Result<()> {
        for (what, found) in [
            ("FLOPs a second", self.flops_per_second),
            ("bytes a second", self.bytes_per_second),
            ("bytes of memory", self.memory_bytes),
        ] {
            if !(1.0..=1e21).contains(&found) {
                return Err(Error::invalid(what, found, "1 to 1e21"));
            }
        }
        match self.price_per_hour {
            Some(price) if !(0.0..=1e9).contains(&price) => {
                Err(Error::invalid("the price of an hour", price, "0 to 1e9"))
            }
            _ => Ok(()),
        }
    }
}
