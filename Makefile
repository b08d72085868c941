# What a person and CI run. Needs GNU make, a POSIX sh, git and Go, and for `make verify` Node.js with npm; everything else it brings
# itself.

GOLANGCI_VERSION := v2.15.0
GOLANGCI := bin/golangci-lint-$(GOLANGCI_VERSION)
SPECTRAL := scripts/contract/node_modules/.bin/spectral

# The race detector needs a C compiler. Without one `make test` says so and tests without it. It watches flowapi, and what works on
# flowapi's memory: it leaves out SQLite, which was made from C and is a third of the time, PostgreSQL's driver, which is another fifth,
# and what computes on memory of its own. That is not inlined what synchronizes, so that the detector sees all of it. Pointers are not
# checked. `make test/race` insists on the detector, and leaves out SQLite only.
RACE_ALL := -race -gcflags=all=-d=checkptr=0 -gcflags=modernc.org/...=-race=false
UNRACED := bufio bytes cmp compress/... crypto/... database/sql/... encoding/... errors fmt hash/... html/... io/... iter log/... maps math/... \
	mime/... net/textproto net/url path/... reflect regexp/... slices sort strconv strings text/... unicode/... \
	$(addsuffix /...,$(addprefix github.com/,cespare getkin go-chi go-json-experiment google jackc jmoiron oapi-codegen prometheus rs) go.yaml.in pgregory.net)
RACE_FLAGS := $(RACE_ALL) $(UNRACED:%='-gcflags=%=-race=false -l')
RACE := $(shell command -v $(firstword $(shell go env CC)) >/dev/null 2>&1 && echo "$(RACE_FLAGS)")

# Property tests draw the same here every time, so that a change is judged by what it changes. RAPID_SEED=0 draws anew, as `go test` does.
export RAPID_SEED ?= 1

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show what there is
	@awk -F ':.*## ' '/^[a-z\/]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: run
run: ## Serve on 127.0.0.1:8080, stored in ./flowapi.db (ARGS='--addr … --db …' for others)
	go run ./cmd/flowapi serve $(ARGS)

.PHONY: build
build: ## Build bin/flowapi, static and stripped
	CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o bin/flowapi ./cmd/flowapi

# Both databases: SQLite always, PostgreSQL when initdb or FLOWAPI_TEST_POSTGRES_URL is there. Without them that half is
# skipped with a message, unless FLOWAPI_TEST_POSTGRES=required.
.PHONY: test
test: ## Run all tests on both databases, with the race detector
	@test -n "$(RACE)" || echo 'no C compiler: testing without the race detector' >&2
	go test $(RACE) -vet=off -parallel 3 -timeout 60m $(TESTFLAGS) ./...

.PHONY: test/race
test/race: export RAPID_SEED = 0
test/race: ## Hunt for races: all tests twice, in random order, none from the cache
	go test $(RACE_ALL) -timeout 120m -count 2 -shuffle on $(TESTFLAGS) ./...

.PHONY: test/postgres
test/postgres: ## Run the PostgreSQL half of the tests alone
	FLOWAPI_TEST_POSTGRES=required go test $(RACE) -timeout 60m -run '/postgres' $(TESTFLAGS) ./...

.PHONY: lint
lint: $(GOLANGCI) ## Lint, and hold the imports to the layout
	$(GOLANGCI) run

$(GOLANGCI):
	rm -rf bin/golangci-lint*
	GOBIN='$(CURDIR)/bin' go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv bin/golangci-lint $@

.PHONY: generate
generate: ## Generate what comes from the contract and from the event catalogue
	go generate ./...

.PHONY: verify
verify: verify/contract ## Check that generated code, docs/events.md, go.mod and formatting are current, and vet; lint the contract
	scripts/verify-generated.sh
	go mod tidy -diff
	@unformatted=$$(gofmt -l api cmd db examples internal) && test -z "$$unformatted" || { printf 'not gofmt-ed:\n%s\n' "$$unformatted" >&2; exit 1; }
	go vet ./...
	@for script in scripts/*.sh examples/*.sh examples/*/*.sh .ci/run; do sh -n "$$script" || exit 1; done

.PHONY: verify/contract
verify/contract: $(SPECTRAL) ## Lint api/openapi.yaml by scripts/contract/rules.yaml
	$(SPECTRAL) lint --quiet --fail-severity=hint --ruleset scripts/contract/rules.yaml api/openapi.yaml

$(SPECTRAL): scripts/contract/package-lock.json
	@command -v npm >/dev/null || { echo 'make verify lints the contract with Spectral: install Node.js with npm, and have both on the PATH' >&2; exit 1; }
	cd scripts/contract && npm ci
	touch $@

# What tests the repositories, over HTTP and by themselves.
COVERS_REPO := ./internal/repo/... ./internal/app ./internal/graphtest ./internal/runtest ./internal/modeltest

.PHONY: cover
cover: ## Measure what the tests reach: at least 95 % of the domain, 85 % of the repositories
	scripts/cover.sh 95 ./internal/domain/... ./internal/domain/...
	scripts/cover.sh 85 ./internal/repo/... $(COVERS_REPO)

# It reads the database of known vulnerabilities over the network.
.PHONY: vuln
vuln: ## Look for known vulnerabilities in what is called
	go run golang.org/x/vuln/cmd/govulncheck@v1.8.0 ./...

.PHONY: fuzz
fuzz: ## Fuzz each decoder for FUZZTIME (2m)
	scripts/fuzz.sh

.PHONY: bench
bench: ## Measure the server over HTTP: a table, and bench.json (BENCH_LARGE=1: also at 1,000,000 stored executions)
	go run ./cmd/flowapi-bench $(BENCHFLAGS)

.PHONY: demo
demo: ## Run this repository's own pipeline through flowapi, and kill one of its two workers
	scripts/demo.sh

.PHONY: clean
clean: ## Remove what was built and measured
	rm -rf bin bench.json
