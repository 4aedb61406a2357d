//! The kinds of lists of a server.

use riglm_domain::mcp::edit::member;

/// The extension that a server with skills declares.
const SKILLS: &str = "io.modelcontextprotocol/skills";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::proxy) enum ListKind {
    Tools,
    Prompts,
    Resources,
    Templates,
    Skills,
}

impl ListKind {
    pub(in crate::proxy) const ALL: [Self; 5] = [
        Self::Tools,
        Self::Prompts,
        Self::Resources,
        Self::Templates,
        Self::Skills,
    ];

    /// Returns the kind of list that a method requests.
    pub(in crate::proxy) fn of_method(method: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.method() == method)
    }

    /// Returns the kind of list whose entries are in this member of a result.
    pub(in crate::proxy) fn of_member(member: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.member() == member)
    }

    /// Returns the method that requests the list.
    pub(in crate::proxy) fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Prompts => "prompts/list",
            Self::Resources => "resources/list",
            Self::Templates => "resources/templates/list",
            Self::Skills => "skills/list",
        }
    }

    /// Returns the member of the result that holds the entries.
    pub(in crate::proxy) fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
            Self::Skills => "skills",
        }
    }

    /// Returns the member that identifies an entry.
    pub(in crate::proxy) fn key(self) -> &'static str {
        match self {
            Self::Tools | Self::Prompts => "name",
            Self::Resources | Self::Skills => "uri",
            Self::Templates => "uriTemplate",
        }
    }

    /// Returns whether entries are identified by names, which the proxy may change. URIs belong to
    /// their server and are never changed, except those of skills.
    pub(in crate::proxy) fn has_names(self) -> bool {
        matches!(self, Self::Tools | Self::Prompts)
    }

    /// Returns the kind of change that concerns the list.
    pub(in crate::proxy) fn change(self) -> ListChange {
        match self {
            Self::Tools => ListChange::Tools,
            Self::Prompts => ListChange::Prompts,
            Self::Resources | Self::Templates | Self::Skills => ListChange::Resources,
        }
    }

    /// Returns whether the result of a handshake declares that the server has such a list.
    pub(in crate::proxy) fn is_declared_in(self, handshake_result: &str) -> bool {
        let Some(capabilities) = member(handshake_result, "capabilities") else {
            return false;
        };
        let declared = match self {
            Self::Skills => {
                let extensions = member(capabilities, "extensions");
                extensions.and_then(|extensions| member(extensions, SKILLS))
            }
            _ => member(capabilities, self.change().capability()),
        };
        declared.is_some()
    }
}

/// A kind of change that a client is notified of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::proxy) enum ListChange {
    Tools,
    Prompts,
    Resources,
}

impl ListChange {
    pub(in crate::proxy) const ALL: [Self; 3] = [Self::Tools, Self::Prompts, Self::Resources];

    /// Returns the lists that the change concerns.
    pub(in crate::proxy) fn lists(self) -> &'static [ListKind] {
        match self {
            Self::Tools => &[ListKind::Tools],
            Self::Prompts => &[ListKind::Prompts],
            Self::Resources => &[ListKind::Resources, ListKind::Templates, ListKind::Skills],
        }
    }

    /// Returns the change that a notification reports.
    pub(in crate::proxy) fn of_method(method: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.method() == method)
    }

    pub(in crate::proxy) fn method(self) -> &'static str {
        match self {
            Self::Tools => "notifications/tools/list_changed",
            Self::Prompts => "notifications/prompts/list_changed",
            Self::Resources => "notifications/resources/list_changed",
        }
    }

    /// Returns the server capability of the lists.
    pub(in crate::proxy) fn capability(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
        }
    }

    /// Returns the member of a `subscriptions/listen` filter for this change.
    pub(in crate::proxy) fn filter(self) -> &'static str {
        match self {
            Self::Tools => "toolsListChanged",
            Self::Prompts => "promptsListChanged",
            Self::Resources => "resourcesListChanged",
        }
    }
}
