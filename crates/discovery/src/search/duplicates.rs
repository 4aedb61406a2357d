//! Duplicates: tools that several servers offer with the same definition.

use std::collections::HashMap;

use riglm_domain::retrieval::{IndexedTool, SearchHit};

/// Groups the tools of a catalog that are duplicates. Duplicates have the same name, description
/// and parameters. A tool without a description has no duplicates, because its name and parameters
/// do not say what it does.
#[derive(Debug)]
pub(super) struct Duplicates {
    group_of: Vec<usize>,
    /// Positions of the tools of each group, ascending.
    groups: Vec<Vec<usize>>,
}

/// A hit and its duplicates.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DuplicateGroup<'a> {
    /// The duplicate with the best rank.
    pub(super) hit: &'a SearchHit,
    /// Positions of the other duplicates, ascending.
    pub(super) others: Vec<usize>,
}

impl Duplicates {
    pub(super) fn new(tools: &[IndexedTool]) -> Self {
        let mut known: HashMap<(&str, &str, String), usize> = HashMap::new();
        let mut groups: Vec<Vec<usize>> = Vec::new();
        let group_of = tools.iter().enumerate().map(|(position, tool)| {
            let text = tool.text();
            let description = text.description.trim();
            let new = groups.len();
            let group = if description.is_empty() {
                new
            } else {
                let key = (text.name.as_str(), description, text.signature());
                *known.entry(key).or_insert(new)
            };
            if group == new {
                groups.push(Vec::new());
            }
            groups[group].push(position);
            group
        });
        Self {
            group_of: group_of.collect(),
            groups,
        }
    }

    /// Returns the positions of the duplicates of the tool at a position, ascending.
    pub(super) fn others(&self, position: usize) -> Vec<usize> {
        let group = self.group_of.get(position);
        let group = group.and_then(|group| self.groups.get(*group));
        let all = group.into_iter().flatten().copied();
        all.filter(|other| *other != position).collect()
    }

    /// Returns the first `limit` groups of the hits, each in the place of its best hit. A group has
    /// all its tools, including tools that are not hits.
    pub(super) fn groups<'a>(
        &self,
        hits: &'a [SearchHit],
        limit: usize,
    ) -> Vec<DuplicateGroup<'a>> {
        let mut is_taken = vec![false; self.groups.len()];
        let groups = hits.iter().filter_map(|hit| {
            let group = *self.group_of.get(hit.position)?;
            let is_new = !std::mem::replace(is_taken.get_mut(group)?, true);
            let members = self.groups.get(group).filter(|_| is_new)?.iter().copied();
            Some(DuplicateGroup {
                hit,
                others: members.filter(|other| *other != hit.position).collect(),
            })
        });
        groups.take(limit).collect()
    }
}

#[cfg(test)]
mod tests {
    use riglm_domain::catalog::tool::ToolRef;
    use riglm_domain::id::{ToolName, UpstreamName};
    use riglm_domain::retrieval::ToolText;

    use super::*;

    fn tool(upstream: &str, name: &str, definition: &str) -> IndexedTool {
        let tool = ToolRef {
            upstream: UpstreamName::parse(upstream).unwrap(),
            tool: ToolName::from(name),
        };
        IndexedTool::new(tool, ToolText::of_definition(name, definition))
    }

    fn hit(position: usize) -> SearchHit {
        SearchHit {
            position,
            score: 1.0,
            terms: Vec::new(),
            coverage: 1.0,
            cosine: None,
        }
    }

    #[test]
    fn duplicates_have_the_place_of_their_best_hit() {
        let same = r#"{"description":"Reads"}"#;
        let alike = Duplicates::new(&[
            tool("a", "read", same),
            tool("a", "list", same),
            tool("b", "read", same),
            tool(
                "b",
                "list",
                r#"{"description":"Reads","inputSchema":{"properties":{"x":{}}}}"#,
            ),
            tool("c", "read", same),
            tool("a", "bare", "{}"),
            tool("b", "bare", "{}"),
        ]);
        let hits = [2, 0, 6, 3, 1].map(hit);
        let groups = |limit| -> Vec<(usize, Vec<usize>)> {
            let groups = alike.groups(&hits, limit).into_iter();
            groups.map(|it| (it.hit.position, it.others)).collect()
        };
        let none = Vec::new;
        let all = [(2, vec![0, 4]), (6, none()), (3, none()), (1, none())];
        assert_eq!(groups(10), all);
        assert_eq!(groups(2), all[..2]);
    }
}
