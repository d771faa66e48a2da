use std::collections::BTreeSet;
use std::path::Path;

use axum::http::{HeaderMap, StatusCode, header};

use super::{ASSETS, Asset, answer, tag};

fn scripts() -> impl Iterator<Item = &'static Asset> {
    ASSETS
        .iter()
        .filter(|asset| asset.media.starts_with("text/javascript"))
}

#[test]
fn the_page_is_smaller_than_100_kb() {
    let size: usize = ASSETS.iter().map(|asset| asset.content.len()).sum();
    assert!(size < 100_000, "{size} bytes");
}

/// What comes from a broker is text: there is no way in which a script makes markup or code of one.
#[test]
fn no_script_makes_markup_or_code_of_a_string() {
    let forbidden = [
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "document.write",
        "DOMParser",
        "setHTML",
        "createContextualFragment",
        "srcdoc",
        "eval(",
        "new Function",
        "import(",
        "javascript:",
        "localStorage",
        "sessionStorage",
        "indexedDB",
        "document.cookie",
        "window.open",
    ];
    for asset in scripts() {
        for word in forbidden {
            assert!(!asset.content.contains(word), "{}: {word}", asset.path);
        }
    }
}

#[test]
fn there_is_no_inline_script_or_style_and_nothing_from_elsewhere() {
    for asset in &ASSETS {
        let own = asset.content.replace("http://www.w3.org/2000/svg", "");
        for word in ["http:", "https:", "url(", "@import", "style=", "<style"] {
            assert!(!own.contains(word), "{}: {word}", asset.path);
        }
    }
    let [index, ..] = &ASSETS;
    for tag in index.content.split('<').skip(1) {
        let handler = tag
            .split_whitespace()
            .any(|word| word.starts_with("on") && word.contains('='));
        assert!(!handler, "<{tag}");
        if tag.starts_with("script") {
            assert!(tag.contains("src=\"/page/") && tag.ends_with('>'), "<{tag}");
        }
    }
}

/// Every import and every address of the page is a file of it, and every file is one of the list.
#[test]
fn the_files_of_the_page_are_whole() {
    let there: BTreeSet<_> = ASSETS.iter().map(|asset| asset.path.to_owned()).collect();
    for asset in &ASSETS {
        let imports = asset.content.split("from './").skip(1);
        let links = asset.content.split("=\"/page/").skip(1);
        for rest in imports.chain(links) {
            let end = rest.find(['\'', '"']).unwrap();
            let named = format!("/page/{}", &rest[..end]);
            assert!(there.contains(&named), "{}: {named}", asset.path);
        }
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        format!("/page/{name}").replace("/page/index.html", "/")
    });
    assert_eq!(files.collect::<BTreeSet<_>>(), there);
}

#[test]
fn a_browser_that_has_it_is_told_so() {
    let [asset, other, ..] = ASSETS;
    let own = tag(asset.content);
    assert_ne!(own, tag(other.content));
    let asked = |known: &str| {
        let mut headers = HeaderMap::new();
        headers.insert(header::IF_NONE_MATCH, known.parse().unwrap());
        answer(asset, &own, &headers)
    };
    let text = own.to_str().unwrap();
    for known in [text.to_owned(), format!("\"x\", W/{text}")] {
        assert_eq!(asked(&known).status(), StatusCode::NOT_MODIFIED, "{known}");
    }
    let whole = asked("\"x\"");
    assert_eq!(whole.status(), StatusCode::OK);
    assert_eq!(whole.headers()[header::ETAG], own);
    assert_eq!(whole.headers()[header::CACHE_CONTROL], "no-cache");
}
