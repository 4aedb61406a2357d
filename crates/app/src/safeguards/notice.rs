//! Notices for the model at the end of a result. The end of the conversation is outside of the
//! prompt cache, so they cost no cache miss.

use riglm_domain::mcp::edit::{member, with_element, with_member};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The key of notices in `_meta`.
const NOTICES: &str = "io.github.riglm/notices";

/// The position of notices in a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticePlace {
    /// A further text of `content`, which models read.
    #[default]
    Text,
    /// A member of `_meta`, for clients that support it.
    Meta,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Notice {
    /// The kind of the notice, from a closed set.
    pub(crate) kind: &'static str,
    /// The text, one line.
    pub(crate) text: String,
}

/// Returns a result, which is JSON text, with notices at its end; `None` without notices, or if the
/// result has an unexpected form.
pub(super) fn with_notices(result: &str, notices: &[Notice], place: NoticePlace) -> Option<String> {
    if notices.is_empty() || !result.starts_with('{') {
        return None;
    }
    match place {
        NoticePlace::Text => {
            let lines = notices.iter().map(|notice| notice.text.as_str());
            with_text(result, &lines.collect::<Vec<_>>().join("\n"))
        }
        NoticePlace::Meta => {
            let told = json!(notices).to_string();
            // An invalid `_meta` is replaced, so that the notice is not lost.
            let meta = member(result, "_meta").filter(|meta| meta.starts_with('{'));
            let meta = with_member(meta.unwrap_or("{}"), NOTICES, &told);
            Some(with_member(result, "_meta", &meta))
        }
    }
}

/// Returns a result, which is JSON text, with a further text at the end of its `content`; `None` if
/// it has no `content`.
pub(crate) fn with_text(result: &str, text: &str) -> Option<String> {
    let content = member(result, "content").filter(|content| content.starts_with('['))?;
    let element = json!({"type": "text", "text": text}).to_string();
    let content = with_element(content, &element);
    Some(with_member(result, "content", &content))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const RESULT: &str = r#"{"content":[{"type":"text","text":"\u0041"}],"structuredContent":{"n":1.0},"_meta":{"a":1e1}}"#;

    fn result_with_notices(result: &str, place: NoticePlace) -> Option<String> {
        let notices = ["First.", "\"Second\"."].map(|text| Notice {
            kind: "budget",
            text: text.into(),
        });
        with_notices(result, &notices, place)
    }

    #[test]
    fn notices_are_appended_as_one_text_block() {
        let expected = RESULT.replace(
            r#"{"type":"text","text":"\u0041"}"#,
            r#"{"type":"text","text":"\u0041"},{"text":"First.\n\"Second\".","type":"text"}"#,
        );
        let told = result_with_notices(RESULT, NoticePlace::Text).unwrap();
        assert_eq!(
            serde_json::from_str::<Value>(&told).unwrap(),
            serde_json::from_str::<Value>(&expected).unwrap()
        );
        assert!(told.contains(r#""structuredContent":{"n":1.0}"#), "{told}");
        assert!(told.contains(r"\u0041"), "{told}");
    }

    #[test]
    fn notices_are_added_to_existing_metadata() {
        let told = result_with_notices(RESULT, NoticePlace::Meta).unwrap();
        assert!(told.contains(r#""content":[{"type":"text","text":"\u0041"}],"#));
        assert!(told.contains(r#""_meta":{"a":1e1,"#), "{told}");
        let told: Value = serde_json::from_str(&told).unwrap();
        assert_eq!(told["_meta"][NOTICES][1]["text"], "\"Second\".");
        assert_eq!(told["_meta"][NOTICES][0]["kind"], "budget");
    }

    #[test]
    fn malformed_results_get_no_text_notices() {
        for place in [NoticePlace::Text, NoticePlace::Meta] {
            assert_eq!(result_with_notices("[]", place), None);
            assert_eq!(with_notices(RESULT, &[], place), None);
        }
        for odd in ["{}", r#"{"content":"x"}"#] {
            assert_eq!(result_with_notices(odd, NoticePlace::Text), None);
        }
        let odd = r#"{"content":[],"_meta":7}"#;
        let told: Value =
            serde_json::from_str(&result_with_notices(odd, NoticePlace::Meta).unwrap()).unwrap();
        assert!(told["_meta"][NOTICES].is_array());
    }
}
