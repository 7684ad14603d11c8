//! An endpoint that serves a key set over HTTP, and counts who asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use realtime_node::tasks::Tasks;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A running endpoint.
#[derive(Debug)]
pub struct KeySetServer {
    port: u16,
    fetches: Arc<AtomicUsize>,
    answer: watch::Sender<Answer>,
    tasks: Tasks,
}

/// What the endpoint does with a question.
#[derive(Debug, Clone)]
enum Answer {
    /// 200, with this document.
    Set(String),
    /// 500.
    Fail,
    /// Nothing, until it may answer otherwise.
    Hold,
}

impl KeySetServer {
    /// Serves this document.
    pub async fn start(document: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            port: listener.local_addr().unwrap().port(),
            fetches: Arc::default(),
            answer: watch::Sender::new(Answer::Set(document)),
            tasks: Tasks::new(),
        };
        let (fetches, answer, tasks) = (
            server.fetches.clone(),
            server.answer.clone(),
            server.tasks.clone(),
        );
        server.tasks.spawn("key set server", async move {
            loop {
                let accepted = tokio::select! {
                    () = tasks.cancelled() => return,
                    accepted = listener.accept() => accepted,
                };
                let (stream, _) = accepted.unwrap();
                tasks.spawn(
                    "key set connection",
                    serve(stream, fetches.clone(), answer.subscribe()),
                );
            }
        });
        server
    }

    /// The address, for `jwks_url`. Its query is one that no log may show.
    pub fn url(&self) -> String {
        format!(
            "http://127.0.0.1:{}/keys.json?tenant={}",
            self.port,
            self.marker()
        )
    }

    /// What must stay out of every log.
    pub fn marker(&self) -> &'static str {
        "marker-of-the-key-set-url"
    }

    /// Serves another document from now on.
    pub fn set(&self, document: String) {
        self.answer.send_replace(Answer::Set(document));
    }

    /// Answers with 500 from now on.
    pub fn fail(&self) {
        self.answer.send_replace(Answer::Fail);
    }

    /// Answers nothing until it is told otherwise.
    pub fn hold(&self) {
        self.answer.send_replace(Answer::Hold);
    }

    /// How many questions there were.
    pub fn fetches(&self) -> usize {
        self.fetches.load(Ordering::SeqCst)
    }
}

impl Drop for KeySetServer {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

async fn serve(mut stream: TcpStream, fetches: Arc<AtomicUsize>, mut answer: watch::Receiver<Answer>) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => request.push(byte),
            Err(_) => return,
        }
    }
    fetches.fetch_add(1, Ordering::SeqCst);
    let response = response(&mut answer).await;
    // Whoever asked may have given up.
    let _ = stream.write_all(response.as_bytes()).await;
}

async fn response(answer: &mut watch::Receiver<Answer>) -> String {
    let answered = answer.wait_for(|answer| !matches!(answer, Answer::Hold)).await;
    match answered.as_deref() {
        Ok(Answer::Set(document)) => format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{document}",
            document.len()
        ),
        _ => "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n".to_owned(),
    }
}
