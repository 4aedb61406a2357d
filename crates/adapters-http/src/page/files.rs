//! The files of the page, which are embedded in the binary, and their content security policy.

use std::io::{self, Write as _};
use std::sync::LazyLock;

use axum::body::Bytes;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest as _, Sha256};

/// The media types of the files. Their texts are UTF-8.
const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// The style sheet, and the line of the page that refers to it.
const STYLE: &str = include_str!("../../page/page.css");
const STYLE_LINK: &str = r#"<link rel="stylesheet" href="/page/page.css">"#;

/// A file in the forms in which it is served.
#[derive(Debug)]
pub(super) struct PageFile {
    pub(super) media_type: &'static str,
    pub(super) plain: Representation,
    /// `None` if it cannot be compressed.
    pub(super) gzip: Option<Representation>,
}

/// The bytes of a file, with or without compression.
#[derive(Debug)]
pub(super) struct Representation {
    pub(super) body: Bytes,
    /// The strong entity tag, with its quotation marks.
    pub(super) tag: String,
}

impl PageFile {
    fn new(media_type: &'static str, plain: Bytes) -> Self {
        let digest = URL_SAFE_NO_PAD.encode(Sha256::digest(&plain));
        // Other bytes need another strong tag.
        let gzip = compress(&plain).ok().map(|compressed| Representation {
            body: compressed.into(),
            tag: format!("\"{digest}-gzip\""),
        });
        Self {
            media_type,
            plain: Representation {
                body: plain,
                tag: format!("\"{digest}\""),
            },
            gzip,
        }
    }
}

fn compress(plain: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(plain)?;
    encoder.finish()
}

/// A file with its name, compressed when it is first asked for.
#[derive(Debug)]
struct NamedFile {
    name: &'static str,
    file: LazyLock<PageFile>,
}

impl NamedFile {
    const fn new(name: &'static str, make: fn() -> PageFile) -> Self {
        Self {
            name,
            file: LazyLock::new(make),
        }
    }
}

/// A file of the folder `page` of this crate.
macro_rules! page_file {
    ($name:literal, $media_type:expr) => {
        NamedFile::new($name, || {
            let bytes = include_bytes!(concat!("../../page/", $name));
            PageFile::new($media_type, Bytes::from_static(bytes))
        })
    };
}

/// All files but `index.html` and the style sheet, which is served in it.
static FILES: [NamedFile; 19] = [
    page_file!("favicon.svg", SVG),
    page_file!("main.js", SCRIPT),
    page_file!("api.js", SCRIPT),
    page_file!("live.js", SCRIPT),
    page_file!("token.js", SCRIPT),
    page_file!("dom.js", SCRIPT),
    page_file!("format.js", SCRIPT),
    page_file!("table.js", SCRIPT),
    page_file!("chart.js", SCRIPT),
    page_file!("decisions.js", SCRIPT),
    page_file!("now.js", SCRIPT),
    page_file!("sessions.js", SCRIPT),
    page_file!("session.js", SCRIPT),
    page_file!("tools.js", SCRIPT),
    page_file!("tool.js", SCRIPT),
    page_file!("paths.js", SCRIPT),
    page_file!("learning.js", SCRIPT),
    page_file!("changes.js", SCRIPT),
    page_file!("setup.js", SCRIPT),
];

// The style sheet is part of the page, so that the first paint needs one request.
static INDEX: LazyLock<PageFile> = LazyLock::new(|| {
    let style = format!("<style>{STYLE}</style>");
    let page = include_str!("../../page/index.html").replacen(STYLE_LINK, &style, 1);
    PageFile::new(HTML, page.into())
});

// Scripts and requests only of and to the own origin, and no style but the embedded one: a name
// that gets into the page as markup can neither run nor send anything.
static SECURITY_POLICY: LazyLock<String> = LazyLock::new(|| {
    let style = STANDARD.encode(Sha256::digest(STYLE));
    format!(
        "default-src 'none'; script-src 'self'; style-src 'sha256-{style}'; \
         img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    )
});

/// Returns the page, with its style sheet.
pub(super) fn index() -> &'static PageFile {
    &INDEX
}

/// Returns the file with this name, or `None`.
pub(super) fn find(name: &str) -> Option<&'static PageFile> {
    let found = FILES.iter().find(|file| file.name == name)?;
    Some(&found.file)
}

/// Returns the content security policy of the page.
pub(super) fn security_policy() -> &'static str {
    &SECURITY_POLICY
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// The largest size of everything that a browser loads, compressed, in bytes.
    const MAX_BYTES: usize = 95_000;

    #[test]
    fn the_compressed_page_is_within_its_budget() {
        let files = FILES.iter().map(|file| &*file.file);
        let total: usize = (files.chain([&*INDEX]))
            .map(|file| file.gzip.as_ref().unwrap().body.len())
            .sum();
        assert!(total <= MAX_BYTES, "{total} bytes");
    }

    #[test]
    fn every_file_of_the_folder_is_served() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
        for entry in fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let is_index = ["index.html", "page.css"].contains(&name.as_str());
            assert_eq!(find(&name).is_some(), !is_index, "{name}");
        }
    }

    #[test]
    fn the_style_sheet_is_embedded_as_it_is() {
        let page = std::str::from_utf8(&index().plain.body).unwrap();
        assert!(!page.contains(STYLE_LINK));
        assert_eq!(page.matches("<style>").count(), 1);
        // A browser would end the style there, or change the end of the line, and refuse the style.
        assert!(!STYLE.contains("</style") && !STYLE.contains('\r'));
    }
}
