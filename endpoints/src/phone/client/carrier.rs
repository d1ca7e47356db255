//! The task that owns one link of a client: it writes what is queued and hands over what comes.

use crate::{
    link::{Ended, Link, LinkReceiver, LinkSender},
    phone::CLOSE_FRAME_WAIT,
};
use tokio::{sync::mpsc, task::JoinHandle, time::timeout};
use tokio_tungstenite::tungstenite::Utf8Bytes;

/// Frames that came and that nobody has looked at; the relay's socket is read no further then.
const NEWS_MAX: usize = 64;

/// What comes of a link, its end last.
pub(super) enum News {
    Frame(Utf8Bytes),
    Ended(Ended),
}

/// A link in a task of its own. Dropping it ends the link at once.
pub(super) struct Carrier {
    /// Unbounded, and yet bounded by who fills it: a frame for each of the open calls, of which there are few, and leases.
    frames: Option<mpsc::UnboundedSender<String>>,
    news: mpsc::Receiver<News>,
    task: JoinHandle<()>,
}

impl Carrier {
    pub(super) fn start(link: Link) -> Self {
        let (frames, queue) = mpsc::unbounded_channel();
        let (sender, news) = mpsc::channel(NEWS_MAX);
        let task = tokio::spawn(async move {
            let ended = carry(link, queue, &sender).await;
            // Whoever has dropped this needs no news.
            let _ = sender.send(News::Ended(ended)).await;
        });
        Carrier { frames: Some(frames), news, task }
    }

    pub(super) fn send(&self, frame: String) {
        if let Some(frames) = &self.frames {
            // A link that has ended says so in its news.
            let _ = frames.send(frame);
        }
    }

    /// What comes next. Cancelling loses nothing.
    pub(super) async fn next(&mut self) -> News {
        self.news.recv().await.unwrap_or_else(|| News::Ended(Ended::Lost("the link's task failed".to_owned())))
    }

    /// Sends what is queued and says goodbye, and waits a moment for the answer.
    pub(super) async fn close(mut self) {
        self.frames = None;
        let ended = async { while let News::Frame(_) = self.next().await {} };
        // Whatever the outcome, the link is dropped next.
        let _ = timeout(CLOSE_FRAME_WAIT, ended).await;
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(link: Link, queue: mpsc::UnboundedReceiver<String>, news: &mpsc::Sender<News>) -> Ended {
    let (sender, mut receiver) = link.split();
    tokio::select! {
        ended = read(&mut receiver, news) => ended,
        failed = write(sender, queue) => {
            // The relay's close frame says more than "broken pipe" does.
            let ended = receiver.ending(CLOSE_FRAME_WAIT).await;
            if matches!(ended, Ended::Closed { .. }) { ended } else { failed }
        }
    }
}

async fn read(receiver: &mut LinkReceiver, news: &mpsc::Sender<News>) -> Ended {
    loop {
        match receiver.receive().await {
            Ok(text) => {
                // Whoever has dropped this needs no news.
                let _ = news.send(News::Frame(text)).await;
            }
            Err(ended) => return ended,
        }
    }
}

async fn write(mut sender: LinkSender, mut queue: mpsc::UnboundedReceiver<String>) -> Ended {
    while let Some(frame) = queue.recv().await {
        if let Err(ended) = sender.send(frame).await {
            return ended;
        }
    }
    sender.close().await;
    // The reading side sees the answer, or the carrier is dropped; either ends this task too.
    std::future::pending().await
}
