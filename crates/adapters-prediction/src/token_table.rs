//! Vocabularies as lookup tables in the binary, used in place.
//!
//! The build script writes the tables. Only the memory pages that lookups touch are loaded. As
//! pages of the binary they are shared by its processes, and the system can drop them.

pub(crate) mod layout;

use layout::{Layout, hash};

/// The tokens of a vocabulary, numbered from 0 without gaps.
#[derive(Debug)]
pub(crate) struct TokenTable {
    pub(crate) layout: Layout,
    /// The entries of [`layout`], as 32-bit words.
    pub(crate) slots: &'static [u8],
    /// A 0, then the end of each token in `bytes`, as 32-bit words.
    pub(crate) ends: &'static [u8],
    /// The tokens in the order of their numbers.
    pub(crate) bytes: &'static [u8],
}

impl TokenTable {
    /// Returns the number of a token, or `None` if it is not in the vocabulary.
    pub(crate) fn number_of(&self, token: &[u8]) -> Option<u32> {
        let hash = hash(token);
        let tag = self.layout.tag(hash);
        let mask = self.layout.number_mask();
        let mut slot = self.layout.first_slot(hash);
        loop {
            let entry = word(self.slots, slot);
            if entry == 0 {
                return None;
            }
            if entry & !mask == tag {
                let number = (entry & mask) - 1;
                if self.token(number) == token {
                    return Some(number);
                }
            }
            slot = self.layout.next_slot(slot);
        }
    }

    /// Returns the bytes of the token with this number.
    fn token(&self, number: u32) -> &'static [u8] {
        let number = number as usize;
        &self.bytes[word(self.ends, number) as usize..word(self.ends, number + 1) as usize]
    }
}

fn word(table: &[u8], position: usize) -> u32 {
    u32::from_le_bytes(table.as_chunks().0[position])
}
