//! Who may share with whom.
//!
//! A hit is faster than a miss, and the time to the first token shows which it was. If all users shared
//! one cache, any of them could find out by trying what the others' prompts begin with (CVE-2025-46570).
//! So every text is kept under a salt. Whoever comes with the same salt finds it; for anybody else it
//! is not there.

/// What tells one tenant's texts from another's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Salt(pub [u8; 32]);

impl Salt {
    /// For texts that everybody may share.
    pub const NONE: Salt = Salt([0; 32]);

    /// The salt of a tenant, from what only that tenant has: an API key, or the `cache_salt` of its requests.
    ///
    /// The secret cannot be read from it.
    pub fn of(secret: &[u8]) -> Salt {
        Salt(blake3::derive_key("prefix-radix 2026 salt of a tenant", secret))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_secret_has_its_own_salt() {
        assert_eq!(Salt::of(b"ada"), Salt::of(b"ada"));
        assert_ne!(Salt::of(b"ada"), Salt::of(b"bob"));
        assert_ne!(Salt::of(b""), Salt::NONE);
    }
}
