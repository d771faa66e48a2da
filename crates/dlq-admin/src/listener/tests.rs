use axum::routing::{get, post};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

const SHORT: Duration = Duration::from_millis(100);

struct Serving {
    address: SocketAddr,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

async fn serving(connections: usize, routes: Router) -> Serving {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let limits = Limits {
        connections,
        head: SHORT,
        stall: SHORT,
        lifetime: Duration::from_secs(60),
        last_request: SHORT,
    };
    let stop = CancellationToken::new();
    let serving = serve(
        listener,
        None,
        routes,
        limits,
        stop.clone(),
        Duration::from_secs(20),
    );
    Serving {
        address,
        stop,
        task: tokio::spawn(serving),
    }
}

fn routes() -> Router {
    Router::new()
        .route("/", get(|| async { "ok" }))
        .route("/much", get(|| async { vec![b'x'; 64 << 20] }))
        .route("/refused", post(|| async { "not now" }))
}

async fn answer(mut stream: TcpStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

const ASK: &str = "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";

#[tokio::test]
async fn connections_that_say_nothing_or_say_it_slowly_make_room_for_the_next() {
    let serving = serving(2, routes()).await;
    let mut slow = Vec::new();
    for number in 0..6 {
        let mut stream = TcpStream::connect(serving.address).await.unwrap();
        if number % 2 == 0 {
            stream.write_all(b"GET / HTT").await.unwrap();
        }
        slow.push(stream);
    }
    let stream = TcpStream::connect(serving.address).await.unwrap();
    let answer = answer(stream, ASK).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    for mut stream in slow {
        // The end, or a reset: either way it is not held any more.
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
    serving.task.abort();
}

#[tokio::test]
async fn an_idle_connection_ends_after_its_request() {
    let serving = serving(2, routes()).await;
    let stream = TcpStream::connect(serving.address).await.unwrap();
    let answer = answer(stream, "GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    serving.task.abort();
}

#[tokio::test]
async fn who_does_not_read_its_answer_loses_it() {
    let serving = serving(1, routes()).await;
    let mut unread = TcpStream::connect(serving.address).await.unwrap();
    let ask = "GET /much HTTP/1.1\r\nhost: x\r\n\r\n";
    unread.write_all(ask.as_bytes()).await.unwrap();
    // The only place is free again.
    let stream = TcpStream::connect(serving.address).await.unwrap();
    let answer = answer(stream, ASK).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    drop(unread);
    serving.task.abort();
}

#[tokio::test]
async fn who_is_answered_before_its_body_has_come_sees_the_answer() {
    let serving = serving(1, routes()).await;
    let mut stream = TcpStream::connect(serving.address).await.unwrap();
    let length = 32 << 20;
    let head = format!("POST /refused HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    // All of it, before anything is read.
    stream.write_all(&vec![b'x'; length]).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("not now"), "{answer}");
    serving.task.abort();
}

#[tokio::test]
async fn who_sends_its_body_when_it_was_answered_already_sees_the_answer() {
    let serving = serving(1, routes()).await;
    let mut stream = TcpStream::connect(serving.address).await.unwrap();
    let length = 1 << 20;
    let head = format!("POST /refused HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    // The answer is there, and is not looked at before everything is sent.
    stream.readable().await.unwrap();
    for part in vec![b'x'; length].chunks(64 << 10) {
        stream.write_all(part).await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("not now"), "{answer}");
    drop(stream);
    // Who goes without sending the rest is not waited for, and who stays is not for long.
    let began = std::time::Instant::now();
    for stays in [false, true] {
        let mut stream = TcpStream::connect(serving.address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("not now"), "{answer}");
        let _stays = stays.then_some(stream);
        let next = TcpStream::connect(serving.address).await.unwrap();
        assert!(self::answer(next, ASK).await.starts_with("HTTP/1.1 200"));
        assert_eq!(began.elapsed() >= LINGER, stays);
    }
    serving.task.abort();
}

#[tokio::test]
async fn a_stop_lets_the_request_under_way_end() {
    let (begun, begins) = tokio::sync::oneshot::channel();
    let (go, goes) = tokio::sync::oneshot::channel::<()>();
    let once = Arc::new(std::sync::Mutex::new(Some((begun, goes))));
    let routes = Router::new().route(
        "/",
        get(move || {
            let (begun, goes) = once.lock().unwrap().take().unwrap();
            async move {
                begun.send(()).unwrap();
                goes.await.unwrap();
                "ended well"
            }
        }),
    );
    let serving = serving(2, routes).await;
    let stream = TcpStream::connect(serving.address).await.unwrap();
    let asking = tokio::spawn(answer(stream, "GET / HTTP/1.1\r\nhost: x\r\n\r\n"));
    begins.await.unwrap();
    serving.stop.cancel();
    go.send(()).unwrap();
    assert!(asking.await.unwrap().ends_with("ended well"));
    serving.task.await.unwrap();
    assert!(TcpStream::connect(serving.address).await.is_err());
}
