#!/usr/bin/env bash
# Writes golden files anew: tests that hold one accept UPDATE_GOLDEN=1.
source "$(dirname "$0")/need.sh"
cd "$root"
UPDATE_GOLDEN=1 go test -run 'Golden|Transcript' -count=1 ./...
(cd tunnel && UPDATE_GOLDEN=1 go test -run 'Golden' -count=1 ./...)
