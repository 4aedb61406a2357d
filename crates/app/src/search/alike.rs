//! Tools of several servers that are the same one.

use std::collections::HashMap;

use riglm_domain::retrieval::{Hit, IndexedTool};

/// Which tools of an offer are the same. Those are that have the same name, description and
/// parameters; one without a description may be anything.
#[derive(Debug)]
pub(super) struct Alike {
    group_of: Vec<usize>,
    /// The positions of the tools of each group, ascending.
    groups: Vec<Vec<usize>>,
}

/// A hit and the tools that are the same.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Group<'a> {
    /// The best of them.
    pub(super) hit: &'a Hit,
    /// The positions of the others, ascending.
    pub(super) others: Vec<usize>,
}

impl Alike {
    /// Finds the tools that are the same among these.
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

    /// Returns the positions of the tools that are the same as the one at a position, ascending.
    pub(super) fn others(&self, position: usize) -> Vec<usize> {
        let group = self.group_of.get(position);
        let group = group.and_then(|group| self.groups.get(*group));
        let all = group.into_iter().flatten().copied();
        all.filter(|other| *other != position).collect()
    }

    /// Returns the first `limit` groups of these hits, each at the place of its best one, with all
    /// tools of the group, whether they are hits or not.
    pub(super) fn groups<'a>(&self, hits: &'a [Hit], limit: usize) -> Vec<Group<'a>> {
        let mut is_taken = vec![false; self.groups.len()];
        let groups = hits.iter().filter_map(|hit| {
            let group = *self.group_of.get(hit.position)?;
            let is_new = !std::mem::replace(is_taken.get_mut(group)?, true);
            let members = self.groups.get(group).filter(|_| is_new)?.iter().copied();
            Some(Group {
                hit,
                others: members.filter(|other| *other != hit.position).collect(),
            })
        });
        groups.take(limit).collect()
    }
}

#[cfg(test)]
mod tests {
    use riglm_domain::id::{ToolName, UpstreamName};
    use riglm_domain::retrieval::ToolText;
    use riglm_domain::tool::ToolRef;

    use super::*;

    fn tool(upstream: &str, name: &str, definition: &str) -> IndexedTool {
        let tool = ToolRef {
            upstream: UpstreamName::parse(upstream).unwrap(),
            tool: ToolName::from(name),
        };
        IndexedTool::new(tool, ToolText::of_definition(name, definition))
    }

    fn hit(position: usize) -> Hit {
        Hit {
            position,
            score: 1.0,
            terms: Vec::new(),
            coverage: 1.0,
            cosine: None,
        }
    }

    #[test]
    fn a_group_has_all_its_tools_in_their_order_and_stands_where_its_best_hit_does() {
        let same = r#"{"description":"Reads"}"#;
        let alike = Alike::new(&[
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
