#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# forms.sh INCLUDE: the two forms of asynchronous callbacks do not mix: what is written for
# the one does not compile, or not link, as the other.  And code that is written as MXNet's own
# tests of its engine compiles without a warning, as C++11 to C++17, in both forms.
set -u
include=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
rc=0

# try yes|no NAME COMPILER...: whether $tmp/NAME compiles
try() {
	local want=$1 name=$2 got=no
	shift 2
	"$@" -Werror -fsyntax-only "-I$include/pawl/compat" "-I$include" "-I$PWD/include" "$tmp/$name" \
		>"$tmp/log" 2>&1 && got=yes
	if [ $got != "$want" ]; then
		echo "$* $name: compiles: $got, should be: $want"
		cat "$tmp/log"
		rc=1
	fi
}

cat >"$tmp/three.c" <<'EOF'
#include <mxnet/c_api.h>
static void body(void *run, void *on_complete, void *param) { (void)run; (void)on_complete; (void)param; }
int use(const void *ctx) { return MXEnginePushAsync(body, 0, 0, ctx, 0, 0, 0, 0, 0, 0, 0, 0); }
int use_nd(const void *ctx) { return MXEnginePushAsyncND(body, 0, 0, ctx, 0, 0, 0, 0, 0, 0, 0, 0); }
EOF
sed 's/void \*run, /void *run, void *on_start, /; s/(void)run;/(void)run; (void)on_start;/' "$tmp/three.c" >"$tmp/four.c"
cp "$tmp/three.c" "$tmp/three.cc"
cp "$tmp/four.c" "$tmp/four.cc"
cat >"$tmp/three_fn.cc" <<'EOF'
#include <mxnet/engine.h>
void use(mxnet::Engine *e)
{
	e->PushAsync([](mxnet::RunContext, mxnet::Engine::CallbackOnComplete done) { done(); },
		     mxnet::Context(), {}, {});
}
EOF
sed 's/RunContext, /RunContext, mxnet::Engine::CallbackOnStart, /' "$tmp/three_fn.cc" >"$tmp/four_fn.cc"

for source in three.c four.c three.cc four.cc three_fn.cc four_fn.cc; do
	case $source in
	*.cc) compiler="${CXX:-g++} -std=c++14" ;;
	*) compiler="${CC:-gcc} -std=c11" ;;
	esac
	three=yes four=no
	[ "${source#four}" = "$source" ] || three=no four=yes
	# shellcheck disable=SC2086 # a list of words
	try $three $source $compiler
	# shellcheck disable=SC2086
	try $four $source $compiler -DPAWL_MX_API=20000
done
# Two units of one program: their engines are different types, by name.
cat >"$tmp/a.cc" <<'EOF'
#include <mxnet/engine.h>
void give(mxnet::Engine *e);
int main() { give(nullptr); }
EOF
cat >"$tmp/b.cc" <<'EOF'
#include <mxnet/engine.h>
void give(mxnet::Engine *) {}
EOF
for apis in '10901 10901 yes' '10901 20000 no'; do
	read -r a b want <<<"$apis"
	got=no
	# a sanitized library is not what this is about: objects alone
	for x in "a $a" "b $b"; do
		read -r unit api <<<"$x"
		"${CXX:-g++}" -std=c++14 "-DPAWL_MX_API=$api" "-I$include/pawl/compat" "-I$include" \
			"-I$PWD/include" -c "$tmp/$unit.cc" -o "$tmp/$unit.o" || rc=1
	done
	undefined=$(nm "$tmp/a.o" | awk '$1 == "U" && /give/ { print $2 }')
	if nm "$tmp/b.o" | awk '{ print $3 }' | grep -qxF "$undefined"; then
		got=yes
	fi
	if [ $got != "$want" ]; then
		echo "units of form $a and $b link: $got, should be: $want"
		rc=1
	fi
done

# What MXNet's tests include and call, as they do.
cat >"$tmp/own.cc" <<'EOT'
#include <dmlc/logging.h>
#include <dmlc/thread_group.h>
#include <dmlc/omp.h>
#include <mxnet/c_api.h>
#include <mxnet/engine.h>
#include <mxnet/ndarray.h>
#include <dmlc/timer.h>
#include <mxnet/storage.h>
#include <memory>
#include <thread>
#include <vector>
#include <sys/wait.h>
#include <unistd.h>
#include "../src/engine/engine_impl.h"
#include "../../src/engine/openmp.h"
using namespace mxnet;
struct Mine { std::vector<int> list; };
#if MXNET_VERSION >= 20000
#define START Engine::CallbackOnStart on_start,
#define STARTED on_start()
static void AsyncFn(void *, void *, void *cb, void *) { (*static_cast<engine::CallbackOnComplete *>(cb))(); }
#else
#define START
#define STARTED (void)0
static void AsyncFn(void *, void *cb, void *) { (*static_cast<engine::CallbackOnComplete *>(cb))(); }
#endif
static void SyncFn(void *, void *) {}
static void Deleter(void *p) { delete static_cast<int *>(p); }
int main()
{
	std::vector<Engine *> engines{ engine::CreateNaiveEngine(), engine::CreateThreadedEnginePooled(),
				       engine::CreateThreadedEnginePerDevice(), Engine::Get() };
	std::vector<double> data(4, 1.0), *at = &data;
	double t = dmlc::GetTime();

	for (Engine *e : engines) {
		auto &&var = e->NewVariable();
		std::vector<Engine::OprHandle> oprs;
		std::vector<Engine::VarHandle> vars{ e->NewVariable() };
		auto func = [at](RunContext, START Engine::CallbackOnComplete cb) {
			STARTED;
			at->at(0) += 1;
			cb();
		};

		e->Stop();
		e->Start();
		e->PushAsync(func, Context::CPU(), vars, { var });
		e->PushSync([](RunContext ctx) { CHECK_EQ(ctx.ctx.dev_id, 0); }, Context{}, { var }, {},
			    FnProperty::kNormal, 0, "sync");
		oprs.push_back(e->NewOperator(func, { var }, {}));
		oprs.push_back(e->NewOperator([](RunContext, START Engine::CallbackOnComplete cb) {
			STARTED;
			cb();
		}, {}, { var }, FnProperty::kCopyFromGPU));
		for (auto &&o : oprs)
			e->Push(o, Context{});
		e->WaitForVar(var);
		e->WaitForAll();
		for (auto &&o : oprs)
			e->DeleteOperator(o);
		CHECK_EQ(var->version(), 2U);
		e->DeleteVariable([](RunContext) {}, Context{}, var);
		e->DeleteVariable(nullptr, Context{}, vars[0]);
		var = nullptr;
		e->WaitForAll();
		LOG(INFO) << "seconds " << dmlc::GetTime() - t;
	}
	for (int i = 0; i < 3; i++)
		delete engines[i];

	auto v = Engine::Get()->NewVariable();
	auto ctx = Context{};
	CHECK_EQ(MXEnginePushAsync(AsyncFn, new int(1), Deleter, &ctx, &v, 1, nullptr, 0), 0);
	CHECK_EQ(MXEnginePushAsync(AsyncFn, nullptr, nullptr, &ctx, nullptr, 0, &v, -1), -1);
	CHECK_EQ(MXEnginePushSync(SyncFn, nullptr, nullptr, &ctx, &v, -1, nullptr, 0), -1);

	std::vector<NDArray *> nds{ new NDArray(ctx), new NDArray(TShape({ 2, 3 }), ctx),
				    new NDArray({ 1 }, ctx), new NDArray(TShape(1, 1), Context::CPU(1)) };
	void **reads = reinterpret_cast<void **>(nds.data());
	CHECK_EQ(MXEnginePushAsyncND(AsyncFn, nullptr, nullptr, &ctx, reads, 2, reads + 2, 2), 0);
	CHECK_EQ(MXEnginePushSyncND(SyncFn, new int(1), Deleter, &ctx, reads, 4, nullptr, 0), 0);
	CHECK_EQ(MXEnginePushSyncND(SyncFn, nullptr, nullptr, &ctx, nullptr, 0, reads, -1), -1);
	for (NDArray *nd : nds)
		delete nd;

	auto ready = std::make_shared<dmlc::ManualEvent>();
	dmlc::ThreadGroup threads;
	threads.create("one", false, [](std::shared_ptr<dmlc::ManualEvent> r) -> int {
		r->wait();
		omp_set_num_threads(1);
		return 0;
	}, ready);
	ready->signal();
	threads.join_all();

	/* an object of a thread is kept after its thread */
	std::vector<int *> kept(3);
	for (int i = 0; i < 3; i++)
		std::thread([&kept, i] {
			dmlc::ThreadLocalStore<Mine>::Get()->list.assign(4, i);
			kept[i] = dmlc::BeginPtr(dmlc::ThreadLocalStore<Mine>::Get()->list);
		}).join();
	for (int i = 0; i < 3; i++)
		CHECK_EQ(kept[i][3], i);
	CHECK(!dmlc::BeginPtr(dmlc::ThreadLocalStore<Mine>::Get()->list));

	Storage::Handle memory = Storage::Get()->Alloc(100, ctx);
	static_cast<char *>(memory.dptr)[99] = 1;
	Storage::Get()->DirectFree(memory);
	CHECK_EQ(engine::kMaxNumGPUs, 16U);

	/* in the child of a fork there is no OpenMP */
	engine::OpenMP *openmp = engine::OpenMP::Get();
	openmp->set_enabled(true);
	CHECK_GE(openmp->GetRecommendedOMPThreadCount(), 1);
	const pid_t pid = fork();
	if (!pid)
		_exit(openmp->enabled() || openmp->GetRecommendedOMPThreadCount() != 1);
	int status = -1;
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	CHECK(openmp->enabled());

	/* it outlives what holds it, and is stopped when arrays still go */
	static std::unique_ptr<NDArray> last;
	last.reset(new NDArray(Context::CPU()));
	Engine::_GetSharedRef()->Stop();
	return 0;
}
EOT
# MXNet's own paths are relative to two of its folders.
own_includes=("-I$include/pawl/compat" "-I$include/pawl/compat/src" "-I$include/pawl/compat/src/engine"
	"-I$include" "-I$PWD/include")
cat >"$tmp/util.cc" <<'EOT'
#include "../include/test_util.h"
TEST(Util, has_memory) { EXPECT_NE(mxnet::Storage::Get()->Alloc(1, mxnet::Context()).dptr, nullptr); }
EOT
if echo '#include <gtest/gtest.h>' | "${CXX:-g++}" -x c++ -std=c++14 -fsyntax-only - 2>/dev/null; then
	"${CXX:-g++}" -std=c++14 -Wall -Wextra -Werror -fsyntax-only "${own_includes[@]}" "$tmp/util.cc" || rc=1
fi
for how in '10901 g++ 17 -fopenmp' '20000 clang++ 14'; do
	read -r api cxx std omp <<<"$how"
	command -v "$cxx" >/dev/null || continue
	# shellcheck disable=SC2086 # no word, or one
	"$cxx" -std=c++"$std" -Wall -Wextra -Wshadow -Werror -fsyntax-only $omp \
		"-DPAWL_MX_API=$api" "${own_includes[@]}" "$tmp/own.cc" || rc=1
done
# and as C++11 it runs, if the library is a plain one
for api in 10901 20000; do
	if ! nm -D libpawl.so | grep -qE '__[at]san_'; then
		${CXX:-g++} -std=c++11 -Wall -Wextra -Wshadow -Werror -pthread "-DPAWL_MX_API=$api" \
			"${own_includes[@]}" -o "$tmp/own" "$tmp/own.cc" -L. -lpawl_mx -lpawl &&
			LD_LIBRARY_PATH=$PWD timeout 60 "$tmp/own" 2>"$tmp/log" || { cat "$tmp/log"; echo "form $api: it fails"; rc=1; }
	fi
done
exit $rc
