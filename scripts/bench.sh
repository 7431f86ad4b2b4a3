#!/usr/bin/env bash
# Micro-benchmarks first, then the table of budgets against a bare relay.
source "$(dirname "$0")/need.sh"
cd "$root"
scripts/build.sh
(cd tunnel && go test -run '^$' -bench . -benchmem -benchtime "${BENCHTIME:-0.5s}" ./...)
go test -run '^$' -bench . -benchmem -benchtime "${BENCHTIME:-0.5s}" ./internal/...
(cd bench && go run . -bin "$root/bin" "$@")
