//! How the table of a vocabulary is laid out; the build script that writes it reads this file too.
//!
//! It is a hash table with open addressing. An entry has the rank of a token and some bits of its
//! hash, which tell most other tokens apart without a look at their bytes. 0 is an empty slot.

/// How many slots the table has: a power of two above the number of tokens, 199,998.
pub(super) const N_SLOTS: usize = 1 << RANK_BITS;

/// The bits of an entry that are for the rank, counted from 1.
pub(super) const RANK_MASK: u32 = (1 << RANK_BITS) - 1;

const RANK_BITS: u32 = 18;

/// Returns the hash of a token: FNV-1a, mixed so that its lowest and highest bits are good.
pub(super) fn hash(token: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in token {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash ^ hash >> 29
}

/// Returns the slot where the search for a token of this hash begins.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the mask leaves fewer bits"
)]
pub(super) fn first_slot(hash: u64) -> usize {
    hash as usize & (N_SLOTS - 1)
}

/// Returns the slot where a search goes on.
pub(super) fn next_slot(slot: usize) -> usize {
    (slot + 1) & (N_SLOTS - 1)
}

/// The bits of a hash that are in an entry, in their place.
pub(super) fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32 & !RANK_MASK
}
