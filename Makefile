# Makefile of lease, a PostgreSQL extension, under PGXS
#
#   make                  builds against the server that PG_CONFIG names
#   make install          installs into that server
#   make installcheck     tests a running server (PGHOST, PGPORT, ...)
#   make check            tests a private copy of the server; needs nothing set up
#   make demo             tells the story of a paused leader with real processes
#   make demo-maintenance kills, pauses and cuts off whoever does what is due every second
#   make failover         kills servers of a cluster that Patroni manages: 2 minutes
#   make bench            measures what a fence costs, as ratios
#   make dist             packs the committed tree for PGXN
#
# WERROR=1 turns every warning into an error (gcc, or CC=clang).
# "make check REGRESS=lifecycle ISOLATION= TAP_TESTS=" runs one test.

EXTENSION = lease
EXTVERSION := $(shell sed -n "s/^default_version *= *'\(.*\)'.*/\1/p" lease.control)

MODULE_big = lease
OBJS = \
	src/lease.o \
	src/clock.o \
	src/lock.o \
	src/catalog.o \
	src/durability.o \
	src/aftermath.o \
	src/evict.o \
	src/line.o \
	src/await.o \
	src/pool.o \
	src/digest.o \
	src/keep.o \
	src/event.o \
	src/store.o \
	src/rows.o \
	src/epoch.o \
	src/role.o \
	src/args.o \
	src/token.o \
	src/authority.o \
	src/change.o \
	src/passage.o \
	src/acquire.o \
	src/grant.o \
	src/guard.o \
	src/fence.o \
	src/protection.o \
	src/stamp.o \
	src/ddl.o \
	src/statement.o \
	src/api.o \
	src/admin.o \
	src/status.o \
	src/instants.o \
	src/latest.o \
	src/health.o \
	src/cron.o \
	src/schedule.o \
	src/definition.o \
	src/records.o \
	src/pins.o

# The installation script is one file per topic, in this order: each may use
# what stands above it.
TOPICS = \
	sql/schema.sql \
	sql/leases.sql \
	sql/line.sql \
	sql/fences.sql \
	sql/status.sql \
	sql/history.sql \
	sql/tasks.sql \
	sql/actions.sql \
	sql/health.sql \
	sql/records.sql \
	sql/decisions.sql \
	sql/cursors.sql \
	sql/floors.sql \
	sql/inventory.sql \
	sql/pools.sql \
	sql/doctor.sql \
	sql/roles.sql
install_script = sql/$(EXTENSION)--$(EXTVERSION).sql

DATA = $(wildcard sql/$(EXTENSION)--*--*.sql)
DATA_built = $(install_script)

# Tests. Assigned with := because PGXS asks "ifdef", which is true of a recursive
# variable that merely expands to nothing.
regress_tests := $(patsubst test/sql/%.sql,%,$(wildcard test/sql/*.sql))
REGRESS := $(strip $(filter install,$(regress_tests)) \
	$(filter-out install uninstall,$(regress_tests)) \
	$(filter uninstall,$(regress_tests)))
REGRESS_OPTS = --inputdir=test
ISOLATION := $(patsubst test/specs/%.spec,%,$(wildcard test/specs/*.spec))
ISOLATION_OPTS = --inputdir=test --outputdir=.
PROVE_TESTS ?= test/t/*.pl
TAP_TESTS := $(if $(wildcard $(PROVE_TESTS)),1)

# pg_regress looks for NAME.sql in sql/ before test/sql/, so a test named like an
# installation script would run that script, compare it with a result recorded
# from it, and pass without testing anything.
shadowed := $(filter $(patsubst sql/%.sql,%,$(wildcard sql/*.sql)) $(TOPICS:sql/%.sql=%),$(regress_tests))
ifneq ($(shadowed),)
$(error rename $(shadowed:%=test/sql/%.sql): pg_regress would run $(shadowed:%=sql/%.sql) instead)
endif

# Results of both kinds of test are kept in expected/ and results/.
ambiguous := $(filter $(regress_tests),$(ISOLATION))
ifneq ($(ambiguous),)
$(error rename $(ambiguous:%=test/specs/%.spec): a test in test/sql/ has that name, and both would use $(ambiguous:%=expected/%.out))
endif

BUILT_FOR = src/.built_for
EXTRA_CLEAN = tmp_install/ $(BUILT_FOR)

# PostgreSQL 18 and later ask a library for its version.
PG_CPPFLAGS = -DLEASE_VERSION='"$(EXTVERSION)"'

# Only what PGDLLEXPORT marks is seen outside the library.
PG_CFLAGS = -fvisibility=hidden

PG_CONFIG ?= pg_config
# Quiet, because "make check" and "make demo" have to start where it is missing.
# Its makefiles may be there without the headers.
PGXS := $(if $(wildcard $(shell $(PG_CONFIG) --includedir-server 2>/dev/null)/postgres.h),$(wildcard $(shell $(PG_CONFIG) --pgxs 2>/dev/null)))

# These goals run in a private copy of the server, built by a make of its own.
# They are kept apart from PGXS because they also work before its package is
# installed, and because PGXS has a "check" that only says it is not supported.
self_contained = check demo demo-maintenance failover bench dist
.PHONY: $(self_contained)

ifneq ($(filter $(self_contained),$(MAKECMDGOALS)),)

# Other goals on the same command line, as in "make clean check"
beside := $(filter-out $(self_contained),$(MAKECMDGOALS))
ifneq ($(beside),)
.PHONY: $(beside)
.NOTPARALLEL:
$(beside):
	$(MAKE) $@
endif

export PG_CONFIG

# Of "make bench": more rounds are less noise
ROUNDS ?= 10

# Of "make demo-maintenance": for how long whoever leads is disturbed; SEED=N repeats that
SECONDS ?= 60

# Of "make failover": asynchronous, synchronous; both if empty
MODES ?=

check:
	@test/prerequisites tests
	@test/private_server test/check

demo:
	@test/prerequisites build
	@test/private_server test/demo/run

demo-maintenance:
	@test/prerequisites demo
	@test/private_server test/demo/maintenance/run $(SECONDS) $(SEED)

failover:
	@test/prerequisites failover
	@test/private_server test/failover/run $(MODES)

bench:
	@test/prerequisites build
	@test/private_server test/bench/fence_cost $(ROUNDS) $(FENCES)

dist:
	@git rev-parse -q --verify HEAD >/dev/null || { echo >&2 "make dist packs what is committed, and needs a git checkout."; exit 1; }
	@mkdir -p dist
	git archive --format zip --prefix=$(EXTENSION)-$(EXTVERSION)/ \
		--output dist/$(EXTENSION)-$(EXTVERSION).zip HEAD

else ifeq ($(PGXS),)

.PHONY: all install uninstall installcheck clean
all install uninstall installcheck clean:
	@echo >&2 "make $@: the build files of a PostgreSQL server were not found through PG_CONFIG=$(PG_CONFIG)."
	@echo >&2 "Install them (Debian: postgresql-server-dev-NN) or name another pg_config: make $@ PG_CONFIG=/path/to/pg_config"
	@exit 1

else

ifdef WERROR
PG_CFLAGS += -Wall -Wextra -Werror
endif

# A server built with JIT support also wants bitcode, made by the clang that it
# was configured with. Without that clang the module works all the same.
clang_of_server := $(shell sed -n 's/^CLANG *= *//p' $(dir $(PGXS))../Makefile.global)
ifeq ($(shell command -v $(firstword $(clang_of_server) none)),)
override with_llvm = no
endif

include $(PGXS)

ifneq ($(filter 9.% 10 11 12 13 14,$(MAJORVERSION)),)
$(error lease needs PostgreSQL 15 or later, $(PG_CONFIG) is of version $(MAJORVERSION))
endif

include src/compiler.mk

$(OBJS) $(OBJS:.o=.bc): $(wildcard src/*.h) $(BUILT_FOR)

$(install_script): $(TOPICS) lease.control Makefile
	cat $(TOPICS) > $@

# The program has a makefile of its own, because PGXS makes either a library or a
# program.
program_goals = all install uninstall clean
.PHONY: $(program_goals:%=%-program)
$(program_goals:%=%-program):
	$(MAKE) -C src/bin PG_CONFIG='$(PG_CONFIG)' $(@:%-program=%)
$(foreach goal,$(program_goals),$(eval $(goal): $(goal)-program))
install-program: all-program

endif
