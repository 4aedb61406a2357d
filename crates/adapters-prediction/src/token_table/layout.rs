//! Layout of a vocabulary's lookup table. The build script that writes the table also includes this
//! file.
//!
//! The table is a hash table with open addressing. An entry has the number of a token and some bits
//! of its hash, which exclude most other tokens without a comparison of bytes. 0 is an empty slot.

/// Layout of a table whose number of slots is a power of two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    bits: u32,
}

impl Layout {
    /// Layout of `o200k_base`, which has 199,998 tokens.
    pub(crate) const O200K: Self = Self { bits: 18 };

    /// Layout of the static embedding, which has 29,528 tokens.
    pub(crate) const FLOOR: Self = Self { bits: 16 };

    /// Returns the number of slots, which must exceed the number of tokens.
    pub(crate) const fn n_slots(self) -> usize {
        1 << self.bits
    }

    /// Returns the mask of the token number in an entry. Numbers start from 1.
    pub(crate) const fn number_mask(self) -> u32 {
        (1 << self.bits) - 1
    }

    /// Returns the first slot of a lookup with this hash.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the mask leaves fewer bits"
    )]
    pub(crate) fn first_slot(self, hash: u64) -> usize {
        hash as usize & (self.n_slots() - 1)
    }

    /// Returns the slot after this one.
    pub(crate) fn next_slot(self, slot: usize) -> usize {
        (slot + 1) & (self.n_slots() - 1)
    }

    /// Returns the bits of a hash that are stored in an entry, at their position.
    pub(crate) fn tag(self, hash: u64) -> u32 {
        (hash >> 32) as u32 & !self.number_mask()
    }
}

/// Returns the hash of a token: FNV-1a, mixed so that its lowest and highest bits are well
/// distributed.
pub(crate) fn hash(token: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in token {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash ^ hash >> 29
}
