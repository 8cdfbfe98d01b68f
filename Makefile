# perdure. `make help` lists the targets; each does its own set-up.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build

PREFIX  ?= /usr/local
DESTDIR ?=
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
GOBUILD := CGO_ENABLED=0 go build -trimpath -ldflags="-s -w -X main.version=$(VERSION)"
BINARIES := containerd-shim-perdure-v2 perdure

# How long containerd stays away in the test about that.
export PERDURE_TEST_DOWN ?= 30s

.NOTPARALLEL:
.PHONY: help build install test unit simulation integration lint conformance demo vm-test bench fuzz cover clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

build: ## build both binaries into bin/
	@mkdir -p bin
	$(GOBUILD) -o bin/ $(BINARIES:%=./cmd/%)

# Renamed into place: a running shim keeps its file, and nobody sees half of one.
install: build ## install into $(DESTDIR)$(PREFIX)/bin
	@mkdir -p "$(DESTDIR)$(PREFIX)/bin"
	for name in $(BINARIES); do \
		cp bin/$$name "$(DESTDIR)$(PREFIX)/bin/.$$name.new"; \
		mv -f "$(DESTDIR)$(PREFIX)/bin/.$$name.new" "$(DESTDIR)$(PREFIX)/bin/$$name"; \
	done

test: unit integration ## everything: unit tests, then real containerd and runc (needs root)

# The reporter is built first: go vet and the tests take the processors.
REPORT := cd chaos-tests && go build -o ../bin/test/report ./report && cd ..

unit: ## go vet and the unit tests
	@mkdir -p bin/test
	$(REPORT)
	go vet ./...
	{ go test -json ./...; go test -json -tags crashpoints ./internal/crash; \
		cd chaos-tests && go test -json -tags crashpoints ./simulation; } | bin/test/report

# SIM=full goes further than `make test` does, ONLY="pause exits" less far: see chaos-tests/simulation.
SIM  ?=
ONLY ?=
simulation: ## the worker in a simulated world, killed at every step (SIM=full, ONLY=, PERDURE_SEED=)
	@mkdir -p bin/test
	$(REPORT)
	cd chaos-tests && PERDURE_SIM=$(SIM) PERDURE_SIM_ONLY="$(ONLY)" go test -json -count=1 -timeout 0 -tags crashpoints ./simulation | ../bin/test/report -v

# What is measured is measured alone; the rest waits more than it works.
integration: build bin/test/perdure-crashpoints ## the tests of chaos-tests/ (needs root)
	@scripts/setup tests >/dev/null
	$(REPORT)
	cd chaos-tests && go vet ./...
	cd chaos-tests && { go test -json -count=1 ./measure; \
		go test -json -p 2 -count=1 -timeout 25m $$(go list ./... | grep -v /measure$$); } | ../bin/test/report -v

# VM="-run TestStats cgroups" runs a part: see chaos-tests/vm.
VM ?=
vm-test: build bin/test/perdure-crashpoints ## chaos-tests with kernel 6.12 and cgroup v2, in a virtual machine
	@scripts/setup tests >/dev/null
	@scripts/setup vm >/dev/null
	$(REPORT)
	cd chaos-tests && go run ./vm $(VM) | ../bin/test/report -v

# The worker and the keeper with their crash points compiled in; never installed.
.PHONY: bin/test/perdure-crashpoints
bin/test/perdure-crashpoints:
	@mkdir -p bin/test/crashpoints
	$(GOBUILD) -tags crashpoints -o $@ ./cmd/perdure
	$(GOBUILD) -tags crashpoints -o bin/test/crashpoints/ ./cmd/containerd-shim-perdure-v2

lint: ## staticcheck and gofmt
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); [[ -z $$unformatted ]] || { echo "gofmt: $$unformatted"; exit 1; }
	staticcheck=$$(scripts/setup lint)/staticcheck; \
	$$staticcheck ./... && $$staticcheck -tags crashpoints ./... && (cd chaos-tests && $$staticcheck ./... && $$staticcheck -tags chaos ./matrix && $$staticcheck -tags crashpoints ./simulation)

# KILL is how often workers are killed in the third part, RUN a regular
# expression of tests, RUNC 1.1.5 (the machine's, which must be that) or the
# version that tools/runc pins, PARTS some of stock, perdure and killed.
KILL  ?= 300ms
RUN   ?=
RUNC  ?=
PARTS ?= stock,perdure,killed
conformance: build ## containerd's own client tests: stock shim, perdure, perdure with killed workers (needs root)
	@scripts/setup tests >/dev/null
	suite=$$(scripts/setup conformance) runc=$$(scripts/setup runc "$(RUNC)"); \
	cd chaos-tests && mkdir -p ../bin/test/conformance && go run ./conformance -suite "$$suite" -runc "$$runc" \
		-logs ../bin/test/conformance -kill $(KILL) -run '$(RUN)' -parts $(PARTS) $(CONFORMANCE)

# TEST is one of TestPoints, TestCrun, TestRuntime, TestDaemon, TestDaemonAndWorker, RUN the names of jobs of it, as a
# failure prints them; all without. LANES is how many lives go on at the same time.
TEST  ?= .
LANES ?= 8
.PHONY: chaos
chaos: build bin/test/perdure-crashpoints ## kill each process at each step, and again on its way back, with real binaries (needs root)
	@scripts/setup tests >/dev/null
	$(REPORT)
	cd chaos-tests && go vet -tags chaos ./matrix && PERDURE_CHAOS_RUN='$(RUN)' PERDURE_CHAOS_LANES=$(LANES) PERDURE_TEST_ALL=1 \
		go test -json -tags chaos -count=1 -p 1 -timeout 90m -run '$(TEST)' ./matrix ./keeperdeath | ../bin/test/report -v

# The plan of a run is a function of SEED; 0 is another each time. SLOTS and FAULTS are some of its containers and kinds of
# faults, as a failure prints them; all without.
SEED    ?= 0
MINUTES ?= 20
SLOTS   ?=
FAULTS  ?=
.PHONY: soak
soak: build ## random operations of many clients, and random faults, for MINUTES (needs root)
	@scripts/setup tests >/dev/null
	cd chaos-tests && go test -count=1 -v -timeout 0 -run '^TestSoak$$' ./soak -seed=$(SEED) -minutes=$(MINUTES) -slots='$(SLOTS)' -faults='$(FAULTS)'

# MUTANT is a regular expression of names; README.md there lists them.
MUTANT ?=
.PHONY: mutation
mutation: ## break the product in many ways; some test has to notice each (the last ones need root)
	cd chaos-tests && go run ./mutation -mutant '$(MUTANT)'

demo: build ## see a container survive its shim's worker (needs root)
	@scripts/setup tests >/dev/null
	cd chaos-tests && go run ./demo

bench: ## the benchmarks
	go test -run '^$$' -bench . -benchmem ./...

# Each fuzz target for FUZZTIME.
FUZZTIME ?= 30s
fuzz: ## run each fuzz target for FUZZTIME
	for file in $$(git grep -lE '^func Fuzz' -- '*_test.go'); do \
		for target in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*).*/\1/p' $$file); do \
			go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) ./$$(dirname $$file); \
		done; \
	done

cover: ## coverage of the unit tests
	@mkdir -p bin/test
	go test -coverprofile=bin/test/cover.out ./...
	go tool cover -func=bin/test/cover.out | tail -1

clean: ## remove what was built here (not the cache)
	rm -rf bin
