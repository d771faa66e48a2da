//! Messages that were offered and wait for their answers.

use bridge_core::{Answer, BoxFuture};
use futures_util::future::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::task::unconstrained;

/// Futures of answers, each with what it is the answer to.
///
/// Many resolve at once, when a destination answers a whole window. They are told in the order of
/// the offers then: what is refused together becomes dead letters in its own order.
pub(super) struct UnderWay<T> {
    answers: FuturesUnordered<BoxFuture<'static, (u64, T, Answer)>>,
    offered: u64,
}

impl<T: Send + 'static> UnderWay<T> {
    pub(super) fn new() -> Self {
        Self {
            answers: FuturesUnordered::new(),
            offered: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.answers.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    /// One more was offered, after all that were.
    pub(super) fn push(&mut self, item: T, answer: BoxFuture<'static, Answer>) {
        let number = self.offered;
        self.offered += 1;
        // Unconstrained: no answer that is there is passed over for the next one.
        let answered = async move { (number, item, unconstrained(answer).await) };
        self.answers.push(Box::pin(answered));
    }

    /// All that are answered by the time at which one is, in the order of the offers; never, when
    /// nothing is under way. Nothing is lost when the future is dropped.
    pub(super) async fn answered(&mut self) -> Vec<(T, Answer)> {
        let Some(first) = self.answers.next().await else {
            return std::future::pending().await;
        };
        let mut answered = vec![first];
        while let Some(Some(next)) = self.answers.next().now_or_never() {
            answered.push(next);
        }
        answered.sort_unstable_by_key(|(number, ..)| *number);
        let told = answered.into_iter();
        told.map(|(_, item, answer)| (item, answer)).collect()
    }
}

#[cfg(test)]
mod tests {
    use bridge_core::Unanswered;
    use tokio::sync::oneshot;

    use super::*;

    fn offer(under_way: &mut UnderWay<u32>, item: u32) -> oneshot::Sender<()> {
        let (answer, answered) = oneshot::channel();
        let wait = async move {
            answered.await.unwrap();
            Answer::Unanswered(Unanswered::NeverSent)
        };
        under_way.push(item, Box::pin(wait));
        answer
    }

    fn told(under_way: &mut UnderWay<u32>) -> Option<Vec<u32>> {
        let answered = under_way.answered().now_or_never()?;
        Some(answered.into_iter().map(|(item, _)| item).collect())
    }

    #[test]
    fn what_is_answered_together_is_told_in_the_order_of_the_offers() {
        let mut under_way = UnderWay::new();
        let mut answers: Vec<_> = (0..3).map(|n| offer(&mut under_way, n)).collect();
        // These have been looked at, and wait to be woken; those that follow have not.
        assert_eq!(told(&mut under_way), None);
        answers.extend((3..6).map(|n| offer(&mut under_way, n)));
        let late = answers.remove(1);
        for answer in answers {
            answer.send(()).unwrap();
        }
        assert_eq!(told(&mut under_way), Some(vec![0, 2, 3, 4, 5]));
        assert_eq!((told(&mut under_way), under_way.len()), (None, 1));
        late.send(()).unwrap();
        assert_eq!(told(&mut under_way), Some(vec![1]));
        assert!(under_way.is_empty());
    }
}
