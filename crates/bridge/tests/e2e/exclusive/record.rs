//! What two instances do, seen from outside: every piece that they write to a broker passes a tap
//! on its way, and is noted before the broker has it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bridge_core::{Clock as _, SystemClock, Timestamp};
use bridge_testkit::PortLease;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

/// How long an instance that goes on is kept from learning that the broker has closed.
const KEPT_BACK: Duration = Duration::from_millis(500);

/// How long what an instance writes first is kept from its broker.
const HELD_BACK: Duration = Duration::from_millis(50);

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Who {
    A,
    B,
}

impl Who {
    pub(crate) const BOTH: [Self; 2] = [Self::A, Self::B];

    pub(crate) const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// Which broker, and with that which client id: there is one connection of each instance to each.
pub(crate) type Broker = &'static str;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// So many bytes were written on that connection to that broker; with the first, it connects.
    Wrote(Broker, u64, usize),
    /// That connection is over.
    Closed(Broker, u64),
    /// The process was halted, and goes on.
    Halted,
    Resumed,
    /// The process is no more.
    Ended,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Event {
    pub(crate) at: Timestamp,
    pub(crate) who: Who,
    pub(crate) what: What,
}

/// Events of both instances, in the order in which they were noted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Record(Arc<Mutex<(u64, Vec<Event>)>>);

impl Record {
    pub(crate) fn note(&self, who: Who, what: What) {
        let mut record = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = SystemClock::new().wall();
        record.1.push(Event { at, who, what });
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        self.0.lock().unwrap().1.clone()
    }

    fn is_halted(&self, who: Who) -> bool {
        let events = self.events();
        let of_it = events.iter().rev().filter(|event| event.who == who);
        let mut faults = of_it.filter_map(|event| match event.what {
            What::Halted => Some(true),
            What::Resumed | What::Ended => Some(false),
            What::Wrote(..) | What::Closed(..) => None,
        });
        faults.next().unwrap_or(false)
    }

    fn number(&self) -> u64 {
        let mut record = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        record.0 += 1;
        record.0
    }
}

/// The way of one instance to one broker.
pub(crate) struct Tap {
    port: PortLease,
    cut: broadcast::Sender<()>,
    accepting: JoinHandle<()>,
}

impl Tap {
    pub(crate) async fn start(record: &Record, who: Who, broker: Broker, upstream: u16) -> Self {
        let port = PortLease::take();
        let listener = TcpListener::bind(("127.0.0.1", port.port())).await.unwrap();
        let cut = broadcast::Sender::new(4);
        let (record, cutting) = (record.clone(), cut.clone());
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (record, mut cut) = (record.clone(), cutting.subscribe());
                connections.spawn(async move {
                    let number = record.number();
                    tokio::select! {
                        () = carry(client, upstream, &record, (who, broker, number)) => {}
                        _ = cut.recv() => {}
                    }
                    record.note(who, What::Closed(broker, number));
                });
            }
        });
        Self {
            port,
            cut,
            accepting,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("mqtt://127.0.0.1:{}", self.port.port())
    }

    /// Ends the connections that are open.
    pub(crate) fn cut(&self) {
        let _ = self.cut.send(());
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Moves bytes until the instance closes. When the broker does so first, the connection is over, and what
/// the instance writes all the same is noted.
async fn carry(
    mut client: TcpStream,
    upstream: u16,
    record: &Record,
    (who, broker, number): (Who, Broker, u64),
) {
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", upstream)).await else {
        return;
    };
    for stream in [&client, &server] {
        let _ = stream.set_nodelay(true);
    }
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let outwards = async {
        let mut buffer = vec![0; 64 * 1024];
        // What the other instance did before this one connects is noted before that, also when
        // this process was held up and finds both at once. The broker has it no sooner.
        let _ = from_client.readable().await;
        sleep(HELD_BACK).await;
        while let Ok(count @ 1..) = from_client.read(&mut buffer).await {
            record.note(who, What::Wrote(broker, number, count));
            let _ = to_server.write_all(&buffer[..count]).await;
        }
        let _ = to_server.shutdown().await;
    };
    let inwards = async {
        let _ = tokio::io::copy(&mut from_server, &mut to_client).await;
        record.note(who, What::Closed(broker, number));
        // Who is halted meanwhile is not to find that first when it goes on, as if the broker were
        // behind a wall that has swallowed it.
        if record.is_halted(who) {
            while record.is_halted(who) {
                sleep(Duration::from_millis(10)).await;
            }
            sleep(KEPT_BACK).await;
        }
        let _ = to_client.shutdown().await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = outwards => {}
        () = inwards => {}
    }
}
