//! Search of skills: instructions for an agent that servers list (extension
//! `io.modelcontextprotocol/skills`).

use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::mcp::edit::{member, with_member};
use riglm_domain::mcp::scan::unescape;
use riglm_domain::retrieval::excerpt::excerpt;
use riglm_domain::retrieval::{IndexedTool, Query, RankingRules, Synonyms, ToolIndex, ToolText};
use serde::Serialize;
use serde_json::json;

/// The maximum number of skills that are searched.
pub const MAX_SKILLS: usize = 1_000;
/// The maximum number of skills in an answer.
const MAX_FOUND: usize = 3;
/// The share of the query's words, by their weight, that a skill must have. A skill is an addition
/// to the answer, so a doubtful one is left out.
const MIN_COVERAGE: f64 = 1.0 / 3.0;
/// The maximum length of a description in characters.
const MAX_DESCRIPTION: usize = 240;
/// The maximum length of a URI in bytes.
const MAX_URI: usize = 1_024;

/// A skill, as an answer names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skill {
    /// The URI by which the client reads it.
    pub uri: String,
    /// Its name.
    pub name: String,
    /// Its purpose.
    pub description: String,
}

impl Skill {
    /// Reads an entry of `skills/list`, JSON text. Returns `None` without URI or name. `uri` is the
    /// URI that the client knows.
    #[must_use]
    pub fn read(uri: &str, entry: &str) -> Option<Self> {
        let frontmatter = member(entry, "frontmatter").unwrap_or(entry);
        let text = |key| member(frontmatter, key).and_then(unescape);
        let name = text("name")?.into_owned();
        if uri.len() > MAX_URI || name.len() > MAX_URI {
            return None;
        }
        let description = text("description").unwrap_or_default();
        Some(Self {
            uri: uri.to_owned(),
            name,
            description: excerpt(&description, MAX_DESCRIPTION).into_owned(),
        })
    }
}

/// The skills of a session, searchable by their names and descriptions.
#[derive(Debug)]
pub struct SkillIndex {
    skills: Vec<Skill>,
    index: ToolIndex,
}

impl SkillIndex {
    /// Indexes skills. Beyond 1,000 the rest is left out.
    #[must_use]
    pub fn new(mut skills: Vec<Skill>) -> Self {
        skills.truncate(MAX_SKILLS);
        let indexed = skills.iter().filter_map(|skill| {
            let tool = ToolRef {
                upstream: UpstreamName::parse("skills").ok()?,
                tool: ToolName::from(&*skill.uri),
            };
            let definition = json!({"description": skill.description}).to_string();
            let text = ToolText::of_definition(&skill.name, &definition);
            Some(IndexedTool::new(tool, text))
        });
        Self {
            index: ToolIndex::new(indexed.collect()),
            skills,
        }
    }

    /// Returns whether there are no skills.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.skills.is_empty()
    }

    /// Returns the skills that fit a text, best first, at most three.
    #[must_use]
    pub fn find(&self, text: &str, synonyms: &Synonyms) -> Vec<&Skill> {
        let query = Query::new(text, synonyms);
        let hits = self
            .index
            .rank(&query, &RankingRules::default(), None, MAX_FOUND);
        let fitting = hits.iter().filter(|hit| hit.coverage >= MIN_COVERAGE);
        fitting
            .filter_map(|hit| self.skills.get(hit.position))
            .collect()
    }
}

/// Returns the text and the JSON of a search answer with these skills. `structured` is the JSON text
/// of an object.
#[must_use]
pub fn with_skills(text: &str, structured: &str, skills: &[Skill]) -> (String, String) {
    let mut lines = String::from("Skills with instructions for this; read them as resources:\n");
    for skill in skills {
        let colon = if skill.description.is_empty() {
            ""
        } else {
            ": "
        };
        let description = &skill.description;
        lines.extend([
            "- ",
            &skill.uri,
            " (",
            &skill.name,
            ")",
            colon,
            description,
            "\n",
        ]);
    }
    let text = format!("{}\n\n{lines}", text.trim_end());
    let json = serde_json::to_string(skills).unwrap_or_else(|_| "[]".into());
    (text, with_member(structured, "skills", &json))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skill(name: &str, description: &str) -> Skill {
        let entry = json!({"frontmatter": {"name": name, "description": description}});
        Skill::read(&format!("skill://{name}/SKILL.md"), &entry.to_string()).unwrap()
    }

    fn names<'a>(index: &'a SkillIndex, text: &str) -> Vec<&'a str> {
        let found = index.find(text, &Synonyms::built_in());
        found.iter().map(|skill| &*skill.name).collect()
    }

    #[test]
    fn skills_are_found_by_name_and_description() {
        let index = SkillIndex::new(vec![
            skill(
                "pdf-forms",
                "Fills in forms in PDF files, also scanned ones.",
            ),
            skill(
                "release-notes",
                "Writes notes for a release from the commits.",
            ),
            skill("tax", "Prepares the tax return of a small company."),
        ]);
        assert_eq!(names(&index, "fill in a pdf form"), ["pdf-forms"]);
        assert_eq!(names(&index, "write release notes"), ["release-notes"]);
        assert!(names(&index, "play some music").is_empty());
        assert!(names(&index, "list the files of the house next door in spring").is_empty());
        assert!(names(&SkillIndex::new(Vec::new()), "pdf").is_empty());
    }

    #[test]
    fn an_answer_names_the_skills_in_text_and_json() {
        let pdf = skill("pdf", "Fills forms.");
        let bare = skill("bare", "");
        let (text, structured) = with_skills("Tools.\n", r#"{"matches":[]}"#, &[pdf, bare]);
        assert_eq!(
            text,
            "Tools.\n\nSkills with instructions for this; read them as resources:\n\
             - skill://pdf/SKILL.md (pdf): Fills forms.\n- skill://bare/SKILL.md (bare)\n"
        );
        assert_eq!(
            structured,
            r#"{"matches":[],"skills":[{"uri":"skill://pdf/SKILL.md","name":"pdf","description":"Fills forms."},{"uri":"skill://bare/SKILL.md","name":"bare","description":""}]}"#
        );
    }

    #[test]
    fn entries_without_a_name_are_left_out_and_long_texts_cut() {
        assert_eq!(Skill::read("skill://a/SKILL.md", "{}"), None);
        assert_eq!(Skill::read(&"u".repeat(2_000), r#"{"name":"a"}"#), None);
        let long = skill("long", &"many words ".repeat(100));
        assert!(long.description.chars().count() <= MAX_DESCRIPTION);
        // Some servers put name and description beside the URI.
        let flat = Skill::read("skill://a/SKILL.md", r#"{"name":"a","description":"d"}"#);
        assert_eq!(flat.unwrap().description, "d");
    }
}
