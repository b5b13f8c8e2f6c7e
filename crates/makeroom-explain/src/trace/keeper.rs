//! The object that keeps memory alive, as far as Python frames show it: a known container of a framework, or the class whose
//! method allocated the memory. Recordings of `makeroom run` have qualified names (`Gpt.forward`); PyTorch's snapshots do not
//! name classes.

use makeroom_core::{FrameId, StackId, Stacks};

use super::sites::Places;

/// Containers that keep tensors on purpose, by the files of their code; more special ones first.
const CONTAINERS: [(&str, &str); 7] = [
    ("transformers/cache_utils.py", "the model's KV cache (past_key_values)"),
    ("torchmetrics/", "a torchmetrics metric"),
    ("torch/optim/swa_utils.py", "an averaged copy of the model"),
    ("torch/utils/data/", "a data loader"),
    ("torch/optim/", "an optimizer"),
    ("torch/fx/", "a traced graph (torch.fx)"),
    ("torch/autograd/graph.py", "hooks for saved tensors"),
];

/// PyTorch's code that calls the `forward` of a module.
const MODULE_CALL: &str = "torch/nn/modules/module.py";

/// The object that keeps the memory of a stack, for a sentence: "kept by …".
pub(super) fn keeper(stacks: &Stacks, places: Places<'_>, stack: StackId) -> Option<String> {
    let frames = stacks.frames_of(stack);
    let (own, is_own) = places.site(stack)?;
    let file = |frame: FrameId| stacks.name_text(stacks.frame_at(frame).file);
    let until = frames.iter().position(|&frame| frame == own).filter(|_| is_own).unwrap_or(frames.len());
    let container = frames[..until].iter().find_map(|&frame| {
        CONTAINERS.iter().find(|(part, _)| file(frame).contains(part)).map(|(_, name)| (*name).to_owned())
    });
    container.or_else(|| {
        let class = class_of(stacks.name_text(stacks.frame_at(own).function)).filter(|_| is_own)?;
        let is_module =
            frames[until..].iter().skip(1).take(2).any(|&frame| file(frame).contains(MODULE_CALL));
        Some(if is_module { format!("the module {class}") } else { format!("an object of class {class}") })
    })
}

/// The class of a method by its qualified name: `Gpt` of `Gpt.forward` and of `Outer.Gpt.forward`.
fn class_of(function: &str) -> Option<&str> {
    let (path, _) = function.rsplit_once('.')?;
    let class = path.rsplit('.').next()?;
    let is_name = class.chars().all(|character| character.is_alphanumeric() || character == '_');
    let is_class = class.trim_start_matches('_').starts_with(char::is_uppercase);
    (is_name && is_class && class.len() <= 100).then_some(class)
}

#[cfg(test)]
mod tests {
    use makeroom_core::{Frame, Trace, TraceKind};

    use super::*;

    fn kept(frames: &[(&str, &str)]) -> Option<String> {
        let mut trace = Trace::new(TraceKind::TorchSnapshot);
        let frames: Vec<FrameId> = frames
            .iter()
            .map(|(file, function)| {
                let (file, function) = (trace.stacks.name(file), trace.stacks.name(function));
                trace.stacks.frame(Frame { function, file, line: 7, ..Frame::default() })
            })
            .collect();
        let stack = trace.stacks.stack(&frames);
        keeper(&trace.stacks, Places::new(&trace), stack)
    }

    #[test]
    fn a_class_or_a_known_container_keeps_memory() {
        let call = ("site-packages/torch/nn/modules/module.py", "Module._call_impl");
        let main = ("train.py", "main");
        assert_eq!(kept(&[("model.py", "Gpt.forward"), call, main]).as_deref(), Some("the module Gpt"));
        assert_eq!(
            kept(&[("history.py", "Run.History.add"), main]).as_deref(),
            Some("an object of class History")
        );
        let cache = ("site-packages/transformers/cache_utils.py", "DynamicLayer.update");
        assert_eq!(
            kept(&[cache, ("generate.py", "Server.step"), main]).as_deref(),
            Some("the model's KV cache (past_key_values)")
        );
        // A container that called the program does not keep what the program allocates.
        assert_eq!(kept(&[main, cache]), None);
        for function in ["forward", "words.<locals>.<lambda>", "module.function", "<module>", ""] {
            assert_eq!(kept(&[("model.py", function)]), None, "{function}");
        }
        assert_eq!(kept(&[]), None);
    }
}
