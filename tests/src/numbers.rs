//! Published figures about inference, recomputed.
//!
//! Five texts that teach this subject state figures. Every one that can be worked out from a formula is a row here:
//! what was claimed, a function that works it out, and a verdict, which the tests hold to the arithmetic.
//! The book's appendix "Numbers, checked" is printed from this table.
//!
//! - [`formulas`]: the formulas themselves
//! - one module for each text, with its rows
//! - [`rows`]: all of them

pub mod formulas;
mod inference_lesson;
mod kv_cache_workshop;
mod microgpt_notes;
mod systems_chapter;
#[cfg(test)]
mod tests;
mod transformer_anatomy;

/// One of the texts that state the figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Notes that build a GPT in little Python; its chapter on inference.
    MicroGptNotes,
    /// A lecture page on the cost of serving.
    InferenceLesson,
    /// A book chapter on compute, memory and latency of single requests.
    SystemsChapter,
    /// A workshop page: build it, break it, measure it.
    KvCacheWorkshop,
    /// A post on the generation loop, with a sketch of a cached model.
    TransformerAnatomy,
}

/// What recomputing a figure showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The figure is right as far as its digits go.
    Holds,
    /// The figure does not follow from its own formula, or the formula is not the right one.
    Wrong,
    /// The arithmetic is right, and something that belongs in it is missing.
    Incomplete,
    /// Binary units under a decimal unit's name, or the other way round.
    UnitsMixed,
    /// The figure describes code that does something else.
    Bug,
}

/// One figure, claimed and recomputed.
pub struct Row {
    /// A short name, unique in the table.
    pub id: &'static str,
    /// Where the figure is from.
    pub source: Source,
    /// The claim, in our words.
    pub claim: &'static str,
    /// The figure claimed.
    pub claimed: f64,
    /// Half a step of the last digit that the text gives, or all of it where digits were cut and `why` says so: as far as the
    /// truth may be from the claim for the claim to hold. Zero for what is counted.
    pub rounding: f64,
    /// Unit of the claimed and of the recomputed figure.
    pub unit: &'static str,
    /// Works the figure out.
    pub recompute: fn() -> f64,
    /// What that showed.
    pub verdict: Verdict,
    /// How the figure comes about, and what went wrong if something did.
    pub why: &'static str,
}

impl Source {
    /// All five, in the order of the appendix.
    pub const ALL: [Self; 5] = [
        Self::MicroGptNotes,
        Self::InferenceLesson,
        Self::SystemsChapter,
        Self::KvCacheWorkshop,
        Self::TransformerAnatomy,
    ];

    /// What this book calls the text.
    pub fn label(self) -> &'static str {
        match self {
            Self::MicroGptNotes => "microGPT notes",
            Self::InferenceLesson => "inference lesson",
            Self::SystemsChapter => "systems chapter",
            Self::KvCacheWorkshop => "KV-cache workshop",
            Self::TransformerAnatomy => "transformer anatomy",
        }
    }

    /// What kind of text it is.
    pub fn about(self) -> &'static str {
        match self {
            Self::MicroGptNotes => {
                "A chapter on inference in notes that build a GPT in as few lines of Python as possible."
            }
            Self::InferenceLesson => {
                "An interactive lecture page that derives the cost of serving from first principles."
            }
            Self::SystemsChapter => {
                "A book chapter on what limits single requests: attention kernels, caches, speculation."
            }
            Self::KvCacheWorkshop => "A workshop page in the form build it, break it, measure it.",
            Self::TransformerAnatomy => {
                "A series' post on the generation loop, with a complete sketch of a cached model."
            }
        }
    }

    fn rows(self) -> impl Iterator<Item = &'static Row> {
        let parts = match self {
            Self::MicroGptNotes => &[microgpt_notes::ROWS],
            Self::InferenceLesson => inference_lesson::PARTS,
            Self::SystemsChapter => &[systems_chapter::ROWS],
            Self::KvCacheWorkshop => &[kv_cache_workshop::ROWS],
            Self::TransformerAnatomy => &[transformer_anatomy::ROWS],
        };
        parts.iter().copied().flatten()
    }
}

impl Verdict {
    /// The verdict in words.
    pub fn label(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Wrong => "wrong",
            Self::Incomplete => "incomplete",
            Self::UnitsMixed => "units mixed",
            Self::Bug => "bug",
        }
    }
}

impl Row {
    /// Whether the claim is what the arithmetic gives, rounded as the text rounds.
    pub fn is_within_rounding(&self) -> bool {
        ((self.recompute)() - self.claimed).abs() <= self.rounding
    }
}

/// Every row, text by text.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    Source::ALL.into_iter().flat_map(Source::rows)
}
