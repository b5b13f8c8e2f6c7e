"""The server with a real MCP client: every tool answers as the command does, and mistakes come back as errors.

    client.py MAKEROOM     (the command; makeroom-mcp lies next to it)

Needs: pip install mcp
"""
import asyncio
import json
import pathlib
import subprocess
import sys
import tempfile
import urllib.parse

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

ROOT = pathlib.Path(__file__).parents[3]
MAKEROOM = sys.argv[1]
SNAPSHOT = "traces/oom_batch.pickle.gz"


def printed(*arguments, **options):
    return json.loads(subprocess.run([MAKEROOM, *arguments], capture_output=True, check=True, cwd=ROOT, **options).stdout)


def value(result):
    """The structured answer, whose text must be the same."""
    assert not result.is_error, result
    assert json.loads(result.content[0].text) == result.structured_content
    return result.structured_content


async def check(session):
    found = await session.initialize()
    assert found.server_info.name == "makeroom" and str(ROOT) in found.instructions, found
    tools = (await session.list_tools()).tools
    names = [tool.name for tool in tools]
    assert names == ["why", "job", "diff", "replay", "tune", "ps", "view"], names
    assert all(tool.annotations.read_only_hint and tool.description for tool in tools)

    async def call(name, **arguments):
        return await session.call_tool(name, arguments)

    assert value(await call("why", path=SNAPSHOT)) == printed("why", "--json", SNAPSHOT)
    log = (ROOT / "examples/other-process.txt").read_text()
    assert value(await call("why", text=log)) == printed("why", "--json", input=log.encode())
    # A server passes the resolved path.
    by_kind = ["why", "--json", "--by", "kind", str(ROOT / SNAPSHOT)]
    assert value(await call("why", path=SNAPSHOT, by="kind")) == printed(*by_kind)
    ranks = value(await call("job", paths=["traces/job"]))
    assert ranks["verdict"]["cause"] == printed("job", "--json", "traces/job")["verdict"]["cause"]
    pair = ["traces/oom_fragmented.pickle.gz", "traces/oom_fragmented-expandable.pickle.gz"]
    assert value(await call("diff", before=pair[0], after=pair[1]))["verdict"]
    replayed = value(await call("replay", path=SNAPSHOT, allocators=["pytorch", "makeroom"], memory="24GiB"))
    assert [run["allocator"] for run in replayed["runs"]] == ["pytorch", "makeroom"], replayed
    assert value(await call("tune", path=SNAPSHOT))
    page = urllib.parse.urlparse(value(await call("view", path=SNAPSHOT))["page"])
    assert page.scheme == "file" and "<html" in pathlib.Path(page.path).read_text()[:1000].lower()
    held = await call("ps")
    assert held.is_error or value(held), held

    for arguments, said in [
        ({"path": "/etc/passwd"}, "not in a directory that this server may read"),
        ({"path": "../../etc/passwd"}, ""),
        ({"path": "traces/missing.pickle"}, "No such file"),
        ({}, "either `path` or `text`"),
        ({"path": SNAPSHOT, "memory": "many"}, "many"),
        ({"path": "Cargo.toml", "by": "kind"}, "not a recording"),
    ]:
        result = await call("why", **arguments)
        assert result.is_error and said in result.content[0].text, (arguments, result)
    # The server is as useful after all of these as before.
    assert value(await call("why", path=SNAPSHOT))["verdict"]


async def main():
    server = StdioServerParameters(command=MAKEROOM, args=["mcp", str(ROOT)])
    with tempfile.TemporaryFile("w+") as errors:
        async with stdio_client(server, errlog=errors) as streams, ClientSession(*streams) as session:
            await check(session)
    print("every tool answers as the command does")


asyncio.run(main())
