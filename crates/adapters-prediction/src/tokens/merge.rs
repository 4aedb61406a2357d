//! Byte-pair encoding of a piece of text.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::vocabulary::rank_of;

/// Rank of two parts that do not form a token.
const NO_RANK: u32 = u32::MAX;

/// Counts the tokens of pieces, one at a time, and reuses its buffers.
///
/// The parts of a piece form a linked list, indexed by their first bytes. At first, each byte is a
/// part. The neighbours that form the token with the lowest rank are merged, the leftmost first,
/// until no neighbours form a token. A heap finds them, so the time is O(n log n) in the length.
#[derive(Debug, Default)]
pub(super) struct Merger {
    parts: Vec<MergePart>,
    heap: BinaryHeap<Reverse<(u32, usize)>>,
}

/// A part. Its index is its first byte.
#[derive(Debug)]
struct MergePart {
    before: usize,
    end: usize,
    /// Rank of the token that this part and the next one form.
    rank: u32,
}

impl Merger {
    /// Returns the number of tokens of a piece.
    pub(super) fn count(&mut self, piece: &[u8]) -> u64 {
        if piece.len() <= 1 || rank_of(piece).is_some() {
            return u64::from(!piece.is_empty());
        }
        self.start(piece);
        let mut n_parts = piece.len() as u64;
        while let Some(Reverse((rank, start))) = self.heap.pop() {
            // Entries of neighbours that have changed since are outdated.
            if self.parts[start].rank == rank {
                self.merge(piece, start);
                n_parts -= 1;
            }
        }
        n_parts
    }

    fn start(&mut self, piece: &[u8]) {
        self.parts.clear();
        self.parts.extend((0..piece.len()).map(|start| MergePart {
            before: start.saturating_sub(1),
            end: start + 1,
            rank: NO_RANK,
        }));
        for start in 0..piece.len() {
            self.update_rank(piece, start);
        }
    }

    /// Merges the part at `start` with the next one.
    fn merge(&mut self, piece: &[u8], start: usize) {
        let next = self.parts[start].end;
        let end = self.parts[next].end;
        self.parts[next].rank = NO_RANK;
        self.parts[start].end = end;
        if let Some(after) = self.parts.get_mut(end) {
            after.before = start;
        }
        self.update_rank(piece, start);
        if start > 0 {
            self.update_rank(piece, self.parts[start].before);
        }
    }

    /// Computes the rank of the part at `start` with the next one.
    fn update_rank(&mut self, piece: &[u8], start: usize) {
        let next = self.parts.get(self.parts[start].end);
        let rank = next.and_then(|next| rank_of(&piece[start..next.end]));
        self.parts[start].rank = rank.unwrap_or(NO_RANK);
        if let Some(rank) = rank {
            self.heap.push(Reverse((rank, start)));
        }
    }
}
