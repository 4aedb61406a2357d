//! The skills extension (SEP-2640), which is the same in both eras.

use crate::envelope::{json_string, string_at};

/// The members of the results, or `None` for another method or an unknown skill.
pub(super) fn members(method: &str, params: &str) -> Option<String> {
    let uri = string_at(params, &["uri"]).unwrap_or_default();
    match method {
        "skills/list" => Some(format!(r#""skills":[{SKILL}],"x":1.0"#)),
        "skills/get" if uri == URI => Some(format!(r#""skill":{SKILL},"x":null"#)),
        "resources/directory/read" if uri == DIRECTORY => Some(format!(
            r#""entries":[{{"uri":{},"name":"SKILL.md","x":0.70}}]"#,
            json_string(URI)
        )),
        _ => None,
    }
}

const URI: &str = "skill://tidy/SKILL.md";
const DIRECTORY: &str = "skill://tidy";
const SKILL: &str = r#"{"uri":"skill://tidy/SKILL.md","frontmatter":{"name":"tidy","description":"Tidies \u00ab rooms \u00bb","x":1e3},"resources":[{"uri":"skill://tidy/SKILL.md","digest":"sha256:0a","size":7}]}"#;
