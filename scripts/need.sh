#!/usr/bin/env bash
# Source this: finds or installs what a command needs, pinned. Tools are built
# once per version under the user's cache folder, outside the repository.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tools=${CULVERT_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/culvert/tools}

# need_deb COMMAND PACKAGE: install a Debian package unless the command exists.
need_deb() {
	command -v "$1" >/dev/null 2>&1 && return 0
	if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
		echo "culvert: '$1' is missing; install it (Debian package $2) and try again" >&2
		return 1
	fi
	[ -n "${apt_updated:-}" ] || apt-get -qq update >/dev/null
	apt_updated=1
	DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$2" >/dev/null
}

# need_go NAME VERSION PACKAGE: build a Go program once per version; prints its path.
need_go() {
	local bin=$tools/$1-$2
	if [ ! -x "$bin" ]; then
		mkdir -p "$tools"
		echo "culvert: building $1 $2 (once)" >&2
		local tmp
		tmp=$(mktemp -d)
		GOWORK=off GOFLAGS= GOBIN=$tmp go install "$3@$2"
		mv "$tmp/$1" "$bin"
		rmdir "$tmp"
	fi
	echo "$bin"
}

# The race detector needs a C compiler.
need_cc() { need_deb "${CC:-gcc}" gcc && { [ -e /usr/include/stdlib.h ] || need_deb no-such-command libc6-dev; }; }
