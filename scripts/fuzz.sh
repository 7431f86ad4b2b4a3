#!/usr/bin/env bash
# Every fuzz target of the workspace for FUZZTIME each.
source "$(dirname "$0")/need.sh"
cd "$root"
grep -rlE '^func Fuzz' --include='*_test.go' tunnel internal | while read -r file; do
	package=./$(dirname "$file")
	for target in $(grep -oE '^func Fuzz[A-Za-z0-9_]+' "$file" | awk '{print $2}'); do
		echo "== $package $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-20s}" "$package"
	done
done
