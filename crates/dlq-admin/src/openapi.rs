//! The description of the API, made of the types and functions that are the API.

mod yaml;

use serde_json::Value;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

use crate::api::dead_letters::{self, change, export, import};
use crate::api::{delivery, jobs, login, state};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "bridge",
        description = "The admin API of the bridge: its state, its dead letters and their redrive. \
                       Whoever changes something with the cookie of a page session also sends the \
                       header `X-Bridge-Page`. Every error is an RFC 9457 problem.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    servers((url = "/", description = "The bridge that this is read from")),
    paths(
        login::show,
        login::open,
        login::close,
        state::bridge,
        state::sessions,
        state::routes,
        state::bindings,
        dead_letters::list,
        dead_letters::total,
        dead_letters::show,
        export::export,
        import::import,
        change::redrive,
        change::delete,
        jobs::list,
        jobs::show,
        jobs::cancel,
        delivery::inject,
        delivery::pause,
        delivery::resume,
    ),
    security(("token" = []), ("page" = [])),
    modifiers(&Schemes),
    tags(
        (name = "session", description = "Page sessions"),
        (name = "state", description = "How the bridge goes"),
        (name = "dead letters", description = "Messages that were given up on"),
        (name = "jobs", description = "Redrives and deletes of any number of them"),
        (name = "delivery", description = "Pausing bindings, test messages"),
    ),
)]
struct Api;

struct Schemes;

impl Modify for Schemes {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        let components = api.components.get_or_insert_default();
        let token = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("The admin token"))
            .build();
        components.add_security_scheme("token", SecurityScheme::Http(token));
        let cookie = ApiKeyValue::with_description("bridge", "`__Host-bridge` over TLS");
        let cookie = SecurityScheme::ApiKey(ApiKey::Cookie(cookie));
        components.add_security_scheme("page", cookie);
    }
}

/// The description as JSON: `OpenAPI` 3.1.
pub fn openapi() -> Value {
    // Texts, lists and maps with texts as keys: it cannot fail.
    serde_json::to_value(Api::openapi()).unwrap_or_default()
}

/// The same as YAML, as it stands in `spec/openapi.yaml`.
pub fn openapi_yaml() -> String {
    let mut text =
        String::from("# Made by `cargo xtask spec` of crates/dlq-admin; never edited.\n");
    yaml::write(&mut text, &openapi());
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_description_is_written_down_as_it_is() {
        let written = include_str!("../../../spec/openapi.yaml");
        assert!(
            written == openapi_yaml(),
            "spec/openapi.yaml is out of date: run `cargo xtask spec`"
        );
    }

    #[test]
    fn every_path_is_described_and_every_described_path_is_there() {
        let api = openapi();
        let paths = api.get("paths").and_then(Value::as_object).unwrap();
        let described: BTreeSet<&str> = paths.keys().map(String::as_str).collect();
        // Paths in the list of routes are the only texts of that file that begin like this.
        let source = include_str!("api.rs");
        let texts = source.split('"').skip(1).step_by(2);
        let routed: BTreeSet<&str> = texts.filter(|text| text.starts_with("/api/")).collect();
        assert_eq!(described, routed);
    }

    #[test]
    fn every_call_has_a_name_of_its_own_and_says_what_goes_wrong() {
        let api = openapi();
        let paths = api.get("paths").and_then(Value::as_object).unwrap();
        let mut names = BTreeSet::new();
        for (path, methods) in paths {
            for (method, call) in methods.as_object().unwrap() {
                let name = call.get("operationId").and_then(Value::as_str).unwrap();
                assert!(names.insert(name), "{name} is there twice");
                let problem = call.pointer("/responses/default/content/application~1problem+json");
                assert!(problem.is_some(), "{method} {path}");
            }
        }
        assert!(names.len() > 5);
    }
}
