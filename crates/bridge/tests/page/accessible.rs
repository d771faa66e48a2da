//! What a screen reader is told, what weak eyes can tell apart, and what fits a narrow window.

use bridge_testkit::Publish;
use bridge_testkit::browser::Scheme;
use serde_json::{Value, json};

use crate::desk::Desk;
use crate::stage::Stage;

/// Roles that say nothing without a name.
const NAMED: [&str; 14] = [
    "button",
    "checkbox",
    "combobox",
    "dialog",
    "heading",
    "link",
    "navigation",
    "progressbar",
    "radio",
    "region",
    "searchbox",
    "table",
    "textbox",
    "columnheader",
];

/// Every text whose contrast with what is behind it is below 4.5 (WCAG 2.2, 1.4.3), or 3 where it
/// is large. What is disabled needs none.
const CONTRAST: &str = r"
    const colour = (text) => {
      const canvas = new OffscreenCanvas(1, 1).getContext('2d');
      canvas.fillStyle = text;
      canvas.fillRect(0, 0, 1, 1);
      return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const behind = (element) => {
      for (let e = element; e; e = e.parentElement) {
        const found = colour(getComputedStyle(e).backgroundColor);
        if (found[3] === 255) return found;
      }
      return [255, 255, 255, 255];
    };
    const light = (rgb) => {
      const part = rgb.slice(0, 3).map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
      return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2];
    };
    const weak = [];
    const walker = document.createTreeWalker(document.querySelector('dialog') ?? document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const node = walker.currentNode;
      const element = node.parentElement;
      if (!node.textContent.trim() || element.closest('[hidden], :disabled, .unseen, option') || !element.checkVisibility()) continue;
      const style = getComputedStyle(element);
      const pair = [light(colour(style.color)), light(behind(element))].sort((a, b) => b - a);
      const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
      const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
      if (ratio < (large ? 3 : 4.5)) weak.push(`${node.textContent.trim().slice(0, 30)}: ${ratio.toFixed(2)}`);
    }
    return weak";

/// What is wrong with the structure.
const STRUCTURE: &str = r"
    const wrong = [];
    const all = (selector) => [...document.querySelectorAll(selector)];
    if (all('h1').length !== 1) wrong.push(`${all('h1').length} h1`);
    if (all('main').length !== 1) wrong.push('not one main');
    if (document.documentElement.lang !== 'en') wrong.push('no language');
    for (const table of all('table')) if (!table.caption?.textContent) wrong.push('a table without caption');
    for (const th of all('th')) if (!th.scope) wrong.push(`th without scope: ${th.textContent}`);
    const ids = all('[id]').map((element) => element.id);
    for (const id of ids) if (ids.filter((other) => other === id).length > 1) wrong.push(`id twice: ${id}`);
    for (const name of ['aria-describedby', 'aria-labelledby', 'for']) {
      for (const element of all(`[${name}]`)) if (!document.getElementById(element.getAttribute(name))) wrong.push(`${name} leads nowhere`);
    }
    return wrong";

async fn checked(desk: &Desk, view: &str) {
    let none = json!([]);
    let browser = &desk.browser;
    for scheme in [Scheme::Light, Scheme::Dark] {
        browser.look(scheme, 1280, 900).await;
        let weak = browser.run(CONTRAST, json!([])).await;
        assert_eq!(weak, none, "{view}, {scheme:?}: too little contrast");
    }
    let wrong = browser.run(STRUCTURE, json!([])).await;
    assert_eq!(wrong, none, "{view}");
    let accessible = browser.accessible().await;
    assert!(accessible.len() > 10, "{accessible:?}");
    for (role, name) in &accessible {
        let silent = NAMED.contains(&role.as_str()) && name.trim().is_empty();
        assert!(!silent, "{view}: a {role} without a name in {accessible:?}");
    }
    // 640 is what is left of 1280 at 200 %.
    for width in [640, 400, 320] {
        browser.look(Scheme::Light, width, 900).await;
        let over = "return [document.documentElement.scrollWidth, innerWidth]";
        let over: Value = browser.run(over, json!([])).await;
        assert_eq!(over[0], over[1], "{view}: scrolls sideways at {width} px");
    }
    browser.look(Scheme::Light, 1280, 900).await;
}

#[tokio::test]
async fn every_view_has_names_contrast_and_structure_and_fits_a_narrow_window() {
    let stage = Stage::start().await;
    let long = format!("sensors/{}", "very-long-name".repeat(20));
    stage
        .publish([
            Publish::new("sensors/kiln", r#"{"value":1}"#),
            Publish::new(long, "x".repeat(5_000)),
        ])
        .await;
    stage.dead_letters(2).await;
    let desk = Desk::at(&stage).await;
    checked(&desk, "login").await;
    desk.log_in(crate::stage::TOKEN).await;
    desk.browser
        .sees("telemetry/cloud has 2 dead letters.")
        .await;
    checked(&desk, "overview").await;
    for (view, shows) in [
        ("#/dead-letters", "2 dead letters"),
        ("#/dead-letters?search=nothing", "No dead letter matches."),
        ("#/dead-letters?when=between", "Until"),
        ("#/dead-letters?search=a%23", "topic: "),
        ("#/jobs", "Jobs"),
        ("#/test-message", "Payload"),
        ("#/somewhere", "There is nothing here"),
    ] {
        desk.go(view).await;
        desk.browser.sees(shows).await;
        checked(&desk, view).await;
    }
    desk.go("#/dead-letters").await;
    desk.click("a", "sensors/kiln").await;
    desk.browser.sees("\"value\": 1").await;
    checked(&desk, "dead letter").await;
    for what in ["Redrive", "Delete"] {
        desk.click("button", what).await;
        desk.browser.sees(&format!("{what} 1 dead letter?")).await;
        checked(&desk, what).await;
        desk.click("button", "Cancel").await;
    }
    desk.click("button", "Redrive").await;
    desk.browser.sees("Redrive 1 dead letter?").await;
    desk.click("button", "Redrive").await;
    desk.browser.sees("1 deferred").await;
    checked(&desk, "results").await;
}
