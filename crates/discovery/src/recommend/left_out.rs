//! Exclusion of tools from recommendations, with the reason.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::UpstreamName;
use riglm_domain::prediction::NamePattern;

use super::call::Project;
use crate::search::CatalogTool;
use riglm_domain::safeguards::limiter::whole_seconds;
use strum::IntoStaticStr;

/// Tools that cannot be used at present.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exclusions {
    /// Upstreams that cannot be reached.
    pub unavailable: BTreeSet<UpstreamName>,
    /// Tools that the operator hides from this principal.
    pub excluded: HashSet<ToolRef>,
    /// Tools whose rate limit this principal has reached, each with the time until the next call is
    /// allowed.
    pub limited: HashMap<ToolRef, Duration>,
}

impl Exclusions {
    /// Returns whether no tool is excluded.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.unavailable.is_empty() && self.excluded.is_empty() && self.limited.is_empty()
    }
}

/// The reason why a matching tool is not recommended.
#[derive(Clone, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum LeftOutReason {
    /// The operator hides the tool from this principal.
    Excluded,
    /// The upstream cannot be reached.
    Unavailable,
    /// The rate limit is reached. The value is the time until the next allowed call, in seconds.
    RateLimited(u64),
    /// The tool is for projects with other tags, which are given.
    OtherProjects(Vec<String>),
}

impl LeftOutReason {
    /// Returns the name of the reason.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        self.into()
    }

    /// Returns the reason as a clause.
    #[must_use]
    pub fn sentence(&self) -> String {
        match self {
            Self::Excluded => "the operator excluded it".into(),
            Self::Unavailable => "its server is unavailable".into(),
            Self::RateLimited(seconds) => {
                format!("its rate limit is reached; free again in {seconds} s")
            }
            Self::OtherProjects(tags) => format!("it is for projects with {}", tags.join(" or ")),
        }
    }
}

/// A matching tool that is not recommended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The name by which clients call the tool.
    pub name: String,
    /// The reason.
    pub reason: LeftOutReason,
}

/// Returns the reason why a tool is excluded, or `None` if it can be used. `tags` are the tags of
/// tools that are only for some projects; a project needs at least one of them.
pub(super) fn exclusion_reason(
    tool: &CatalogTool,
    exclusions: &Exclusions,
    project: &Project,
    tags: &BTreeMap<NamePattern, Vec<String>>,
) -> Option<LeftOutReason> {
    if exclusions.excluded.contains(&tool.tool) {
        return Some(LeftOutReason::Excluded);
    }
    if exclusions.unavailable.contains(&tool.tool.upstream) {
        return Some(LeftOutReason::Unavailable);
    }
    if let Some(wait) = exclusions.limited.get(&tool.tool) {
        return Some(LeftOutReason::RateLimited(whole_seconds(*wait)));
    }
    if project.is_unknown() {
        return None;
    }
    let names = tool.names();
    let fitting = tags
        .iter()
        .filter(|(pattern, _)| names.iter().any(|name| pattern.matches(name)));
    let tags: Vec<String> = fitting.flat_map(|(_, tags)| tags).cloned().collect();
    let is_other = !tags.is_empty() && !project.has_any(&tags);
    is_other.then_some(LeftOutReason::OtherProjects(tags))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str) -> CatalogTool {
        CatalogTool {
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
    fn unusable_tools_are_left_out_with_the_first_reason() {
        let lint = tool("pylint");
        let tagged = BTreeMap::from([(NamePattern::new("py*"), vec!["python".into()])]);
        let why = |exclusions: &Exclusions, tags: &[&str]| {
            exclusion_reason(&lint, exclusions, &Project::new(tags), &tagged)
        };
        let mut exclusions = Exclusions::default();
        assert_eq!(why(&exclusions, &[]), None);
        assert_eq!(why(&exclusions, &["Python", "web"]), None);
        let other = LeftOutReason::OtherProjects(vec!["python".into()]);
        assert_eq!(why(&exclusions, &["rust"]), Some(other));
        let wait = Duration::from_millis(4_001);
        exclusions.limited.insert(lint.tool.clone(), wait);
        let limited = LeftOutReason::RateLimited(5);
        assert_eq!(why(&exclusions, &["rust"]), Some(limited.clone()));
        assert!(limited.sentence().ends_with("free again in 5 s"));
        exclusions.unavailable.insert(lint.tool.upstream.clone());
        assert_eq!(
            why(&exclusions, &["rust"]),
            Some(LeftOutReason::Unavailable)
        );
        exclusions.excluded.insert(lint.tool.clone());
        assert_eq!(why(&exclusions, &["rust"]), Some(LeftOutReason::Excluded));
        let others = exclusion_reason(
            &tool("other"),
            &Exclusions::default(),
            &Project::new(["rust"]),
            &tagged,
        );
        assert_eq!(others, None);
    }

    #[test]
    fn names_of_reasons_are_stable() {
        let reasons = [
            LeftOutReason::Excluded,
            LeftOutReason::Unavailable,
            LeftOutReason::RateLimited(1),
            LeftOutReason::OtherProjects(Vec::new()),
        ];
        let names = reasons.each_ref().map(LeftOutReason::as_str);
        assert_eq!(
            names,
            ["excluded", "unavailable", "rate_limited", "other_projects"]
        );
    }
}
