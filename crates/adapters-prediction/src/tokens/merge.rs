//! Byte-pair encoding of one piece of text.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::vocabulary::rank_of;

/// The rank of two parts that make no token together.
const NO_RANK: u32 = u32::MAX;

/// Counts the tokens of pieces, one after another; it keeps its memory for the next one.
///
/// The parts of a piece are a list linked by their first bytes, at first one part a byte. The two
/// neighbours that make the token of lowest rank, the first ones of several, are merged until no
/// neighbours make a token. A heap finds them, so that the time grows as n log n with the length.
#[derive(Debug, Default)]
pub(super) struct Merger {
    parts: Vec<Part>,
    heap: BinaryHeap<Reverse<(u32, usize)>>,
}

/// A part that begins at its own position.
#[derive(Debug)]
struct Part {
    before: usize,
    end: usize,
    /// The rank of this part and the next one as one token.
    rank: u32,
}

impl Merger {
    /// Returns how many tokens the piece has.
    pub(super) fn count(&mut self, piece: &[u8]) -> u64 {
        if piece.len() <= 1 || rank_of(piece).is_some() {
            return u64::from(!piece.is_empty());
        }
        self.start(piece);
        let mut n_parts = piece.len() as u64;
        while let Some(Reverse((rank, start))) = self.heap.pop() {
            // What was said of neighbours that have changed since is void.
            if self.parts[start].rank == rank {
                self.merge(piece, start);
                n_parts -= 1;
            }
        }
        n_parts
    }

    fn start(&mut self, piece: &[u8]) {
        self.parts.clear();
        self.parts.extend((0..piece.len()).map(|start| Part {
            before: start.saturating_sub(1),
            end: start + 1,
            rank: NO_RANK,
        }));
        for start in 0..piece.len() {
            self.rate(piece, start);
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
        self.rate(piece, start);
        if start > 0 {
            self.rate(piece, self.parts[start].before);
        }
    }

    /// Finds out what the part at `start` makes with the next one.
    fn rate(&mut self, piece: &[u8], start: usize) {
        let next = self.parts.get(self.parts[start].end);
        let rank = next.and_then(|next| rank_of(&piece[start..next.end]));
        self.parts[start].rank = rank.unwrap_or(NO_RANK);
        if let Some(rank) = rank {
            self.heap.push(Reverse((rank, start)));
        }
    }
}
