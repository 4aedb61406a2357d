//! Cuts a normalised text into the pieces of which the scores have the largest sum.

use super::Unigram;

/// The best way to a place in the text.
#[derive(Clone, Copy)]
struct Step {
    /// The sum of the scores.
    score: f64,
    /// Where its last piece begins; [`NOWHERE`] as long as no way is known.
    start: usize,
    /// Its last piece.
    piece: u32,
}

const NOWHERE: usize = usize::MAX;

impl Unigram {
    /// Returns the pieces of a text, in its order.
    pub(super) fn segment(&self, text: &str) -> Vec<u32> {
        let mut steps = vec![
            Step {
                score: 0.0,
                start: NOWHERE,
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
            if !alone {
                let score = so_far + self.unknown_score;
                improve(&mut steps[next], score, start, self.unknown);
            }
        }
        self.way(&steps)
    }

    /// Goes the best way back from the end.
    fn way(&self, steps: &[Step]) -> Vec<u32> {
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

fn improve(step: &mut Step, score: f64, start: usize, piece: u32) {
    if step.start == NOWHERE || score > step.score {
        *step = Step {
            score,
            start,
            piece,
        };
    }
}
