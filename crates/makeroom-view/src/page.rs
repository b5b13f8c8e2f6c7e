//! The page itself, and its content security policy.
//!
//! The page is a single file with inline script and style. It is built from `viewer/` and checked in, so that cargo
//! alone builds everything.

use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

/// The place for a report's data.
const DATA: &str = "<script id=\"makeroom-data\" type=\"application/octet-stream\">";

/// The page without data, as the server sends it.
// A link to viewer/dist/index.html: a package contains only files of its own directory.
#[cfg(not(feature = "compressed"))]
pub(crate) fn page() -> &'static str {
    include_str!("viewer.html")
}

/// The page without data, as the server sends it.
// Only a damaged binary could fail to decompress; the test below would find an empty page.
#[cfg(feature = "compressed")]
pub(crate) fn page() -> &'static str {
    static PAGE: OnceLock<String> = OnceLock::new();
    PAGE.get_or_init(|| {
        let stream: &[u8] = makeroom_embed::lzma_file!("src/viewer.html");
        let reader = lzma_rust2::LzmaReader::new_mem_limit(stream, u32::MAX, None);
        reader.and_then(std::io::read_to_string).unwrap_or_default()
    })
}

/// The policy of the served page: it may run its own script and send requests to this server.
pub(crate) fn policy() -> &'static str {
    static POLICY: OnceLock<String> = OnceLock::new();
    POLICY.get_or_init(|| format!("{}; connect-src 'self'; frame-ancestors 'none'", common_policy(page())))
}

fn common_policy(page: &str) -> String {
    let scripts: Vec<String> = inline_scripts(page)
        .map(|script| format!(" 'sha256-{}'", STANDARD.encode(Sha256::digest(script.as_bytes()))))
        .collect();
    let scripts = if scripts.is_empty() { " 'none'".to_owned() } else { scripts.concat() };
    format!(
        "default-src 'none'; script-src{scripts}; style-src 'unsafe-inline'; img-src data: blob:; \
         font-src data:; base-uri 'none'; form-action 'none'"
    )
}

/// The page with embedded data; `None` if the page has no place for it.
pub(crate) fn with_data(data: &str) -> Option<String> {
    filled(page(), DATA, data)
}

/// A page with data after the element `start`, and with its policy.
pub(crate) fn filled(page: &str, start: &str, data: &str) -> Option<String> {
    let place = page.find(start)? + start.len();
    let head = page.find("<head>").map(|at| at + "<head>".len()).filter(|&at| at < place)?;
    let meta = format!("<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">", common_policy(page));
    Some([&page[..head], &meta, &page[head..place], data, &page[place..]].concat())
}

/// The inline scripts of a page, except for its data.
fn inline_scripts(page: &str) -> impl Iterator<Item = &str> {
    page.split("<script").skip(1).filter_map(|rest| {
        let (attributes, rest) = rest.split_once('>')?;
        let (script, _) = rest.split_once("</script>")?;
        let is_data = attributes.contains("type=\"application/") || attributes.contains("src=");
        (!is_data).then_some(script)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_found_and_data_is_none() {
        let page = "<script type=\"module\">one()</script><script id=\"makeroom-data\" \
                    type=\"application/octet-stream\">AAAA</script><script>two()</script>";
        assert_eq!(inline_scripts(page).collect::<Vec<_>>(), ["one()", "two()"]);
    }

    #[test]
    fn the_page_has_one_place_for_data_and_is_small() {
        assert_eq!(page().matches(DATA).count(), 1);
        assert!(with_data("QUJD").is_some_and(|page| page.contains("octet-stream\">QUJD</script>")));
        assert!(page().len() < 1_000_000, "{}", page().len());
        assert!(policy().contains("script-src 'sha256-"), "{}", policy());
    }
}
