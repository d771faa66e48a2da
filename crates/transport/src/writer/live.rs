//! A connection that messages can be published on, and the answers that come back.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};

use bridge_core::{
    Acknowledgement, Admitted, Answer, Limits, Link, LocalRefusal, Message, NotAdmitted,
    Properties, ReasonCode, Unanswered, Verdict,
};
use rumqttc::mqttbytes::v5::Packet;
use rumqttc::{
    AsyncClient, ClientError, Event, Outgoing, PublishNotice, PublishNoticeError, PublishOptions,
    PublishResult, ValidatedTopic,
};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;
use tracing::warn;

use super::in_flight::InFlight;
use crate::connection::{Handler, Welcome};
use crate::convert::{to_wire_properties, to_wire_qos};
use crate::gate::Pass;
use crate::guard::{Marker, Said, Witness};
use crate::link::LinkState;
use crate::packet::{self, GivenUp, Policies};
use crate::stats::Counters;
use crate::{Protocol, SessionConfig};

type Notice = Pin<Box<dyn Future<Output = Result<PublishResult, PublishNoticeError>> + Send>>;

/// What publishing on one connection needs.
#[derive(Debug)]
pub(super) struct Live {
    marker: Marker,
    witness: Arc<Witness>,
    counters: Arc<Counters>,
    config: Arc<SessionConfig>,
    pass: Pass,
    /// What the messages of this connection have given up, as far as the log has been told.
    announced: Mutex<GivenUp>,
    /// Known with the CONNACK.
    limits: OnceLock<Limits>,
    window: Arc<Semaphore>,
    closing: AtomicBool,
    admission: Mutex<Admission>,
    /// Answers that nobody waits for any more, but whose place in the window is still taken.
    abandoned: TaskTracker,
    runtime: Handle,
}

/// The way into the library.
#[derive(Debug)]
struct Admission {
    /// `None` once the connection has ended: what the library has not taken yet waits in a channel
    /// that lives, with every claim on an answer in it, for as long as anyone could send.
    client: Option<AsyncClient>,
    /// How many messages were handed over; the library writes them in this order.
    count: u64,
}

impl Live {
    pub(super) fn new(
        client: AsyncClient,
        marker: Marker,
        witness: Arc<Witness>,
        counters: Arc<Counters>,
        config: Arc<SessionConfig>,
        pass: Pass,
    ) -> Self {
        Self {
            marker,
            witness,
            counters,
            config,
            pass,
            announced: Mutex::default(),
            limits: OnceLock::new(),
            window: Arc::new(Semaphore::new(0)),
            closing: AtomicBool::new(false),
            admission: Mutex::new(Admission {
                client: Some(client),
                count: 0,
            }),
            abandoned: TaskTracker::new(),
            runtime: Handle::current(),
        }
    }

    fn admission(&self) -> MutexGuard<'_, Admission> {
        self.admission
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn welcomed(&self, limits: Limits) {
        if self.limits.set(limits).is_ok() {
            self.window.add_permits(usize::from(limits.window));
        }
    }

    /// Waits for a place in the window; places are given in the order of the calls.
    pub(super) async fn publish(
        self: Arc<Self>,
        mut message: Message,
    ) -> Result<Admitted, NotAdmitted> {
        let properties_lost =
            self.config.protocol == Protocol::V311 && message.properties != Properties::default();
        if properties_lost {
            message.properties = Properties::default();
        }
        let limits = self.limits.get().ok_or(NotAdmitted::LinkDown)?;
        let policies = Policies {
            qos: self.config.qos_unavailable,
            retain: self.config.retain_unavailable,
        };
        let given_up = packet::adapt(&mut message, limits, policies);
        packet::check(&message, limits).map_err(NotAdmitted::Refused)?;
        let window = Arc::clone(&self.window);
        let Ok(place) = window.acquire_owned().await else {
            return Err(NotAdmitted::LinkDown);
        };
        if self.closing.load(Ordering::Acquire) {
            return Err(NotAdmitted::LinkDown);
        }
        let admitted = Arc::clone(&self).hand_over(message, place)?;
        self.counters
            .properties_lost
            .add(u64::from(properties_lost));
        if given_up != GivenUp::default() {
            self.count(given_up);
        }
        Ok(admitted)
    }

    /// Counts what a message has given up; the log says it once per connection.
    fn count(&self, given_up: GivenUp) {
        self.counters.qos_downgraded.add(given_up.qos.into());
        self.counters.retain_stripped.add(given_up.retain.into());
        let mut announced = self
            .announced
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let new = GivenUp {
            qos: given_up.qos && !announced.qos,
            retain: given_up.retain && !announced.retain,
        };
        announced.qos |= new.qos;
        announced.retain |= new.retain;
        drop(announced);
        if new != GivenUp::default() {
            warn!(
                event = "message_adapted",
                session = %self.config.name,
                broker = %self.config.brokers,
                qos_downgraded = new.qos,
                retain_stripped = new.retain,
                "the broker does not take messages as they are: by policy they are sent with a \
                 lower QoS, or without their retain flag, and counted"
            );
        }
    }

    fn hand_over(
        self: Arc<Self>,
        message: Message,
        place: OwnedSemaphorePermit,
    ) -> Result<Admitted, NotAdmitted> {
        let (number, notice) = self.send(message)?;
        self.counters.admitted.add(1);
        Ok(Box::pin(Ticket {
            number,
            notice: Some(Box::pin(notice.wait_async())),
            place: Some(place),
            live: self,
        }))
    }

    /// Says what the session says of itself, in its turn. It takes a place in the window, and is
    /// none of the messages that are counted.
    pub(super) fn announce(self: &Arc<Self>, mut status: Message) {
        let live = Arc::clone(self);
        let Some(limits) = self.limits.get() else {
            return;
        };
        packet::adapt(&mut status, limits, Policies::LENIENT);
        // Right after the CONNACK there is a place: nobody else has been let in yet.
        let at_once = Arc::clone(&self.window).try_acquire_owned().ok();
        let said_now = at_once.map(|place| (place, self.send(status.clone())));
        let said = async move {
            let (place, sent) = match said_now {
                Some(said) => said,
                None => match Arc::clone(&live.window).acquire_owned().await {
                    Ok(place) if !live.closing.load(Ordering::Acquire) => {
                        (place, live.send(status))
                    }
                    // The connection is over, or about to be: there is another thing to say.
                    _ => return,
                },
            };
            let heard = match sent {
                Ok((_, notice)) => live.heard(notice.wait_async().await),
                Err(_) => None,
            };
            drop(place);
            if let Some((by, (code, reason_string))) = heard
                && Verdict::of(by, code) != Verdict::Accepted
            {
                live.config.status_refused(code, reason_string.as_deref());
            }
        };
        self.abandoned.spawn_on(said, &self.runtime);
    }

    /// Gives a message to the library: its number, and the claim on its answer.
    fn send(&self, message: Message) -> Result<(u64, PublishNotice), NotAdmitted> {
        let topic = ValidatedTopic::new(message.topic.as_str())
            .map_err(|_| NotAdmitted::Refused(LocalRefusal::TopicInvalid))?;
        let mut options = PublishOptions::new(to_wire_qos(message.qos)).retain(message.retain);
        if let Some(properties) = to_wire_properties(message.properties) {
            options = options.properties(properties);
        }
        // Number and place in the library's channel are taken together, so that the number says
        // how many PUBLISH packets go before this one.
        let mut admission = self.admission();
        let client = admission.client.as_ref().ok_or(NotAdmitted::LinkDown)?;
        let notice = client
            .try_publish_tracked(topic, message.payload, options)
            .map_err(|error| not_admitted(&error))?;
        admission.count += 1;
        Ok((admission.count, notice))
    }

    /// Takes nothing more, and ends when all that was admitted has been answered.
    pub(super) async fn answered(&self) {
        self.closing.store(true, Ordering::Release);
        let places = self.limits.get().map_or(0, |limits| limits.window);
        // An error says that the connection has ended, and with it every answer.
        let _ = self.window.acquire_many(u32::from(places)).await;
    }

    /// Ends when nobody's answer is outstanding any more; the connection has ended before.
    pub(super) async fn over(&self) {
        self.abandoned.close();
        self.abandoned.wait().await;
    }

    fn answer(&self, number: u64, result: Result<PublishResult, PublishNoticeError>) -> Answer {
        let Some((by, (code, reason_string))) = self.heard(result) else {
            self.counters.unanswered.add(1);
            return Answer::Unanswered(if self.witness.publishes_begun() < number {
                Unanswered::NeverSent
            } else if self.pass.is_over() {
                Unanswered::SteppedDown
            } else {
                Unanswered::MayHaveBeenSent
            });
        };
        self.counters.answered.add(1);
        let accepted = Verdict::of(by, code) == Verdict::Accepted;
        self.counters.refused.add(u64::from(!accepted));
        Answer::Answered {
            by,
            code,
            reason_string,
        }
    }

    /// What the broker said; `None` when it said nothing.
    fn heard(
        &self,
        result: Result<PublishResult, PublishNoticeError>,
    ) -> Option<(Acknowledgement, Said)> {
        Some(match result {
            // After a failed write the guard only pretends.
            Ok(PublishResult::Qos0Flushed) if self.witness.write_failed() => return None,
            Ok(PublishResult::Qos0Flushed) => {
                (Acknowledgement::Written, (ReasonCode::SUCCESS, None))
            }
            Ok(PublishResult::Qos1(ack)) => {
                let said = ack.properties.map(|p| (p.user_properties, p.reason_string));
                let said = self.said(ack.reason as u8, said.unwrap_or_default());
                (Acknowledgement::PubAck, said)
            }
            Ok(PublishResult::Qos2PubRecRejected(ack)) => {
                let said = ack.properties.map(|p| (p.user_properties, p.reason_string));
                let said = self.said(ack.reason as u8, said.unwrap_or_default());
                (Acknowledgement::PubRec, said)
            }
            Ok(PublishResult::Qos2Completed(ack)) => {
                let said = ack.properties.map(|p| (p.user_properties, p.reason_string));
                let said = self.said(ack.reason as u8, said.unwrap_or_default());
                (Acknowledgement::PubComp, said)
            }
            Err(_) => return None,
        })
    }

    fn said(
        &self,
        code: u8,
        (user_properties, reason_string): (Vec<(String, String)>, Option<String>),
    ) -> Said {
        (self.marker.true_code(code, &user_properties), reason_string)
    }
}

/// Takes the link down: nothing more is admitted, who waits for a place is told so.
pub(super) fn take_down(link: &LinkState, live: &Mutex<Option<Arc<Live>>>) {
    let live = live.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(live) = live {
        live.window.close();
        live.admission().client = None;
    }
    link.set(Link::Down);
}

/// The channel to the library has room for the whole window, so there is one reason: it is gone.
fn not_admitted(error: &ClientError) -> NotAdmitted {
    match error {
        ClientError::InvalidRequest(_) => NotAdmitted::Refused(LocalRefusal::TopicInvalid),
        _ => NotAdmitted::LinkDown,
    }
}

/// An admitted message's claim on its answer.
struct Ticket {
    /// From 1, in the order of admission.
    number: u64,
    notice: Option<Notice>,
    place: Option<OwnedSemaphorePermit>,
    live: Arc<Live>,
}

impl Future for Ticket {
    type Output = Answer;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let this = self.get_mut();
        let Some(notice) = &mut this.notice else {
            return Poll::Pending;
        };
        let result = ready!(notice.as_mut().poll(cx));
        this.notice = None;
        this.place = None;
        Poll::Ready(this.live.answer(this.number, result))
    }
}

impl Drop for Ticket {
    /// Nobody waits for the answer any more; the broker still counts the message as open.
    fn drop(&mut self) {
        if let (Some(notice), Some(place)) = (self.notice.take(), self.place.take()) {
            let waiting = async move {
                let _ = notice.await;
                drop(place);
            };
            self.live.abandoned.spawn_on(waiting, &self.live.runtime);
        }
    }
}

/// The connection's side of it.
pub(super) struct Publishing {
    epoch: u64,
    link: Arc<LinkState>,
    current: Arc<Mutex<Option<Arc<Live>>>>,
    in_flight: Arc<InFlight>,
    live: Arc<Live>,
    birth: Option<Message>,
}

impl Publishing {
    pub(super) fn new(
        epoch: u64,
        link: Arc<LinkState>,
        current: Arc<Mutex<Option<Arc<Live>>>>,
        in_flight: Arc<InFlight>,
        live: Live,
        birth: Option<Message>,
    ) -> Self {
        Self {
            epoch,
            link,
            current,
            in_flight,
            live: Arc::new(live),
            birth,
        }
    }
}

impl Handler for Publishing {
    fn connected(&mut self, welcome: &Welcome) {
        self.live.welcomed(welcome.limits);
        if let Some(birth) = self.birth.take() {
            self.live.announce(birth);
        }
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        *current = Some(Arc::clone(&self.live));
        drop(current);
        self.link.set(Link::Up {
            epoch: self.epoch,
            limits: welcome.limits,
        });
    }

    async fn handle(&mut self, event: Event) {
        match event {
            Event::Outgoing(Outgoing::Publish(id) | Outgoing::PubRel(id)) if id != 0 => {
                self.in_flight.waits(id);
            }
            Event::Incoming(Packet::PubAck(ack)) => self.in_flight.answered(ack.pkid),
            Event::Incoming(Packet::PubComp(ack)) => self.in_flight.answered(ack.pkid),
            Event::Incoming(Packet::PubRec(ack)) if ack.reason as u8 >= 0x80 => {
                self.in_flight.answered(ack.pkid);
            }
            _ => {}
        }
    }
}

impl Drop for Publishing {
    /// The link is down before the library drops the claims on its answers.
    fn drop(&mut self) {
        take_down(&self.link, &self.current);
    }
}
