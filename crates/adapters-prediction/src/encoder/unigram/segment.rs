//! Segmentation of a normalised text into the pieces with the maximal sum of scores (Viterbi).

use super::Unigram;

/// The best segmentation of the text up to a position.
#[derive(Clone, Copy)]
struct BestSegment {
    /// Sum of the scores.
    score: f64,
    /// Start of the last piece, or [`UNREACHED`] if no segmentation is known.
    start: usize,
    piece: u32,
}

const UNREACHED: usize = usize::MAX;

impl Unigram {
    /// Returns the pieces of a text, in order.
    pub(super) fn segment(&self, text: &str) -> Vec<u32> {
        let mut steps = vec![
            BestSegment {
                score: 0.0,
                start: UNREACHED,
                piece: self.unknown,
            };
            text.len() + 1
        ];
        for (start, character) in text.char_indices() {
            let so_far = steps[start].score;
            let next = start + character.len_utf8();
            let mut alone = false;
            for (length, piece) in self.pieces.prefixes(&text.as_bytes()[start..]) {
                alone |= start + length == next;
                let score = so_far + f64::from(self.scores[piece as usize]);
                improve(&mut steps[start + length], score, start, piece);
            }
            // A character is unknown only if it is not a piece by itself.
            if !alone {
                let score = so_far + self.unknown_score;
                improve(&mut steps[next], score, start, self.unknown);
            }
        }
        self.backtrack(&steps)
    }

    /// Follows the best segmentation back from the end. Adjacent unknown pieces become one.
    fn backtrack(&self, steps: &[BestSegment]) -> Vec<u32> {
        let mut pieces = Vec::new();
        let mut end = steps.len() - 1;
        while end > 0 {
            let step = steps[end];
            if step.piece != self.unknown || pieces.last() != Some(&self.unknown) {
                pieces.push(step.piece);
            }
            end = step.start;
        }
        pieces.reverse();
        pieces
    }
}

fn improve(step: &mut BestSegment, score: f64, start: usize, piece: u32) {
    if step.start == UNREACHED || score > step.score {
        *step = BestSegment {
            score,
            start,
            piece,
        };
    }
}
