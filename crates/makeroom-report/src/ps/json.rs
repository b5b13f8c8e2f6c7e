//! The account as JSON. Fields are only ever added.

use std::time::UNIX_EPOCH;

use makeroom_core::Bytes;
use makeroom_holders::{
    Account, Device, Holder, List, Plan, Process, Remedy, Requirement, State, UnlistedCause,
};
use serde_json::{Value, json};

use super::by_need;
use crate::json::list;

/// The account as JSON.
pub fn ps_json(account: &Account, requirement: Option<&Requirement>) -> Value {
    let since_epoch = account.taken.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut value = json!({
        "taken_at": since_epoch.as_secs_f64(),
        "host": account.host,
        "driver": account.driver.as_ref().ok().map(|driver| json!({
            "version": driver.version,
            "cuda": driver.cuda_text(),
        })),
        "error": account.driver.as_ref().err().map(|error| json!({
            "message": error.to_string(),
            "hint": error.hint(),
        })),
        "view": {
            "whole_machine": account.view.is_whole_machine,
            "hides_others": account.view.hides_others,
            "unreadable_processes": account.view.unreadable,
        },
        "devices": by_need(account).into_iter().map(device).collect::<Vec<_>>(),
        "users_of_driver": list(&account.users, process),
    });
    if let Some(requirement) = requirement {
        value["require"] = require(requirement);
    }
    value
}

fn device(device: &Device) -> Value {
    let memory = device.memory;
    json!({
        "device": device.label.to_string(),
        "uuid": device.uuid,
        "name": device.name,
        "bus_id": device.bus_id,
        "total_bytes": memory.map(|memory| memory.total.get()),
        "reserved_bytes": memory.map(|memory| memory.reserved.get()),
        "used_bytes": memory.map(|memory| memory.used.get()),
        "free_bytes": memory.map(|memory| memory.free.get()),
        "holders": list(&device.holders, holder),
        "unlisted": {
            "bytes": device.unlisted.bytes,
            "causes": list(&device.unlisted.causes, cause),
        },
        "idle_contexts": list(&device.idle, |group| json!({
            "parent": group.parent,
            "pids": group.pids,
            "bytes": group.bytes.get(),
        })),
        "divided": device.is_divided,
        "parts": list(&device.parts, self::device),
        "problems": list(&device.problems, |problem| json!({
            "what": problem.what,
            "answer": problem.answer,
            "hint": problem.hint(device.label.card),
        })),
    })
}

fn holder(holder: &Holder) -> Value {
    let list_name = |list: &List| match list {
        List::Compute => "compute",
        List::Graphics => "graphics",
        List::Mps => "mps",
    };
    json!({
        "pid": holder.pid,
        "bytes": holder.bytes.map(Bytes::get),
        "peak_bytes": holder.peak.map(Bytes::get),
        "lists": list(&holder.lists, |list| json!(list_name(list))),
        "findings": list(&holder.findings, |finding| json!({
            "finding": finding.name(),
            "words": finding.words(),
        })),
        "process": holder.process.as_ref().map(process),
        "recording": holder.recording.as_ref().map(|recording| json!({
            "file": recording.name,
            "live_bytes": recording.live.map(Bytes::get),
            "managed_bytes": recording.managed.get(),
            "imported": recording.imported,
            "refused": recording.refused,
        })),
    })
}

fn process(process: &Process) -> Value {
    let state = match process.stat.state {
        State::Alive => "alive",
        State::Uninterruptible => "uninterruptible",
        State::Stopped => "stopped",
        State::Zombie => "zombie",
    };
    json!({
        "pid": process.stat.pid,
        "name": process.stat.name,
        "command": process.command,
        "user": process.user_name,
        "state": state,
        "parent": process.stat.parent,
        "inner_pids": process.inner_pids,
        "seconds": process.age.map(|age| age.as_secs_f64()),
        "container": process.belonging.container,
        "runtime": process.belonging.runtime,
        "pod": process.belonging.pod,
        "slurm_job": process.belonging.slurm_job,
        "unit": process.belonging.unit,
        "cards_open": process.files.cards.iter().collect::<Vec<_>>(),
    })
}

fn cause(cause: &UnlistedCause) -> Value {
    json!({
        "cause": cause.cause.name(),
        "certainty": cause.certainty.word(),
        "bytes": cause.bytes.map(Bytes::get),
        "evidence": cause.evidence,
        "pids": cause.pids,
        "fix": cause.fix,
    })
}

fn require(requirement: &Requirement) -> Value {
    json!({
        "bytes": requirement.size.get(),
        "met": requirement.is_met(),
        "best_device": requirement.best.map(|(label, _)| label.to_string()),
        "free_bytes": requirement.best.map(|(_, free)| free.get()),
        "plan": requirement.plan.as_ref().map(plan),
    })
}

fn plan(plan: &Plan) -> Value {
    let remedy = |remedy: &Remedy| {
        json!({
            "pids": remedy.pids,
            "frees_bytes": remedy.frees.get(),
            "command": remedy.command,
            "loses": remedy.loses,
        })
    };
    json!({
        "device": plan.device.to_string(),
        "free_bytes": plan.free.get(),
        "free_then_bytes": plan.free_then.get(),
        "remedies": list(&plan.remedies, remedy),
    })
}
