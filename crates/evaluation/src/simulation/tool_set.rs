//! Sets of tools of a catalog.

/// A set of tools of a catalog, by position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ToolSet {
    members: Vec<bool>,
    n_members: usize,
}

impl ToolSet {
    pub(super) fn new(n_tools: usize) -> Self {
        Self {
            members: vec![false; n_tools],
            n_members: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.n_members
    }

    pub(super) fn contains(&self, tool: usize) -> bool {
        self.members.get(tool).copied().unwrap_or(false)
    }

    /// Adds a tool and returns whether it is new. A position outside the catalog is ignored.
    pub(super) fn insert(&mut self, tool: usize) -> bool {
        let Some(member) = self.members.get_mut(tool) else {
            return false;
        };
        let is_new = !std::mem::replace(member, true);
        self.n_members += usize::from(is_new);
        is_new
    }

    pub(super) fn insert_all(&mut self, other: &Self) {
        for tool in other.iter() {
            self.insert(tool);
        }
    }

    pub(super) fn clear(&mut self) {
        self.members.fill(false);
        self.n_members = 0;
    }

    /// Returns the tools in the set, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        let members = self.members.iter().enumerate();
        members.filter_map(|(tool, is_member)| is_member.then_some(tool))
    }
}

impl Extend<usize> for ToolSet {
    fn extend<T: IntoIterator<Item = usize>>(&mut self, tools: T) {
        for tool in tools {
            self.insert(tool);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_in_a_set_once_and_others_are_not() {
        let mut set = ToolSet::new(3);
        assert!(set.insert(2) && !set.insert(2) && !set.insert(3));
        let mut other = ToolSet::new(3);
        other.extend([0, 2]);
        set.insert_all(&other);
        assert_eq!((set.len(), set.iter().collect::<Vec<_>>()), (2, vec![0, 2]));
        assert!(set.contains(0) && !set.contains(1) && !set.contains(9));
        set.clear();
        assert_eq!(set, ToolSet::new(3));
    }
}
