//! The public interface of the crates that other tools use, compared with a committed listing.
//!
//! A listing has one line for each public item, without private parts. A removed or changed line is
//! a breaking change; an added one is a compatible change. So the variants of an enum, the fields of
//! a struct that has only public ones, and the required methods of a trait are in one line: any
//! change to them breaks their users. `docs/libraries.md` has the rule of versions that follows.
//!
//! Items are read from the sources. `unreachable_pub` is denied, so each `pub` item can be reached
//! from outside, and its place is the nearest module that is public. What exists only with a feature
//! for tests is left out.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use quote::ToTokens;
use regex::Regex;
use syn::visit_mut::VisitMut;
use syn::{
    Attribute, Field, Fields, File, ImplItem, Item, ItemEnum, ItemImpl, ItemStruct, ItemTrait,
    TraitItem, Type, UseTree, Visibility,
};

/// The crates that are published.
const LIBRARIES: [&str; 3] = ["domain", "ports", "discovery"];

#[test]
fn the_public_interface_changes_only_with_its_listing() {
    for library in LIBRARIES {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../crates/{library}/src"));
        let interface = Interface::read(&root.join("lib.rs"));
        insta::with_settings!({
            description => "A line with - is a breaking change: see docs/libraries.md.",
            omit_expression => true,
        }, {
            insta::assert_snapshot!(format!("riglm_{library}"), interface.listing());
        });
    }
}

#[test]
fn each_breaking_change_is_seen() {
    let before = "pub struct A { pub x: u8, y: u8 } \
        #[derive(Clone)] pub enum E { B } \
        impl A { /// Does. \n pub fn go(&self, n: usize) -> u8 { 1 } fn own(&self) {} } \
        pub trait T { fn must(&self); fn may(&self) {} } \
        impl T for A { fn must(&self) {} }";
    let listing = |text: &str| {
        let mut interface = Interface::default();
        interface.add_file(parse(text), &Place::default(), None);
        interface.listing()
    };
    assert_eq!(
        listing(before),
        "derive for E: Clone\n\
         field of A: pub x: u8\n\
         impl A: pub fn go(&self, n: usize) -> u8\n\
         impl T for A\n\
         pub enum E { B }\n\
         pub struct A { .. }\n\
         pub trait T { fn must(&self) }\n\
         trait T: fn may(&self)\n"
    );
    for (old, new) in [
        ("fn go(", "fn gone("),
        ("n: usize", "n: u64"),
        ("-> u8", "-> u16"),
        ("pub x: u8", "x: u8"),
        ("E { B }", "E { B, C }"),
        ("#[derive(Clone)]", ""),
        (
            "fn must(&self); fn may(&self) {}",
            "fn must(&self); fn may(&self);",
        ),
        ("impl T for A", "impl T for E"),
        ("pub fn go", "#[cfg(feature = \"f\")] pub fn go"),
    ] {
        let after = before.replacen(old, new, 1);
        assert_ne!(listing(&after), listing(before), "{old} -> {new}");
    }
    // Private parts, bodies and documentation are no part of the interface.
    for (old, new) in [
        ("fn own(&self) {}", ""),
        ("{ 1 }", "{ 2 }"),
        ("y: u8", "z: u8"),
        ("/// Does.", "/// Goes."),
    ] {
        let after = before.replacen(old, new, 1);
        assert_eq!(listing(&after), listing(before), "{old} -> {new}");
    }
}

/// The public items of a crate, one line each.
#[derive(Default)]
struct Interface {
    lines: BTreeSet<String>,
    /// Lines about types that are public only if a definition says so.
    impls: Vec<(String, String)>,
    public: BTreeSet<String>,
}

/// The public module that items belong to, and the conditions under which it exists.
#[derive(Clone, Default)]
struct Place {
    module: String,
    conditions: String,
}

impl Place {
    fn line(&self, attributes: &[Attribute], text: &str) -> String {
        let own = conditions(attributes);
        let path = if self.module.is_empty() {
            String::new()
        } else {
            format!("{}: ", self.module)
        };
        format!("{path}{}{own}{text}", self.conditions)
    }
}

impl Interface {
    /// Reads a crate from its root.
    fn read(root: &Path) -> Self {
        let mut interface = Self::default();
        interface.add_file(parse_file(root), &Place::default(), root.parent());
        interface
    }

    /// Returns the sorted lines.
    fn listing(&self) -> String {
        let impls = self.impls.iter().filter(|(of, _)| self.public.contains(of));
        let lines: BTreeSet<&String> = impls.map(|(_, line)| line).chain(&self.lines).collect();
        lines.into_iter().fold(String::new(), |mut text, line| {
            text += line;
            text.push('\n');
            text
        })
    }

    /// Adds the items of a module. `folder` has the files of its own modules.
    fn add_file(&mut self, file: File, place: &Place, folder: Option<&Path>) {
        for item in file.items {
            if !is_for_tests(attributes_of(&item)) {
                self.add(item, place, folder);
            }
        }
    }

    fn add(&mut self, item: Item, place: &Place, folder: Option<&Path>) {
        match item {
            Item::Mod(module) => {
                let name = module.ident.to_string();
                let mut inner = place.clone();
                inner.conditions += &conditions(&module.attrs);
                if is_public(&module.vis) {
                    if !inner.module.is_empty() {
                        inner.module += "::";
                    }
                    inner.module += &name;
                    self.lines.insert(inner.line(&[], "module"));
                }
                if let Some((_, items)) = module.content {
                    let file = File {
                        shebang: None,
                        attrs: Vec::new(),
                        items,
                    };
                    self.add_file(file, &inner, None);
                } else if let Some(folder) = folder {
                    let path = folder.join(format!("{name}.rs"));
                    self.add_file(parse_file(&path), &inner, Some(&folder.join(name)));
                }
            }
            Item::Use(exported) if is_public(&exported.vis) => {
                for name in exported_names(&exported.tree) {
                    let text = format!("pub use {name}");
                    self.lines.insert(place.line(&exported.attrs, &text));
                }
            }
            Item::Struct(item) if is_public(&item.vis) => self.add_struct(&item, place),
            Item::Enum(item) if is_public(&item.vis) => {
                self.add_type(&item.ident.to_string(), &item.attrs, place);
                let line = place.line(&item.attrs, &enum_text(&item));
                self.lines.insert(line);
            }
            Item::Trait(item) if is_public(&item.vis) => self.add_trait(&item, place),
            Item::Fn(function) if is_public(&function.vis) => {
                let text = format!("pub {}", plain(&function.sig));
                self.lines.insert(place.line(&function.attrs, &text));
            }
            Item::Const(constant) if is_public(&constant.vis) => {
                let text = format!("pub const {}: {}", constant.ident, plain(&constant.ty));
                self.lines.insert(place.line(&constant.attrs, &text));
            }
            Item::Static(constant) if is_public(&constant.vis) => {
                let text = format!("pub static {}: {}", constant.ident, plain(&constant.ty));
                self.lines.insert(place.line(&constant.attrs, &text));
            }
            Item::Type(mut alias) if is_public(&alias.vis) => {
                let attributes = std::mem::take(&mut alias.attrs);
                self.lines.insert(place.line(&attributes, &plain(&alias)));
            }
            Item::Impl(item) => self.add_impl(item, place),
            // The items of a macro are not known, but its text is.
            Item::Macro(item) => {
                let text = without_documentation(&plain(&item.mac.tokens));
                let name = plain(&item.mac.path);
                let ident = item.ident.map(|ident| format!(" {ident}"));
                let ident = ident.unwrap_or_default();
                if name != "thread_local" {
                    let text = format!("{name}!{ident} {{ {text} }}");
                    self.lines.insert(place.line(&item.attrs, &text));
                }
            }
            _ => {}
        }
    }

    /// Adds the name of a public type, and the traits that are derived for it.
    fn add_type(&mut self, name: &str, attributes: &[Attribute], place: &Place) {
        self.public.insert(name.to_owned());
        for derived in derived(attributes) {
            let line = place.line(&[], &format!("derive for {name}: {derived}"));
            self.lines.insert(line);
        }
    }

    fn add_struct(&mut self, item: &ItemStruct, place: &Place) {
        let name = item.ident.to_string();
        self.add_type(&name, &item.attrs, place);
        let generics = plain(&item.generics);
        let bounds = plain(&item.generics.where_clause);
        let head = format!("pub struct {name}{generics} {bounds}");
        let head = head.trim_end();
        let is_open = item.fields.iter().all(|field| is_public(&field.vis));
        if is_open {
            let text = format!("{head}{}", fields_text(&item.fields));
            self.lines.insert(place.line(&item.attrs, &text));
            return;
        }
        let text = format!("{head} {{ .. }}");
        self.lines.insert(place.line(&item.attrs, &text));
        for (field, at) in item.fields.iter().zip(0..) {
            if is_public(&field.vis) {
                let at = if field.ident.is_none() {
                    format!("{at}: ")
                } else {
                    String::new()
                };
                let text = format!("field of {name}: {at}{}", field_text(field));
                self.lines.insert(place.line(&[], &text));
            }
        }
    }

    fn add_trait(&mut self, item: &ItemTrait, place: &Place) {
        let name = item.ident.to_string();
        self.add_type(&name, &item.attrs, place);
        let mut required = Vec::new();
        for inner in &item.items {
            match inner {
                TraitItem::Fn(inner) if inner.default.is_some() => {
                    let text = format!("trait {name}: {}", plain(&inner.sig));
                    self.lines.insert(place.line(&inner.attrs, &text));
                }
                TraitItem::Fn(inner) => {
                    required.push(conditions(&inner.attrs) + &plain(&inner.sig));
                }
                other => required.push(plain(other)),
            }
        }
        let supertraits = plain(&item.supertraits);
        let colon = if supertraits.is_empty() { "" } else { ": " };
        let generics = plain(&item.generics);
        let required = required.join("; ");
        let text = format!("pub trait {name}{generics}{colon}{supertraits} {{ {required} }}");
        self.lines.insert(place.line(&item.attrs, &text));
    }

    fn add_impl(&mut self, item: ItemImpl, place: &Place) {
        let of = plain(&item.self_ty);
        let Some(name) = type_name(&item.self_ty) else {
            return;
        };
        let bounds = plain(&item.generics.where_clause);
        let generics = plain(&item.generics);
        let own = conditions(&item.attrs);
        let head = match &item.trait_ {
            Some((negative, path, _)) => {
                let negative = if negative.is_some() { "!" } else { "" };
                format!(
                    "{own}impl{generics} {negative}{} for {of} {bounds}",
                    plain(path)
                )
            }
            None => format!("{own}impl{generics} {of} {bounds}"),
        };
        let head = head.trim_end().to_owned();
        if item.trait_.is_some() {
            let mut parts = Vec::new();
            for inner in &item.items {
                if let ImplItem::Type(inner) = inner {
                    parts.push(plain(inner));
                }
            }
            let parts = if parts.is_empty() {
                String::new()
            } else {
                format!(" {{ {} }}", parts.join(" "))
            };
            self.impls
                .push((name, place.line(&[], &format!("{head}{parts}"))));
            return;
        }
        for inner in item.items {
            let (attributes, text) = match inner {
                ImplItem::Fn(inner) if is_public(&inner.vis) => {
                    (inner.attrs, format!("pub {}", plain(&inner.sig)))
                }
                ImplItem::Const(inner) if is_public(&inner.vis) => (
                    inner.attrs,
                    format!("pub const {}: {}", inner.ident, plain(&inner.ty)),
                ),
                _ => continue,
            };
            if !is_for_tests(&attributes) {
                let text = format!("{head}: {}{text}", conditions(&attributes));
                self.impls.push((name.clone(), place.line(&[], &text)));
            }
        }
    }
}

fn parse_file(path: &Path) -> File {
    parse(&fs::read_to_string(path).unwrap())
}

/// Parses a source, without the attributes that are no part of the interface.
fn parse(text: &str) -> File {
    let mut file = syn::parse_file(text).unwrap();
    OnlyConditions.visit_file_mut(&mut file);
    file
}

/// Keeps conditions, derived traits, the serialized form, and whether parts may be added.
struct OnlyConditions;

impl VisitMut for OnlyConditions {
    fn visit_attributes_mut(&mut self, attributes: &mut Vec<Attribute>) {
        const KEPT: [&str; 6] = [
            "cfg",
            "cfg_attr",
            "derive",
            "non_exhaustive",
            "repr",
            "serde",
        ];
        attributes.retain(|attribute| {
            let is_kept = KEPT.iter().any(|name| attribute.path().is_ident(name));
            // Rules of validation are no part of the interface; derived traits are.
            let is_rule = attribute.path().is_ident("cfg_attr") && derived_in(attribute).is_none();
            is_kept && !is_rule
        });
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Returns whether an item exists in tests only, or with a feature for tests.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    const FEATURES: [&str; 3] = ["contract", "fake", "testing"];
    attributes.iter().any(|attribute| {
        let text = plain(attribute);
        let is_feature = |name: &&str| text.contains(&format!("\"{name}\""));
        text == "#[cfg(test)]"
            || text == "#[cfg(doctest)]"
            || attribute.path().is_ident("cfg") && FEATURES.iter().any(is_feature)
    })
}

fn attributes_of(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns attributes as a text before an item, without derived traits.
fn conditions(attributes: &[Attribute]) -> String {
    let mut text = String::new();
    for attribute in attributes {
        if derived_in(attribute).is_none() {
            text += &plain(attribute);
            text.push(' ');
        }
    }
    text
}

/// Returns the derived traits, each with the condition under which it is derived.
fn derived(attributes: &[Attribute]) -> Vec<String> {
    let mut found = Vec::new();
    for attribute in attributes {
        let Some(names) = derived_in(attribute) else {
            continue;
        };
        let text = plain(attribute);
        let condition = text.strip_prefix("#[cfg_attr(").and_then(|text| {
            let (condition, _) = text.split_once(", derive(")?;
            Some(format!(" if {condition}"))
        });
        let condition = condition.unwrap_or_default();
        found.extend(names.split(", ").map(|name| format!("{name}{condition}")));
    }
    found
}

/// Returns the names in a `derive(..)`; `None` if the attribute has none.
fn derived_in(attribute: &Attribute) -> Option<String> {
    let text = plain(attribute);
    let (_, names) = text.split_once("derive(")?;
    let (names, _) = names.split_once(')')?;
    Some(names.trim_end_matches(',').to_owned())
}

/// Returns all fields.
fn fields_text(fields: &Fields) -> String {
    let parts: Vec<String> = fields.iter().map(field_text).collect();
    let parts = parts.join(", ");
    match fields {
        Fields::Unit => String::new(),
        Fields::Named(_) => format!(" {{ {parts} }}"),
        Fields::Unnamed(_) => format!("({parts})"),
    }
}

fn field_text(field: &Field) -> String {
    let own = conditions(&field.attrs);
    let visibility = if is_public(&field.vis) { "pub " } else { "" };
    let name = field.ident.as_ref().map(|name| format!("{name}: "));
    let name = name.unwrap_or_default();
    format!("{own}{visibility}{name}{}", plain(&field.ty))
}

fn enum_text(item: &ItemEnum) -> String {
    let variants: Vec<String> = (item.variants.iter())
        .map(|variant| {
            let own = conditions(&variant.attrs);
            let fields = fields_text(&variant.fields);
            format!("{own}{}{fields}", variant.ident)
        })
        .collect();
    let head = format!("pub enum {}{}", item.ident, plain(&item.generics));
    format!("{head} {{ {} }}", variants.join(", "))
}

/// Returns the names under which a `pub use` exports items.
fn exported_names(tree: &UseTree) -> Vec<String> {
    match tree {
        UseTree::Path(path) => exported_names(&path.tree),
        UseTree::Name(name) => vec![name.ident.to_string()],
        UseTree::Rename(name) => vec![name.rename.to_string()],
        UseTree::Glob(_) => vec!["*".into()],
        UseTree::Group(group) => group.items.iter().flat_map(exported_names).collect(),
    }
}

/// Returns the name of the type that an implementation is for; `None` for types like tuples.
fn type_name(of: &Type) -> Option<String> {
    match of {
        Type::Path(path) => Some(path.path.segments.last()?.ident.to_string()),
        Type::Reference(reference) => type_name(&reference.elem),
        _ => None,
    }
}

/// Returns the text of a macro without the documentation in it.
fn without_documentation(text: &str) -> String {
    let documentation = Regex::new(r##"#\[doc = r?#*"[^"]*"#*\] ?"##).unwrap();
    documentation.replace_all(text, "").into_owned()
}

/// Returns the text of a part of a source, with white space as rustfmt writes it.
fn plain(part: &impl ToTokens) -> String {
    let mut text = part.to_token_stream().to_string();
    text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (from, to) in [
        (" :: ", "::"),
        (":: ", "::"),
        (" ::", "::"),
        ("& ", "&"),
        (" ,", ","),
        (" ;", ";"),
        (" :", ":"),
        ("< ", "<"),
        (" <", "<"),
        (" >", ">"),
        ("( ", "("),
        (" (", "("),
        (" )", ")"),
        (" [", "["),
        ("[ ", "["),
        (" ]", "]"),
        ("# [", "#["),
        (" !", "!"),
        (",)", ")"),
        (",>", ">"),
        ("' ", "'"),
        ("- >", "->"),
        (")->", ") ->"),
        (" . ", "."),
        (" ?", "?"),
        ("? ", "?"),
    ] {
        text = text.replace(from, to);
    }
    text
}
