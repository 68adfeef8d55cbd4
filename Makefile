# The usual entry points; meson and ninja do the work. Every target first installs the Debian packages
# that it needs and does not find (scripts/setup; BERTH_NO_SETUP=1 turns that off).
#
#   make                    build/berth, and build/berth-box
#   make run                a demonstration on a private data directory
#   make test [T=pattern]   unit and black-box tests; the last line counts them (TEST_FLAGS: see test/run -h)
#   make asan, make tsan    the same under sanitizers
#   make bench [ONLY=group] the benchmarks: start, leases, http, exec, sandbox, plugin, page, growth
#   make count              what the hot paths cost in system calls, beside what they cost before (bench/counts.txt)
#   make lint, make format  formatting, clang-tidy, cppcheck, gcc -fanalyzer; format in place
#   make fuzz [SECONDS=20]  every fuzz target, for so long each
#   make soak [SECONDS=120] [SEED=n]  clients at work while everything beneath the daemon breaks (test/soak/soak.py)
#   make nightly [STEP=...] what is too long for every change: hostile suites for longer, slow tests under
#                           sanitizers, valgrind, long fuzzing, soak (scripts/nightly)
#   make assertions         which assertions of the specifications have a test
#   make valgrind           unit tests of base and codec under valgrind
#   make box-arm64          build/berth-box-aarch64, for ssh hosts with such a processor
#   make install            to PREFIX (default /usr/local), under DESTDIR

PREFIX ?= /usr/local
SECONDS ?=
SEED ?=
T ?=

# Sanitizers make compilers see ghosts; warnings are the plain build's business.
# Lines are all that their reports need of debugging information.
SANITIZED = -Db_lundef=false -Doptimization=1 -Dwerror=false -Dc_args='-w -g1'

all:
	@scripts/setup build
	@scripts/build build -- berth berth-box

# The box for arm64 hosts that are reached by ssh, beside the one of this machine.
box-arm64: all
	@scripts/setup arm64
	@scripts/box-arm64 build

run: all
	@scripts/demo

test:
	@scripts/setup test
	@scripts/build build
	@test/run --build build $(if $(T),-k '$(T)') $(TEST_FLAGS)

# Each transaction twice (src/store/store.h): the store, and files that write most kinds of rows.
repeat:
	@scripts/setup test
	@scripts/build build
	@TEST_REPEAT_WRITES=1 test/run --build build $(if $(T),-k '$(T)',$(addprefix -k ,unit/test_store it/test_leases.py it/test_lease_reuse.py it/test_runs.py it/test_secrets.py)) $(TEST_FLAGS)

# Black-box tests on PostgreSQL; test/run starts a server. The store suite on it runs with all tests.
postgres:
	@scripts/setup test
	@scripts/build build
	@TEST_STORE=postgres test/run --build build $(if $(T),-k '$(T)',$(addprefix -k ,it/test_leases.py it/test_companies.py it/test_environments.py it/test_access.py)) $(TEST_FLAGS)

asan:
	@scripts/setup test
	@scripts/build build-asan -Db_sanitize=address,undefined $(SANITIZED) -- $$(test/run --targets $(if $(T),-k '$(T)') $(TEST_FLAGS))
	@scripts/sanitized test/run --build build-asan $(if $(T),-k '$(T)') $(TEST_FLAGS)

tsan:
	@scripts/setup test
	@scripts/build build-tsan -Db_sanitize=thread $(SANITIZED) -- $$(test/run --targets $(if $(T),-k '$(T)') $(TEST_FLAGS))
	@scripts/sanitized test/run --build build-tsan $(if $(T),-k '$(T)') $(TEST_FLAGS)

valgrind:
	@scripts/setup valgrind
	@scripts/build build
	@test/run --build build --valgrind

bench:
	@scripts/setup bench
	@scripts/build build
	@bench/run --build build $(if $(ONLY),--only $(ONLY))

count:
	@scripts/setup count
	@scripts/build build -- berth berth-box
	@bench/count --check

soak:
	@scripts/setup test
	@scripts/build build
	@test/soak/soak.py --build build $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED))

fuzz:
	@scripts/setup fuzz
	@scripts/fuzz $(SECONDS)

nightly:
	@scripts/setup test bench fuzz valgrind
	@scripts/nightly $(STEP)

lint:
	@scripts/setup lint
	@scripts/lint

format-check:
	@scripts/setup lint
	@scripts/lint format

format:
	@scripts/setup lint
	@git ls-files '*.c' '*.h' | xargs clang-format-14 -i

assertions:
	@scripts/setup test
	@scripts/assertions

install:
	@scripts/setup build
	@scripts/build build-install --buildtype=release --prefix=$(PREFIX)
	@meson install -C build-install --no-rebuild

clean:
	@rm -rf build build-*

.PHONY: all box-arm64 run test repeat postgres asan tsan valgrind bench count soak fuzz nightly lint format format-check assertions install clean
