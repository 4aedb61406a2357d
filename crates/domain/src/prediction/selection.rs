//! Selection of the tools that a client is shown.

use crate::id::UpstreamName;
use crate::privacy::principal::Principal;

/// The context of a list request.
#[derive(Clone, Copy, Debug)]
pub struct SelectionContext<'a> {
    /// The principal of the request.
    pub principal: &'a Principal,
    /// The upstream whose tools are listed.
    pub upstream: &'a UpstreamName,
}

/// The selected tools of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The whole list, byte for byte.
    All,
    /// The list without the tools at these positions, which are ascending. The left out tools stay
    /// callable.
    Without(Vec<usize>),
}
