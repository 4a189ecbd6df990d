//! The receiving end of a Subscribe call, with what arrives as text.

use holdfast_proto::gnmi::g_nmi_client::GNmiClient;
use holdfast_proto::gnmi::{self, subscribe_request, subscribe_response};
use prost::Message as _;
use prost::bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use crate::eventually::WAIT_LIMIT;
use crate::gnmi::{Credentials, json_of, parse_path, path_text};

/// Requests under way to the server: the list, and polls.
const REQUESTS_UNDER_WAY: usize = 8;

/// An open subscription.
#[derive(Debug)]
pub struct Subscription {
    requests: mpsc::Sender<gnmi::SubscribeRequest>,
    responses: Streaming<gnmi::SubscribeResponse>,
}

/// A message of a subscription.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    Notification(gnmi::Notification),
    Sync,
    /// The server closed the stream without an error.
    End,
}

/// A list for [`crate::gnmi::GnmiClient::subscribe`]: each path with its mode, `JSON_IETF`.
pub fn subscribe_to(
    mode: gnmi::subscription_list::Mode,
    paths: &[(&str, gnmi::SubscriptionMode)],
) -> gnmi::SubscriptionList {
    let subscription = paths.iter().map(|(path, mode)| gnmi::Subscription {
        path: Some(parse_path(path)),
        mode: (*mode).into(),
        ..Default::default()
    });
    gnmi::SubscriptionList {
        subscription: subscription.collect(),
        mode: mode.into(),
        encoding: gnmi::Encoding::JsonIetf.into(),
        ..Default::default()
    }
}

impl Subscription {
    pub(crate) async fn open(
        mut client: GNmiClient<InterceptedService<Channel, Credentials>>,
        list: gnmi::SubscriptionList,
    ) -> Result<Self, Status> {
        let (requests, received) = mpsc::channel(REQUESTS_UNDER_WAY);
        let first = gnmi::SubscribeRequest {
            request: Some(subscribe_request::Request::Subscribe(list)),
            ..Default::default()
        };
        requests
            .send(first)
            .await
            .map_err(|_| Status::internal("the receiver is in this function"))?;
        let responses = client.subscribe(ReceiverStream::new(received)).await?.into_inner();
        Ok(Self { requests, responses })
    }

    /// Polls a POLL subscription.
    ///
    /// # Panics
    /// When the call has ended.
    pub async fn poll(&self) {
        let poll = gnmi::SubscribeRequest {
            request: Some(subscribe_request::Request::Poll(gnmi::Poll {})),
            ..Default::default()
        };
        self.requests.send(poll).await.expect("the call goes on");
    }

    /// The next message.
    ///
    /// # Errors
    /// The status with which the server ends the stream; `DEADLINE_EXCEEDED` when it is silent for [`WAIT_LIMIT`].
    pub async fn next(&mut self) -> Result<Event, Status> {
        match timeout(WAIT_LIMIT, self.responses.message()).await {
            Err(_) => {
                Err(Status::deadline_exceeded(format!("nothing was told for {WAIT_LIMIT:?}")))
            }
            Ok(message) => Ok(match message?.and_then(|message| message.response) {
                Some(subscribe_response::Response::Update(notification)) => {
                    Event::Notification(decode(notification)?)
                }
                Some(_) => Event::Sync,
                None => Event::End,
            }),
        }
    }

    /// All updates and deletes up to the next sync, one line for each.
    ///
    /// # Panics
    /// When the stream ends before.
    pub async fn until_sync(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            match self.next().await.expect("the stream goes on until sync") {
                Event::Notification(notification) => {
                    lines.extend(notification_lines(&notification))
                }
                Event::Sync => return lines,
                Event::End => panic!("the stream ended before sync; it told {lines:#?}"),
            }
        }
    }

    /// Reads on until the call fails, ignoring updates before that.
    ///
    /// # Panics
    /// When the call ends without an error.
    pub async fn until_refused(&mut self) -> Status {
        loop {
            match self.next().await {
                Ok(Event::Notification(_) | Event::Sync) => {}
                Ok(Event::End) => panic!("the stream ended without an error"),
                Err(status) => return status,
            }
        }
    }

    /// Reads on until a line contains `part`, and returns that line.
    ///
    /// # Panics
    /// When the stream ends or falls silent before.
    pub async fn until(&mut self, part: &str) -> String {
        let lines = self.until_all(&[part]).await;
        lines.into_iter().find(|line| line.contains(part)).unwrap_or_default()
    }

    /// Reads on until each of `parts` was in a line, in any order, and returns all lines.
    ///
    /// # Panics
    /// When the stream ends or falls silent before.
    pub async fn until_all(&mut self, parts: &[&str]) -> Vec<String> {
        let mut lines = Vec::new();
        let mut missing = parts.to_vec();
        loop {
            match self.next().await {
                Ok(Event::Notification(notification)) => {
                    // New lines alone are searched, since a large table takes many messages.
                    let new = notification_lines(&notification);
                    missing.retain(|part| !new.iter().any(|line| line.contains(part)));
                    lines.extend(new);
                }
                Ok(Event::Sync) => {}
                other => panic!("{other:?} while waiting for {missing:?}; told since: {lines:#?}"),
            }
            if missing.is_empty() {
                return lines;
            }
        }
    }

    /// Updates within a period in which nothing should change.
    pub async fn updates_within(&mut self, while_waiting: std::time::Duration) -> Vec<String> {
        let mut lines = Vec::new();
        while let Ok(Some(Ok(message))) = timeout(while_waiting, self.responses.next()).await {
            if let Some(subscribe_response::Response::Update(notification)) = message.response {
                let notification = decode(notification).expect("it is a notification");
                lines.extend(notification_lines(&notification));
            }
        }
        lines
    }
}

fn decode(notification: Bytes) -> Result<gnmi::Notification, Status> {
    gnmi::Notification::decode(notification).map_err(|error| Status::internal(error.to_string()))
}

/// One line for each delete and update: `delete PATH`, `update PATH = JSON`.
pub fn notification_lines(notification: &gnmi::Notification) -> Vec<String> {
    let absolute = |path: Option<&gnmi::Path>| {
        let mut whole = notification.prefix.clone().unwrap_or_default();
        whole.elem.extend(path.iter().flat_map(|path| path.elem.iter().cloned()));
        path_text(&whole)
    };
    let deletes = notification.delete.iter().map(|path| format!("delete {}", absolute(Some(path))));
    let updates = notification.update.iter().map(|update| {
        let value = update.val.as_ref().map(json_of).unwrap_or_default();
        format!("update {} = {value}", absolute(update.path.as_ref()))
    });
    deletes.chain(updates).collect()
}
