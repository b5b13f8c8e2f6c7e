# Functions of the scripts of release/, and of python/build.
# shellcheck shell=bash

# `link_unwinder TARGET`: makes cargo link libgcc_s for that target, where zig links.
#
# An exception of C++ that passes through a frame of ours is led by libgcc_s, and must meet its functions there. zig puts
# an unwinder of its own into every file instead, with which the program crashes. So libgcc_s stands in front of that: a
# file with its names, which is all that a linker needs; the real one is on every machine that has glibc and C++.
link_unwinder() {
    local folder=${CARGO_TARGET_DIR:-target}/unwinder/$1 name
    mkdir -p "$folder"
    folder=$(realpath "$folder")
    for name in Backtrace DeleteException FindEnclosingFunction GetCFA GetDataRelBase GetIP GetIPInfo \
        GetLanguageSpecificData GetRegionStart GetTextRelBase RaiseException Resume SetGR SetIP; do
        printf 'void _Unwind_%s(void) {}\n' "$name"
    done >"$folder"/names.c
    cargo-zigbuild zig cc -- -target "${1/-unknown-/-}" -shared -nostdlib -Wl,-soname,libgcc_s.so.1 \
        -o "$folder"/libgcc_s.so.1 "$folder"/names.c
    # Separated by a character that no path has.
    local flags=${CARGO_ENCODED_RUSTFLAGS:-${RUSTFLAGS:+${RUSTFLAGS// /$'\x1f'}}}
    export CARGO_ENCODED_RUSTFLAGS=${flags:+$flags$'\x1f'}-Clink-arg=$folder/libgcc_s.so.1
}

# Fails if a library contains its own unwinder.
check_unwinder() {
    readelf --dynamic "$1" | grep -q libgcc_s ||
        { printf 'error: %s has an unwinder of its own: exceptions of C++ would not pass through it\n' "$1" >&2; return 1; }
}

# `without_symbols TARGET FILE COPY`: the line tables of the demonstrations stay, so that `demo` names lines.
without_symbols() {
    local tool=objcopy
    [ "$1" = "$(rustc -vV | sed -n 's/^host: //p')" ] || tool=llvm-objcopy
    release/lines "$tool" "$2" "$3"
}

# `write_pages COMMAND MAN BASH ZSH FISH`: the man pages into a folder, and the completions of each shell as a file.
write_pages() {
    mkdir -p "$2" "$(dirname "$3")" "$(dirname "$4")" "$(dirname "$5")"
    "$1" man "$2"
    "$1" completions bash >"$3"
    "$1" completions zsh >"$4"
    "$1" completions fish >"$5"
}

# `needs PROGRAM`: installs a Debian package of that name where the program is missing.
needs() {
    command -v "$1" >/dev/null && return
    export DEBIAN_FRONTEND=noninteractive
    local install=(apt-get install --yes --no-install-recommends "$1")
    "${install[@]}" >&2 || { apt-get update >&2 && "${install[@]}" >&2; }
}
