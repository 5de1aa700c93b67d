# Every target does its own set-up. `make help` lists them.

GO      ?= go
BIN     := .bin
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -X main.version=$(VERSION)
ARGS    ?=

.DEFAULT_GOAL := help

help: ## Show this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## Build errand and errand-runner into .bin/.
	$(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/errand ./cmd/errand
	$(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/errand-runner ./cmd/errand-runner

demo: build ## An error becomes a pull request, on this machine alone (ARGS=--once ends after the first).
	@$(BIN)/errand demo $(ARGS)

test: ## All tests, race detector on.
	$(GO) test -race -timeout 10m $(ARGS) ./...

fuzz: ## Every fuzz target for a few seconds (FUZZ_S each, 5).
	@FUZZ_S=$(FUZZ_S) tools/fuzz.sh

oracle: ## What gitleaks finds in a planted corpus, the scrubber has removed (compiles gitleaks, in a module of its own).
	cd tools/scruboracle && GOFLAGS="$(GOFLAGS) -mod=mod" $(GO) test -timeout 5m -count 1 ./...

bench: ## Measure ingest, dispatch, tokens and decisions on this machine (BENCH=short: within 50 s).
	@$(GO) build -o $(BIN)/bench ./bench
	@BENCH=$(BENCH) $(BIN)/bench

browser: ## The console in a real browser (needs Chromium).
	ERRAND_BROWSER=1 $(GO) test -timeout 5m -run Browser -count 1 -v ./console/...

chaos: ## Two replicas under load and faults, and an oracle (CHAOS_S seconds, CHAOS_SEED, ARGS).
	@$(GO) build -o $(BIN)/chaos ./bench/chaos
	@$(BIN)/chaos $(ARGS)

lint: $(BIN)/golangci-lint ## Static checks.
	$(BIN)/golangci-lint run ./...

fmt: $(BIN)/gofumpt ## Format the source.
	$(BIN)/gofumpt -w $$(git ls-files '*.go' | grep -v -e '_templ\.go$$' -e '/internal/db/' -e '^store/rows\.go$$')

generate: $(BIN)/sqlc $(BIN)/templ ## Write the generated code again (sqlc, templ).
	cd store && ../$(BIN)/sqlc generate
	$(GO) run ./tools/rowalias store/internal/db store/rows.go
	$(BIN)/templ generate -path console -log-level error

check-generated: generate ## Fail when the committed generated code is stale.
	git diff --exit-code -- store/internal/db store/rows.go console
	@test -z "$$(git ls-files --others --exclude-standard -- store/internal/db console)" || { echo "generated files are not committed"; exit 1; }

check-docs: ## Fail on links in the documents that lead nowhere, and on settings that are not documented.
	$(GO) test -count 1 -run 'TestDocs' . ./cmd/errand

clean: ## Remove what was built.
	rm -rf $(BIN)

# The tools, each pinned in a module of its own.
$(BIN)/sqlc: tools/sqlc/go.mod
	$(GO) build -modfile=tools/sqlc/go.mod -o $@ github.com/sqlc-dev/sqlc/cmd/sqlc
$(BIN)/templ: tools/templ/go.mod
	$(GO) build -modfile=tools/templ/go.mod -o $@ github.com/a-h/templ/cmd/templ
$(BIN)/gofumpt: tools/gofumpt/go.mod
	$(GO) build -modfile=tools/gofumpt/go.mod -o $@ mvdan.cc/gofumpt
$(BIN)/golangci-lint: tools/golangci-lint/go.mod
	$(GO) build -modfile=tools/golangci-lint/go.mod -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

.PHONY: bench help build demo test fuzz oracle browser chaos lint fmt generate check-generated check-docs clean
