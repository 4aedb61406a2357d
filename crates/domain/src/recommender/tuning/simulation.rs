//! People who choose and rate recommended tools, made up of chance: what tuning is measured on.

use jiff::{SignedDuration, Timestamp};

use super::bootstrap::Chance;
use super::{Example, ExampleGroup, JudgedTool, real};
use crate::id::RecommendationId;
use crate::recommender::factors::{Factor, FactorWeights, Factors};

const START: Timestamp = Timestamp::constant(1_800_000_000, 0);

/// How people choose.
#[derive(Clone, Copy, Debug)]
pub(super) struct People {
    /// What a tool is worth to them, by its factors; all 0 for people who choose by chance.
    pub(super) taste: [f64; Factor::N],
    /// They look at the k-th place with the probability k to the power of minus this.
    pub(super) impatience: i32,
    /// How many tools they are recommended.
    pub(super) n_tools: usize,
}

/// Makes up recommendations and what came of them, one a minute.
#[derive(Debug)]
pub(super) struct World {
    chance: Chance,
    people: People,
    n_shown: u32,
}

impl World {
    pub(super) fn new(seed: u64, people: People) -> Self {
        Self {
            chance: Chance(seed),
            people,
            n_shown: 0,
        }
    }

    /// Returns a number of 0 to 1.
    fn number(&mut self) -> f64 {
        let bits = u32::try_from(self.chance.next() >> 32).unwrap();
        f64::from(bits) / f64::from(u32::MAX)
    }

    fn now(&self) -> Timestamp {
        START + SignedDuration::from_mins(self.n_shown.into())
    }

    /// Returns tools in the order by weights, best first.
    pub(super) fn shown(&mut self, weights: &FactorWeights) -> Vec<Factors> {
        let mut tools: Vec<Factors> = (0..self.people.n_tools)
            .map(|_| Factors::new([(); Factor::N].map(|()| self.number())))
            .collect();
        tools.sort_by(|a, b| weights.score(b).total_cmp(&weights.score(a)));
        tools
    }

    /// Returns what a tool is worth to people.
    pub(super) fn worth(&self, tool: &Factors) -> f64 {
        let parts = tool.values().iter().zip(self.people.taste);
        parts.map(|(value, taste)| value * taste).sum()
    }

    /// Returns recommendations that were ranked by weights and of which a tool was chosen.
    pub(super) fn examples(&mut self, n: usize, weights: &FactorWeights) -> Vec<Example> {
        let mut examples = Vec::with_capacity(n);
        while examples.len() < n {
            self.n_shown += 1;
            let tools = self.shown(weights);
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

    /// Returns the place of the best tool among those that are looked at, as far as people can tell.
    fn choice(&mut self, tools: &[Factors]) -> Option<usize> {
        let mut best: Option<(f64, usize)> = None;
        for (place, tool) in tools.iter().enumerate() {
            let is_seen = self.number() < real(place + 1).powi(-self.people.impatience);
            let worth = self.worth(tool) + 0.5 * self.number();
            if is_seen && best.is_none_or(|(most, _)| worth > most) {
                best = Some((worth, place));
            }
        }
        best.map(|(_, place)| place)
    }

    /// Every third choice is rated: by what the tool is worth, or by chance.
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
