//! The vocabulary of `o200k_base`, read where it lies in the program.
//!
//! The build script writes the table. Only the pages that searches touch come into memory, and as
//! pages of the program they are shared by its processes and can be dropped by the system.

use super::layout::{RANK_MASK, first_slot, hash, next_slot, tag};

static SLOTS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/o200k_base.slots"));
static ENDS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/o200k_base.ends"));
static BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/o200k_base.bytes"));

/// Returns the rank of a token: what has a lower one is merged first. `None` for what is no token.
pub(super) fn rank_of(token: &[u8]) -> Option<u32> {
    let hash = hash(token);
    let mut slot = first_slot(hash);
    loop {
        let entry = word(SLOTS, slot);
        if entry == 0 {
            return None;
        }
        if entry & !RANK_MASK == tag(hash) {
            let rank = (entry & RANK_MASK) - 1;
            if token_of(rank) == token {
                return Some(rank);
            }
        }
        slot = next_slot(slot);
    }
}

/// Returns the bytes of the token with this rank.
fn token_of(rank: u32) -> &'static [u8] {
    let rank = rank as usize;
    &BYTES[word(ENDS, rank) as usize..word(ENDS, rank + 1) as usize]
}

fn word(table: &[u8], position: usize) -> u32 {
    u32::from_le_bytes(table.as_chunks().0[position])
}
