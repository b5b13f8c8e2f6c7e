//! The model that a command line names, so that a fleet's failures can be grouped by model.
//!
//! Heuristic: options that training and inference programs use for it. Nothing else of the command line is taken over,
//! because it can contain secrets.

/// Options whose value is a model, without dashes and with underscores.
const OPTIONS: [&str; 10] = [
    "model",
    "model_id",
    "model_name",
    "model_name_or_path",
    "model_path",
    "model_tag",
    "model_type",
    "base_model",
    "pretrained_model_name_or_path",
    "arch",
];
/// The longest name that is taken over.
const LONGEST: usize = 200;

/// The model of a command line.
pub(super) fn of(words: &[String]) -> Option<String> {
    let option = |word: &str| {
        let name = word.strip_prefix("--").or_else(|| word.strip_prefix('-')).unwrap_or_default();
        OPTIONS.contains(&name.replace('-', "_").as_str())
    };
    let mut rest = words.iter().skip(1).peekable();
    while let Some(word) = rest.next() {
        let named = match word.split_once('=') {
            // Also as Hydra's `model=llama`.
            Some((name, value)) if option(name) || OPTIONS.contains(&name) => Some(value),
            None if option(word) => rest.peek().map(|value| value.as_str()),
            // `vllm serve MODEL`.
            None if word == "serve" => rest.peek().map(|value| value.as_str()),
            _ => None,
        };
        let is_name = |name: &&str| !name.is_empty() && !name.starts_with('-') && !name.contains("://");
        if let Some(name) = named.filter(is_name) {
            return Some(name.trim_end_matches('/').chars().take(LONGEST).collect());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(line: &str) -> Option<String> {
        of(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn the_options_of_common_programs_name_the_model() {
        let llama = Some("meta-llama/Llama-3.1-8B".to_owned());
        assert_eq!(model("python train.py --model meta-llama/Llama-3.1-8B --lr 1"), llama);
        assert_eq!(model("python train.py --model-name-or-path=meta-llama/Llama-3.1-8B/"), llama);
        assert_eq!(model("vllm serve meta-llama/Llama-3.1-8B --port 80"), llama);
        assert_eq!(model("python train.py model=resnet50"), Some("resnet50".to_owned()));
        assert_eq!(model("python train.py --arch resnet50"), Some("resnet50".to_owned()));
    }

    #[test]
    fn other_words_are_not_taken_over() {
        for line in [
            "python train.py",
            "python train.py --token hf_secret --lr 1",
            "python train.py --model --lr 1",
            "python train.py --model https://user:secret@host/model",
            "python train.py --model=",
        ] {
            assert_eq!(model(line), None, "{line}");
        }
    }
}
