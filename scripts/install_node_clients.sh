#!/usr/bin/env bash
# Install programs of other projects that run on Node.js and are clients of nacre: the RPC clients of
# pi and oh-my-pi, and the conformance suite of MCP. The argument is the directory to install into.
set -euo pipefail
target=$1
rm -rf "$target"
mkdir -p "$target"
cd "$target"

install() { # PREFIX PACKAGE...
  npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$@"
}

# Unpack a package without its dependencies: the RPC client in the package needs only a few of them.
unpack() { # PREFIX PACKAGE VERSION
  local unpacked=$1/node_modules/$2 archive
  archive=$(npm pack --silent "$2@$3")
  mkdir -p "$unpacked"
  tar -xzf "$archive" -C "$unpacked" --strip-components=1
  rm "$archive"
}

# bun runs the clients of oh-my-pi, which are TypeScript. bun also runs the conformance suite, which
# needs a newer Node.js than most machines have.
install tools bun@1.4.4 @modelcontextprotocol/conformance@0.1.16

unpack pi-0.73.1 @mariozechner/pi-coding-agent 0.73.1
install oh-my-pi-18.3.4 @oh-my-pi/pi-utils@18.2.3 @oh-my-pi/pi-natives@18.2.3
unpack oh-my-pi-18.3.4 @oh-my-pi/pi-coding-agent 18.3.4
install oh-my-pi-14.9.9 @oh-my-pi/pi-utils@14.9.9 @oh-my-pi/pi-natives@14.9.9
unpack oh-my-pi-14.9.9 @oh-my-pi/pi-coding-agent 14.9.9
# Delete the native libraries that the tests do not need, which have 200 MB each: those for other
# machines, and the second variant for this machine.
find . -name 'pi_natives.*.node' ! -name '*linux-arm64*' ! -name '*linux-x64-baseline*' -delete
