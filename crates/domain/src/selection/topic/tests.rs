use proptest::prelude::*;

use super::*;

/// The catalog has names and the first sentences of descriptions, all on one server.
fn topic_of(text: &str, catalog: &[(&'static str, &str)]) -> Option<Vec<&'static str>> {
    let tools: Vec<TopicTool<'_>> = (catalog.iter())
        .map(|(name, summary)| TopicTool {
            server: "server",
            name,
            summary: (*summary).into(),
            read_only: ReadOnlyHint::Unsaid,
        })
        .collect();
    let topic = topic(text, &tools, &TopicWords::built_in())?;
    let mut names: Vec<&'static str> = topic.tools.iter().map(|at| catalog[*at].0).collect();
    names.sort_unstable();
    Some(names)
}

const SHOP: [(&str, &str); 12] = [
    ("list_invoices", "Lists invoices."),
    ("get_invoice", "Reads an invoice."),
    ("create_invoice", "Creates an invoice."),
    ("void_invoice", "Takes an invoice back."),
    ("list_line_items", "Lists the items of an invoice."),
    ("list_customers", "Lists customers."),
    ("get_customer", "Reads a customer."),
    (
        "list_customer_invoices",
        "Lists what a customer was billed.",
    ),
    ("delete_customer", "Removes a customer."),
    ("order_create", "Creates an order."),
    ("order_get", "Reads an order."),
    ("get_user_manual", "Returns the manual."),
];

#[test]
fn a_read_request_selects_reading_tools_of_subject_and_parts() {
    let names = topic_of("show the unpaid invoices", &SHOP).unwrap();
    let expected = [
        "get_invoice",
        "list_customer_invoices",
        "list_invoices",
        "list_line_items",
    ];
    // `void` is not in the list of writing verbs.
    assert_eq!(
        names,
        [&expected[..], &["void_invoice"][..]].concat(),
        "{names:?}"
    );
    let customers = topic_of("Which customers are new?", &SHOP).unwrap();
    assert_eq!(customers, ["get_customer", "list_customers"]);
}

#[test]
fn write_and_assessment_requests_select_all_tools_of_the_subject() {
    let all = ["delete_customer", "get_customer", "list_customers"];
    for text in [
        "remove the customer Smith",
        "audit our customers",
        "show customers\nwrite",
        "a customer",
    ] {
        assert_eq!(topic_of(text, &SHOP).unwrap(), all, "{text}");
    }
    // A declaration on a line of its own counts.
    let names = topic_of("remove the customer\nread-only", &SHOP).unwrap();
    assert!(!names.contains(&"delete_customer"), "{names:?}");
}

#[test]
fn names_may_end_with_a_verb_or_contain_the_server() {
    assert_eq!(
        topic_of("place an order", &SHOP).unwrap(),
        ["order_create", "order_get"]
    );
    let qualified = [
        ("acme_list_boats", ""),
        ("acme_get_boat", ""),
        ("acme_list_crews", ""),
        ("acme_get_crew", ""),
    ];
    let names = topic_of("list the boats", &qualified).unwrap();
    assert_eq!(names, ["acme_get_boat", "acme_list_boats"]);
    // A word in all names distinguishes no tool.
    assert_eq!(topic_of("list what acme has", &qualified), None);
}

#[test]
fn synonyms_and_domains_match_if_no_name_does() {
    let catalog = [("list_notes", ""), ("create_note", ""), ("list_songs", "")];
    let names = topic_of("show my memos", &catalog).unwrap();
    assert_eq!(names, ["list_notes"]);
    let catalog = [
        ("list_hyperlinks", ""),
        ("get_song", ""),
        ("list_songs", ""),
    ];
    // They are not synonyms, but both belong to the web domain.
    let names = topic_of("what is in the browser", &catalog).unwrap();
    assert_eq!(names, ["list_hyperlinks"]);
}

#[test]
fn questions_for_instructions_select_documentation_tools() {
    assert_eq!(
        topic_of("How does this work?", &SHOP).unwrap(),
        ["get_user_manual"]
    );
    let names = topic_of("How do I void an invoice?", &SHOP).unwrap();
    assert!(names.contains(&"get_user_manual") && names.contains(&"void_invoice"));
    let names = topic_of("how many customers are there", &SHOP).unwrap();
    assert!(!names.contains(&"get_user_manual"), "{names:?}");
}

#[test]
fn unclear_and_unspecific_texts_have_no_topic() {
    for text in ["", "good morning", "🦀", "Wo bin ich?", "查找"] {
        assert_eq!(topic_of(text, &SHOP), None, "{text}");
    }
    let only = [("list_boats", ""), ("get_boat", ""), ("create_boat", "")];
    assert_eq!(topic_of("a new boat is to be created", &only), None);
    assert_eq!(topic_of("list boats", &[]), None);
}

proptest! {
    #[test]
    fn any_text_and_names_give_valid_positions(
        text in "(\\PC| ){0,80}",
        names in proptest::collection::vec("[a-z_\\-./A-Z0-9é中]{0,24}", 0..20),
    ) {
        let tools: Vec<TopicTool<'_>> = names.iter().map(|name| TopicTool {
            server: "s",
            name,
            summary: text.clone(),
            read_only: ReadOnlyHint::Unsaid,
        }).collect();
        if let Some(topic) = topic(&text, &tools, &TopicWords::default()) {
            let mut positions = topic.tools.clone();
            positions.sort_unstable();
            positions.dedup();
            prop_assert_eq!(positions.len(), topic.tools.len());
            prop_assert!(!positions.is_empty() && positions.iter().all(|at| *at < tools.len()));
        }
    }

    #[test]
    fn the_order_of_the_tools_changes_nothing(seed in 0_usize..12) {
        let mut shuffled = SHOP;
        shuffled.rotate_left(seed);
        let before = topic_of("list the invoices of a customer", &SHOP);
        prop_assert_eq!(before, topic_of("list the invoices of a customer", &shuffled));
    }
}
