#!/usr/bin/env bash
# The public client library as a peer; each version is a module of its own.
source "$(dirname "$0")/need.sh"
cd "$root"
need_cc
need_deb curl curl
# Who was seen to work with whom, shown at the end whatever happens.
CULVERT_INTEROP_MATRIX=$(mktemp)
export CULVERT_INTEROP_MATRIX
show() {
	printf '%-28s | %-14s | %-14s |\n' client server agent
	cat "$CULVERT_INTEROP_MATRIX"
	rm -f "$CULVERT_INTEROP_MATRIX"
}
trap show EXIT
for module in interop/*/go.mod; do
	[ -f "$module" ] || continue
	echo "== ${module%/go.mod}"
	(cd "${module%/go.mod}" && GOWORK=off go test -race -timeout 20m ./...)
done
