//! The tools: what each is for, its parameters, and the command line that answers it.

use std::ffi::OsString;

use serde_json::{Map, Value, json};

use crate::folders::{Folders, Refusal};

/// Text that an assistant may pass instead of a file.
const MOST_TEXT: usize = 4 << 20;

/// What a parameter is, and how it becomes arguments of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A file or a directory.
    Path,
    /// Several of them.
    Paths,
    /// The standard input of the command.
    Text,
    /// The value of an option.
    Word(&'static str),
    /// The values of an option that is repeated.
    Words(&'static str),
    /// The number of an option.
    Number(&'static str),
}

/// A parameter of a tool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    kind: Kind,
    is_required: bool,
    description: &'static str,
}

/// A tool.
#[derive(Debug)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) description: &'static str,
    command: &'static [&'static str],
    parameters: &'static [Parameter],
    /// Whether the answer is an HTML page instead of JSON.
    pub(crate) is_page: bool,
}

const fn parameter(
    name: &'static str,
    kind: Kind,
    is_required: bool,
    description: &'static str,
) -> Parameter {
    Parameter { name, kind, is_required, description }
}

const MEMORY: Parameter =
    parameter("memory", Kind::Word("--memory"), false, "Memory available to the allocator, such as 24GiB");
const CARD: Parameter = parameter("card", Kind::Word("--card"), false, "Size of the GPU, such as 80GiB");
const DEVICE: Parameter = parameter("device", Kind::Number("--device"), false, "Index of the GPU to analyze");
const RECORDING: Parameter =
    parameter("path", Kind::Path, true, "A PyTorch memory snapshot, or a recording of `makeroom run`");

/// All tools.
pub(crate) const TOOLS: &[Tool] = &[
    Tool {
        name: "why",
        title: "Explain why memory ran out",
        description: "Explains why CUDA ran out of memory, from a log, an error message, a PyTorch memory snapshot or a recording. Returns the cause with its certainty, an account of the GPU's memory and fixes, most effective first. Pass either `path` or `text`.",
        command: &["why", "--json"],
        parameters: &[
            parameter("path", Kind::Path, false, "A log, a PyTorch memory snapshot, or a recording"),
            parameter("text", Kind::Text, false, "A log or an error message"),
            parameter(
                "by",
                Kind::Word("--by"),
                false,
                "Show live memory by this group instead of explaining the failure (recordings only): kind, line, module, stage, thread, stream, process",
            ),
            MEMORY,
            CARD,
            DEVICE,
        ],
        is_page: false,
    },
    Tool {
        name: "job",
        title: "Explain a job of many ranks",
        description: "Explains a distributed job from the logs, snapshots and recordings of its ranks: which rank failed and why, which failures are consequences, and what to change.",
        command: &["job", "--json"],
        parameters: &[parameter("paths", Kind::Paths, true, "Directories, files and archives of the job")],
        is_page: false,
    },
    Tool {
        name: "diff",
        title: "Compare the memory of two runs",
        description: "Compares the peak memory of two runs, by kind (parameters, gradients, activations, …) and by line of code.",
        command: &["diff", "--json"],
        parameters: &[
            parameter("before", Kind::Path, true, "The earlier run: a snapshot, a recording or a directory"),
            parameter("after", Kind::Path, true, "The later run"),
            DEVICE,
        ],
        is_page: false,
    },
    Tool {
        name: "replay",
        title: "Replay a run under other allocators",
        description: "Simulates other allocators on a recorded run: what each would have reserved, and the least memory with which the run completes.",
        command: &["replay", "--json"],
        parameters: &[
            RECORDING,
            parameter(
                "allocators",
                Kind::Words("--allocator"),
                false,
                "Allocators to simulate, such as pytorch, pytorch:expandable_segments:True, cuda-async, makeroom [default: the common ones]",
            ),
            MEMORY,
            CARD,
            DEVICE,
        ],
        is_page: false,
    },
    Tool {
        name: "tune",
        title: "Find the best allocator settings",
        description: "Finds the settings of PyTorch's allocator (PYTORCH_ALLOC_CONF) with which a recorded run reserves the least memory, or fits into the given memory.",
        command: &["tune", "--json"],
        parameters: &[RECORDING, MEMORY, CARD, DEVICE],
        is_page: false,
    },
    Tool {
        name: "ps",
        title: "Show what holds GPU memory",
        description: "Lists the processes that hold memory of this machine's GPUs, and memory that no process accounts for.",
        command: &["ps", "--json"],
        parameters: &[],
        is_page: false,
    },
    Tool {
        name: "view",
        title: "Write an interactive HTML report",
        description: "Writes an HTML page with the memory of a run over time, for the user to open in a browser. Returns a link to it.",
        command: &["view"],
        parameters: &[RECORDING, MEMORY, CARD],
        is_page: true,
    },
];

/// Why a tool cannot be called like this.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Mistake {
    #[error(transparent)]
    Path(#[from] Refusal),
    #[error("`{name}` must be {expected}")]
    Type { name: &'static str, expected: &'static str },
    #[error("`{name}` is required")]
    Missing { name: &'static str },
    #[error("unknown parameter `{name}`; expected one of: {known}")]
    Unknown { name: String, known: String },
    #[error("`text` is longer than 4 MiB; write it to a file and pass `path`")]
    LongText,
    #[error("pass either `path` or `text`")]
    NeitherOrBoth,
}

/// The arguments and the standard input of the command that answers a call.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) arguments: Vec<OsString>,
    pub(crate) input: Option<String>,
}

impl Tool {
    /// The JSON schema of its parameters.
    pub(crate) fn schema(&self) -> Map<String, Value> {
        let property = |parameter: &Parameter| {
            let description = parameter.description;
            let schema = match parameter.kind {
                Kind::Path | Kind::Text | Kind::Word(_) => {
                    json!({ "type": "string", "description": description })
                }
                Kind::Paths | Kind::Words(_) => {
                    json!({ "type": "array", "items": { "type": "string" }, "description": description })
                }
                Kind::Number(_) => json!({ "type": "integer", "minimum": 0, "description": description }),
            };
            (parameter.name.to_owned(), schema)
        };
        let properties: Map<String, Value> = self.parameters.iter().map(property).collect();
        let required = self.parameters.iter().filter(|parameter| parameter.is_required);
        let required: Vec<&str> = required.map(|parameter| parameter.name).collect();
        let schema = json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        });
        match schema {
            Value::Object(schema) => schema,
            _ => Map::new(),
        }
    }

    /// The command line for a call.
    pub(crate) fn line(&self, folders: &Folders, given: &Map<String, Value>) -> Result<Line, Mistake> {
        let is_known = |name: &String| self.parameters.iter().any(|parameter| parameter.name == name);
        if let Some(name) = given.keys().find(|name| !is_known(name)) {
            let known: Vec<&str> = self.parameters.iter().map(|parameter| parameter.name).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(Mistake::Unknown { name: name.clone(), known });
        }
        let mut line = Line::default();
        line.arguments.extend(self.command.iter().map(OsString::from));
        let mut paths: Vec<OsString> = Vec::new();
        for parameter in self.parameters {
            let name = parameter.name;
            let Some(value) = given.get(name).filter(|value| !value.is_null()) else {
                if parameter.is_required {
                    return Err(Mistake::Missing { name });
                }
                continue;
            };
            let mut option = |option: &str, value: &str| {
                // In one word, so that a value can never become an option of its own.
                line.arguments.push(format!("{option}={value}").into());
            };
            match parameter.kind {
                Kind::Path => paths.push(folders.resolve(text(name, value)?)?.into()),
                Kind::Paths => {
                    for path in texts(name, value)? {
                        paths.push(folders.resolve(path)?.into());
                    }
                }
                Kind::Text => {
                    let text = text(name, value)?;
                    if text.len() > MOST_TEXT {
                        return Err(Mistake::LongText);
                    }
                    line.input = Some(text.to_owned());
                }
                Kind::Word(name_of_option) => option(name_of_option, text(name, value)?),
                Kind::Words(name_of_option) => {
                    texts(name, value)?.into_iter().for_each(|word| option(name_of_option, word));
                }
                Kind::Number(name_of_option) => {
                    let number = value.as_u64().ok_or(Mistake::Type { name, expected: "a number" })?;
                    option(name_of_option, &number.to_string());
                }
            }
        }
        let takes_text = self.parameters.iter().any(|parameter| parameter.kind == Kind::Text);
        if takes_text && line.input.is_some() != paths.is_empty() {
            return Err(Mistake::NeitherOrBoth);
        }
        if line.input.is_some() {
            paths.push("-".into());
        }
        if !paths.is_empty() {
            line.arguments.push("--".into());
            line.arguments.extend(paths);
        }
        Ok(line)
    }
}

fn text<'value>(name: &'static str, value: &'value Value) -> Result<&'value str, Mistake> {
    value.as_str().ok_or(Mistake::Type { name, expected: "a string" })
}

fn texts<'value>(name: &'static str, value: &'value Value) -> Result<Vec<&'value str>, Mistake> {
    let wrong = || Mistake::Type { name, expected: "a list of strings" };
    let list = value.as_array().filter(|list| !list.is_empty()).ok_or_else(wrong)?;
    list.iter().map(|item| item.as_str().ok_or_else(wrong)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    fn line(name: &str, given: &Value) -> Result<Line, Mistake> {
        let place = std::env::temp_dir();
        let folders = Folders::new(&[place]).unwrap();
        let tool = TOOLS.iter().find(|tool| tool.name == name).unwrap();
        tool.line(&folders, given.as_object().unwrap())
    }

    #[test]
    fn values_stay_values() {
        let line =
            line("why", &json!({ "text": "out of memory", "memory": "--verbose", "device": 1 })).unwrap();
        let expected = ["why", "--json", "--memory=--verbose", "--device=1", "--", "-"].map(OsString::from);
        assert_eq!(line.arguments, expected);
        assert_eq!(line.input.as_deref(), Some("out of memory"));
    }

    #[test]
    fn mistakes_are_named() {
        let said = |name, given: Value| line(name, &given).unwrap_err().to_string();
        assert_eq!(said("why", json!({})), "pass either `path` or `text`");
        assert_eq!(said("why", json!({ "text": 3 })), "`text` must be a string");
        assert_eq!(said("tune", json!({})), "`path` is required");
        assert_eq!(said("ps", json!({ "path": "/" })), "unknown parameter `path`; expected one of: none");
        assert_eq!(said("job", json!({ "paths": [] })), "`paths` must be a list of strings");
        assert!(said("tune", json!({ "path": "/etc/passwd" })).contains("not in a directory"));
    }

    #[test]
    fn every_tool_has_a_schema() {
        for tool in TOOLS {
            let schema = tool.schema();
            let properties = schema["properties"].as_object().unwrap();
            assert_eq!(properties.len(), tool.parameters.len(), "{}", tool.name);
            assert!(
                schema["required"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .all(|name| properties.contains_key(name.as_str().unwrap()))
            );
        }
    }
}
