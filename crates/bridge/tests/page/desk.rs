//! Whoever sits before the browser.

use bridge_testkit::browser::{Browser, Element};
use serde_json::json;

use crate::stage::{Stage, TOKEN};

/// A browser at the page.
pub(crate) struct Desk {
    pub(crate) browser: Browser,
}

impl Desk {
    /// Opens the page, where a login is asked for.
    pub(crate) async fn at(stage: &Stage) -> Self {
        Self::at_url(&stage.url()).await
    }

    /// Opens the page of that address, where a login is asked for.
    pub(crate) async fn at_url(url: &str) -> Self {
        let browser = Browser::start().await;
        browser.open(url).await;
        browser.sees("Admin token").await;
        Self { browser }
    }

    /// Opens the page and logs in.
    pub(crate) async fn logged_in(stage: &Stage) -> Self {
        let desk = Self::at(stage).await;
        desk.log_in(TOKEN).await;
        desk.browser.sees("Routes and their bindings").await;
        desk
    }

    /// Types that token and sends it.
    pub(crate) async fn log_in(&self, token: &str) {
        self.fill("token", token).await;
        self.click("button", "Log in").await;
    }

    /// Goes to a view by its address.
    pub(crate) async fn go(&self, view: &str) {
        let script = "location.hash = arguments[0]";
        self.browser.run(script, json!([view])).await;
    }

    /// Clicks the element of that kind that shows exactly that text: in the dialog while there is
    /// one, which goes a moment after the click that ends it.
    pub(crate) async fn click(&self, tag: &str, text: &str) {
        let wanted = format!("{tag}[normalize-space()='{text}']");
        let path = format!("//dialog//{wanted} | //body[not(.//dialog)]//{wanted}");
        self.browser.find(&path).await.click().await;
    }

    /// Types into the field of that name, in place of what is there.
    pub(crate) async fn fill(&self, name: &str, text: &str) {
        let field = self.field(name).await;
        let script = "arguments[0].value = ''";
        let path = format!("document.getElementsByName('{name}')[0]");
        self.browser
            .run(&script.replace("arguments[0]", &path), json!([]))
            .await;
        field.type_in(text).await;
    }

    /// The field of that name.
    pub(crate) async fn field(&self, name: &str) -> Element<'_> {
        self.browser.find(&format!("//*[@name='{name}']")).await
    }

    /// What the browser has refused to do, by its own word.
    pub(crate) async fn violations(&self) -> Vec<String> {
        let mut console = self.browser.console().await;
        console.retain(|line| {
            let line = line.to_lowercase();
            ["policy", "trusted", "refused", "error:", "uncaught"]
                .iter()
                .any(|word| line.contains(word))
        });
        console
    }

    /// What is in the focus: its name for a screen reader, or its text.
    pub(crate) async fn focused(&self) -> String {
        let script = "const e = document.activeElement; \
                      return e === document.body ? 'BODY' : e.getAttribute('aria-label') || e.innerText || e.name || e.tagName";
        let name = self.browser.run(script, json!([])).await;
        name.as_str().unwrap().trim().to_owned()
    }
}
