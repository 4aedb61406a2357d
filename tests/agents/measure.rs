//! What agents saw, how often they searched, and what their prompts cost.

use riglm_domain::economics::CostModel;

/// In how many parts of a stream searches are counted.
pub(crate) const PARTS: usize = 5;

/// What one session measured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    /// Calls that it made.
    pub(crate) n_calls: u64,
    /// Those that failed.
    pub(crate) n_failed: u64,
    /// Those whose tool it knew before.
    pub(crate) n_covered: u64,
    /// The first calls of each tool.
    pub(crate) n_first_uses: u64,
    /// Those whose tool it knew before.
    pub(crate) n_first_covered: u64,
    /// Searches.
    pub(crate) n_searches: u64,
    /// Those whose answer did not name the tool.
    pub(crate) n_in_vain: u64,
    /// Lists that were other ones than the list before.
    pub(crate) n_changes: u64,
    /// Tools in its list, summed over the calls.
    pub(crate) n_listed: u64,
    /// Tools that it knew from its list or from searches, summed over the calls.
    pub(crate) n_known: u64,
    /// Tokens of definitions in lists.
    pub(crate) list_tokens: u64,
    /// Tokens of answers to searches.
    pub(crate) answer_tokens: u64,
    /// The price, by the tokens that were sent.
    pub(crate) cost: f64,
    /// The price by the model, in which every tool has as many tokens and the proxy's own have none.
    pub(crate) model_cost: f64,
    prompt: Prompt,
}

/// The part of the prompt that is about tools.
#[derive(Clone, Copy, Debug, Default)]
struct Prompt {
    list_tokens: u64,
    told_tokens: u64,
    n_listed: usize,
    n_told: usize,
}

impl Measured {
    /// The agent was given a list. `tokens` are those that its model reads.
    pub(crate) fn listed(
        &mut self,
        costs: &CostModel,
        n_tools: usize,
        tokens: u64,
        is_first: bool,
    ) {
        (self.prompt.list_tokens, self.prompt.n_listed) = (tokens, n_tools);
        self.list_tokens += tokens;
        if is_first {
            self.cost += costs.cache_write * float(tokens);
            self.model_cost += costs.first_list(n_tools);
        } else {
            self.n_changes += 1;
            let behind = costs.context_tokens + float(tokens + self.prompt.told_tokens);
            self.cost += (costs.cache_write - costs.cached_read) * behind;
            self.model_cost += costs.list_change(n_tools + self.prompt.n_told);
        }
    }

    /// The agent's model is about to call a tool.
    pub(crate) fn calls(&mut self, costs: &CostModel, is_first_use: bool, was_known: bool) {
        self.n_calls += 1;
        self.n_covered += u64::from(was_known);
        self.n_first_uses += u64::from(is_first_use);
        self.n_first_covered += u64::from(is_first_use && was_known);
        let Prompt {
            n_listed, n_told, ..
        } = self.prompt;
        self.n_listed += n_listed as u64;
        self.n_known += (n_listed + n_told) as u64;
        self.cost += self.read(costs);
        self.model_cost += costs.call(n_listed + n_told);
    }

    /// The agent searched, and was told of so many tools that it did not know.
    pub(crate) fn searched(
        &mut self,
        costs: &CostModel,
        n_new: usize,
        tokens: u64,
        is_in_vain: bool,
    ) {
        self.n_searches += 1;
        self.n_in_vain += u64::from(is_in_vain);
        self.answer_tokens += tokens;
        let Prompt {
            n_listed, n_told, ..
        } = self.prompt;
        self.cost += self.read(costs) + costs.inline_search + costs.cache_write * float(tokens);
        self.model_cost += costs.search_with_inline(n_listed + n_told, n_new);
        self.prompt.told_tokens += tokens;
        self.prompt.n_told += n_new;
    }

    /// Returns the price of reading the prompt once.
    fn read(&self, costs: &CostModel) -> f64 {
        let tools = self.prompt.list_tokens + self.prompt.told_tokens;
        costs.cached_read * (costs.context_tokens + float(tools))
    }
}

/// What all sessions of a stream measured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    /// The sums over all sessions.
    pub(crate) all: Measured,
    /// How many sessions there were.
    pub(crate) n_sessions: u64,
    /// How many cost more than showing everything.
    pub(crate) n_dearer: u64,
    /// The price of showing everything.
    pub(crate) cost_of_all: f64,
    /// The same by the model.
    pub(crate) model_cost_of_all: f64,
    /// Searches and sessions in each part of the stream.
    pub(crate) parts: [(u64, u64); PARTS],
}

impl Totals {
    /// Adds a session; `at` is its place among `n`. Showing everything takes `tokens` for
    /// `n_tools` tools.
    pub(crate) fn add(
        &mut self,
        session: &Measured,
        (at, n): (usize, usize),
        costs: &CostModel,
        (n_tools, tokens): (usize, u64),
    ) {
        let n_calls = session.n_calls;
        let each = costs.cached_read * (costs.context_tokens + float(tokens));
        let of_all = costs.cache_write * float(tokens) + float(n_calls) * each;
        self.cost_of_all += of_all;
        self.model_cost_of_all += costs.showing_all(n_tools, n_calls, 1);
        self.n_sessions += 1;
        self.n_dearer += u64::from(session.cost > of_all * (1.0 + 1e-6));
        let part = &mut self.parts[(at * PARTS / n.max(1)).min(PARTS - 1)];
        *part = (part.0 + session.n_searches, part.1 + 1);
        let all = &mut self.all;
        all.n_calls += n_calls;
        all.n_failed += session.n_failed;
        all.n_covered += session.n_covered;
        all.n_first_uses += session.n_first_uses;
        all.n_first_covered += session.n_first_covered;
        all.n_searches += session.n_searches;
        all.n_in_vain += session.n_in_vain;
        all.n_changes += session.n_changes;
        all.n_listed += session.n_listed;
        all.n_known += session.n_known;
        all.list_tokens += session.list_tokens;
        all.answer_tokens += session.answer_tokens;
        all.cost += session.cost;
        all.model_cost += session.model_cost;
    }

    /// Returns the share of calls whose tool was known before.
    pub(crate) fn coverage(&self) -> f64 {
        ratio(self.all.n_covered, self.all.n_calls)
    }

    /// The same of first calls of each tool in a session.
    pub(crate) fn first_use_coverage(&self) -> f64 {
        ratio(self.all.n_first_covered, self.all.n_first_uses)
    }

    /// Returns a count per session.
    pub(crate) fn per_session(&self, count: u64) -> f64 {
        ratio(count, self.n_sessions)
    }

    /// Returns how many tools lists had, over the calls.
    pub(crate) fn mean_list(&self) -> f64 {
        ratio(self.all.n_listed, self.all.n_calls)
    }

    /// Returns how many tools were known, over the calls.
    pub(crate) fn mean_known(&self) -> f64 {
        ratio(self.all.n_known, self.all.n_calls)
    }

    /// Returns the price in terms of that of showing everything.
    pub(crate) fn cost(&self) -> f64 {
        self.all.cost / self.cost_of_all
    }

    /// The same by the model.
    pub(crate) fn model_cost(&self) -> f64 {
        self.all.model_cost / self.model_cost_of_all
    }

    /// Returns the share of sessions that cost more than showing everything.
    pub(crate) fn dearer(&self) -> f64 {
        ratio(self.n_dearer, self.n_sessions)
    }

    /// Returns the searches per session in each part of the stream.
    pub(crate) fn searches_by_part(&self) -> [f64; PARTS] {
        self.parts
            .map(|(n_searches, n_sessions)| ratio(n_searches, n_sessions))
    }
}

/// Returns a share; 0 of nothing.
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    float(part) / float(whole.max(1))
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(super) fn float(n: u64) -> f64 {
    n as f64
}
