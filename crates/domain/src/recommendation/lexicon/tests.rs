use super::*;

fn meanings<'a>(lexicon: &'a Lexicon, text: &str) -> Vec<&'a Meaning> {
    let found = lexicon.find(&words_of(text));
    found.map_or_else(Vec::new, |found| found.meanings.iter().collect())
}

fn action_of(lexicon: &Lexicon, text: &str) -> Option<String> {
    let mut places = meanings(lexicon, text)
        .into_iter()
        .filter_map(Meaning::action);
    places.next().map(|at| lexicon.action(at).0.to_owned())
}

fn domains_of(lexicon: &Lexicon, text: &str) -> Vec<String> {
    let domain = |meaning: &Meaning| match meaning {
        Meaning::Domain(at) => Some(lexicon.domain(*at).to_owned()),
        _ => None,
    };
    meanings(lexicon, text)
        .into_iter()
        .filter_map(domain)
        .collect()
}

#[test]
fn built_in_lexicon_is_valid() {
    let read = BUILT_IN
        .iter()
        .try_fold(Lexicon::default(), |lexicon, text| lexicon.with(text));
    assert_eq!(Ok(Lexicon::built_in()), read);
    assert!(Lexicon::built_in().actions.len() > 30 && Lexicon::built_in().domains.len() > 20);
}

#[test]
fn shipped_words_belong_to_one_action_across_the_tables() {
    let all = BUILT_IN.concat();
    assert_eq!(Lexicon::default().with(&all), Ok(Lexicon::built_in()));
}

#[test]
fn inflected_and_irregular_forms_have_the_action_of_their_word() {
    let shipped = Lexicon::built_in();
    for (word, action) in [
        ("finding", "find"),
        ("found", "find"),
        ("searches", "find"),
        ("analysing", "analyze"),
        ("analyzing", "analyze"),
        ("tests", "test"),
        ("wrote", "write"),
        ("written", "write"),
        ("sent", "send"),
        ("built", "create"),
        ("bought", "buy"),
        ("Deleted", "delete"),
        ("look up", "find"),
        ("shut down", "stop"),
    ] {
        assert_eq!(action_of(&shipped, word).as_deref(), Some(action), "{word}");
    }
}

#[test]
fn lookalike_words_match_no_action_or_domain() {
    let shipped = Lexicon::built_in();
    for word in [
        "latest",
        "contest",
        "attest",
        "classic",
        "classical",
        "profiles_",
        "executive",
        "university",
        "authority",
        "planet",
        "discount_",
        "shower",
        "forgetting",
        "readily",
        "address_",
    ] {
        let Some(word) = word.strip_suffix('_') else {
            assert_eq!(action_of(&shipped, word), None, "{word}");
            assert!(domains_of(&shipped, word).is_empty(), "{word}");
            continue;
        };
        assert_ne!(
            action_of(&shipped, word).as_deref(),
            Some("count"),
            "{word}"
        );
    }
}

/// Words of the tables with the same stem must be the same word, or related words.
#[test]
fn shipped_words_with_one_stem_are_related() {
    /// Pairs of related words that share a stem on purpose.
    const RELATED: [(&str, &str); 4] = [
        ("analyze", "analyse"),
        ("memory", "memories"),
        ("dependency", "dependencies"),
        ("policy", "police"),
    ];
    let mut by_stem: HashMap<String, Vec<String>> = HashMap::new();
    for line in BUILT_IN.iter().flat_map(|text| text.lines()) {
        let words = line.split('#').next().and_then(|line| line.split_once(':'));
        for word in words.map_or("", |(_, words)| words).split_whitespace() {
            if word.contains(['_', '=']) {
                continue;
            }
            let word = word.trim_start_matches('~');
            for read in words_of(word) {
                by_stem
                    .entry(read.stem.to_string())
                    .or_default()
                    .push(word.to_owned());
            }
        }
    }
    for (stem, words) in by_stem {
        let first = &words[0];
        for other in &words {
            let n = first
                .bytes()
                .zip(other.bytes())
                .take_while(|(a, b)| a == b)
                .count();
            let is_form = n + 3 >= first.len().min(other.len()) && n >= 2;
            let is_related = RELATED
                .iter()
                .any(|(a, b)| (first == a && other == b) || (first == b && other == a));
            assert!(
                first == other || is_form || is_related,
                "{stem}: {first} and {other}"
            );
        }
    }
}

#[test]
fn the_longest_phrase_counts_and_a_spelling_comes_before_a_stem() {
    let shipped = Lexicon::built_in();
    assert!(domains_of(&shipped, "pull request").contains(&"git".to_owned()));
    assert_eq!(lexicon_length(&shipped, "pull requests of mine"), Some(2));
    assert_eq!(domains_of(&shipped, "functions"), ["code"]);
    assert!(domains_of(&shipped, "functionality").is_empty());
    let term = Meaning::Term("functionality".into());
    assert_eq!(meanings(&shipped, "functionality"), [&term]);
}

fn lexicon_length(lexicon: &Lexicon, text: &str) -> Option<usize> {
    lexicon.find(&words_of(text)).map(|found| found.n_words)
}

#[test]
fn operators_extend_and_replace() {
    let own = "action find: durchsuche 搜索\naction greet neither: hello fetch\ndomain hr: payroll\n\
        domain code: cobol # both\n\nterm cobol: cbl\n";
    let lexicon = Lexicon::built_in().with(own).unwrap();
    assert_eq!(
        action_of(&lexicon, "Durchsuche alles").as_deref(),
        Some("find")
    );
    assert_eq!(action_of(&lexicon, "搜索文件").as_deref(), Some("find"));
    assert_eq!(action_of(&lexicon, "fetching").as_deref(), Some("greet"));
    assert_eq!(domains_of(&lexicon, "payroll"), ["hr"]);
    assert_eq!(domains_of(&lexicon, "COBOL"), ["code"]);
    assert_eq!(meanings(&lexicon, "cbl"), [&Meaning::Term("cobol".into())]);
    let rereading = Lexicon::built_in().with("action run read: run").unwrap();
    let at = rereading.actions.iter().find(|(name, _)| name == "run");
    assert_eq!(at.map(|(_, access)| *access), Some(ActionAccess::Read));
}

#[test]
fn a_bad_line_is_named() {
    let error = |text: &str| Lexicon::default().with(text).unwrap_err();
    let line = 2;
    for (text, expected) in [
        ("term: a1\nfind search", LexiconError::NoColon { line }),
        (
            "\nverb find: find",
            LexiconError::UnknownKind {
                line,
                kind: "verb".into(),
            },
        ),
        (
            "\n: find",
            LexiconError::UnknownKind {
                line,
                kind: String::new(),
            },
        ),
        (
            "\naction: find",
            LexiconError::Head {
                line,
                text: "action".into(),
            },
        ),
        (
            "\ndomain A: find",
            LexiconError::Head {
                line,
                text: "domain A".into(),
            },
        ),
        (
            "\ndomain a read: x1",
            LexiconError::Head {
                line,
                text: "domain a read".into(),
            },
        ),
        (
            "\nnegation a: not",
            LexiconError::Head {
                line,
                text: "negation a".into(),
            },
        ),
        (
            "\naction find reads: find",
            LexiconError::UnknownAccess {
                line,
                access: "reads".into(),
            },
        ),
        ("\naction find: find", LexiconError::NoAccess { line }),
        (
            "action a read: a1\naction a write: b1",
            LexiconError::TwoAccesses { line },
        ),
        ("\nterm: # none", LexiconError::NoWords { line }),
        (
            "\nterm: a.b",
            LexiconError::NotAWord {
                line,
                word: "a.b".into(),
            },
        ),
        (
            "\nterm: _",
            LexiconError::NotAWord {
                line,
                word: "_".into(),
            },
        ),
        (
            "\nterm: a_b_c_d_e_f_g",
            LexiconError::NotAWord {
                line,
                word: "a_b_c_d_e_f_g".into(),
            },
        ),
        (
            "action a read: search\naction b read: searching",
            LexiconError::TwoActions {
                line,
                word: "searching".into(),
                action: "a".into(),
            },
        ),
    ] {
        assert_eq!(error(text), expected, "{text:?}");
    }
    let many: Vec<String> = (0..300).map(|n| format!("w{n}")).collect();
    let text = format!("term: {}", many.join(" "));
    assert_eq!(error(&text), LexiconError::Large { line: 1 });
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_or_refused_with_its_line(text in "(?s).{0,200}") {
        let lines = text.lines().count();
        if let Err(error) = Lexicon::default().with(&text) {
            let told = error.to_string();
            let number = told.trim_start_matches("line ").split(':').next().unwrap_or_default();
            let line: usize = number.parse().unwrap();
            proptest::prop_assert!((1..=lines).contains(&line), "{told}");
        }
    }
}
