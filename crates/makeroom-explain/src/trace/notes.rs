//! What the reader should know about a recording itself: what it lacks, and what else it shows.

use makeroom_core::Bytes;

use super::Subject;
use super::history::History;

impl Subject<'_> {
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = self.trace.notes.clone();
        let older: Bytes = self.history.start.live();
        if older >= Bytes::mib(1) && !self.device.events.is_empty() {
            notes.push(format!(
                "the recording started late: {older} was already live, and has no stack unless it is live at the end"
            ));
        }
        if self.device.overflowed == Some(true) {
            notes.push("the recorder's ring buffer overflowed: the oldest events are lost".to_owned());
        }
        if let Some(host) = &self.trace.host {
            let peak = History::new(host, &[]).peak_live;
            notes.push(format!("PyTorch also had up to {peak} of pinned host memory"));
        }
        match self.history.start.unmatched_frees {
            0 => {}
            1 => notes.push("1 free has no matching allocation in this recording".to_owned()),
            count => notes.push(format!("{count} frees have no matching allocation in this recording")),
        }
        notes
    }
}
