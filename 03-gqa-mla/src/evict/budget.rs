//! How much of a text may be kept.

use naive_decode::{Error, Result};

/// Most entries that each key-value head of each layer keeps once a pass is done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Budget {
    /// So many entries.
    Entries(usize),
    /// So large a part of the cache's capacity, above 0 and at most 1, rounded up.
    Fraction(f64),
}

impl Budget {
    /// Entries that this comes to, of `capacity`.
    ///
    /// # Errors
    /// Nothing at all, or more than there could ever be.
    pub fn entries(self, capacity: usize) -> Result<usize> {
        match self {
            Budget::Entries(entries) if entries == 0 || entries > capacity => {
                let expected = format!("1 to {capacity}, the cache's capacity");
                Err(Error::invalid("budget of entries", entries, expected))
            }
            Budget::Entries(entries) => Ok(entries),
            // The comparison that lets no NaN through.
            Budget::Fraction(fraction) if fraction > 0.0 && fraction <= 1.0 => {
                Ok(((capacity as f64 * fraction).ceil() as usize).clamp(1, capacity.max(1)))
            }
            Budget::Fraction(fraction) => {
                Err(Error::invalid("kept fraction", fraction, "above 0 and at most 1"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fraction_is_rounded_up_and_nonsense_is_refused() {
        assert_eq!(Budget::Fraction(0.5).entries(451).unwrap(), 226);
        assert_eq!(Budget::Fraction(1.0).entries(451).unwrap(), 451);
        assert_eq!(Budget::Entries(3).entries(3).unwrap(), 3);
        for (budget, word) in [
            (Budget::Entries(0), "budget of entries is 0"),
            (Budget::Entries(4), "1 to 3"),
            (Budget::Fraction(0.0), "kept fraction is 0"),
            (Budget::Fraction(1.1), "at most 1"),
            (Budget::Fraction(f64::NAN), "NaN"),
        ] {
            let said = budget.entries(3).unwrap_err().to_string();
            assert!(said.contains(word), "{said}");
        }
    }
}
