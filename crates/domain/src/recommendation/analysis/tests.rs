use proptest::prelude::*;

use super::*;

fn of(text: &str) -> IntentAnalysis {
    static LEXICON: std::sync::OnceLock<Lexicon> = std::sync::OnceLock::new();
    IntentAnalysis::of(text, LEXICON.get_or_init(Lexicon::built_in))
}

#[test]
fn a_query_for_a_function_definition_has_the_code_domain() {
    let analysis = of("I want to find where a Python function is defined");
    assert_eq!(analysis.actions, ["find"]);
    assert_eq!(analysis.domains, ["code"]);
    assert_eq!(analysis.terms, ["python", "function"]);
    assert_eq!(analysis.access, IntendedAccess::Read);
    assert_eq!(analysis.language, Language::English);
    assert_eq!(analysis.negated, NegatedParts::default());
}

#[test]
fn a_query_to_test_a_login_has_the_web_domain() {
    let analysis = of("I need to test login functionality in a web app");
    assert_eq!(analysis.actions, ["test"]);
    assert_eq!(analysis.domains, ["web", "test"]);
    assert_eq!(analysis.terms, ["login", "functionality"]);
    assert_eq!(analysis.access, IntendedAccess::Unknown);
}

#[test]
fn verbs_are_distinguished_from_nouns() {
    for (text, actions) in [
        (
            "search for files and summarize them",
            &["find", "summarize"][..],
        ),
        (
            "analysing the logs, then sending a report",
            &["analyze", "send"],
        ),
        ("the latest release of the build", &[]),
        ("show open issues and pull requests", &["show"]),
        ("run tests", &["run"]),
        ("get order status", &["get"]),
        ("list deleted files", &["list"]),
        ("files sent by Ann", &["send"]),
        ("I sent and deleted mail", &["send", "delete"]),
        ("a tool that sends mail and deletes it", &["send", "delete"]),
        ("Searches, filters and updates tickets", &["find", "update"]),
        ("find FIND finding found", &["find"]),
        ("this contest is classic", &[]),
        ("explain the function delete_user", &["explain"]),
        ("send the message \"delete everything\" to Ann", &["send"]),
        ("look up the word and shut down", &["find", "stop"]),
        ("create: a new post", &["create"]),
    ] {
        assert_eq!(of(text).actions, actions, "{text}");
    }
}

#[test]
fn negated_actions_are_separate_from_requested_ones() {
    for (text, actions, negated) in [
        (
            "find the file but don't delete it",
            &["find"][..],
            &["delete"][..],
        ),
        (
            "Do not move, rename or delete anything. List the files.",
            &["list"],
            &["move", "update", "delete"],
        ),
        ("never send mail", &[], &["send"]),
        ("never try to delete files", &[], &["delete"]),
        ("archive it instead of deleting it", &[], &["delete"]),
        ("edit rather than create", &["update"], &["create"]),
        ("don't forget to send the report", &["send"], &[]),
        ("I'm not sure how to deploy", &["deploy"], &[]),
        (
            "without opening the browser, get the page",
            &["get"],
            &["open"],
        ),
        ("delete the draft, don't delete the mail", &["delete"], &[]),
        ("Don\u{2019}t run it", &[], &["run"]),
        ("use no browser to find the page", &["find"], &[]),
    ] {
        let analysis = of(text);
        assert_eq!(analysis.actions, actions, "{text}");
        assert_eq!(analysis.negated.actions, negated, "{text}");
    }
}

#[test]
fn negated_domains_and_terms_are_recognised() {
    let domains = |text: &str| {
        let analysis = of(text);
        (
            analysis.domains.join(" "),
            analysis.negated.domains.join(" "),
        )
    };
    for (text, asked, negated) in [
        ("read the headlines without the browser", "news", "web"),
        (
            "look in the wiki, not in the calendar",
            "documentation",
            "calendar",
        ),
        ("no email please, use slack", "messages", "mail"),
        ("slack instead of email", "messages", "mail"),
        ("find the page without the browser", "web", ""),
        ("clean old rows but don't drop the database", "data", ""),
        (
            "don't use git or the shell; search weather",
            "weather",
            "git system",
        ),
    ] {
        let expected = (asked.to_owned(), negated.to_owned());
        assert_eq!(domains(text), expected, "{text}");
    }
    let analysis = of("scrape it with selenium, not playwright");
    assert_eq!(analysis.terms, ["selenium"]);
    assert_eq!(analysis.negated.terms, ["playwright"]);
}

#[test]
fn names_files_addresses_and_abbreviations_are_terms() {
    for (text, terms) in [
        ("where is get_user_name defined?", &["get_user_name"][..]),
        ("rename parseHTTPResponse", &["parseHTTPResponse", "http"]),
        (
            "move 'final_report.pdf' to temp",
            &["final_report.pdf", "pdf"],
        ),
        ("all .csv files", &[".csv", "csv"]),
        (
            "open https://example.com/delete?a=1.",
            &["https://example.com/delete?a=1", "url"],
        ),
        ("what is the EBITDA of ACME?", &["ebitda", "acme"]),
        ("the REST API on GitHub", &["rest", "api", "github"]),
        ("call `ls` and main()", &["ls", "main"]),
        ("look at ./src/lib.rs", &["./src/lib.rs", "rust"]),
        ("and/or e.g. 3.14, end.Then", &[]),
        ("DO NOT SHOUT AT ME", &[]),
        ("postgres on k8s", &["postgresql", "kubernetes"]),
    ] {
        assert_eq!(of(text).terms, terms, "{text}");
    }
    assert!(
        of("write to ann@example.com")
            .domains
            .contains(&"mail".to_owned())
    );
}

#[test]
fn access_follows_from_the_actions_or_a_question() {
    for (text, access) in [
        ("how does it work?", IntendedAccess::Read),
        ("any news?", IntendedAccess::Read),
        ("find the file and delete it", IntendedAccess::Write),
        ("find the file, don't delete it", IntendedAccess::Read),
        ("how do I delete a branch?", IntendedAccess::Write),
        ("show the files that were changed", IntendedAccess::Read),
        ("open the page and read it", IntendedAccess::Unknown),
        ("the weather", IntendedAccess::Unknown),
        ("", IntendedAccess::Unknown),
    ] {
        assert_eq!(of(text).access, access, "{text}");
    }
}

#[test]
fn languages_are_recognised_by_script_and_frequent_words() {
    for (text, code, script) in [
        (
            "Finde alle Dateien, die ich gestern geändert habe",
            "de",
            Script::Latin,
        ),
        (
            "Où est la documentation de cette fonction ?",
            "fr",
            Script::Latin,
        ),
        ("¿Dónde está el archivo que busco?", "es", Script::Latin),
        (
            "Onde está o arquivo que você não encontrou?",
            "pt",
            Script::Latin,
        ),
        (
            "Dove si trova il file che non riesco a leggere?",
            "it",
            Script::Latin,
        ),
        ("Waar is het bestand dat ik zoek?", "nl", Script::Latin),
        ("Найди все файлы, которые я изменил", "ru", Script::Cyrillic),
        ("Знайди всі файли, що я змінив", "uk", Script::Cyrillic),
        ("查找定义Python函数的位置", "zh", Script::Han),
        ("Pythonの関数を探す", "ja", Script::Kana),
        ("파일을 찾아 주세요", "ko", Script::Hangul),
        ("ابحث عن الملفات التي في هذا المجلد", "ar", Script::Arabic),
        ("מצא את הקובץ", "he", Script::Hebrew),
        ("ค้นหาไฟล์", "th", Script::Thai),
        ("मुझे यह फ़ाइल कहाँ है", "hi", Script::Devanagari),
        ("kubectl nginx", "und", Script::Latin),
        ("🚀🔥 42", "und", Script::None),
    ] {
        let analysis = of(text);
        assert_eq!(
            (analysis.language.code(), analysis.script),
            (code, script),
            "{text}"
        );
    }
}

#[test]
fn international_words_are_recognised_in_any_language() {
    let analysis = of("Zeige mir das Wetter ohne Browser: API von GitHub");
    assert_eq!(analysis.negated.domains, ["web"]);
    assert_eq!(analysis.terms, ["api", "github"]);
    assert!(of("查找Python函数").terms.contains(&"python".to_owned()));
}

#[test]
fn adversarial_texts_are_read_in_part() {
    let long = "find the file, ".repeat(7_000);
    assert_eq!(of(&long).actions, ["find"]);
    let late = format!("{} delete it", "x ".repeat(Query::MAX_BYTES));
    assert!(of(&late).is_empty());
    let names: Vec<String> = (0..3_000).map(|n| format!("a_{n}")).collect();
    assert_eq!(
        of(&names.join(" ")).terms.len(),
        IntentAnalysis::MAX_OF_EACH
    );
    for text in [
        "",
        " \n\t",
        "…—!?",
        "\u{0}\u{1}\u{7f}",
        "\u{202e}\u{200f}",
        "🚀",
        "'",
        "\"",
        "``",
        "()",
        "://",
        "@.",
        ".",
    ] {
        assert!(
            of(text).actions.is_empty() && of(text).domains.len() < 2,
            "{text:?}"
        );
    }
    assert_eq!(of(""), IntentAnalysis::default());
    assert!(of(&"not ".repeat(30_000)).is_empty());
    assert!(of(&"a".repeat(100_000)).is_empty());
    assert!(of(&"\"".repeat(100_000)).is_empty());
}

proptest! {
    #[test]
    fn any_text_has_a_deterministic_analysis_without_repetitions(text in "(?s).{0,200}") {
        let analysis = of(&text);
        prop_assert_eq!(&analysis, &of(&text));
        for list in [&analysis.actions, &analysis.domains, &analysis.terms] {
            let unique: std::collections::BTreeSet<_> = list.iter().collect();
            prop_assert_eq!(unique.len(), list.len());
        }
        let asked = &analysis.actions;
        prop_assert!(analysis.negated.actions.iter().all(|it| !asked.contains(it)));
    }

    #[test]
    fn a_negation_ends_with_its_sentence(
        verb in proptest::sample::select(vec!["delete", "send", "create", "deploy", "buy", "rename"]),
        negation in proptest::sample::select(vec!["don't", "do not", "never", "without", "instead of"]),
    ) {
        let negated = of(&format!("{negation} {verb} it"));
        prop_assert!(negated.actions.is_empty() && negated.negated.actions.len() == 1);
        prop_assert_ne!(negated.access, IntendedAccess::Write);
        let again = of(&format!("{negation} wait. {verb} it"));
        prop_assert_eq!(again.access, IntendedAccess::Write);
        prop_assert_eq!(again.actions, negated.negated.actions);
    }

    #[test]
    fn quoted_text_contains_no_actions(
        quoted in "[a-z ]{0,40}",
        verb in proptest::sample::select(vec!["delete", "send", "create"]),
    ) {
        let analysis = of(&format!("explain \"{quoted} {verb} it\""));
        prop_assert_eq!(analysis.actions, ["explain"]);
    }
}
