//! Explains a recording: its memory (`trace`), and what its process left or missed (`run`).
//!
//! `trace` knows nothing of `run`; this is where both meet.

use makeroom_core::Trace;

use crate::Explanation;
use crate::run;
use crate::trace::{TraceQuestion, explain_memory};

/// Explains a recording.
pub fn explain_trace(trace: &Trace, question: &TraceQuestion) -> Explanation {
    let mut explanation = explain_memory(trace, question);
    if let Some(summary) = run::summarise(trace) {
        run::judge(&mut explanation, &summary);
        run::judge_missing(&mut explanation, &summary);
        explanation.run = Some(summary);
    }
    explanation
}

/// Explains a recording whose process still runs: what it holds now, it may still free.
pub fn explain_running(trace: &Trace, question: &TraceQuestion) -> Explanation {
    let mut explanation = explain_memory(trace, question);
    if let Some(summary) = run::summarise(trace) {
        run::judge_failures(&mut explanation, &summary);
    }
    explanation
}

#[cfg(test)]
mod tests {
    use makeroom_core::{Address, Block, BlockState, Bytes, DeviceTrace, Frame, Segment, TraceKind};

    use super::*;

    /// A profile of one live buffer.
    fn profile() -> Trace {
        let mut trace = Trace::new(TraceKind::JaxProfile);
        let (function, file) = (trace.stacks.name("step"), trace.stacks.name("/home/user/train.py"));
        let frame = trace.stacks.frame(Frame { function, file, line: 1, ..Frame::default() });
        let stack = trace.stacks.stack(&[frame]);
        let (address, size) = (Address(1 << 21), Bytes::mib(7));
        let block = Block { address, size, requested: Some(size), state: BlockState::Live, stack };
        let segment = Segment { address, size, blocks: vec![block], stack, ..Segment::default() };
        trace.devices.push(DeviceTrace { segments: vec![segment], ..DeviceTrace::default() });
        trace
    }

    #[test]
    fn a_profile_alone_says_what_is_live() {
        let explanation = explain_trace(&profile(), &TraceQuestion::default());
        assert!(
            explanation.verdict.summary.contains("7.00 MiB in 1 buffer,"),
            "{}",
            explanation.verdict.summary
        );
        assert!(explanation.growth.is_none() && explanation.causes.len() == 1);
    }
}
