//! The tools over the protocol.

use std::path::PathBuf;
use std::sync::Arc;

use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool as ToolDescription, ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio::sync::Semaphore;

use crate::call;
use crate::folders::Folders;
use crate::tools::{Line, TOOLS, Tool};

const INSTRUCTIONS: &str = "makeroom finds out why CUDA ran out of memory and what to change. Start with the tool `why` on an error message, a log or a snapshot, or with `job` on a directory of ranks. Fixes are sorted, most effective first; tell the user the certainty of the cause.";

/// Commands that run at the same time: each may need the memory of a large recording.
const AT_ONCE: usize = 2;

/// The server of one assistant.
#[derive(Debug)]
pub(crate) struct Server {
    folders: Folders,
    command: PathBuf,
    turns: Semaphore,
}

impl Server {
    pub(crate) fn new(folders: Folders, command: PathBuf) -> Self {
        Self { folders, command, turns: Semaphore::new(AT_ONCE) }
    }

    /// The answer to a call, or what is wrong with it, in words that help an assistant to correct the call.
    async fn answer(&self, tool: &Tool, given: &Map<String, Value>) -> Result<Value, String> {
        let mut line = tool.line(&self.folders, given).map_err(|mistake| mistake.to_string())?;
        if tool.is_page {
            let folder = new_folder().map_err(|error| format!("the page cannot be written: {error}"))?;
            let page = folder.path().join("run.html");
            line.arguments.insert(1, format!("--output={}", page.display()).into());
            self.run(&line).await?;
            // The user may open it after the assistant has ended. Without a page, the directory is removed.
            let _ = folder.keep();
            return Ok(json!({ "page": format!("file://{}", page.display()) }));
        }
        let output = self.run(&line).await?;
        serde_json::from_str(&output).map_err(|error| format!("makeroom did not print valid JSON: {error}"))
    }

    /// Runs the command once fewer than [`AT_ONCE`] others run.
    async fn run(&self, line: &Line) -> Result<String, String> {
        let _turn = self.turns.acquire().await.map_err(|error| error.to_string())?;
        call::run(&self.command, line).await.map_err(|failure| failure.to_string())
    }
}

/// A new directory that only the user can read.
fn new_folder() -> std::io::Result<TempDir> {
    tempfile::Builder::new().prefix("makeroom-mcp-").tempdir()
}

fn described(tool: &Tool) -> ToolDescription {
    let annotations = ToolAnnotations::with_title(tool.title).read_only(true).open_world(false);
    ToolDescription::new(tool.name, tool.description, Arc::new(tool.schema())).with_annotations(annotations)
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("makeroom", env!("CARGO_PKG_VERSION")))
            .with_instructions(format!("{INSTRUCTIONS} Files must be in: {}.", self.folders))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, rmcp::ErrorData> {
        Ok(ListToolsResult::with_all_items(TOOLS.iter().map(described).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, rmcp::ErrorData> {
        let Some(tool) = TOOLS.iter().find(|tool| tool.name == request.name) else {
            let names: Vec<&str> = TOOLS.iter().map(|tool| tool.name).collect();
            let message = format!("unknown tool `{}`; available tools: {}", request.name, names.join(", "));
            return Err(rmcp::ErrorData::invalid_params(message, None));
        };
        let given = request.arguments.unwrap_or_default();
        let answer = tokio::select! {
            answer = self.answer(tool, &given) => answer,
            () = context.ct.cancelled() => Err("the call was canceled".to_owned()),
        };
        Ok(match answer {
            Ok(answer) => CallToolResult::structured(answer),
            Err(message) => CallToolResult::error(vec![ContentBlock::text(message)]),
        }
        .into())
    }
}
