//! The server as an assistant starts it: messages go in as lines, answers come out as lines, and the end of the input ends it.
//!
//! `client.py` checks every tool with a real client; this needs nothing but the program.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// The server and both ends of the conversation.
struct Session {
    server: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Session {
    fn start() -> Self {
        let mut server = Command::new(env!("CARGO_BIN_EXE_makeroom-mcp"))
            .args(["--command", "/nonexistent/makeroom", env!("CARGO_MANIFEST_DIR")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let input = server.stdin.take().expect("its input is piped");
        let output = BufReader::new(server.stdout.take().expect("its output is piped")).lines();
        Self { server, input, output }
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.input, "{message}").expect("the server reads");
    }

    /// The answer to a request.
    fn ask(&mut self, id: u32, method: &str, parameters: &Value) -> Value {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": parameters}));
        loop {
            let line = self.output.next().expect("an answer comes").expect("it is text");
            let message: Value = serde_json::from_str(&line).expect("it is JSON");
            if message["id"] == id {
                return message;
            }
        }
    }
}

#[test]
fn a_session_begins_lists_its_tools_and_ends_with_its_input() {
    let mut session = Session::start();
    let client = json!({"name": "test", "version": "1"});
    let begun = session.ask(
        1,
        "initialize",
        &json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}),
    );
    assert_eq!(begun["result"]["serverInfo"]["name"], "makeroom");
    session.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));

    let listed = session.ask(2, "tools/list", &json!({}));
    let tools: Vec<_> =
        listed["result"]["tools"].as_array().expect("a list").iter().map(|tool| &tool["name"]).collect();
    assert_eq!(tools, ["why", "job", "diff", "replay", "tune", "ps", "view"]);

    let outside = json!({"name": "why", "arguments": {"path": "/etc/passwd"}});
    let refused = session.ask(3, "tools/call", &outside);
    assert_eq!(refused["result"]["isError"], true, "{refused}");

    // The command is missing here: the server says so and lives on.
    let inside = json!({"name": "why", "arguments": {"path": "Cargo.toml"}});
    let failed = session.ask(4, "tools/call", &inside);
    let said = failed["result"]["content"][0]["text"].as_str().expect("an explanation");
    assert!(said.contains("/nonexistent/makeroom could not be started"), "{said}");

    drop(session.input);
    assert!(session.server.wait().expect("the server ends").success());
}
