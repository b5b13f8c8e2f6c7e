# The commands of daily work; `just` alone lists them. CONTRIBUTING.md explains each.

_list:
    @just --list --unsorted

# run the demo on the software GPU
demo:
    cargo run --release -- demo

# run the tests of the whole workspace, or of one crate: `just test makeroom-trace`
test crate='':
    cargo test {{ if crate == '' { '--workspace' } else { '-p ' + crate } }}

# format, and check format, spelling, scripts and lints
lint:
    cargo fmt --all
    .ci/lint
    cargo clippy --workspace --all-targets --features makeroom-pool/cudarc -- -D warnings

# run everything that must pass before a change lands
ci:
    .ci/run

# rewrite output shown in docs, help and snapshots; look at the diff before you commit it
golden:
    TRYCMD=overwrite INSTA_UPDATE=always cargo test -p makeroom --test documents --test tests -- documents help findings

# build the API documentation and open it
docs:
    cargo doc --workspace --no-deps --document-private-items --open

# check the page of `view` in a real browser
viewer:
    .ci/viewer

# build and test the Python wheel
python:
    .ci/python

# fuzz one reader for a minute: `just fuzz room` (needs nightly and cargo-fuzz)
fuzz target seconds='60':
    cargo +nightly fuzz run --fuzz-dir fuzz {{ target }} -- -max_total_time={{ seconds }}

# measure: every figure from small inputs, or one benchmark in full: `just bench why`
bench name='--quick':
    cargo build --release
    bench/run {{ name }}
