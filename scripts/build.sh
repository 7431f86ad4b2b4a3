#!/usr/bin/env bash
# Builds the three programs into bin/.
source "$(dirname "$0")/need.sh"
cd "$root"
CGO_ENABLED=0 go build -trimpath -o bin/ ./cmd/...
