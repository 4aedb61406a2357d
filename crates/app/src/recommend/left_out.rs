//! What is not recommended although it fits, and why.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use riglm_domain::id::UpstreamName;
use riglm_domain::prediction::NamePattern;
use riglm_domain::tool::ToolRef;

use super::call::Project;
use crate::safeguards::whole_seconds;
use crate::search::OfferedTool;

/// What cannot be used now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hindrances {
    /// The upstreams that cannot be reached.
    pub unavailable: BTreeSet<UpstreamName>,
    /// The tools that the operator hides from who asks.
    pub excluded: HashSet<ToolRef>,
    /// The tools that were called as often as they may be by who asks, and for how long that holds.
    pub limited: HashMap<ToolRef, Duration>,
}

impl Hindrances {
    /// Returns whether everything can be used.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.unavailable.is_empty() && self.excluded.is_empty() && self.limited.is_empty()
    }
}

/// Why a tool is not recommended although it fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeftOutReason {
    /// The operator hides it from who asks.
    Excluded,
    /// Its upstream cannot be reached.
    Unavailable,
    /// It was called as often as it may be: for so many seconds from now.
    RateLimited(u64),
    /// It is for projects with other tags: these.
    OtherProjects(Vec<String>),
}

impl LeftOutReason {
    /// Returns the name of the reason.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Excluded => "excluded",
            Self::Unavailable => "unavailable",
            Self::RateLimited(_) => "rate_limited",
            Self::OtherProjects(_) => "other_projects",
        }
    }

    /// Returns the reason in words.
    #[must_use]
    pub fn sentence(&self) -> String {
        match self {
            Self::Excluded => "the operator hides it here".into(),
            Self::Unavailable => "its server cannot be reached".into(),
            Self::RateLimited(seconds) => {
                format!("it was called as often as it may be; free again in {seconds} s")
            }
            Self::OtherProjects(tags) => format!("it is for projects with {}", tags.join(" or ")),
        }
    }
}

/// A tool that is not recommended although it fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The name by which clients call it.
    pub name: String,
    /// Why.
    pub reason: LeftOutReason,
}

/// Tools that are for projects with one of some tags.
#[derive(Clone, Debug, PartialEq)]
pub struct TaggedTools {
    /// The tools, by name.
    pub tools: NamePattern,
    /// The tags, any of which makes a project one of theirs.
    pub tags: Vec<String>,
}

/// Returns why a tool cannot be used now; `None` if it can.
pub(super) fn hindrance(
    tool: &OfferedTool,
    hindrances: &Hindrances,
    project: &Project,
    tagged: &[TaggedTools],
) -> Option<LeftOutReason> {
    if hindrances.excluded.contains(&tool.tool) {
        return Some(LeftOutReason::Excluded);
    }
    if hindrances.unavailable.contains(&tool.tool.upstream) {
        return Some(LeftOutReason::Unavailable);
    }
    if let Some(wait) = hindrances.limited.get(&tool.tool) {
        return Some(LeftOutReason::RateLimited(whole_seconds(*wait)));
    }
    if project.is_unknown() {
        return None;
    }
    let names = tool.names();
    let fitting = tagged
        .iter()
        .filter(|one| names.iter().any(|name| one.tools.matches(name)));
    let tags: Vec<String> = fitting.flat_map(|one| one.tags.iter().cloned()).collect();
    let is_other = !tags.is_empty() && !project.has_any(&tags);
    is_other.then_some(LeftOutReason::OtherProjects(tags))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str) -> OfferedTool {
        OfferedTool {
            name: format!("u__{name}"),
            tool: ToolRef {
                upstream: UpstreamName::parse("u").unwrap(),
                tool: name.into(),
            },
            definition: "{}".into(),
            is_hidden: false,
        }
    }

    #[test]
    fn what_cannot_be_used_is_left_out_with_the_first_reason() {
        let lint = tool("pylint");
        let tagged = [TaggedTools {
            tools: NamePattern::new("py*"),
            tags: vec!["python".into()],
        }];
        let why = |hindrances: &Hindrances, tags: &[&str]| {
            hindrance(&lint, hindrances, &Project::new(tags), &tagged)
        };
        let mut hindrances = Hindrances::default();
        assert_eq!(why(&hindrances, &[]), None);
        assert_eq!(why(&hindrances, &["Python", "web"]), None);
        let other = LeftOutReason::OtherProjects(vec!["python".into()]);
        assert_eq!(why(&hindrances, &["rust"]), Some(other));
        let wait = Duration::from_millis(4_001);
        hindrances.limited.insert(lint.tool.clone(), wait);
        let limited = LeftOutReason::RateLimited(5);
        assert_eq!(why(&hindrances, &["rust"]), Some(limited.clone()));
        assert!(limited.sentence().ends_with("free again in 5 s"));
        hindrances.unavailable.insert(lint.tool.upstream.clone());
        assert_eq!(
            why(&hindrances, &["rust"]),
            Some(LeftOutReason::Unavailable)
        );
        hindrances.excluded.insert(lint.tool.clone());
        assert_eq!(why(&hindrances, &["rust"]), Some(LeftOutReason::Excluded));
        let others = hindrance(
            &tool("other"),
            &Hindrances::default(),
            &Project::new(["rust"]),
            &tagged,
        );
        assert_eq!(others, None);
    }
}
