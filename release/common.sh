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

host_target() {
    rustc -vV | sed -n 's/^host: //p'
}

# `without_symbols TARGET FILE COPY`: the line tables of the demonstrations stay, so that `demo` names lines. For another
# processor, this needs LLVM's objcopy (Debian: llvm), because that of binutils knows only this one.
without_symbols() {
    local tool=objcopy
    [ "$1" = "$(host_target)" ] || tool=llvm-objcopy
    command -v "$tool" >/dev/null || { printf 'error: %s not found\n\nhint: apt install llvm\n' "$tool" >&2; return 1; }
    release/lines "$tool" "$2" "$3"
}

# `runnable PROFILE`: prints the path of a command that runs here. The man pages and completions are the same for every
# processor, so the command for this one writes them for all.
runnable() {
    local host folder=${CARGO_TARGET_DIR:-target} file
    host=$(host_target)
    for file in "$folder/$host/$1/makeroom" "$folder/$1/makeroom"; do
        [ ! -x "$file" ] || { echo "$file"; return; }
    done
    printf 'error: build for %s first: its command writes the man pages and completions for all processors\n' "$host" >&2
    return 1
}

# `write_pages COMMAND MAN BASH ZSH FISH`: the man pages into a folder, and the completions of each shell as a file.
write_pages() {
    mkdir -p "$2" "$(dirname "$3")" "$(dirname "$4")" "$(dirname "$5")"
    "$1" man "$2"
    "$1" completions bash >"$3"
    "$1" completions zsh >"$4"
    "$1" completions fish >"$5"
}

# `install_package NAME`: installs a Debian package.
install_package() {
    export DEBIAN_FRONTEND=noninteractive
    local install=(apt-get install --yes --no-install-recommends "$1")
    "${install[@]}" >&2 || { apt-get update >&2 && "${install[@]}" >&2; }
}

# `needs PROGRAM`: installs a Debian package of that name where the program is missing.
needs() {
    command -v "$1" >/dev/null || install_package "$1"
}

# `new_root SUITE PLACE [OPTION…]`: a new Debian root, with mmdebstrap. Ubuntu lacks the keys of Debian's packages.
new_root() {
    local suite=$1 place=$2
    shift 2
    needs mmdebstrap
    [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || install_package debian-archive-keyring
    mmdebstrap --quiet --variant=minbase "$@" "$suite" "$place"
}
