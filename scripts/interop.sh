#!/usr/bin/env bash
# The public client library as a peer; each version is a module of its own.
source "$(dirname "$0")/need.sh"
cd "$root"
need_cc
need_deb curl curl
for module in interop/*/go.mod; do
	[ -f "$module" ] || continue
	echo "== ${module%/go.mod}"
	(cd "${module%/go.mod}" && GOWORK=off go test -race -timeout 20m ./...)
done
