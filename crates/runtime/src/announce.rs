//! The log names a refused topic once per reason; counters carry the rate (I26).

use std::collections::HashSet;

use bridge_core::{Reason, Topic};

/// How many pairs of topic and reason one binding remembers. Beyond it nothing new is announced
/// until the next start: strangers choose topics, and memory and log are bounded.
const MOST: usize = 1_024;

/// What a binding has already said.
#[derive(Debug, Default)]
pub(crate) struct Announced(HashSet<(Topic, Reason)>);

impl Announced {
    /// Whether this pair is to be announced: the first time it is.
    pub(crate) fn is_new(&mut self, topic: &Topic, reason: Reason) -> bool {
        if self.0.len() >= MOST {
            return false;
        }
        self.0.insert((topic.clone(), reason))
    }
}

#[cfg(test)]
mod tests {
    use bridge_core::ReasonCode;

    use super::*;

    #[test]
    fn i26_a_topic_is_announced_once_per_reason_with_bounded_memory() {
        let mut announced = Announced::default();
        let topic = Topic::parse("a").unwrap();
        let denied = Reason::Broker(ReasonCode::NOT_AUTHORIZED);
        assert!(announced.is_new(&topic, denied));
        assert!(!announced.is_new(&topic, denied));
        assert!(announced.is_new(&topic, Reason::Expired));
        for n in 0..10 * MOST {
            announced.is_new(&Topic::parse(&format!("t/{n}")).unwrap(), denied);
        }
        assert_eq!(announced.0.len(), MOST);
    }
}
