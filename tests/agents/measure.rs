//! Statistics of agents: tools in their lists, searches, and the cost of their prompts.

use riglm_domain::selection::economics::CostModel;

/// The number of parts of a stream in which searches are counted.
pub(crate) const PARTS: usize = 5;

/// Statistics of one session.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionStatistics {
    pub(crate) n_calls: u64,
    pub(crate) n_failed: u64,
    /// Calls of tools that the agent knew before.
    pub(crate) n_covered: u64,
    pub(crate) n_first_uses: u64,
    /// First calls of tools that the agent knew before.
    pub(crate) n_first_covered: u64,
    pub(crate) n_searches: u64,
    /// Searches whose result did not contain the tool.
    pub(crate) n_in_vain: u64,
    /// Received lists that differ from the list before.
    pub(crate) n_changes: u64,
    /// Tools in the list, summed over the calls.
    pub(crate) n_listed: u64,
    /// Tools known from lists or searches, summed over the calls.
    pub(crate) n_known: u64,
    pub(crate) list_tokens: u64,
    /// Tokens of search results.
    pub(crate) answer_tokens: u64,
    /// The cost, by the number of sent tokens.
    pub(crate) cost: f64,
    /// The cost by the cost model, in which all tools have the same number of tokens and own tools
    /// have none.
    pub(crate) model_cost: f64,
    prompt: Prompt,
}

/// The part of the prompt about tools.
#[derive(Clone, Copy, Debug, Default)]
struct Prompt {
    list_tokens: u64,
    told_tokens: u64,
    n_listed: usize,
    n_told: usize,
}

impl SessionStatistics {
    /// Adds a received list. `tokens` is the number of its tokens that the model reads.
    pub(crate) fn add_list(
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

    pub(crate) fn add_call(&mut self, costs: &CostModel, is_first_use: bool, was_known: bool) {
        self.n_calls += 1;
        self.n_covered += u64::from(was_known);
        self.n_first_uses += u64::from(is_first_use);
        self.n_first_covered += u64::from(is_first_use && was_known);
        let Prompt {
            n_listed, n_told, ..
        } = self.prompt;
        self.n_listed += n_listed as u64;
        self.n_known += (n_listed + n_told) as u64;
        self.cost += self.prompt_read_cost(costs);
        self.model_cost += costs.call(n_listed + n_told);
    }

    /// Adds a search whose result had `n_new` unknown tools.
    pub(crate) fn add_search(
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
        self.cost +=
            self.prompt_read_cost(costs) + costs.inline_search + costs.cache_write * float(tokens);
        self.model_cost += costs.search_with_inline(n_listed + n_told, n_new);
        self.prompt.told_tokens += tokens;
        self.prompt.n_told += n_new;
    }

    /// Returns the cost of reading the prompt once.
    fn prompt_read_cost(&self, costs: &CostModel) -> f64 {
        let tools = self.prompt.list_tokens + self.prompt.told_tokens;
        costs.cached_read * (costs.context_tokens + float(tools))
    }
}

/// Statistics of all sessions of a stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamStatistics {
    pub(crate) all: SessionStatistics,
    pub(crate) n_sessions: u64,
    /// Sessions with a higher cost than showing all tools.
    pub(crate) n_dearer: u64,
    /// The cost of showing all tools.
    pub(crate) cost_of_all: f64,
    /// The same cost by the cost model.
    pub(crate) model_cost_of_all: f64,
    /// Searches and sessions in each part of the stream.
    pub(crate) parts: [(u64, u64); PARTS],
}

impl StreamStatistics {
    /// Adds session number `at` of `n`. Showing all tools takes `tokens` for `n_tools` tools.
    pub(crate) fn add(
        &mut self,
        session: &SessionStatistics,
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
        // The tolerance ignores rounding errors.
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

    /// Returns the share of calls of known tools.
    pub(crate) fn coverage(&self) -> f64 {
        ratio(self.all.n_covered, self.all.n_calls)
    }

    /// Returns the share of known tools among the first calls of each tool in a session.
    pub(crate) fn first_use_coverage(&self) -> f64 {
        ratio(self.all.n_first_covered, self.all.n_first_uses)
    }

    pub(crate) fn per_session(&self, count: u64) -> f64 {
        ratio(count, self.n_sessions)
    }

    /// Returns the mean number of tools in the list, over the calls.
    pub(crate) fn mean_list(&self) -> f64 {
        ratio(self.all.n_listed, self.all.n_calls)
    }

    /// Returns the mean number of known tools, over the calls.
    pub(crate) fn mean_known(&self) -> f64 {
        ratio(self.all.n_known, self.all.n_calls)
    }

    /// Returns the cost in relation to the cost of showing all tools.
    pub(crate) fn cost(&self) -> f64 {
        self.all.cost / self.cost_of_all
    }

    /// Returns the same ratio by the cost model.
    pub(crate) fn model_cost(&self) -> f64 {
        self.all.model_cost / self.model_cost_of_all
    }

    /// Returns the share of sessions with a higher cost than showing all tools.
    pub(crate) fn share_of_dearer_sessions(&self) -> f64 {
        ratio(self.n_dearer, self.n_sessions)
    }

    /// Returns the searches per session in each part of the stream.
    pub(crate) fn searches_by_part(&self) -> [f64; PARTS] {
        self.parts
            .map(|(n_searches, n_sessions)| ratio(n_searches, n_sessions))
    }
}

/// Returns a ratio, or 0 if `whole` is 0.
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    float(part) / float(whole.max(1))
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(super) fn float(n: u64) -> f64 {
    n as f64
}
