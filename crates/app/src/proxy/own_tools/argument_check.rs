//! The validation of arguments against the input schema of a tool.
//!
//! Schemas come from servers, and no call may wait for an extreme one. Some schemas let every call
//! pass: those that are very large, that expand to too many schemas (`schema_cost`), that refer to
//! other documents, or that cannot be parsed. So do arguments whose validation is too expensive.
//! Checks run outside the request workers, a few at a time.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use jsonschema::{PatternOptions, ValidationError, Validator};
use lru::LruCache;
use parking_lot::Mutex;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::retrieval::excerpt::excerpt;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::schema_cost::{
    CollectedErrors, SchemaSize, TooMuch, check_errors, check_schema, check_validation,
};
use riglm_discovery::fair_permits::FairPermits;

/// The maximum number of cached schemas.
const MAX_SCHEMAS: usize = 512;
/// The approximate maximum size of all cached schemas in bytes.
const MAX_BYTES: usize = 64 << 20;
/// The maximum size of a schema in bytes.
const MAX_SCHEMA_BYTES: usize = 64 << 10;
/// The maximum size of arguments in bytes.
const MAX_ARGUMENT_BYTES: usize = 256 << 10;
/// The maximum size in bytes of arguments that are checked on the request worker.
const MAX_QUICK_BYTES: usize = 16 << 10;
/// The maximum size of the automaton of a pattern in bytes. A larger automaton makes the search of
/// each byte slower.
const MAX_PATTERN_BYTES: usize = 64 << 10;
/// The timeout of a check. Afterwards the call continues unchecked.
const CHECK_TIMEOUT: Duration = Duration::from_millis(500);
/// The maximum number of concurrent checks. Other checks wait, first for checks of the same
/// principal, and no longer than their calls.
const MAX_CHECKS: usize = 2;
/// The budget of a check in units of about 10 nanoseconds.
const BUDGET: u32 = 4_000_000;
/// The budget of a check on the request worker, in the same units.
const QUICK_BUDGET: u32 = 100_000;
/// The maximum number of problems in an answer.
const MAX_PROBLEMS: usize = 5;
/// The maximum length of the text of a problem, in characters.
const MAX_PROBLEM_CHARS: usize = 300;
/// The text for arguments whose single problems would be too expensive to list.
const MISFIT: &str = "arguments: they do not match the schema";

/// The cache of recent schemas by their text.
#[derive(Debug)]
pub(super) struct ArgumentChecks {
    known: Mutex<SchemaCache>,
    running: FairPermits,
}

/// The cached schemas; the least recently used is evicted first.
#[derive(Debug)]
struct SchemaCache {
    schemas: LruCache<[u8; 32], Arc<CachedSchema>>,
    n_bytes: usize,
}

impl SchemaCache {
    fn put(&mut self, key: [u8; 32], schema: Arc<CachedSchema>) {
        self.n_bytes += schema.n_bytes();
        if let Some((_, replaced)) = self.schemas.push(key, schema) {
            self.n_bytes -= replaced.n_bytes();
        }
        while self.n_bytes > MAX_BYTES
            && let Some((_, gone)) = self.schemas.pop_lru()
        {
            self.n_bytes -= gone.n_bytes();
        }
    }
}

/// A compiled schema. `None` lets every call pass.
#[derive(Debug)]
struct CachedSchema(Option<CompiledSchema>);

#[derive(Debug)]
struct CompiledSchema {
    schema: Value,
    validator: Validator,
    n_bytes: usize,
}

impl Default for ArgumentChecks {
    fn default() -> Self {
        let n = NonZeroUsize::new(MAX_SCHEMAS).unwrap_or(NonZeroUsize::MIN);
        Self {
            known: Mutex::new(SchemaCache {
                schemas: LruCache::new(n),
                n_bytes: 0,
            }),
            running: FairPermits::new(MAX_CHECKS),
        }
    }
}

impl ArgumentChecks {
    /// Limits the concurrent checks of one principal. `of_one` maps the total limit to the limit of
    /// one principal.
    pub(super) fn share(&self, of_one: impl FnOnce(usize) -> usize) {
        self.running.share(of_one);
    }

    /// Returns at most five problems of the arguments for `tool`, each with its position and the
    /// expectation there. Returns none if the arguments fit or the check takes too long.
    pub(super) async fn problems(
        self: &Arc<Self>,
        principal: &Principal,
        tool: &ToolRef,
        schema: &str,
        arguments: &str,
    ) -> Vec<String> {
        if schema.len() > MAX_SCHEMA_BYTES || arguments.len() > MAX_ARGUMENT_BYTES {
            return Vec::new();
        }
        let check = async {
            // Held until the check is done, even if its call has timed out.
            let turn = self.running.take(principal).await;
            let (checks, tool) = (Arc::clone(self), tool.clone());
            let (schema, arguments) = (schema.to_owned(), arguments.to_owned());
            tokio::task::spawn_blocking(move || {
                let problems = checks.schema(&tool, &schema).problems(&arguments, BUDGET);
                drop(turn);
                problems.unwrap_or_else(|TooMuch| {
                    tracing::debug!("arguments were not checked: the check needs too much work");
                    Vec::new()
                })
            })
            .await
        };
        match tokio::time::timeout(CHECK_TIMEOUT, check).await {
            Ok(Ok(problems)) => problems,
            Ok(Err(_)) => {
                // The text of a panic may repeat the arguments, so it is not logged.
                tracing::debug!("arguments were not checked: the check failed");
                Vec::new()
            }
            Err(_) => {
                tracing::debug!("arguments were not checked: timeout");
                Vec::new()
            }
        }
    }

    /// Returns whether the arguments fit, if the check is fast: the arguments are small and the
    /// schema is cached.
    pub(super) fn is_known_to_fit(&self, schema: &str, arguments: &str) -> bool {
        if schema.len() > MAX_SCHEMA_BYTES || arguments.len() > MAX_QUICK_BYTES {
            return false;
        }
        let known = self.cached_schema(&key_of(schema));
        known.is_some_and(|known| known.fits(arguments, QUICK_BUDGET) == Ok(true))
    }

    fn cached_schema(&self, key: &[u8; 32]) -> Option<Arc<CachedSchema>> {
        let mut known = self.known.lock();
        known.schemas.get(key).cloned()
    }

    fn schema(&self, tool: &ToolRef, text: &str) -> Arc<CachedSchema> {
        let key = key_of(text);
        if let Some(known) = self.cached_schema(&key) {
            return known;
        }
        let schema = Arc::new(CachedSchema::read(tool, text));
        let mut known = self.known.lock();
        known.put(key, Arc::clone(&schema));
        schema
    }
}

impl CachedSchema {
    fn read(tool: &ToolRef, text: &str) -> Self {
        let Ok(schema) = serde_json::from_str::<Value>(text) else {
            return Self(None);
        };
        let Ok(size) = check_schema(&schema) else {
            tracing::warn!(
                upstream = %tool.upstream,
                tool = %tool.tool,
                "arguments of tool {} of upstream {} are not checked: its input schema is too \
                 complex",
                tool.tool,
                tool.upstream
            );
            return Self(None);
        };
        // The linear-time engine: the running time of server patterns must not depend on crafted
        // arguments.
        let patterns = PatternOptions::regex()
            .size_limit(MAX_PATTERN_BYTES)
            .dfa_size_limit(MAX_PATTERN_BYTES);
        let built = jsonschema::options()
            .with_pattern_options(patterns)
            // Some formats are languages of their own, and servers check them anyway.
            .should_validate_formats(false)
            .offline()
            .build(&schema);
        if built.is_err() {
            tracing::debug!("arguments of a tool are not checked: its input schema is invalid");
        }
        let n_bytes = n_bytes_of(text, size);
        Self(built.ok().map(|validator| CompiledSchema {
            schema,
            validator,
            n_bytes,
        }))
    }

    /// Returns the approximate size in memory, in bytes.
    fn n_bytes(&self) -> usize {
        let ready = self.0.as_ref();
        ready.map_or(0, |ready| ready.n_bytes)
    }

    /// Returns whether the arguments fit the schema.
    fn fits(&self, arguments: &str, budget: u32) -> Result<bool, TooMuch> {
        let misfit = self.misfit(arguments, budget)?;
        Ok(misfit.is_none())
    }

    /// Returns the arguments with the schema if they do not fit, or `None` if they do.
    fn misfit(
        &self,
        arguments: &str,
        budget: u32,
    ) -> Result<Option<(&CompiledSchema, Value)>, TooMuch> {
        let Some(ready) = &self.0 else {
            return Ok(None);
        };
        let Ok(arguments) = serde_json::from_str::<Value>(arguments) else {
            return Ok(None);
        };
        check_validation(&ready.schema, &arguments, budget)?;
        let fits = ready.validator.is_valid(&arguments);
        Ok((!fits).then_some((ready, arguments)))
    }

    fn problems(&self, arguments: &str, budget: u32) -> Result<Vec<String>, TooMuch> {
        let misfit = self.misfit(arguments, budget)?;
        Ok(misfit.map_or_else(Vec::new, |(ready, arguments)| {
            ready.problems(&arguments, budget)
        }))
    }
}

impl CompiledSchema {
    /// Returns the problems of arguments that do not fit. Returns only the first problem if all
    /// would be too many, and a general text if even one could be too large.
    fn problems(&self, arguments: &Value, budget: u32) -> Vec<String> {
        let may_gather = |gathered| check_errors(&self.schema, arguments, gathered, budget).is_ok();
        let described: Vec<String> = if may_gather(CollectedErrors::All) {
            let errors = self.validator.iter_errors(arguments);
            errors
                .take(MAX_PROBLEMS)
                .map(|error| describe(&error))
                .collect()
        } else if may_gather(CollectedErrors::First) {
            let error = self.validator.validate(arguments).err();
            error.iter().map(describe).collect()
        } else {
            Vec::new()
        };
        if described.is_empty() {
            return vec![MISFIT.to_owned()];
        }
        described
    }
}

/// Returns the position of a problem and the expectation there, without the value.
fn describe(error: &ValidationError<'_>) -> String {
    let path = error.instance_path().to_string();
    let place = if path.is_empty() { "arguments" } else { &path };
    let text = format!("{place}: {}", error.masked_with("it"));
    excerpt(&text, MAX_PROBLEM_CHARS).into_owned()
}

/// Returns the approximate size in bytes of a compiled schema: its text as values, a validator for
/// each schema in it, and the automata of its patterns with their search caches.
fn n_bytes_of(text: &str, size: SchemaSize) -> usize {
    const TEXT: usize = 8;
    const SCHEMA: u32 = 512;
    const PATTERN: usize = 4 * MAX_PATTERN_BYTES;
    let validators = usize::try_from(size.n_schemas.saturating_mul(SCHEMA)).unwrap_or(usize::MAX);
    TEXT * text.len() + validators + PATTERN * size.n_patterns
}

fn key_of(schema: &str) -> [u8; 32] {
    Sha256::digest(schema.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use riglm_domain::id::UpstreamName;

    use super::*;

    const SCHEMA: &str = r#"{"type":"object","properties":{"path":{"type":"string"},
        "n":{"type":"integer","minimum":1}},"required":["path"],"additionalProperties":false}"#;

    async fn problems(schema: &str, arguments: &str) -> Vec<String> {
        let checks = Arc::new(ArgumentChecks::default());
        checks
            .problems(&Principal::local(), &tool(), schema, arguments)
            .await
    }

    fn tool() -> ToolRef {
        ToolRef {
            upstream: UpstreamName::parse("u").unwrap(),
            tool: "read".into(),
        }
    }

    #[tokio::test]
    async fn costly_schemas_and_arguments_are_not_checked() {
        let mut definitions: Vec<String> = (0..27)
            .map(|at| {
                let next = format!(r##"{{"$ref":"#/$defs/d{}"}}"##, at + 1);
                format!(r#""d{at}":{{"anyOf":[{next},{next}]}}"#)
            })
            .collect();
        definitions.push(r#""d27":{"type":"string"}"#.into());
        let definitions = definitions.join(",");
        let doubling = format!(
            r##"{{"properties":{{"x":{{"$ref":"#/$defs/d0"}}}},"$defs":{{{definitions}}}}}"##
        );
        assert!(doubling.len() < 2_500);
        assert_eq!(problems(&doubling, r#"{"x":1}"#).await, [""; 0]);
        let deep =
            r##"{"properties":{"x":{"anyOf":[{"$ref":"#"},{"$ref":"#"}]}},"required":["y"]}"##;
        assert_eq!(problems(deep, r#"{"x":{"y":1}}"#).await.len(), 1);
        let arguments = format!("{}{}{}", r#"{"x":"#.repeat(60), "{}", "}".repeat(60));
        assert_eq!(problems(deep, &arguments).await, [""; 0]);
    }

    #[tokio::test]
    async fn deepest_allowed_schemas_are_checked_on_any_thread() {
        let definitions: Vec<String> = (0..40)
            .map(|at| {
                format!(
                    r##""d{at}":{{"properties":{{"x":{{"$ref":"#/$defs/d{}"}}}}}}"##,
                    at + 1
                )
            })
            .chain([r#""d40":{"type":"string"}"#.to_owned()])
            .collect();
        let definitions = definitions.join(",");
        let schema = format!(r##"{{"$ref":"#/$defs/d0","$defs":{{{definitions}}}}}"##);
        let arguments = format!("{}1{}", r#"{"x":"#.repeat(40), "}".repeat(40));
        assert_eq!(problems(&schema, &arguments).await.len(), 1);
        let chain: Vec<String> = (0..190)
            .map(|at| format!(r##""d{at}":{{"$ref":"#/$defs/d{}"}}"##, at + 1))
            .chain([r#""d190":{"type":"string"}"#.to_owned()])
            .collect();
        let chain = chain.join(",");
        let schema = format!(r##"{{"$ref":"#/$defs/d0","$defs":{{{chain}}}}}"##);
        assert_eq!(problems(&schema, "1").await.len(), 1);
    }

    #[tokio::test]
    async fn problems_are_named_with_their_places() {
        assert_eq!(problems(SCHEMA, r#"{"path":"a","n":1}"#).await, [""; 0]);
        let missing = problems(SCHEMA, "{}").await;
        assert!(missing[0].starts_with("arguments: "), "{missing:?}");
        assert!(missing[0].contains("path"), "{missing:?}");
        let wrong = problems(SCHEMA, r#"{"path":"secret","n":"x"}"#).await;
        assert_eq!(wrong.len(), 1);
        assert!(
            wrong[0].starts_with("/n: ") && wrong[0].contains("integer"),
            "{wrong:?}"
        );
        let many = r#"{"items":{"type":"string"}}"#;
        assert_eq!(problems(many, "[1,2,3,4,5,6,7]").await.len(), MAX_PROBLEMS);
    }

    #[tokio::test]
    async fn invalid_schemas_accept_all_arguments() {
        for schema in [
            "7",
            r#"{"type":"nonsense"}"#,
            r#"{"$ref":"http://127.0.0.1:1/schema.json"}"#,
            r#"{"$ref":"file:///etc/hostname"}"#,
            r#"{"properties":{"a":{"pattern":"(?<=x)y("}}}"#,
            &format!(
                r#"{{"type":"string","description":"{}"}}"#,
                "x".repeat(MAX_SCHEMA_BYTES)
            ),
        ] {
            assert_eq!(problems(schema, r#"{"a":"y"}"#).await, [""; 0], "{schema}");
        }
    }

    #[tokio::test]
    async fn texts_costly_to_match_are_not_checked() {
        let checks = Arc::new(ArgumentChecks::default());
        let schema = r#"{"properties":{"a":{"pattern":"[a-z]*a[a-z]{400}[0-9]"}}}"#;
        let of = |n: usize| format!(r#"{{"a":"{}"}}"#, "ab".repeat(n / 2));
        assert_eq!(
            checks
                .problems(&Principal::local(), &tool(), schema, &of(3_000))
                .await
                .len(),
            1
        );
        assert_eq!(
            checks
                .problems(&Principal::local(), &tool(), schema, &of(5_000))
                .await,
            [""; 0]
        );
        // A check on the request worker has a smaller budget.
        let schema = r#"{"properties":{"a":{"pattern":"(ab)+"}}}"#;
        assert_eq!(
            checks
                .problems(&Principal::local(), &tool(), schema, &of(80))
                .await,
            [""; 0]
        );
        assert!(checks.is_known_to_fit(schema, &of(80)));
        assert!(!checks.is_known_to_fit(schema, &of(200)));
    }

    #[tokio::test]
    async fn the_schema_cache_is_bounded() {
        let checks = Arc::new(ArgumentChecks::default());
        for at in 0..40 {
            let patterns: Vec<String> = (0..60)
                .map(|n| format!(r#""p{n}":{{"pattern":"^{at} {n}+$"}}"#))
                .collect();
            let schema = format!(r#"{{"properties":{{{}}}}}"#, patterns.join(","));
            checks
                .problems(&Principal::local(), &tool(), &schema, "{}")
                .await;
            assert!(checks.is_known_to_fit(&schema, "{}"));
        }
        let known = checks.known.lock();
        assert!(known.n_bytes <= MAX_BYTES, "{}", known.n_bytes);
        assert!(
            (1..10).contains(&known.schemas.len()),
            "{}",
            known.schemas.len()
        );
    }

    #[tokio::test]
    async fn cached_schemas_allow_quick_checks() {
        let checks = Arc::new(ArgumentChecks::default());
        let right = r#"{"path":"a"}"#;
        assert!(!checks.is_known_to_fit(SCHEMA, right));
        assert_eq!(
            checks
                .problems(&Principal::local(), &tool(), SCHEMA, right)
                .await,
            [""; 0]
        );
        assert!(checks.is_known_to_fit(SCHEMA, right));
        assert!(!checks.is_known_to_fit(SCHEMA, "{}"));
        let large = format!(r#"{{"path":"{}"}}"#, "x".repeat(MAX_QUICK_BYTES));
        assert!(!checks.is_known_to_fit(SCHEMA, &large));
    }

    #[tokio::test]
    async fn excessive_validation_problems_are_not_collected() {
        let names: Vec<String> = (0..6_000).map(|at| format!(r#""{at:04}""#)).collect();
        let names = names.join(",");
        let large = format!(r#"{{"a":[{}1]}}"#, "1,".repeat(125_000));
        assert!(large.len() > MAX_ARGUMENT_BYTES - 20_000);
        for one in ["anyOf", "oneOf"] {
            let schema = format!(r#"{{"{one}":[{{"required":[{names}]}}]}}"#);
            assert_eq!(problems(&schema, &large).await, [MISFIT]);
        }
        let nested = format!(
            r#"{}{{"type":"string"}}{}"#,
            r#"{"anyOf":["#.repeat(60),
            "]}".repeat(60)
        );
        assert_eq!(problems(&nested, &large).await, [MISFIT]);
        // With many small problems, the first one is named.
        let schema = format!(r#"{{"items":{{"required":[{names}]}}}}"#);
        let objects = format!("[{}{{}}]", "{},".repeat(500));
        let first = problems(&schema, &objects).await;
        assert!(
            first.len() == 1 && first[0].starts_with("/0: "),
            "{first:?}"
        );
        let few = problems(&format!(r#"{{"anyOf":[{{"required":[{names}]}}]}}"#), "{}").await;
        assert!(few.len() == 1 && few[0].contains("anyOf"), "{few:?}");
    }
}
