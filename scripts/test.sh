#!/usr/bin/env bash
# All tests of all modules with the race detector. Arguments go to go test; with
# arguments only the workspace's own modules are run.
source "$(dirname "$0")/need.sh"
cd "$root"
need_cc
need_deb ip iproute2
need_deb curl curl
# go test hides what a package says that passes.
if ! unshare --net true 2>/dev/null && ! unshare --user --map-root-user --net true 2>/dev/null; then
	echo "*** NO NETWORK NAMESPACES HERE: the tests of rig/routing run on loopback and check less" >&2
fi
(cd tunnel && go test -race -timeout 15m "$@" ./...)
if [ $# -eq 0 ]; then
	echo "== tunnel with the lowest versions of its dependencies"
	(cd tunnel && GOWORK=off go test -timeout 15m ./...)
	# The public client as a peer (make interop) is not part of this yet: on a busy
	# machine its rule for an endpoint that speaks first still loses bytes.
	echo "== interop: the codec against the public library's types (make interop runs all of it)"
	for module in interop/v*/; do
		(cd "$module" && GOWORK=off go test -race -timeout 20m -run 'Codec|Version' ./...)
	done
fi
[ ! -f bench/go.mod ] || (cd bench && go test -race -timeout 15m "$@" ./...)
go test -race -timeout 30m "$@" ./...
