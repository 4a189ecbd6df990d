//! The pages of the user guide, for tests that hold them to what the programs do.

use std::fs;
use std::path::PathBuf;

use crate::sources::{files, workspace};

/// The chapters of the book, as mdBook reads them. It has a title for each part, and is not a page.
pub const SUMMARY: &str = "SUMMARY.md";

/// The folder with the pages.
#[must_use]
pub fn folder() -> PathBuf {
    workspace().join("packaging/guide")
}

/// Each page with its path in [`folder`] and its text, in the order of the paths.
///
/// # Panics
/// When a page cannot be read.
#[must_use]
pub fn pages() -> Vec<(String, String)> {
    let folder = folder();
    let page = |path: PathBuf| {
        let text = fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
        let name = path.strip_prefix(&folder).unwrap_or(&path);
        (name.to_string_lossy().into_owned(), text)
    };
    files(&folder, &["md"]).into_iter().filter(|path| !path.ends_with(SUMMARY)).map(page).collect()
}

/// The text of all pages.
#[must_use]
pub fn text() -> String {
    pages().into_iter().map(|page| page.1).collect::<Vec<_>>().join("\n")
}

/// The section with this heading, of whatever page and depth, without its subsections.
///
/// # Panics
/// When no page has such a section.
#[must_use]
pub fn section(heading: &str) -> String {
    let pages = pages();
    let found = pages.iter().find_map(|(_, text)| section_of(text, heading));
    found.unwrap_or_else(|| panic!("no page of the guide has the section `{heading}`"))
}

/// The section of a text with this heading. A line that begins with `#` in a block of code is not a heading.
fn section_of(text: &str, heading: &str) -> Option<String> {
    let mut is_code = false;
    let mut section: Option<String> = None;
    for line in text.lines() {
        is_code ^= line.starts_with("```");
        if !is_code && line.starts_with('#') {
            if section.is_some() {
                break;
            }
            if line.trim_start_matches('#').trim() == heading {
                section = Some(String::new());
            }
        } else if let Some(section) = &mut section {
            *section += line;
            section.push('\n');
        }
    }
    section
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_ends_at_the_next_heading() {
        let text = "# a\none\n```sh\n# no heading\n```\n## b\ntwo\n### a\nthree\n";
        assert_eq!(section_of(text, "a").as_deref(), Some("one\n```sh\n# no heading\n```\n"));
        assert_eq!(section_of(text, "b").as_deref(), Some("two\n"));
        assert_eq!(section_of(text, "c"), None);
        let section = section("Run services");
        assert!(section.contains("holdfast service install") && !section.contains("\n## "));
        assert!(!section.contains("grpc.protos_and_services"), "that is another page");
    }
}
