# SPDX-License-Identifier: Apache-2.0
#
# make help lists the targets.
VERSION = 0
PATCHLEVEL = 1
SUBLEVEL = 0

# The layers, lowest first: include/base is below them all, include/pawl is the API.
# libpawl is all but the last, which is a library that uses libpawl.
lib-layers := pool device exec core
layers := $(lib-layers) compat

# The builds of make check-all beside the configured one: name=compiler[+fragment of configs/]...
CHECK_BUILDS ?= tsan=clang+tsan asan=gcc+asan

PREFIX ?= /usr/local
DESTDIR ?=

MAKEFLAGS += -rR --no-print-directory
.SUFFIXES:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := all
PHONY := all FORCE
all:
FORCE:

src-abs := $(abspath $(dir $(lastword $(MAKEFILE_LIST))))
build-abs := $(if $(filter command,$(firstword $(origin O))),$(if $(O),$(abspath $(O))))

ifneq ($(filter-out $(CURDIR),$(build-abs)),)
# make O=dir: the same, in there.

$(or $(MAKECMDGOALS),all): sub-make ; @:
$(src-abs)/Makefile Makefile: ;
sub-make:
	@mkdir -p $(build-abs)
	+@$(MAKE) -C $(build-abs) -f $(src-abs)/Makefile O= $(MAKECMDGOALS)
PHONY += sub-make

else

srctree := $(if $(filter $(CURDIR),$(src-abs)),.,$(src-abs))
objtree := .
export srctree

ifneq ($(filter default undefined,$(origin CC)),)
CC := gcc
endif
ifneq ($(filter default undefined,$(origin CXX)),)
CXX := $(if $(findstring clang,$(CC)),$(subst clang,clang++,$(CC)),g++)
endif
ifneq ($(filter default undefined,$(origin AR)),)
AR := ar
endif
OBJCOPY ?= $(shell $(CC) -print-prog-name=objcopy)
PKG_CONFIG ?= pkg-config
# kconfiglib is a Debian package of the system's Python
PYTHON3 ?= /usr/bin/python3
export CC CXX AR PKG_CONFIG PYTHON3 CHECK_BUILDS

pawlversion := $(VERSION).$(PATCHLEVEL).$(SUBLEVEL)
# The version of the exported symbols.  It stays as long as the soname does: programs look for it.
symver := 0.1
soname := libpawl.so.$(VERSION)
solib := libpawl.so.$(pawlversion)
mx-soname := libpawl_mx.so.$(VERSION)
mx-solib := libpawl_mx.so.$(pawlversion)
export pawlversion

KCONFIG_CONFIG := $(CURDIR)/.config
KCONFIG_AUTOHEADER := include/generated/autoconf.h
auto-conf := include/config/auto.conf
export KCONFIG_CONFIG KCONFIG_AUTOHEADER
version-h := include/pawl/version.h

clean-goals := clean mrproper
outer-goals := help setup run check check-all tags dist distcheck check-deb check-walk check-coverage
config-goals := $(filter-out check-%,$(filter %config,$(MAKECMDGOALS)))
free-goals := $(clean-goals) $(outer-goals) $(config-goals) check-kconfig check-tokens \
	check-edges check-docs check-sources check-exports check-spin check-cross check-proof proof-table ledger \
	mutation

ifneq ($(and $(filter-out 0 1,$(words $(MAKECMDGOALS))),$(filter $(clean-goals) $(config-goals),$(MAKECMDGOALS))),)
# Goals that change what the others see: one after the other.

$(MAKECMDGOALS): one-by-one ; @:
one-by-one:
	+@set -e; for goal in $(MAKECMDGOALS); do $(MAKE) -f $(src-abs)/Makefile $$goal; done
PHONY += one-by-one $(MAKECMDGOALS)

else

include $(srctree)/tools/Makefile.build

# --- configuration -----------------------------------------------------------

kconfiglib = $(PYTHON3) -m
kconfig := $(PYTHON3) $(srctree)/tools/kconfig.py
defconfig := $(srctree)/configs/defconfig
kconfig-files := $(wildcard $(srctree)/Kconfig $(srctree)/*/Kconfig)

ifneq ($(if $(MAKECMDGOALS),$(filter-out $(free-goals),$(MAKECMDGOALS)),all),)
have-config := y
# What the probes of the Kconfig files find now, and with which compiler: auto.conf is made again
# when that changes.
probed := include/config/probed
probes := $(CC) $(CXX) $(shell cd $(srctree) && \
	sed -n 's/^\tdef_bool $$(shell,\(.*\))$$/\1/p' $(kconfig-files:$(srctree)/%=%) | \
	CC='$(CC)' CXX='$(CXX)' PKG_CONFIG='$(PKG_CONFIG)' sh)
ifneq ($(and $(wildcard $(KCONFIG_AUTOHEADER)),$(filter x$(probes),x$(file <$(probed)))),x$(probes))
$(shell mkdir -p include/config && echo '$(probes)' > $(probed))
endif
endif

# Without it no configuration is made.
ifneq ($(if $(have-config),$(if $(wildcard $(auto-conf)),,y))$(config-goals),)
ifneq ($(shell $(PYTHON3) -c 'import kconfiglib' 2>/dev/null && echo y),y)
$(error $(PYTHON3) has no kconfiglib, which reads the configuration: run `make setup', or install \
	Debian's python3-kconfiglib)
endif
endif

menuconfig guiconfig oldconfig olddefconfig allnoconfig allyesconfig: FORCE
	+$(Q)$(kconfiglib) $@
savedefconfig: FORCE
	$(Q)$(kconfiglib) savedefconfig --out defconfig
# a fragment of configs/ on top of the configuration
%.config: FORCE | $(KCONFIG_CONFIG)
	$(Q)$(kconfig) merge $(srctree)/configs/$@
# every symbol has a help text
check-kconfig: FORCE
	$(Q)$(kconfig) check

$(if $(filter defconfig,$(MAKECMDGOALS)),defconfig: FORCE,$(KCONFIG_CONFIG):)
	$(Q)$(kconfig) default $(defconfig)

# A configuration that was made by default is made again; one that a person made stays.
$(auto-conf): $(KCONFIG_CONFIG) $(kconfig-files) $(defconfig) $(probed)
	$(Q)mkdir -p include/generated
	$(Q)$(kconfig) sync $(defconfig) $@
	$(Q)touch $@

ifdef have-config
-include $(auto-conf)
endif

# --- flags -------------------------------------------------------------------

ifdef have-config
cc-version := $(shell $(CC) --version | head -n1)
cc-machine := $(shell $(CC) -dumpmachine)
cc-clang := $(findstring clang,$(cc-version))
endif

warn-y := -Wall -Wextra -Wundef -Wshadow -Wmissing-prototypes -Wstrict-prototypes \
	-Wpointer-arith -Wwrite-strings -Wno-unused-parameter
warn-$(CONFIG_WERROR) += -Werror

opt-$(CONFIG_CC_OPTIMIZE_O2) := -O2
opt-$(CONFIG_CC_OPTIMIZE_O3) := -O3
opt-$(CONFIG_CC_OPTIMIZE_OG) := -Og

sanitize-$(CONFIG_SANITIZE_ADDRESS) := -fsanitize=address,undefined \
	-fno-sanitize-recover=undefined -fno-omit-frame-pointer
sanitize-$(CONFIG_SANITIZE_THREAD) := -fsanitize=thread -fno-omit-frame-pointer
# the one fence that the sanitizer does not see orders no plain data: base/atomic.h
warn-$(CONFIG_SANITIZE_THREAD) += $(if $(cc-clang),,-Wno-tsan)
# the library's lines are counted, and not the tests'
count-$(CONFIG_COVERAGE) := --coverage

# ck's headers take their atomics from there, so that the sanitizer sees them
ck-$(CONFIG_SANITIZE_THREAD) := -I$(srctree)/include/ck

base-cflags = $(ck-y) -std=gnu11 -D_GNU_SOURCE= -g $(opt-y) $(if $(filter x86_64%,$(cc-machine)),-mcx16) \
	$(warn-y) $(sanitize-y) -pthread \
	$(addprefix -I,$(sort include $(srctree)/include) $(srctree)) \
	-include $(KCONFIG_AUTOHEADER) $(CPPFLAGS) $(CFLAGS)
lto-$(CONFIG_LTO) := -flto=auto -ffat-lto-objects
lib-cflags := $(count-y) $(lto-y) -fPIC -fvisibility=hidden -ftls-model=initial-exec -fno-plt \
	-fno-semantic-interposition
base-ldflags = $(sanitize-y) $(count-y) -pthread $(LDFLAGS)
# clang puts the sanitizers' run time into programs only
z-defs := $(if $(and $(cc-clang),$(CONFIG_SANITIZE_ADDRESS)$(CONFIG_SANITIZE_THREAD)),,-Wl,-z,defs)
lib-ldlibs := -lurcu-memb

# --- the library -------------------------------------------------------------

$(foreach dir,$(lib-layers),$(eval $(call walk,$(dir),$(lib-cflags))))
lib-objs := $(foreach dir,$(lib-layers),$($(dir)-objs))

mx-h := $(wildcard $(srctree)/include/pawl/mx_*.h*)
public-h := $(sort $(filter-out $(srctree)/$(version-h) $(mx-h),$(wildcard $(srctree)/include/pawl/*.h)))

public-hpp := $(addprefix $(srctree)/include/pawl/,pawl.hpp execution.hpp)

quiet_cmd_version = GEN     $@
cmd_version = sed -e 's/@MAJOR@/$(VERSION)/' -e 's/@MINOR@/$(PATCHLEVEL)/' \
	-e 's/@PATCH@/$(SUBLEVEL)/' -e 's/@VERSION@/$(pawlversion)/' $< > $@
$(version-h): $(srctree)/include/pawl/version.h.in FORCE
	$(call if_changed,version)
targets += $(version-h)

quiet_cmd_cdef = GEN     $@
cmd_cdef = CC='$(CC)' $(srctree)/tools/gen-cdef.sh $@ $(srctree)/include
pawl.cdef: $(public-h) $(srctree)/tools/gen-cdef.sh FORCE
	$(call if_changed,cdef)
targets += pawl.cdef

quiet_cmd_map = MAP     $@
cmd_map = $(PYTHON3) $(srctree)/tools/gen-version-map.py -n PAWL_$(symver) \
	-o $@ $(filter %.c,$^)
libpawl.map: $(lib-objs:%.o=$(srctree)/%.c) $(srctree)/tools/gen-version-map.py FORCE
	$(call if_changed,map)

# All of the library in one object, optimized as a whole.  The layers' own objects hold
# plain code too, for check-layers.
quiet_cmd_lto = LTO     $@
cmd_lto = $(CC) $(base-cflags) $(lib-cflags) -r -nostdlib -flinker-output=nolto-rel -o $@ \
	$(filter %.o,$^)
pawl-lto.o: $(lib-objs) FORCE
	$(call if_changed,lto)
whole-objs := $(if $(CONFIG_LTO),pawl-lto.o,$(lib-objs))
targets += $(if $(CONFIG_LTO),pawl-lto.o)

quiet_cmd_so = LD      $@
cmd_so = $(CC) -shared -Wl,-soname,$(soname) -Wl,-z,nodelete -Wl,--version-script=libpawl.map $(z-defs) \
	-Wl,--as-needed $(base-ldflags) -o $@ $(filter %.o,$^) $(lib-ldlibs)
$(solib): $(whole-objs) libpawl.map FORCE
	$(call if_changed,so)

quiet_cmd_link = LN      $@
cmd_link = ln -sf $(<F) $@
$(soname): $(solib) ; $(call cmd,link)
libpawl.so: $(soname) ; $(call cmd,link)

quiet_cmd_a = AR      $@
cmd_a = rm -f $@; $(AR) rcsD $@ $(filter %.o,$^)

# An archive's users see what the version map names, and nothing else: all of it is one
# object, and its other names are local.
quiet_cmd_hide = HIDE    $@
cmd_hide = $(CC) -r -nostdlib $(if $(cc-clang),,-flinker-output=nolto-rel) \
	-Wl,--force-group-allocation -o $@ $(filter %.o,$^); \
	sed -n 's/^\t\([A-Za-z_0-9]*\);$$/\1/p' $(filter %.map,$^) > $(call dot,$@).names; \
	$(OBJCOPY) --keep-global-symbols=$(call dot,$@).names $@
libpawl.o: $(whole-objs) libpawl.map FORCE
	$(call if_changed,hide)
libpawl.a: libpawl.o FORCE
	$(call if_changed,a)
targets += libpawl.map $(solib) libpawl.o libpawl.a

lib: $(solib) $(soname) libpawl.so libpawl.a pawl.cdef $(version-h)
all: lib

# --- libpawl_mx: MXNet's names ----------------------------------------------------

base-cxxflags = $(filter-out -std=gnu11 -D_GNU_SOURCE= -Wmissing-prototypes -Wstrict-prototypes,$(base-cflags)) \
	-std=gnu++17
# pawl.hpp is tested where there is a compiler for it
have-cxx := $(shell command -v $(firstword $(CXX)) 2>/dev/null)
ifdef CONFIG_COMPAT_MX
mx-cflags := $(count-y) -fPIC -fvisibility=hidden -ftls-model=initial-exec -fno-plt -fno-semantic-interposition
$(eval $(call walk,compat,$(mx-cflags)))
mx-cxx-objs := $(addprefix compat/,$(obj-cxx-y))
$(mx-cxx-objs): ccflags := $(mx-cflags) $(ccflags-y)
cxx-targets += $(mx-cxx-objs)
# the switch of the planted bugs is hidden in libpawl
mx-objs := $(compat-objs) $(mx-cxx-objs) $(if $(CONFIG_BUSTED),pool/busted.o)

quiet_cmd_mxmap = MAP     $@
cmd_mxmap = $(PYTHON3) $(srctree)/tools/gen-version-map.py -n PAWL_MX_$(symver) \
	-o $@ $(filter %.c,$^)
libpawl_mx.map: $(compat-objs:%.o=$(srctree)/%.c) $(srctree)/tools/gen-version-map.py FORCE
	$(call if_changed,mxmap)

quiet_cmd_mxso = LD      $@
cmd_mxso = $(CXX) -shared -Wl,-soname,$(mx-soname) -Wl,--version-script=libpawl_mx.map $(z-defs) \
	-Wl,-z,nodelete -Wl,--enable-new-dtags '-Wl,-rpath,$$ORIGIN' $(base-ldflags) -o $@ \
	$(filter %.o,$^) -L. -lpawl -ldl
$(mx-solib): $(mx-objs) libpawl_mx.map libpawl.so FORCE
	$(call if_changed,mxso)
$(mx-soname): $(mx-solib) ; $(call cmd,link)
libpawl_mx.so: $(mx-soname) ; $(call cmd,link)
libpawl_mx.o: $(mx-objs) libpawl_mx.map FORCE
	$(call if_changed,hide)
libpawl_mx.a: libpawl_mx.o FORCE
	$(call if_changed,a)
targets += libpawl_mx.map $(mx-solib) libpawl_mx.o libpawl_mx.a

lib-mx: lib $(mx-solib) $(mx-soname) libpawl_mx.so libpawl_mx.a
all: lib-mx
PHONY += lib-mx
endif
PHONY += lib

# --- what is around it -------------------------------------------------------

include $(srctree)/tools/Makefile
include $(srctree)/examples/Makefile
include $(srctree)/tests/Makefile
include $(srctree)/tools/Makefile.install

$(filter-out pawl-lto.o libpawl.o libpawl_mx.o,$(filter %.o,$(targets))): %.o: $(srctree)/%.c FORCE | $(auto-conf) $(version-h)
	$(call if_changed,cc)
quiet_cmd_cxx = CXX     $@
cmd_cxx = $(CXX) $(base-cxxflags) $(ccflags) -MMD -MP -MF $(call dot,$@).d -c -o $@ $<
$(cxx-targets): %.o: $(srctree)/%.cc FORCE | $(auto-conf) $(version-h)
	$(call if_changed,cxx)
targets += $(cxx-targets)

include $(wildcard $(foreach t,$(targets),$(call dot,$(t)).cmd $(call dot,$(t)).d))

setup:
	$(Q)$(srctree)/tools/setup.sh check

run:
	$(Q)$(srctree)/tools/setup.sh run
	+$(Q)$(MAKE) $(many) -f $(src-abs)/Makefile tools/pawl/pawl
	$(Q)./tools/pawl/pawl demo $(RUN_ARGS)
	@echo 'Draw a digit: $(objtree)/tools/pawl/pawl serve --repository=$(srctree)/demo/data/models'
	@echo 'and open http://localhost:8000/ in a browser.'

check:
	$(Q)$(srctree)/tools/setup.sh check
	+$(Q)make='$(MAKE) -f $(src-abs)/Makefile' $(srctree)/tests/check.sh short
# An item whose tools are missing is skipped, and says so.
check-all:
	$(Q)$(srctree)/tools/setup.sh check
	-$(Q)$(srctree)/tools/setup.sh all
	-$(Q)$(srctree)/tools/setup.sh cross
	+$(Q)make='$(MAKE) -f $(src-abs)/Makefile' $(srctree)/tests/check.sh all

bench-report:
	$(Q)$(PYTHON3) $(srctree)/tests/bench/report.py $(FILES)

bench bench-build bench-drivers bench-ck scale: $(if $(have-config),libpawl.a libpawl-plain.a $(version-h))
	+$(Q)$(MAKE) -f $(srctree)/tests/bench/Makefile srctree=$(src-abs) objtree=$(CURDIR) \
		PAWL_LIBS='$(base-ldflags) $(lib-ldlibs)' $@

# the default number of jobs
many = $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(shell nproc))

check-tokens:
	$(Q)$(srctree)/tools/check-tokens.sh
check-edges:
	$(Q)$(PYTHON3) $(srctree)/tools/check-edges.py $(srctree)
check-docs:
	$(Q)$(PYTHON3) $(srctree)/tools/check-docs.py $(srctree)
	$(Q)$(PYTHON3) $(srctree)/tests/contracts.py $(srctree)
check-sources:
	$(Q)$(srctree)/tools/check-sources.sh
mutation:
	$(Q)$(PYTHON3) $(srctree)/tests/mutation/mutate.py $(MUTATION_ARGS)
PHONY += mutation
check-exports:
	$(Q)$(PYTHON3) $(srctree)/tools/gen-version-map.py -c $(srctree)/include/pawl \
		-s $(srctree)/debian $(foreach dir,$(layers),$(wildcard $(srctree)/$(dir)/*.c))

# An upward call does not link: each layer with those below it, and no others.
check-layers: $(layers:%=check-layer-%)
below = $(if $(filter $(1),$(firstword $(2))),$(1),$(firstword $(2)) $(call below,$(1),$(wordlist 2,9,$(2))))
quiet_cmd_layer = LAYER   $*
cmd_layer = $(CC) -shared -fno-lto $(z-defs) $(base-ldflags) -o .check-layer-$*.so \
	$(foreach dir,$(call below,$*,$(layers)),$($(dir)-objs)) $(lib-ldlibs)
$(lib-layers:%=check-layer-%): check-layer-%: $(lib-objs)
	$(call cmd,layer)
# compat stands on what libpawl shows to everybody
quiet_cmd_mxlayer = LAYER   compat
cmd_mxlayer = $(CXX) -shared $(z-defs) $(base-ldflags) -o .check-layer-compat.so $(mx-objs) \
	-L. -lpawl -ldl
check-layer-compat: $(mx-objs) libpawl.so
	$(if $(mx-objs),$(call cmd,mxlayer),@:)

PHONY += setup run check check-all bench bench-build bench-drivers bench-ck bench-report scale check-tokens check-edges check-docs \
	check-sources check-exports check-layers $(layers:%=check-layer-%)

# --- releases ----------------------------------------------------------------

dist-name := pawl-$(pawlversion)
dist:
	$(Q)$(srctree)/tools/dist.sh $(dist-name)
	@echo $(dist-name).tar.gz
distcheck:
	+$(Q)$(srctree)/tests/install/dist.sh
check-deb:
	$(Q)$(srctree)/tools/setup.sh all
	+$(Q)$(srctree)/tests/install/deb.sh
check-walk:
	$(Q)$(srctree)/tools/setup.sh all
	+$(Q)$(srctree)/tests/install/walk.sh
check-coverage:
	$(Q)$(srctree)/tools/setup.sh all
	+$(Q)make='$(MAKE) -f $(src-abs)/Makefile' $(srctree)/tests/coverage/run.sh
PHONY += dist distcheck check-deb check-walk check-coverage

tags:
	$(Q)cd $(srctree) && ctags -R include $(layers) tools/pawl demo tests
PHONY += tags

clean-files = pawl.cdef libpawl.o libpawl_mx.o .libpawl*.names libpawl_mx.a libpawl_mx.map libpawl_mx.so* pawl-mx.pc pawl-lto.o libpawl.a libpawl.map libpawl.so* pawl.pc $(version-h) .check-layer-*.so
clean:
	$(Q)rm -f $(clean-files)
	$(Q)rm -rf $(clean-dirs)
	$(Q)for dir in $(layers) include tools demo tests examples cmake Documentation; do \
		[ ! -d $$dir ] || find $$dir -name '*.[oad]' -delete -o -name '.*.cmd' -delete \
			-o -name '*.gcno' -delete -o -name '*.gcda' -delete; done
	$(Q)rm -f .*.cmd
	$(Q)$(MAKE) -f $(srctree)/tests/bench/Makefile srctree=$(src-abs) objtree=$(CURDIR) \
		bench-clean >/dev/null 2>&1 || :
mrproper: clean
	$(Q)rm -rf include/config include/generated build tags
	$(Q)rm -f .config .config.old defconfig $(dist-name).tar.gz
PHONY += clean mrproper

help:
	@sed -n 's/^#@ \?//p' $(src-abs)/Makefile
PHONY += help

#@ Build
#@   all             the library, the pawl command, the manual (default)
#@   lib             libpawl.so and libpawl.a alone; lib-mx: and libpawl_mx
#@   tests           the test programs alone
#@   install         to DESTDIR and PREFIX (/usr/local); LIBDIR and others: Makefile.install;
#@                   PARTS='mx tool man' beside the library, or fewer of them
#@   uninstall       remove exactly what install put there
#@   dist            pack the last commit into pawl-VERSION.tar.gz
#@   clean           remove what was built; the configuration stays
#@   mrproper        remove the configuration and build/ too
#@
#@ Run
#@   run             set up, build, and try the inference server: pawl demo (RUN_ARGS=...)
#@   setup           install the Debian packages that run and check need (root)
#@   bench           the benchmarks, beside other engines (BENCH_ARGS=...)
#@   bench-build     the programs that bench and scale run
#@   bench-drivers   other engines for pawl bench --vs=tests/bench/out/drivers
#@   bench-ck        the library's structures beside concurrencykit's
#@   bench-report    its tables in README and benchmarks.md, from FILES='...' (--json)
#@   bench-serve     pawl serve beside Triton 2.51, by perf_analyzer and MLPerf LoadGen from PyPI
#@                   (JUDGE_ARGS=--quick: three minutes instead of eleven)
#@   cores           transfers of cache lines per op on 1 to 64 simulated cores (CORES_ARGS=)
#@   scale           one table: what 1, 2, 4 ... and all cores do (eight minutes at most)
#@
#@ Check
#@   check           all unit and integration tests and a short form of each proof, a few minutes
#@   check-all       everything that follows, also in the builds of CHECK_BUILDS (20 min on 2 CPUs)
#@   check-unit      unit tests of this build
#@   check-stress    stress tests of this build
#@   check-fuzz      the fuzz targets on their corpus, in this build
#@   check-lin       histories of threads, a minute of them (LIN_ARGS='-t 60')
#@   check-spin      models of the sleep and shutdown protocols, and their broken twins
#@   check-cross     some tests for arm64 and s390x, emulated (as root: installs what it needs)
#@   fuzz            the fuzz targets with libFuzzer (clang), FUZZ_SECONDS=60 each
#@   check-model     the controlled scheduler: all schedules of small programs
#@   check-model-deep  its larger programs, searched to the end
#@   check-cores     calls on unrelated objects share no lines; transfers per op on 16 cores
#@   mutation        sampled small mistakes, one at a time, and whether the tests find them
#@                   (MUTATION_ARGS='--count N --seed S --minutes M')
#@   check-busted    each planted bug is found by the tests that must (BUSTED_ARGS=-v)
#@   check-purity    no system call, allocation or lock per op (PAWL_PURITY_OPS=)
#@   check-memory    memory stays bounded while a thread is stopped (PAWL_MEMORY_SECONDS=)
#@   check-teardown  ends, late threads, fork, exit, dlclose (PAWL_TEARDOWN_SECONDS=); fairness
#@   check-suspend   threads stopped at every instruction, others continue (PAWL_SUSPEND_SECONDS=)
#@   check-tools     the pawl command, as a user runs it, and the example of README.md
#@   check-python    the Python package, and its installation by pip (PYTEST_ARGS='-k fork')
#@   check-serve     protocol and operation of pawl serve, also with Triton's client from PyPI,
#@                   and its page in Debian's chromium, if that is installed
#@   soak-serve      all kinds of clients at once, and swaps of versions, for SECONDS=1800
#@   check-models    models of pawl serve beside onnxruntime and mxnet from PyPI
#@   check-mxnet     Apache MXNet from PyPI on its own engine and on pawl (bench-mxnet: times,
#@                   QUICK=1: in about one minute)
#@   check-headers   public headers alone, as C and as C++
#@   check-abi       programs of the first release run; what changed in the interface since then
#@   check-layers    no layer calls upward
#@   check-install   install, build users with pkg-config and CMake, uninstall
#@   check-coverage  which lines and branches the tests execute, and a list of the others
#@   distcheck       a tarball of the last commit: the same from another clone; builds, passes tests
#@   check-deb       Debian's packages of the last commit: build, lintian, install, use, purge
#@   check-walk      as root: README.md's commands in bare roots of Debian 12, in each order
#@                   (WALK=full: each to its end, as documented)
#@   check-tokens    words and primitives that may not occur; SPDX tags
#@   check-edges     each end of a memory-ordering edge has its partner
#@   check-docs      files, functions, links and numbers that the documents name, and a test
#@                   for each error that a manual page names
#@   check-sources   every source file is named in its folder's Makefile
#@   check-exports   every public function is exported and in debian/*.symbols, and nothing else
#@   check-kconfig   every symbol has a help text
#@   check-proof     the table of figures in proof.md is as proof-table writes it
#@   proof-table     write it, from the last make check-all of this folder
#@   ledger          CLASS=C10 SECONDS=600: a long run, and its line in tests/ledger.tsv
#@
#@ Configure (without, make takes configs/defconfig and follows what is installed; a .config that
#@ was made otherwise is never changed)
#@   menuconfig guiconfig oldconfig olddefconfig defconfig allnoconfig allyesconfig
#@   savedefconfig   write ./defconfig
#@   NAME.config     put configs/NAME.config on top of the configuration
#@
#@ Variables
#@   O=dir           build in there        V=1     show the commands
#@   CC=clang        another compiler      CFLAGS= LDFLAGS=  added to ours
#@   CHECK_BUILDS=   name=compiler[+fragment]...  of make check-all

endif
endif
.PHONY: $(PHONY)
