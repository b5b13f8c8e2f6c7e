"""Writes the API pages of the site: Python from its docstrings, C from its header, Rust as a list of crates.

    site/api.py SOURCE          writes SOURCE/api/{c,rust}.md and SOURCE/api/python/
    site/api.py --crates        prints the names of the Rust crates, for `cargo doc`

SOURCE is the folder of site/stage.py. MkDocs fills in the docstrings; site/rustdoc writes the pages of the crates.
"""
import ast
import pathlib
import re
import sys
import tomllib

ROOT = pathlib.Path(__file__).parent.parent.resolve()
HEADER = ROOT / "crates/makeroom-pool-c/include/makeroom.h"
PACKAGE = ROOT / "python/src/makeroom"
# Libraries of the command's own demonstrations, not for other programs.
INTERNAL = {"makeroom-demo", "makeroom-simcard"}
# The pages of the Python API: file, title, and the files or modules of the package whose names are on it. One page would have 400 kB.
PYTHON = (
    ("explain", "explain failures", {"_explanation", "_answer", "_groups", "_excepthook", "_job", "_types"}),
    ("recordings", "read recordings", {"_trace", "_table", "_view", "_replay", "_native", "_magic", "ray", "spark"}),
    ("measure", "measure code", {"_watch", "callbacks"}),
    ("pool", "use less memory", {"_pool", "_library", "_chunks"}),
)
# The crate that most programs start with comes first.
FIRST = "makeroom-text"


def crates():
    """Published Rust libraries with their descriptions: not programs, macros, or libraries that other languages load."""
    found = {}
    for manifest in sorted(ROOT.glob("crates/*/Cargo.toml")):
        content = tomllib.loads(manifest.read_text())
        package, library = content["package"], content.get("lib", {})
        is_loaded = library.get("proc-macro") or "cdylib" in library.get("crate-type", [])
        is_library = (manifest.parent / "src/lib.rs").exists() and not (manifest.parent / "src/main.rs").exists()
        if is_library and not is_loaded and package.get("publish", True) and package["name"] not in INTERNAL:
            found[package["name"]] = package["description"]
    return {FIRST: found.pop(FIRST), **found}


def rust_page():
    # Links as HTML: MkDocs does not know the pages of rustdoc.
    rows = "\n".join(f'| <a href="{name.replace("-", "_")}/index.html">{name}</a> | {text} |' for name, text in crates().items())
    return f"""# Rust API

The parts of makeroom are libraries. Each name leads to the documentation of a crate, which starts with an example.

| crate | content |
|---|---|
{rows}

The command itself has no library. To use a crate before it is on crates.io, depend on the repository:

```sh
cargo add --git https://github.com/makeroom/makeroom {FIRST} makeroom-explain
```
"""


def python_pages():
    """Every public name of the package (what `_HOMES` of `__init__.py` lists, by the file that defines it), functions first."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    values = {node.targets[0].id: node.value for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)}
    homes, modules = ast.literal_eval(values["_HOMES"]), ast.literal_eval(values["_MODULES"])
    homes |= {name: name for name in modules}
    for name, home in homes.items():
        if not any(home in files for _, _, files in PYTHON):
            sys.exit(f"error: site/api.py has no page for makeroom.{name}, which is defined in {home}.py")
    for page, title, files in PYTHON:
        names = [name for name, home in homes.items() if home in files and not name.startswith("_") and not name.endswith("_extension")]
        # Modules and functions, then classes; errors last.
        names.sort(key=lambda name: (name.endswith(("Error", "Warning")), not name[0].islower(), name))
        entries = "\n\n".join(f"::: makeroom.{name}" for name in names)
        yield page, f"# Python API: {title}\n\n[makeroom in Python](../../python.md) shows how these are used.\n\n{entries}\n"


def comment_text(comment):
    """A comment of the header as Markdown."""
    lines = [re.sub(r"^\s*\*? ?", "", line) for line in comment.strip().removeprefix("/*").removesuffix("*/").strip().split("\n")]
    return "\n".join(lines).strip()


def declared(code):
    """The names that code of the header declares."""
    found = re.findall(r"^[a-z][\w ]*?[ *]+(makeroom_\w+)\(|^(?:\}|typedef [\w ]+)[ *]*(makeroom_\w+);|^#define (MAKEROOM_\w+)", code, re.M)
    return [name for group in found for name in group if name]


def c_page():
    """The header as sections: each paragraph is a comment with the declarations below it."""
    content = HEADER.read_text()
    introduction, _, rest = content.partition("#ifndef MAKEROOM_H")
    declarations = rest.partition('extern "C" {\n#endif\n')[2].rpartition("#ifdef __cplusplus")[0]
    parts = [f"""# C API

[The pool from C, C++ and PyTorch](../c.md) shows how the functions are used. All of them are declared in
[makeroom.h](../files/{HEADER.relative_to(ROOT).as_posix()}).""", "## Overview", comment_text(introduction).split(": ", 1)[1], "## The pool"]
    for paragraph in declarations.strip().split("\n\n"):
        comment, code = "", paragraph
        if paragraph.startswith("/*"):
            comment, _, code = paragraph.partition("*/")
            comment, code = comment_text(comment), code.strip()
        if title := re.match(r"-+ (.*?) -+\n", comment):
            parts += [f"## {title[1]}", comment[title.end():].strip()]
            continue
        names = declared(code)
        if not names:
            sys.exit(f"error: {HEADER}: nothing is declared here:\n{paragraph}")
        parts += [f"### {', '.join(names)}", comment, f"```c\n{code}\n```"]
    return "\n\n".join(part for part in parts if part) + "\n"


def main():
    if sys.argv[1:] == ["--crates"]:
        print("\n".join(crates()))
        return
    folder = pathlib.Path(sys.argv[1]) / "api"
    (folder / "python").mkdir(parents=True, exist_ok=True)
    pages = {"rust": rust_page(), "c": c_page()} | {f"python/{name}": text for name, text in python_pages()}
    for name, text in pages.items():
        (folder / f"{name}.md").write_text(text)


main()
