//! Which tools of a list a client is shown.

use crate::id::UpstreamName;
use crate::principal::Principal;

/// What is known when a list is asked for.
#[derive(Clone, Copy, Debug)]
pub struct SelectionContext<'a> {
    /// Who is asking.
    pub principal: &'a Principal,
    /// The upstream whose tools are listed.
    pub upstream: &'a UpstreamName,
}

/// What to show of a list of tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The whole list, byte for byte.
    All,
    /// The list without the tools at these positions, in ascending order. They stay callable.
    Without(Vec<usize>),
}
