//! Keys that are no characters, and pressing them.

use serde_json::{Value, json};

/// The tabulator: to the next control.
pub const TAB: &str = "\u{e004}";
/// The tabulator with shift: to the control before.
pub const SHIFT_TAB: &str = "\u{e008}\u{e004}";
/// The enter key.
pub const ENTER: &str = "\u{e007}";
/// The escape key.
pub const ESCAPE: &str = "\u{e00c}";
/// The backspace key.
pub const BACKSPACE: &str = "\u{e003}";
/// The space bar.
pub const SPACE: &str = " ";

const SHIFT: char = '\u{e008}';

/// Each key goes down and up; shift stays down to the end.
pub(super) fn actions(keys: &str) -> Value {
    let mut steps = Vec::new();
    let shifted = keys.contains(SHIFT);
    for key in keys.chars() {
        steps.push(json!({ "type": "keyDown", "value": key.to_string() }));
        if key != SHIFT {
            steps.push(json!({ "type": "keyUp", "value": key.to_string() }));
        }
    }
    if shifted {
        steps.push(json!({ "type": "keyUp", "value": SHIFT.to_string() }));
    }
    json!({ "actions": [{ "type": "key", "id": "keyboard", "actions": steps }] })
}
