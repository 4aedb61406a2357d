//! How the table of a vocabulary is laid out; the build script that writes it reads this file too.
//!
//! It is a hash table with open addressing. An entry has the number of a token and some bits of
//! its hash, which tell most other tokens apart without a look at their bytes. 0 is an empty slot.

/// The layout of a table with a power of two of slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    bits: u32,
}

impl Layout {
    /// The layout of `o200k_base`, which has 199,998 tokens.
    pub(crate) const O200K: Self = Self { bits: 18 };

    /// The layout of the static token table, which has 29,528 tokens.
    pub(crate) const FLOOR: Self = Self { bits: 16 };

    /// Returns how many slots the table has, which is above the number of tokens.
    pub(crate) const fn n_slots(self) -> usize {
        1 << self.bits
    }

    /// Returns the bits of an entry that are for the number of the token, counted from 1.
    pub(crate) const fn number_mask(self) -> u32 {
        (1 << self.bits) - 1
    }

    /// Returns the slot where the search for a token of this hash begins.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the mask leaves fewer bits"
    )]
    pub(crate) fn first_slot(self, hash: u64) -> usize {
        hash as usize & (self.n_slots() - 1)
    }

    /// Returns the slot where a search goes on.
    pub(crate) fn next_slot(self, slot: usize) -> usize {
        (slot + 1) & (self.n_slots() - 1)
    }

    /// Returns the bits of a hash that are in an entry, in their place.
    pub(crate) fn tag(self, hash: u64) -> u32 {
        (hash >> 32) as u32 & !self.number_mask()
    }
}

/// Returns the hash of a token: FNV-1a, mixed so that its lowest and highest bits are good.
pub(crate) fn hash(token: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in token {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash ^ hash >> 29
}
