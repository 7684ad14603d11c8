//! A WebSocket client that speaks frames, for checks below the SDKs.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::wait::within;

/// A connected client.
#[derive(Debug)]
pub struct Client {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
}

/// What a client gets.
#[derive(Debug, Clone, PartialEq)]
pub enum Frame {
    /// A text frame.
    Text(String),
    /// A binary frame.
    Binary(Vec<u8>),
    /// The server closed, with its code and reason.
    Closed(Option<(u16, String)>),
}

impl Client {
    /// Connects to `url`.
    pub async fn connect(url: &str) -> Self {
        Self::try_connect(url).await.unwrap()
    }

    /// Connects; `None` where nobody answers, or refuses.
    pub async fn open(url: &str) -> Option<Self> {
        let (socket, _) = connect_async(url).await.ok()?;
        Some(Self { socket })
    }

    /// Connects, or gives the status of the refusal.
    pub async fn try_connect(url: &str) -> Result<Self, u16> {
        match within("the WebSocket handshake", connect_async(url)).await {
            Ok((socket, _)) => Ok(Self { socket }),
            Err(tokio_tungstenite::tungstenite::Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("connect: {error}"),
        }
    }

    /// Sends a text frame.
    pub async fn send(&mut self, text: impl Into<String>) {
        self.socket.send(Message::text(text.into())).await.unwrap();
    }

    /// Sends a JSON text frame.
    pub async fn send_json(&mut self, value: &Value) {
        self.send(value.to_string()).await;
    }

    /// Sends a JSON text frame; false where the connection is gone.
    pub async fn try_send(&mut self, value: &Value) -> bool {
        self.socket.send(Message::text(value.to_string())).await.is_ok()
    }

    /// Sends a binary frame.
    pub async fn send_binary(&mut self, bytes: Vec<u8>) {
        self.socket.send(Message::binary(bytes)).await.unwrap();
    }

    /// The next frame; pings are answered on the way.
    pub async fn next(&mut self) -> Frame {
        within("a frame", self.next_unbounded()).await
    }

    /// The next frame if one comes in time. For measuring, not for proving an absence.
    pub async fn next_within(&mut self, deadline: Duration) -> Option<Frame> {
        tokio::time::timeout(deadline, self.next_unbounded()).await.ok()
    }

    /// The next text frame's raw text.
    pub async fn next_text(&mut self) -> String {
        match self.next().await {
            Frame::Text(text) => text,
            other => panic!("expected a text frame, got {other:?}"),
        }
    }

    /// The next text frame as JSON.
    pub async fn next_json(&mut self) -> Value {
        serde_json::from_str(&self.next_text().await).unwrap()
    }

    /// Reads until a frame fits, and gives it with all that came before.
    pub async fn until(&mut self, what: &str, mut fits: impl FnMut(&Value) -> bool) -> (Value, Vec<Value>) {
        let mut before = Vec::new();
        let reading = async {
            loop {
                let frame = self.next_json().await;
                if fits(&frame) {
                    return frame;
                }
                before.push(frame);
            }
        };
        let frame = within(what, reading).await;
        (frame, before)
    }

    /// Closes the connection.
    pub async fn close(mut self) {
        let _ = self.socket.close(None).await;
    }

    /// The next frame, however long it takes; pings are answered on the way. Nothing is lost where the wait is given up.
    pub async fn next_unbounded(&mut self) -> Frame {
        loop {
            match self.socket.next().await {
                Some(Ok(Message::Text(text))) => return Frame::Text(text.to_string()),
                Some(Ok(Message::Binary(bytes))) => return Frame::Binary(bytes.to_vec()),
                Some(Ok(Message::Close(frame))) => return Frame::Closed(frame.map(closed)),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Frame::Closed(None),
            }
        }
    }
}

fn closed(frame: CloseFrame) -> (u16, String) {
    (frame.code.into(), frame.reason.to_string())
}
