#!/usr/bin/env bash
# Formatting, vet, golangci-lint on every module of the workspace, shell syntax.
source "$(dirname "$0")/need.sh"
cd "$root"
linter=$(need_go golangci-lint v2.15.0 github.com/golangci/golangci-lint/v2/cmd/golangci-lint)
unformatted=$(gofmt -l cmd internal tunnel rig bench interop 2>/dev/null || true)
[ -z "$unformatted" ] || { echo "not gofmt'd: $unformatted" >&2; exit 1; }
for script in scripts/*.sh .ci/run; do bash -n "$script"; done
for module in . tunnel bench; do
	[ -f "$module/go.mod" ] || continue
	echo "lint $module"
	(cd "$module" && "$linter" run --config "$root/.golangci.yml" ./...)
done
