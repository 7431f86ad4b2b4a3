#!/usr/bin/env bash
# The behaviour tests in their full size.
source "$(dirname "$0")/need.sh"
cd "$root"
CULVERT_SOAK=1 go test -count=1 -timeout 60m -v -run 'Behaviour' ./rig/...
