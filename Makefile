# `make demo` and `make test` work from a fresh clone: each makes .venv first if need be.

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
JOBS ?= 2

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
ROOT := $(filter 0,$(shell id -u))

# What tests use beside Python, as package:program.
SYSTEM := chromium:chromium postgresql:psql nginx:nginx haproxy:haproxy nodejs:node npm:npm \
    fiu-utils:fiu-run openssl:openssl prometheus:promtool sqlite3:sqlite3 \
    default-jdk-headless:javac maven:mvn python3-dev:python3-config \
    curl:curl systemd:systemd-analyze

.PHONY: demo test deps bench lint proto screenshots docs versions faults fuzz audit otelcol kafka
.DEFAULT_GOAL := test

# A backend on a temporary store with a story in it; until Ctrl-C, or ARGS=--once.
demo: $(INSTALLED)
	@exec $(BIN)/flowmark-otel demo $(ARGS)

# As root it installs the system packages that tests use; else those tests are skipped, by name.
# Tests mostly wait for processes they started, so JOBS of them, file by file, go side by side.
test: $(INSTALLED) $(if $(ROOT),deps)
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile $(ARGS)

lint: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

# Ratios within one run: a table, and bench.json; ARGS names single benchmarks.
bench: $(INSTALLED)
	$(BIN)/python -m tests.bench --json bench.json $(ARGS)

# The fault matrix alone, its campaigns at their full length: a table, and faults.json.
faults: $(INSTALLED) $(if $(ROOT),deps)
	$(BIN)/python -m pytest --long --faults faults.json $(ARGS)

# Ten minutes for each reader of strangers' bytes; ARGS="scanned --seconds 60" for less.
fuzz: $(INSTALLED)
	$(BIN)/python -m tests.fuzz $(ARGS)

# The stock OpenTelemetry Collector that stands beside ours in tests and benchmarks; needs Go.
otelcol: .tools/otelcol

.tools/otelcol: collector/otelcol/main.go collector/otelcol/go.mod collector/otelcol/go.sum
	@mkdir -p .tools
	cd collector/otelcol && CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o ../../$@ .

# A Kafka broker as the buffer between two of them, in jars from Maven Central; needs Maven.
kafka: .tools/kafka

.tools/kafka: collector/kafka/pom.xml
	@rm -rf $@
	mvn --batch-mode --quiet --file $< dependency:copy-dependencies -DincludeScope=runtime \
	    -DoutputDirectory=$(CURDIR)/$@
	@touch $@

# Generated code is checked in; a test compares it with what this writes.
proto: $(INSTALLED)
	$(BIN)/python proto/generate.py

# The documentation as a site, in build/site; what is written from code is checked in.
docs: $(INSTALLED)
	$(BIN)/python -m tools.attributes_page
	$(BIN)/python -m tools.settings_page
	$(BIN)/python -m tools.grafana.dashboard
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Known vulnerabilities of the versions in constraints.txt, by pip-audit, which asks PyPI: needs a network.
audit: .tools/audit/bin/pip-audit
	$< --requirement constraints.txt --no-deps --disable-pip $(ARGS)

.tools/audit/bin/pip-audit:
	$(PYTHON) -m venv .tools/audit
	.tools/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit

# The wheel under every supported Python that is here, with the newest and the oldest dependencies.
versions: $(INSTALLED)
	$(BIN)/python -m tools.versions $(ARGS)

# The pictures of the README: a simulated day, looked at with Chromium.
screenshots: $(INSTALLED) $(if $(ROOT),deps)
	$(BIN)/python -m tests.browser.screenshots docs/images

deps:
	@packages=""; \
	for pair in $(SYSTEM); do \
	    command -v $${pair#*:} >/dev/null || packages="$$packages $${pair%:*}"; \
	done; \
	if [ -z "$$packages" ]; then exit 0; fi; \
	if [ -n "$(ROOT)" ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$packages; \
	else \
	    echo "missing:$$packages (as root, make deps installs them with apt-get)" >&2; exit 1; \
	fi

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    -c constraints.txt -e '.[all,dev]'
	@touch $@
