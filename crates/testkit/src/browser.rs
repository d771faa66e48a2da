//! A headless Chromium, driven by `WebDriver`: what a person sees and does at a page.
//!
//! The protocol (<https://www.w3.org/TR/webdriver2/>) is JSON over HTTP, and a test needs a dozen
//! of its commands. Each waits for its answer; what a page does in its own time is waited for by
//! [`Browser::until`].

mod driver;
mod keys;

use std::time::Duration;

use serde_json::{Value, json};

use self::driver::Driver;
use crate::wait::wait_for;

pub use self::keys::{BACKSPACE, ENTER, ESCAPE, SHIFT_TAB, SPACE, TAB};

/// How long a page may take until it shows what is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// The colours that a person prefers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Dark on light.
    Light,
    /// Light on dark.
    Dark,
}

/// A browser with one window and a profile of its own; ended on drop.
#[derive(Debug)]
pub struct Browser {
    driver: Driver,
}

/// One element of a page, as long as the page keeps it.
#[derive(Debug, Clone)]
pub struct Element<'a> {
    browser: &'a Browser,
    id: String,
}

impl Browser {
    /// Starts a browser.
    ///
    /// # Panics
    /// When `chromium` or `chromedriver` is not installed, with what to do about it.
    pub async fn start() -> Self {
        let driver = Driver::start().await;
        Self { driver }
    }

    /// Opens a URL and waits until it is loaded.
    pub async fn open(&self, url: &str) {
        self.driver.post("/url", json!({ "url": url })).await;
    }

    /// The URL in the address bar.
    pub async fn url(&self) -> String {
        text(&self.driver.get("/url").await)
    }

    /// Runs the body of a function with those arguments in the page, and hands back what it
    /// returns.
    pub async fn run(&self, script: &str, arguments: Value) -> Value {
        let body = json!({ "script": script, "args": arguments });
        self.driver.post("/execute/sync", body).await
    }

    /// Whether the expression is true in the page.
    pub async fn is(&self, expression: &str) -> bool {
        let script = format!("return Boolean({expression})");
        self.run(&script, json!([])).await == json!(true)
    }

    /// Waits until the expression is true in the page.
    ///
    /// # Panics
    /// When it does not become so, with what the page shows.
    pub async fn until(&self, expression: &str) {
        let end = tokio::time::Instant::now() + PATIENCE;
        while !self.is(expression).await {
            if tokio::time::Instant::now() > end {
                let shown = self.text().await;
                panic!("waited in vain until {expression}; the page shows:\n{shown}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until the page shows `text`.
    ///
    /// # Panics
    /// When it does not, with what it shows.
    pub async fn sees(&self, text: &str) {
        let text = serde_json::to_string(text).expect("a text");
        let shown = format!("document.body.innerText.includes({text})");
        self.until(&shown).await;
    }

    /// All text that the page shows.
    pub async fn text(&self) -> String {
        text(&self.run("return document.body.innerText", json!([])).await)
    }

    /// The first element that is displayed and that the `XPath` finds, once there is one.
    ///
    /// # Panics
    /// When there is none in time.
    pub async fn find(&self, xpath: &str) -> Element<'_> {
        wait_for(xpath, PATIENCE, async || {
            let using = json!({ "using": "xpath", "value": xpath });
            let found = self.driver.post("/elements", using).await;
            for element in found.as_array().into_iter().flatten() {
                let id = element.as_object()?.values().next()?.as_str()?.to_owned();
                let element = Element { browser: self, id };
                // One that is gone meanwhile is not displayed.
                if element.ask("/displayed").await == Ok(json!(true)) {
                    return Some(element);
                }
            }
            None
        })
        .await
    }

    /// Presses the keys one after the other, wherever the focus is.
    pub async fn press(&self, keys: &str) {
        let actions = keys::actions(keys);
        self.driver.post("/actions", actions).await;
    }

    /// Shows pages in those colours and in a window of that size, to somebody who prefers reduced
    /// motion: what is looked at is not half way.
    pub async fn look(&self, scheme: Scheme, width: u32, height: u32) {
        let value = match scheme {
            Scheme::Light => "light",
            Scheme::Dark => "dark",
        };
        let media = json!({ "features": [
            { "name": "prefers-color-scheme", "value": value },
            { "name": "prefers-reduced-motion", "value": "reduce" },
        ] });
        self.devtools("Emulation.setEmulatedMedia", media).await;
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", size)
            .await;
    }

    /// What the window shows, as PNG in base64.
    pub async fn screenshot(&self) -> String {
        text(&self.driver.get("/screenshot").await)
    }

    /// The names and values of all cookies, also of those that no script can read.
    pub async fn cookies(&self) -> Vec<Value> {
        let cookies = self.driver.get("/cookie").await;
        cookies.as_array().cloned().unwrap_or_default()
    }

    /// Forgets all cookies.
    pub async fn forget_cookies(&self) {
        self.driver.delete("/cookie").await;
    }

    /// What the console has been told since the latest call: by the page's scripts, and by the
    /// browser, which tells of everything that it refuses.
    pub async fn console(&self) -> Vec<String> {
        let entries = self
            .driver
            .post("/se/log", json!({ "type": "browser" }))
            .await;
        let entries = entries.as_array().cloned().unwrap_or_default();
        entries
            .iter()
            .map(|entry| text(&entry["message"]))
            .collect()
    }

    /// Every node of the tree that a screen reader is given, as role and name.
    pub async fn accessible(&self) -> Vec<(String, String)> {
        let tree = self
            .devtools("Accessibility.getFullAXTree", json!({}))
            .await;
        let nodes = tree["nodes"].as_array().cloned().unwrap_or_default();
        let shown = nodes.iter().filter(|node| node["ignored"] != json!(true));
        shown
            .map(|node| (text(&node["role"]["value"]), text(&node["name"]["value"])))
            .collect()
    }

    /// A command of Chromium's own protocol.
    async fn devtools(&self, command: &str, parameters: Value) -> Value {
        let body = json!({ "cmd": command, "params": parameters });
        self.driver.post("/goog/cdp/execute", body).await
    }
}

impl Element<'_> {
    /// Clicks it, as a mouse would: what lies over it gets the click.
    pub async fn click(&self) {
        self.tell("/click", json!({})).await;
    }

    /// Types into it, behind what is there.
    pub async fn type_in(&self, keys: &str) {
        self.tell("/value", json!({ "text": keys })).await;
    }

    /// The text that it shows.
    pub async fn text(&self) -> String {
        text(&self.ask("/text").await.unwrap_or_default())
    }

    async fn ask(&self, what: &str) -> Result<Value, String> {
        let path = format!("/element/{}{what}", self.id);
        self.browser.driver.try_get(&path).await
    }

    async fn tell(&self, what: &str, body: Value) {
        let path = format!("/element/{}{what}", self.id);
        self.browser.driver.post(&path, body).await;
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
