//! The Linux kernel's log of its OOM killer: host memory, and the figures say whose.
//!
//! | line | wording |
//! |---|---|
//! | start | `python invoked oom-killer: gfp_mask=0x24280ca, order=0, oom_score_adj=0` |
//! | victim, – 5.0 | `Out of memory: Kill process 77 (python) score 974 or sacrifice child`, then `Killed process 77 (python) total-vm:…kB, anon-rss:…kB, file-rss:…kB` |
//! | victim, 5.1 – | `Out of memory: Killed process 77 (python) total-vm:…kB, anon-rss:…kB, … UID:1000 …` |
//! | container | `Memory cgroup out of memory: Killed process …`, `memory: usage 8388608kB, limit 8388608kB`, `oom-kill:constraint=CONSTRAINT_MEMCG` |
//! | after | `oom_reaper: reaped process 77 (python), now anon-rss:0kB` |

use std::sync::LazyLock;

use makeroom_core::{Bytes, Framework};
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Regex, pattern};

use crate::facts::{Facts, Resource, Statement};
use crate::family::Family;
use crate::figures::captured_number;
use crate::log::Passage;

pub(crate) const FAMILY: Family = Family {
    anchors: &[
        "memory: kill",
        "Killed process",
        "oom-killer",
        "oom-kill:constraint",
        "oom_reaper",
        "cgroup out of memory",
        "mem_cgroup_out_of_memory",
        "oom_kill_process",
    ],
    read,
};

static KERNEL: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)out of memory: kill(?:ed)? process|\bkilled process \d+|invoked oom-killer|oom-kill:constraint=|oom_reaper: reaped|memory cgroup out of memory|mem_cgroup_out_of_memory|\boom_kill_process\b",
    )
});
/// A process that was killed, and its resident anonymous memory; a narrow terminal may have cut the unit.
static VICTIM: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)killed process \d+,?(?: UID \d+,?)? ?\(([^)]*)\).*?anon-rss: ?(\d+) ?k"));
/// A process that is named without its memory.
static NAME: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)kill(?:ed)? process \d+,?(?: UID \d+,?)? ?\(([^)]*)\)|task=([^,]+),pid=|reaped process \d+ \(([^)]*)\)",
    )
});
static IN_CGROUP: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)memory cgroup out of memory|mem_cgroup_out_of_memory|CONSTRAINT_MEMCG|killed as a result of limit",
    )
});
static LIMIT: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)memory: usage \d+kB, limit (\d+)kB"));

fn read(passage: &Passage<'_>) -> Option<Facts> {
    if !KERNEL.is_match(passage.line()) {
        return None;
    }
    let flat = std::iter::once(passage.flat.as_str());
    let victims = passage.all().chain(flat).filter_map(|line| {
        let found = VICTIM.captures(line)?;
        Some((Bytes::kib(captured_number(&found, 2)?), found[1].to_owned()))
    });
    // The kernel may kill several processes; the largest is the reason.
    let victim = victims.max_by_key(|(held, _)| *held).filter(|(held, _)| !held.is_zero());
    let named = || {
        let found = passage.all().find_map(|line| NAME.captures(line))?;
        found.iter().skip(1).flatten().next().map(|name| name.as_str().to_owned())
    };
    let killed = match &victim {
        Some((held, name)) => format!("the Linux OOM killer killed {name}, which held {held}"),
        None => match named() {
            Some(name) => format!("the Linux OOM killer killed {name}"),
            None => "the Linux OOM killer killed a process".to_owned(),
        },
    };
    let is_limited = passage.all().any(|line| IN_CGROUP.is_match(line));
    let limit = passage.all().find_map(|line| captured_number(&LIMIT.captures(line)?, 1)).map(Bytes::kib);
    let reason = match limit.filter(|_| is_limited) {
        Some(limit) => format!("The container or job reached its memory limit of {limit}"),
        None if is_limited => "The container or job reached its memory limit".to_owned(),
        None => "The machine ran out of memory".to_owned(),
    };
    let mut facts = Facts::new(Framework::Host, Resource::Host, passage);
    facts.statements.push(Statement {
        bytes: victim.map(|(held, _)| held),
        ..Statement::new(
            Cause::HostMemory,
            Certainty::Certain,
            format!("{reason} and {killed}. The GPU is not involved."),
        )
    });
    Some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::facts_in;

    fn summary(text: &str) -> String {
        let facts = facts_in(text).unwrap();
        assert_eq!((facts.framework_id(), facts.resource), ("host", Resource::Host), "{text}");
        let stated = &facts.statements[0];
        assert_eq!((stated.cause, stated.certainty), (Cause::HostMemory, Certainty::Certain));
        stated.summary.clone()
    }

    #[test]
    fn every_wording_of_the_kernel() {
        for text in [
            "[1.5] Out of memory: Kill process 77 (trainer) score 974 or sacrifice child",
            "[1.5] Killed process 77 (trainer) total-vm:9000000kB, anon-rss:8388608kB, file-rss:12kB",
            "Jun  1 10:00:00 box kernel: Out of memory: Killed process 4242 (trainer) total-vm:98765432kB, anon-rss:64000000kB",
            "Killed process 77 (trainer), UID 1000, total-vm:9000000kB, anon-rss:8388608kB",
            "Killed process 77, UID 48, (trainer) total-vm:9000000kB, anon-rss:8388608kB, file-rss:12kB",
            "[9.1] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task=trainer,pid=77",
            "[9.2] oom_reaper: reaped process 77 (trainer), now anon-rss:0kB",
            "Memory cgroup out of memory: Killed process 77 (trainer) total-vm:9000000kB, anon-rss:8388608kB",
        ] {
            assert!(summary(text).contains("trainer"), "{text}: {}", summary(text));
        }
        let start = "[1.5] trainer invoked oom-killer: gfp_mask=0x24280ca, order=0, oom_score_adj=0\n[1.6]  mem_cgroup_out_of_memory+0x4b/0x80";
        assert!(summary(start).contains("memory limit"));
    }

    #[test]
    fn the_largest_victim_is_named_with_its_memory() {
        let text = "[1.0] Out of memory: Kill process 70 (trainer) score 900 or sacrifice child\n[1.0] Killed process 71 (helper) total-vm:9kB, anon-rss:0kB, file-rss:1kB\n[2.0] Killed process 70 (trainer) total-vm:9000000kB, anon-rss:8388608kB, file-rss:1kB";
        assert_eq!(
            summary(text),
            "The machine ran out of memory and the Linux OOM killer killed trainer, which held 8.00 GiB. The GPU is not involved."
        );
        assert_eq!(facts_in(text).unwrap().statements[0].bytes, Some(Bytes::gib(8)));
    }

    #[test]
    fn the_limit_of_a_container_is_named() {
        let text = "[5.1] memory: usage 4194304kB, limit 4194304kB, failcnt 99\n[5.1] Memory cgroup out of memory: Killed process 7 (trainer) total-vm:8000000kB, anon-rss:4000000kB";
        assert!(summary(text).contains("limit of 4.00 GiB"), "{}", summary(text));
    }

    #[test]
    fn other_words_are_not_taken() {
        assert!(facts_in("the watchdog has killed process group 5").is_none());
    }
}
