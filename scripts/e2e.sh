#!/usr/bin/env bash
# A real control plane through the tunnel; a module of its own.
source "$(dirname "$0")/need.sh"
cd "$root"
[ -f e2e/go.mod ] || { echo "culvert: the e2e module is not built yet" >&2; exit 1; }
(cd e2e && GOWORK=off go test -count=1 -timeout 60m ./...)
