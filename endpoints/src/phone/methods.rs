//! What a phone must know of a method: whether it needs an idempotency key, and how long to wait.

use std::time::Duration;

/// Whether the contract demands an idempotency key.
pub(super) fn is_mutation(method: &str) -> bool {
    MUTATIONS.contains(&method)
}

/// How long a phone waits for the final answer: longer than the desktop needs, shorter than the relay keeps the record.
/// Seed: 60 s; 115 s for the two initial timeline loads, for which the desktop takes up to 108 s.
pub fn deadline(method: &str) -> Duration {
    match method {
        "run.chatLoad" | "run.chatLoadThread" => Duration::from_secs(115),
        _ => Duration::from_secs(60),
    }
}

const MUTATIONS: [&str; 25] = [
    "system.activateCodexAuthProfile",
    "system.activateClaudeAccount",
    "system.updateVoiceVocabulary",
    "system.updateReplyStyle",
    "session.create",
    "session.rename",
    "session.archive",
    "session.restore",
    "session.delete",
    "session.updateSettings",
    "session.syncHistoryState",
    "session.markRead",
    "run.chatOutboxSubmit",
    "run.chatOutboxStopAndSendNow",
    "run.chatOutboxUpdate",
    "run.chatOutboxRemove",
    "run.cancel",
    "run.chatResolveApproval",
    "run.chatCompact",
    "files.saveChatAttachment",
    "files.beginChatAttachmentUpload",
    "files.appendChatAttachmentUploadChunk",
    "files.finishChatAttachmentUpload",
    "files.cancelChatAttachmentUpload",
    "files.deleteChatAttachment",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_initial_loads_wait_longer() {
        assert_eq!(deadline("run.chatLoad").as_secs(), 115);
        assert_eq!(deadline("run.chatLoadThread").as_secs(), 115);
        assert_eq!(deadline("run.chatLoadPageBefore").as_secs(), 60);
        assert_eq!(deadline("no.such").as_secs(), 60);
    }

    #[test]
    fn mutations_are_told_from_reads() {
        assert!(is_mutation("run.cancel"));
        assert!(!is_mutation("system.ping"));
        assert!(!is_mutation("run.cancelled"));
    }
}
