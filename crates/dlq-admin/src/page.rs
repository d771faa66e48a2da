//! The operator's page: files that are a part of the binary, and no way to any other.
//!
//! It is a client of the API like every other one, by the cookie of a page session, so it needs
//! nothing of what is behind the API. Its files are made by hand and served as they lie in the
//! folder `page`. Nothing is loaded from elsewhere; what that is worth is said by the headers that
//! stand around every answer.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};

use crate::admin::App;

/// One file of the page.
#[derive(Debug, Clone, Copy)]
struct Asset {
    path: &'static str,
    media: &'static str,
    content: &'static str,
}

macro_rules! asset {
    ($path:expr, $file:literal, $media:expr) => {
        Asset {
            path: $path,
            media: $media,
            content: include_str!(concat!("../page/", $file)),
        }
    };
}

macro_rules! script {
    ($file:literal) => {
        asset!(
            concat!("/page/", $file),
            $file,
            "text/javascript; charset=utf-8"
        )
    };
}

const ASSETS: [Asset; 13] = [
    asset!("/", "index.html", "text/html; charset=utf-8"),
    asset!("/page/style.css", "style.css", "text/css; charset=utf-8"),
    asset!("/page/icon.svg", "icon.svg", "image/svg+xml"),
    script!("act.js"),
    script!("api.js"),
    script!("app.js"),
    script!("dom.js"),
    script!("format.js"),
    script!("inject.js"),
    script!("jobs.js"),
    script!("letter.js"),
    script!("letters.js"),
    script!("overview.js"),
];

/// Every file at its path. They are open to all: what they show is behind the login.
pub(crate) fn routes() -> Router<Arc<App>> {
    ASSETS.iter().fold(Router::new(), |router, asset| {
        let tag = tag(asset.content);
        router.route(
            asset.path,
            get(async move |headers: HeaderMap| answer(*asset, &tag, &headers)),
        )
    })
}

/// A browser may keep it, and asks each time whether it is still the same: after an update of the
/// bridge no old half of a page meets a new one.
fn answer(asset: Asset, tag: &HeaderValue, headers: &HeaderMap) -> Response<Body> {
    let known = headers.get_all(header::IF_NONE_MATCH).into_iter();
    let known = known
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|known| known.trim().trim_start_matches("W/").as_bytes() == tag.as_bytes());
    let mut response = Response::new(Body::empty());
    if known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    } else {
        *response.body_mut() = Body::from(asset.content);
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.media));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::ETAG, tag.clone());
    response
}

/// Changes with the content.
fn tag(content: &str) -> HeaderValue {
    let digest = digest(&SHA256, content.as_bytes());
    let mut text = URL_SAFE_NO_PAD.encode(digest);
    text.truncate(22);
    // Letters, digits, `-` and `_` are always a value.
    HeaderValue::from_str(&format!("\"{text}\""))
        .unwrap_or_else(|_| HeaderValue::from_static("\"\""))
}

#[cfg(test)]
mod tests;
