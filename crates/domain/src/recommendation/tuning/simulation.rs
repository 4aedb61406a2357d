//! Simulated users who choose and rate recommended tools, to measure tuning.

use jiff::{SignedDuration, Timestamp};

use super::bootstrap::SplitMix64;
use super::{Example, ExampleGroup, JudgedTool};
use crate::id::RecommendationId;
use crate::num::to_f64;
use crate::recommendation::factors::{Factor, FactorWeights, Factors};

const START: Timestamp = Timestamp::constant(1_800_000_000, 0);

/// The behaviour of the users.
#[derive(Clone, Copy, Debug)]
pub(super) struct UserBehaviour {
    /// The value of each factor to them; all 0 for users who choose at random.
    pub(super) taste: [f64; Factor::N],
    /// They read position k with the probability k to the power of minus this.
    pub(super) impatience: i32,
    /// The number of recommended tools.
    pub(super) n_tools: usize,
}

/// Generates recommendations with their feedback, one each minute.
#[derive(Debug)]
pub(super) struct SimulatedUsers {
    chance: SplitMix64,
    people: UserBehaviour,
    n_shown: u32,
}

impl SimulatedUsers {
    pub(super) fn new(seed: u64, people: UserBehaviour) -> Self {
        Self {
            chance: SplitMix64(seed),
            people,
            n_shown: 0,
        }
    }

    /// Returns a random number of 0 to 1.
    fn number(&mut self) -> f64 {
        let bits = u32::try_from(self.chance.next() >> 32).unwrap();
        f64::from(bits) / f64::from(u32::MAX)
    }

    fn now(&self) -> Timestamp {
        START + SignedDuration::from_mins(self.n_shown.into())
    }

    /// Returns random tools in the order by the weights, best first.
    pub(super) fn ranked_tools(&mut self, weights: &FactorWeights) -> Vec<Factors> {
        let mut tools: Vec<Factors> = (0..self.people.n_tools)
            .map(|_| Factors::new([(); Factor::N].map(|()| self.number())))
            .collect();
        tools.sort_by(|a, b| weights.score(b).total_cmp(&weights.score(a)));
        tools
    }

    /// Returns the value of a tool to the users.
    pub(super) fn worth(&self, tool: &Factors) -> f64 {
        let parts = tool.values().iter().zip(self.people.taste);
        parts.map(|(value, taste)| value * taste).sum()
    }

    /// Returns recommendations that were ranked by the weights, each with a chosen tool.
    pub(super) fn examples(&mut self, n: usize, weights: &FactorWeights) -> Vec<Example> {
        let mut examples = Vec::with_capacity(n);
        while examples.len() < n {
            self.n_shown += 1;
            let tools = self.ranked_tools(weights);
            let Some(chosen) = self.choice(&tools) else {
                continue;
            };
            let value = self.judgement(&tools[chosen]);
            let tools = tools.into_iter().enumerate();
            let mut random = [0; 10];
            random[..4].copy_from_slice(&self.n_shown.to_be_bytes());
            examples.push(Example {
                shown_at: self.now(),
                group: ExampleGroup::Alone(RecommendationId::new(self.now(), random)),
                tools: tools
                    .map(|(place, factors)| JudgedTool {
                        factors,
                        value: if place == chosen { value } else { 0.0 },
                    })
                    .collect(),
            });
        }
        examples
    }

    /// Returns the position of the best tool that is read, with some error of judgement.
    fn choice(&mut self, tools: &[Factors]) -> Option<usize> {
        let mut best: Option<(f64, usize)> = None;
        for (place, tool) in tools.iter().enumerate() {
            let is_seen = self.number() < to_f64(place + 1).powi(-self.people.impatience);
            let worth = self.worth(tool) + 0.5 * self.number();
            if is_seen && best.is_none_or(|(most, _)| worth > most) {
                best = Some((worth, place));
            }
        }
        best.map(|(_, place)| place)
    }

    /// Returns the value of a choice. Every third choice is rated: by the value of the tool, or at
    /// random for users without a taste.
    fn judgement(&mut self, tool: &Factors) -> f64 {
        if self.number() > 1.0 / 3.0 {
            return 1.0;
        }
        let most: f64 = self.people.taste.iter().sum();
        let share = if most > 0.0 {
            self.worth(tool) / most
        } else {
            self.number()
        };
        match share {
            ..0.3 => -1.0,
            0.7.. => 2.0,
            _ => 1.0,
        }
    }
}
