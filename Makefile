# One line per target; `make help` lists them. What a target needs it builds or
# installs itself, pinned (scripts/need.sh).
SHELL := /bin/bash
GO ?= go

.PHONY: help build test race fuzz bench soak lint gen e2e interop demo
help: ## list the targets
	@grep -hE '^[a-z0-9]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10
build: ## build proxy-server, proxy-agent and culvert into bin/
	@scripts/build.sh
test: ## all tests of all modules, with the race detector
	@scripts/test.sh
race: ## tests of the root and tunnel modules only, several times, in random order
	@scripts/test.sh -count=3 -shuffle=on
fuzz: ## every fuzz target for a while (FUZZTIME=20s)
	@scripts/fuzz.sh
bench: ## benchmarks, and the table of budgets (DESIGN of ARCHITECTURE.md)
	@scripts/bench.sh
soak: ## the behaviour tests in their full size (minutes)
	@scripts/soak.sh
lint: ## golangci-lint, gofmt, go vet, shell syntax
	@scripts/lint.sh
gen: ## write the golden files anew; `git diff` then shows what changed
	@scripts/gen.sh
e2e: ## a real Kubernetes control plane through the tunnel
	@scripts/e2e.sh
interop: ## the public client library as a peer, two versions
	@scripts/interop.sh
demo: ## build, then run servers, agents and an endpoint on this machine with traffic
	@scripts/build.sh && bin/culvert demo $(ARGS)
